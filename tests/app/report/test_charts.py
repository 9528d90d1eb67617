"""Drawing idioms: small, deterministic SVG that carries what it was given, and nothing global that changes."""

import re
import warnings
from itertools import combinations
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from other_process import digest, digest_elsewhere
from scipy.integrate import trapezoid

from equipoise.app.report import charts
from equipoise.app.report.charts import INK, STYLE, TERMS

SVG = "{http://www.w3.org/2000/svg}"


def drawn(draw, height=2.0, name="test") -> ElementTree.Element:
    return ElementTree.fromstring(charts.svg(name, height, draw))


def words(root) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def a_line(canvas):
    canvas.subplots().plot([0, 1, 2], [0.0, 1.0, 0.5], color=INK)


def test_the_same_drawing_gives_the_same_text_in_every_process():
    assert digest(charts.svg("one", 2.0, a_line)) == digest_elsewhere(__file__, 'charts.svg("one", 2.0, a_line)')


def test_text_and_axes_take_the_colour_of_the_page():
    text = charts.svg("one", 2.0, a_line)
    assert text.count(INK) == 1  # for a drawing that stands alone
    assert "currentColor" in text
    assert "#000000" not in text


def test_drawing_changes_no_global_setting_and_opens_no_window():
    before = dict(mpl.rcParams)
    charts.svg("one", 2.0, a_line)
    assert dict(mpl.rcParams) == before


def test_coordinates_are_shortened_but_not_moved(monkeypatch):
    def wave(canvas):
        x = np.linspace(0, 1, 50)
        canvas.subplots().plot(x, np.sin(20 * x))

    short = charts.svg("one", 2.0, wave)
    monkeypatch.setattr(charts, "_shorten", lambda match: match[0])
    long = charts.svg("one", 2.0, wave)
    assert len(short) < 0.95 * len(long)
    for here, there in zip(paths(short), paths(long), strict=True):
        numbers = [np.array([float(x) for x in re.findall(r"-?\d+\.?\d*", d)]) for d in (here, there)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.0051)


def paths(svg: str) -> list[str]:
    return [element.attrib["d"] for element in ElementTree.fromstring(svg).iter(f"{SVG}path")]


@pytest.mark.parametrize("name", ["$x$ [kg]", "电压 [V]", "a\x07\nb", r"\frac{1}{2} & <b>", "_hidden"])
def test_names_are_shown_as_they_are_whatever_they_are(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = drawn(lambda canvas: canvas.subplots().set_title(charts.label(name)))
    assert charts.label(name) in words(root)


def test_long_names_are_cut_and_made_printable():
    assert charts.label("abcdefghijklmnop", 10) == "abcd…lmnop"
    assert charts.label("abcdefghij", 10) == "abcdefghij"
    assert charts.label("a\x07\n  b") == "a b"


# --- Layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "sizes"), [(0, []), (1, [1]), (4, [4]), (5, [3, 2]), (30, [4] * 6 + [3] * 2)])
def test_groups_hold_all_in_order_and_are_even(n, sizes):
    groups = list(charts.groups(range(n), 4))
    assert [len(group) for group in groups] == sizes
    assert [item for group in groups for item in group] == list(range(n))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_there_are_as_many_panels_as_were_asked_for(n):
    canvas = Figure()
    panels = charts.panels(canvas, n)
    assert panels == canvas.axes
    assert len(panels) == n


@pytest.mark.parametrize(
    "values", [np.array([1.0, 2.0, np.nan]), np.array([5.0]), np.zeros(3), np.array([1e9, 1e9]), np.array([np.nan])]
)
def test_limits_hold_all_values_and_have_a_width(values):
    low, high = charts.limits(values)
    assert low < high
    assert np.all((low < values) & (values < high) | np.isnan(values))


def test_a_logarithmic_axis_has_labels_without_markup():
    def draw(canvas):
        ax = canvas.subplots()
        ax.plot([1e-4, 1e3], [1, 2])
        ax.set_xscale("log")
        charts.powers_of_ten(ax.xaxis)

    assert {"10⁻⁴", "0.1", "1", "100", "10³"} <= set(words(drawn(draw)))


# --- Marks ------------------------------------------------------------------------------------------------------------


def test_segments_are_one_path_with_a_part_for_each():
    n = 300
    y = np.linspace(0, 1, n)

    def draw(canvas):
        ax = canvas.subplots()
        charts.segments(ax, (y, y), (y - 0.1, y + 0.1), color="#123456")
        ax.set(xlim=(0, 1), ylim=(-0.5, 1.5))

    (path,) = [e for e in drawn(draw).iter(f"{SVG}path") if "#123456" in e.attrib.get("style", "")]
    ends = np.array([float(x) for x in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]).reshape(n, 2, 2)
    assert path.attrib["d"].count("M") == n
    assert ends[:, 0, 0] == pytest.approx(ends[:, 1, 0])  # upright
    assert np.diff(ends[:, 0, 0]) == pytest.approx(np.full(n - 1, np.diff(ends[:, 0, 0]).mean()), abs=0.02)
    height = ends[:, 0, 1] - ends[:, 1, 1]
    assert height == pytest.approx(np.full(n, height[0]), abs=0.02)
    assert len(ElementTree.tostring(path)) < 35 * n


def test_dots_are_round_and_lines_without_length():
    def draw(canvas):
        ax = canvas.subplots()
        charts.dots(ax, np.array([0.2, 0.8]), np.array([0.3, 0.4]), color="#123456")

    (path,) = [e for e in drawn(draw).iter(f"{SVG}path") if "#123456" in e.attrib.get("style", "")]
    x = [float(x) for x in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
    assert x[0:2] == x[2:4]
    assert x[4:6] == x[6:8]
    assert "stroke-linecap: round" in path.attrib["style"]


def test_the_density_of_a_tolerance_peaks_at_its_median_and_has_its_width():
    tolerance, density = charts.log_normal(-6.0, 0.5)
    rho = 2 * np.log(tolerance)
    density = density / trapezoid(density, rho)
    mean = trapezoid(rho * density, rho)
    assert tolerance[density.argmax()] == pytest.approx(np.exp(-3.0))
    assert mean == pytest.approx(-6.0)
    assert trapezoid((rho - mean) ** 2 * density, rho) == pytest.approx(0.25, rel=0.01)


def test_stacked_terms_lie_end_to_end_and_the_diamond_is_their_sum():
    found = []
    shares = {"aleatoric": [0.6, 0.5], "epistemic": [0.4, 0.5], "interaction": [-0.1, 0.0], "reduction": [-0.3, -0.2]}

    def draw(canvas):
        ax = canvas.subplots()
        charts.stacked_terms(ax, ["first", "second"], shares)
        found.append(ax)

    drawn(draw)
    (ax,) = found
    bars = {bar.get_label(): [(patch.get_x(), patch.get_width()) for patch in bar] for bar in ax.containers}
    assert [end for ends in bars["epistemic"] for end in ends] == pytest.approx([0.6, 0.4, 0.5, 0.5])
    assert [end for ends in bars["reduction"] for end in ends] == pytest.approx([-0.1, -0.3, 0.0, -0.2])
    (total,) = [line for line in ax.lines if line.get_label() == "total"]
    assert total.get_xdata() == pytest.approx([0.6, 0.8])
    assert total.get_ydata()[0] > total.get_ydata()[1]  # the first on top
    assert [label.get_text() for label in ax.get_yticklabels()] == ["first", "second"]


def luminance(color: str) -> float:
    """Relative luminance of the accessibility guidelines of the W3C."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("color", [charts.BLUE, charts.ORANGE, charts.GREEN])
@pytest.mark.parametrize("paper", ["#ffffff", "#15181c"])
def test_colours_stand_out_on_light_and_on_dark_pages(color, paper):
    """3 : 1, as the guidelines ask of graphics."""
    light, dark = sorted((luminance(color), luminance(paper)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 3


@pytest.mark.parametrize("deficiency", ["protanopia", "deuteranopia"])
def test_hues_stay_apart_for_the_colour_blind(deficiency):
    """By the projection of Viénot, Brettel and Mollon (1999) on linear RGB; 40 of 255 in some channel."""
    for colors in combinations((charts.BLUE, charts.ORANGE, charts.GREEN), 2):
        first, second = (seen(color, deficiency) for color in colors)
        assert np.abs(first - second).max() > 40, colors


def seen(color: str, deficiency: str) -> np.ndarray:
    rgb = (np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255) ** 2.2
    to_lms = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    lost = {
        "protanopia": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
        "deuteranopia": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
    }
    linear = np.linalg.inv(to_lms) @ lost[deficiency] @ to_lms @ rgb
    return 255 * linear.clip(0, 1) ** (1 / 2.2)


def test_every_setting_of_the_style_is_one_of_matplotlibs():
    assert set(STYLE) <= set(mpl.rcParams)
    assert {sign for sign, _ in TERMS.values()} == {1, -1}
