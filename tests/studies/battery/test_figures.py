"""The figures of the battery study: valid SVG of modest size, the same every time, that shows what the arrays hold."""

import re
from functools import cache
from itertools import product
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from handmade_arrays import made_up_arrays
from handmade_results import DRAWS, example
from scipy import stats

from equipoise import report
from equipoise.rivals.cases.battery import KEYS
from studies.battery import figures
from studies.battery.results import MODELS, NAMES, WITH_BALANCES

LARGEST = 150_000  # bytes


ONE, THREE = [example()], [example(seed) for seed in range(3)]
FROM_ARRAYS = {
    figures.violations: ("violations-voltage", "violations-heat"),
    figures.calibration: ("calibration-voltages", "calibration-heats"),
    figures.curves: ("curves-V", "curves-Q_rev"),
    figures.training: ("training",),
}
FROM_RESULTS = {
    figures.pit: ("pit",),
    figures.ledgers: tuple(f"ledger-{model}" for model in MODELS),
    figures.noise: ("noise",),
    figures.tolerances: ("tolerance-voltage", "tolerance-heat"),
}
DRAW = {name: draw for draw, names in (FROM_ARRAYS | FROM_RESULTS).items() for name in names}


@cache
def arrays():
    return made_up_arrays()


@cache
def drawn(draw):
    """What a function draws, once for all tests."""
    return draw(arrays() if draw in FROM_ARRAYS else THREE)


def figure_named(name):
    return drawn(DRAW[name])[name]


def test_names_are_as_promised():
    assert all(tuple(drawn(draw)) == names for draw, names in (FROM_ARRAYS | FROM_RESULTS).items())


def words(svg: str) -> list[str]:
    """All text in a drawing."""
    return [
        "".join(element.itertext()) for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")
    ]


@pytest.mark.parametrize("name", DRAW)
def test_a_figure_is_small_valid_svg_with_real_text_and_nothing_of_its_time(name):
    figure = figure_named(name)
    root = ElementTree.fromstring(figure.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(figure.svg.encode()) < LARGEST
    assert len(words(figure.svg)) > 5
    assert not re.search(r"<\?xml|DOCTYPE|dc:date|matplotlib v", figure.svg)
    assert figure.caption.endswith(".")
    assert len(figure.alt) > 40


@pytest.mark.parametrize("name", DRAW)
def test_axes_take_the_colour_of_the_text_around_them(name):
    assert "currentColor" in figure_named(name).svg
    assert figure_named(name).svg.count(report.INK) == 1  # for a drawing that stands alone
    assert "#000000" not in figure_named(name).svg


def test_the_same_numbers_give_the_same_bytes():
    assert figures.tolerances(THREE) == drawn(figures.tolerances)


def test_drawing_changes_no_global_setting():
    before = dict(mpl.rcParams)
    figures.noise(ONE)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", DRAW)
def test_figures_of_models_name_them(name):
    text = " ".join(words(figure_named(name).svg))
    of_balances = name.startswith(("tolerance", "curves"))
    named = [NAMES[model] for model in (WITH_BALANCES if of_balances else MODELS)]
    one = {f"ledger-{model}": [label] for model, label in NAMES.items()}
    assert all(label in text for label in one.get(name, named))


# --- What they show ---------------------------------------------------------------------------------------------------


def test_the_smoothed_density_is_one_and_has_the_moments_of_the_sizes():
    """log10 |z|, z standard normal: mean −0.2758 and standard deviation 0.4823, by numerical integration."""
    size, density = figures.log_density(arrays()["bnn"], "violation_of_draws", "heat")
    x = np.log10(size / DRAWS["bnn"][1])
    step = x[1] - x[0]
    z = np.linspace(1e-6, 8, 400_001)
    weight = np.exp(-0.5 * z**2)
    mean = np.average(np.log10(z), weights=weight)
    std = np.sqrt(np.average((np.log10(z) - mean) ** 2, weights=weight) + figures.BANDWIDTH**2)
    assert density.sum() * step == pytest.approx(1, abs=0.005)
    assert (x * density).sum() * step == pytest.approx(mean, abs=0.015)  # 20,000 draws: 4 standard errors are 0.014
    assert np.sqrt(((x - mean) ** 2 * density).sum() * step) == pytest.approx(std, abs=0.02)


def test_sizes_outside_the_edges_take_from_the_density():
    given = arrays()["bnn"]
    counts = given["violation_of_means"].copy()
    counts[0, 0] = counts[0].sum()  # as many exact zeros again
    size, density = figures.log_density(given | {"violation_of_means": counts}, "violation_of_means", "voltage")
    assert density.sum() * np.log10(size[1] / size[0]) == pytest.approx(0.5, abs=0.005)


def test_a_model_whose_draws_all_obey_exactly_is_drawn_as_nothing():
    counts = np.zeros_like(arrays()["bnn"]["violation_of_means"])
    counts[:, 0] = 100
    _, density = figures.log_density(arrays()["bnn"] | {"violation_of_means": counts}, "violation_of_means", "voltage")
    assert not density.any()


def test_the_density_of_violations_is_that_of_a_half_normal_distribution():
    """Per unit of the violation, not per decade: |z|, z ~ N(0, 610²), has the density 2 φ(z / 610) / 610."""
    size, density = figures.violation_density(arrays()["bnn"], "violation_of_draws", "heat")
    std = DRAWS["bnn"][1]
    inside = (size > 0.1 * std) & (size < 1.5 * std)  # where 20,000 draws and smoothing leave 5 %
    expected = stats.halfnorm(scale=std).pdf(size)
    assert inside.sum() > 20
    assert np.abs(density / expected - 1)[inside].max() < 0.15
    assert (np.gradient(size) * density).sum() == pytest.approx(1.0, abs=0.01)


def test_alt_texts_tell_the_median_violations():
    """The median of |z| is 0.674 standard deviations, here of 610 W/m³."""
    assert "draws: BNN 4e+02 W/m³" in figure_named("violations-heat").alt


def test_discharges_are_taken_from_low_to_high_and_their_rows_by_state_of_charge():
    x = arrays()["equipoise"]["x_test"]
    chosen = dict(figures.selected_discharges(x[np.random.default_rng(0).permutation(len(x))]))
    assert list(chosen) == ["0.5 A, 273 K", "2 A, 298 K", "3 A, 318 K"]
    for name, rows in figures.selected_discharges(x):
        assert len(rows) == 100
        assert {(f"{i:g} A, {t:g} K") for i, _, t in x[rows]} == {name}
        assert np.all(np.diff(x[rows, 1]) > 0)


def test_a_single_discharge_with_many_rows_is_thinned():
    x = np.column_stack([np.ones(700), np.linspace(0.9, 0.1, 700), np.full(700, 298.0)])
    ((name, rows),) = figures.selected_discharges(x)
    assert name == "1 A, 298 K"
    assert len(rows) <= figures.MOST_POINTS
    assert np.ptp(x[rows, 1]) > 0.79


def test_shares_of_the_ledger_add_up_to_its_total():
    for model, key in product(MODELS, KEYS):
        terms = getattr(example().models, model).ledger[key]
        added = sum(max(getattr(terms, name), 0) for name, (sign, _) in report.TERMS.items() if sign > 0)
        shares = sum(figures._share(ONE, model, key, name) for name in report.TERMS)
        assert shares == pytest.approx(terms.total / added)


def test_a_prior_is_drawn_only_if_the_recorded_divergence_is_from_it():
    text = " ".join(words(figure_named("tolerance-heat").svg))
    assert "Paper's method, prior" in text
    assert "Equipoise, prior" in text
    assert figures._prior(ONE[0], "paper", "heat") == (-2.0, 1.0)
    tree = example().model_dump()
    tree["tolerances"]["paper"]["heat"]["kl"] += 1.0
    assert figures._prior(type(ONE[0]).model_validate(tree), "paper", "heat") is None


def test_held_out_losses_are_shown_above_the_best_and_without_the_first_phase():
    given = {
        "history_phase": np.array(["means", "means", "elbo", "elbo", "noise", "noise"]),
        "history_validation": np.array([0.1, 0.05, 3.0, np.nan, 1.0, 1.5]),
    }
    epoch, excess = figures._held_out_excess(given)
    assert epoch.tolist() == [2, 4, 5]
    assert excess == pytest.approx([2.0, 1e-3, 0.5])
    never = given | {"history_validation": np.full(6, np.nan)}
    assert len(figures._held_out_excess(never)[0]) == 0
