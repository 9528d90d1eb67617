"""The report on a model: its numbers against the model's own, its structure, and its looks in a real browser."""

import html as escaping
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from elements import Elements
from handmade_findings import (
    BALANCES,
    OUTPUTS,
    SHORT,
    balanced,
    made_up,
    on_one_worker,
    table,
    tolerance,
    without_balances,
)
from outside import LaplaceNoise, LowRank
from PIL import Image
from sklearn.metrics import r2_score

import equipoise as eq
from equipoise.app.report import charts, findings, number, render, report
from equipoise.app.report.formatting import SPACE

pytestmark = [pytest.mark.usefixtures("long_training"), on_one_worker]
LARGEST = 2_000_000  # bytes
JOB = 'data = "flows.csv"\n[balances]\nsum = "total = a + b"  # <kept>\n'
COMMANDS = ["equipoise fit 'my flows.toml' -o m.safetensors --seed 3", "equipoise report m.safetensors flows.csv"]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SECTIONS = [
    "Outputs at a glance",
    "Predicted against measured",
    "Can the intervals be relied on?",
    "Balances before and after",
    "How far each balance can be trusted",
    "Where the uncertainty comes from",
    "Which balance bought how much certainty",
    "Worst rows",
    "Training",
    "How to cite and reproduce",
]


@cache
def whole_page():
    found = findings(balanced(), *table(), baseline=without_balances())
    return report(
        found, title="Flows & <balances>", job=JOB, commands=COMMANDS, notes={"data": "flows.csv", "rows": 120}
    )


@cache
def whole_html() -> str:
    return render(whole_page())


def rows_of(title: str, which: int = 0, page=None) -> dict[tuple[str, ...], list[str]]:
    """Rows of a table of a section, without hard spaces, by their first cell, and the second if they need it."""
    (section,) = [section for section in (page or whole_page()).sections if section.title == title]
    rows = [[cell.replace(SPACE, " ") for cell in row] for row in section.tables[which].rows]
    several = len({row[0] for row in rows}) < len(rows)
    return {tuple(row[: 1 + several]): row[1 + several :] for row in rows}


# --- Numbers ----------------------------------------------------------------------------------------------------------


def test_scores_in_the_page_are_those_of_the_model():
    X, Y = table()
    p = balanced().predict_distribution(X).measured()
    lower, upper = p.interval(0.95)
    for name, (n, r2, rmse, expected, bias, coverage, other_r2, _) in (
        (key[0], row) for key, row in rows_of("Outputs at a glance").items()
    ):
        y = Y[name].dropna()
        mean, other = p.mean[name][y.index], without_balances().predict(X[["x", "z"]])[name][y.index]
        inside = np.mean((lower[name][y.index] <= y) & (y <= upper[name][y.index]))
        assert n == str(len(y))
        assert (r2, other_r2) == (number(r2_score(y, mean)), number(r2_score(y, other)))
        assert rmse == number(np.sqrt(np.mean((y - mean) ** 2))) + " kg/s"
        assert expected == number(np.sqrt(np.mean(p.var[name][y.index]))) + " kg/s"
        assert bias == number(np.mean(mean - y)) + " kg/s"
        assert coverage == number(100 * inside) + " %"


@pytest.mark.parametrize("parts", [{"likelihood": LaplaceNoise()}, {"posterior": LowRank}], ids=["noise", "weights"])
def test_a_model_with_parts_from_outside_has_its_own_scores_in_the_page(parts):
    X, Y = table()
    model = eq.ConstrainedBNNRegressor(BALANCES, **SHORT | parts).fit(X, Y)
    page = report(findings(model, X, Y), title="Outside")
    assert all(escaping.escape(section.title) in render(page) for section in page.sections)
    p = model.predict_distribution(X).measured()
    lower, upper = p.interval(0.95)
    rows = rows_of("Outputs at a glance", page=page)
    assert [name for (name,) in rows] == OUTPUTS
    for (name,), row in rows.items():
        y = Y[name].dropna()
        inside = np.mean((lower[name][y.index] <= y) & (y <= upper[name][y.index]))
        assert row[2] == number(np.sqrt(np.mean((y - p.mean[name][y.index]) ** 2))) + " kg/s"
        assert row[3] == number(np.sqrt(np.mean(p.var[name][y.index]))) + " kg/s"
        assert row[5] == number(100 * inside) + " %"


def test_balances_in_the_page_are_those_of_data_and_draws():
    X, Y = table()
    draws = balanced().predict_distribution(X).sample(32, joint=True)
    z = {"measured rows": Y.to_numpy(), "draws, after": draws}
    rows = rows_of("Balances before and after")
    for kind, y in z.items():
        residual = (y[..., 2] - y[..., 0] - y[..., 1]).ravel()
        residual = residual[np.isfinite(residual)]
        most, rms = rows["sum", kind][:2]
        assert most == number(np.percentile(np.abs(residual), 95)) + " kg/s"
        assert rms == number(np.sqrt(np.mean(residual**2))) + " kg/s"
    assert f"by no more than {rows['sum', 'measured rows'][0]}" in whole_page().lead.replace(SPACE, " ")
    assert ("split", "draws of the model without balances") in rows


def test_tolerances_in_the_page_are_those_of_the_model():
    rows = rows_of("How far each balance can be trusted")
    for name, line in balanced().tolerances_.iterrows():
        tolerance, interval, noise, kl, verdict, _ = rows[(str(name),)]
        assert tolerance == f"{number(line.tol_std)} kg/s"
        assert interval == f"{number(line.tol_std_lower)} to {number(line.tol_std_upper)}"
        assert (noise, kl, verdict) == (f"{number(line.noise_std)} kg/s", number(line.kl), line.verdict)
    sensors = rows_of("How far each balance can be trusted", 1)
    for name, line in balanced().sensor_std_.iterrows():
        assert sensors[(str(name),)][::2] == [f"{number(line['std'])} kg/s", line.kind]


def test_the_ledger_in_the_page_adds_up_and_ends_at_the_variance():
    p = balanced().predict_distribution(table()[0]).measured()
    for (name,), (std, *shares) in rows_of("Where the uncertainty comes from").items():
        values = [float(share.rstrip(" %").replace("−", "-").replace("×10", "e").translate(PLAIN)) for share in shares]
        assert std == f"{number(np.sqrt(p.var[name].mean()))} kg/s"
        assert sum(value for value in values[:-1] if value > 0) == pytest.approx(100, abs=0.5)
        assert sum(values[:-1]) == pytest.approx(values[-1], abs=0.5)


PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def test_certainty_in_the_page_is_that_before_and_after():
    p = balanced().predict_distribution(table()[0])
    ledger = p.ledger()
    for (name,), (before, after, _, lost) in rows_of("Which balance bought how much certainty").items():
        j = OUTPUTS.index(name)
        assert after == f"{number(np.sqrt(p.var[name].mean()))} kg/s"
        var = ledger.aleatoric[:, j].mean() + ledger.epistemic[:, j].mean()
        assert before == f"{number(np.sqrt(var))} kg/s"
        shares = ledger.lost_without[:, :, j].mean(1) / var
        assert f"{balanced().constraint_.names[shares.argmax()]} {number(100 * shares.max())} %" in lost


def test_worst_rows_in_the_page_are_found_in_the_table():
    X, Y = table()
    p = balanced().predict_distribution(X).measured()
    z = ((Y - p.mean) / p.std).abs()
    worst = int(z.max(axis=1).to_numpy().argmax())
    rows = rows_of("Worst rows")
    first = rows[(str(worst + 1),)]
    assert first[0] == z.iloc[worst].idxmax()
    assert first[3].startswith(number(float(((Y - p.mean) / p.std).loc[worst, first[0]]), 2))
    assert first[4:] == [number(value, 4) for value in X.iloc[worst]]


# --- Structure --------------------------------------------------------------------------------------------------------


def test_the_page_is_small_and_well_formed_and_loads_nothing():
    elements = Elements(whole_html())  # which fails if tags are not closed in order
    assert len(whole_html().encode()) < LARGEST
    assert not re.search(r"https?:|@import|<script", whole_html())
    assert elements.values("src") == []
    assert all(target.startswith("#") for target in elements.values("href"))
    ids = elements.values("id")
    assert len(ids) == len(set(ids))


def test_the_page_has_all_its_sections_and_each_can_be_reached():
    assert [section.title for section in whole_page().sections] == SECTIONS
    links = [target for target in Elements(whole_html()).values("href") if target.startswith("#section")]
    assert links == [f"#section-{i}" for i in range(1, len(SECTIONS) + 1)]


def test_every_drawing_has_a_text_alternative_with_numbers():
    drawings = [attributes for tag, attributes in Elements(whole_html()).found if tag == "svg"]
    assert len(drawings) > 8
    assert all(len(re.findall(r"\d", drawing["aria-label"])) > 3 for drawing in drawings)


def test_every_drawing_takes_the_colours_of_a_dark_page():
    assert "prefers-color-scheme: dark" in whole_html()
    drawings = re.findall(r"<svg.*?</svg>", whole_html(), re.DOTALL)
    assert all("currentColor" in drawing and "#1c2126" not in drawing for drawing in drawings)


def test_it_can_be_done_again():
    text = Elements(whole_html()).text
    assert JOB.strip() in text
    assert "To do it again, with the job file below where it finds its table" in text
    assert "\n".join(COMMANDS) in text
    assert f"version = {{{version('equipoise')}}}" in text
    assert "Learning with Embedded Linear Equality Constraints" in text
    facts = rows_of("How to cite and reproduce")
    assert facts[("data",)] == ["flows.csv"]
    assert facts[("seed in use",)] == [str(balanced().seed_)]
    assert ("torch",) in facts
    settings = rows_of("How to cite and reproduce", 1)
    assert settings[("random_state",)] == ["0"]
    assert settings[("training: batch_size",)] == ["128"]
    assert settings[("training: max_epochs",)] == ["40"]  # that of the model, not of its plan


# --- Other models -----------------------------------------------------------------------------------------------------


def test_a_plain_model_with_few_rows_and_a_constant_output_is_reported():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (20, 1))
    Y = np.hstack([np.sin(x), np.full_like(x, 7.0), x**2]) + np.array([0.1, 0, 0.1]) * rng.normal(size=(20, 3))
    model = eq.ConstrainedBNNRegressor(**SHORT).fit(x, Y)
    Y[:, 2] = np.nan
    page = report(findings(model, x, Y), title="Few")
    assert [section.title for section in page.sections] == [SECTIONS[i] for i in (0, 1, 2, 5, 7, 8, 9)]
    assert "“y1” did not vary" in page.lead
    assert "“y2” was not measured" in page.lead
    text = Elements(render(page)).text
    assert "nan" not in text
    assert "To do it again" not in text  # as nobody said how


@pytest.fixture
def drawn_once(monkeypatch):
    """The first drawing of each kind, the largest one, stands for all others of its kind."""
    kinds, svg = {}, charts.svg

    def drawn(name, height, draw):
        kind = name.rstrip("0123456789")
        if kind not in kinds:
            kinds[kind] = svg(name, height, draw)
        return kinds[kind]

    monkeypatch.setattr(charts, "svg", drawn)


@pytest.mark.usefixtures("drawn_once")
def test_thirty_outputs_stay_below_two_megabytes():
    names = tuple(f"Mass flow of stream number {j} through the plant [kg/s]" for j in range(30))
    html = render(report(made_up(names), title="Many"))
    assert len(html.encode()) < LARGEST
    drawn = " ".join(re.findall(r'aria-label="([^"]*)"', html))
    assert all(drawn.count(f"number {j} through") >= 3 for j in range(30))


@pytest.fixture
def undrawn(monkeypatch):
    """Pages with empty drawings, which take no time."""
    monkeypatch.setattr(charts, "svg", lambda name, height, draw: '<svg xmlns="http://www.w3.org/2000/svg"/>')


@pytest.mark.usefixtures("undrawn")
def test_remarks_tell_the_learned_offset():
    page = report(made_up(("a",), tolerances=(tolerance(offset=0.5, offset_std=0.1, note="biased"),)), title="x")
    (section,) = [section for section in page.sections if section.title == SECTIONS[4]]
    assert section.tables[0].rows[0][-1] == "biased; offset 0.50 ± 0.10 kg/s"


@pytest.mark.usefixtures("undrawn")
def test_more_inputs_than_fit_are_counted():
    outlier = replace(made_up().outliers.worst[0], x=tuple(range(20)))
    f = made_up(inputs=tuple(f"x{j}" for j in range(20)))
    page = report(replace(f, outliers=replace(f.outliers, worst=(outlier,))), title="x")
    (section,) = [section for section in page.sections if section.title == "Worst rows"]
    assert len(section.tables[0].header) == 5 + 12
    assert section.notes == ["8 more inputs not shown."]


@pytest.mark.usefixtures("undrawn")
def test_without_a_job_file_none_is_shown():
    listings = report(made_up(("a",)), title="x", job=" \n").sections[-1].listings
    assert [listing.caption for listing in listings] == ["To cite"]


# --- In a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
def test_the_page_fits_a_phone_and_is_not_blank_light_and_dark(tmp_path):
    """In a frame of 390 pixels, the width of many phones; the frame's page tells its own width in its title."""
    frame = escaping.escape(whole_html(), quote=True)
    (tmp_path / "phone.html").write_text(
        f'<!doctype html><body style="margin: 0"><iframe id="phone" width="390" height="4000" style="border: 0" '
        f'srcdoc="{frame}"></iframe><script>phone.onload = () => document.title = "width " + '
        "phone.contentDocument.documentElement.scrollWidth</script>",
        encoding="utf-8",
    )
    dom = browse(tmp_path, "--dump-dom")
    assert re.findall(r"<title>(width \d+)</title>", dom)[:1] == ["width 390"]
    brightness = {}
    for scheme, setting in {"light": 1, "dark": 0}.items():
        shot = tmp_path / f"{scheme}.png"
        browse(tmp_path, f"--screenshot={shot}", f"--blink-settings=preferredColorScheme={setting}")
        pixels = np.asarray(Image.open(shot).convert("L"), dtype=float)[:, :390]
        assert pixels.std() > 15  # text and drawings, not one colour
        brightness[scheme] = np.median(pixels)
    assert brightness["light"] > 240
    assert brightness["dark"] < 40


def browse(folder: Path, *options: str) -> str:
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--window-size=500,4000", "--hide-scrollbars", *options, (folder / "phone.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout  # type: ignore[arg-type]
