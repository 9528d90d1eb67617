"""With a model: what `model.reconcile` says of every row, from the columns that are there."""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from equipoise.app.commands import main, measured_table, reconcilers
from equipoise.app.report import charts
from equipoise.artifact import model_file as artifact

STORED = Path(__file__).parents[2] / "models" / "format_1.safetensors"  # a column that splits a feed
X, OUTPUTS = ["feed [kg/s]", "reflux", "purge [kg/s]"], ["top [kg/s]", "bottom [kg/s]", "duty [kW]"]
Y, ROWS, LYING = [*OUTPUTS, "cooling [kW]"], 40, 30
LINE = ["reconcile", "column.toml", "column.csv", "-o", "out.csv", "--model"]

MODEL_JOB = """\
data = "column.csv"
inputs = ["feed [kg/s]", "reflux"]
known = ["purge [kg/s]"]
outputs = ["top [kg/s]", "bottom [kg/s]", "duty [kW]", "cooling [kW]"]
[balances]
mass = "feed = top + bottom + purge"
energy = "cooling = duty + 0.5"
[tolerances]
mass = 0
"""
JOB = MODEL_JOB.replace("[tolerances]", "[sensors]\ntop = 0.02\n[tolerances]")


def column() -> pd.DataFrame:
    """New rows without one output, with a gap, and with a meter that lies in the last ten."""
    rng = np.random.default_rng(3)
    feed, reflux, purge = rng.uniform([5, 1, 0], [9, 3, 0.5], (ROWS, 3)).T
    top = feed * (0.3 + 0.1 * np.tanh(reflux - 2))
    true = np.column_stack([top, feed - top - purge, 2.0 * reflux * top])
    table = pd.DataFrame(true + rng.normal(0, [0.02, 0.02, 0.1], true.shape), columns=OUTPUTS)
    table.loc[5, "bottom [kg/s]"] = np.nan
    table.loc[LYING:, "top [kg/s]"] += 1.0
    table[X] = np.column_stack([feed, reflux, purge])
    return table.assign(run=[f"{i:03d}" for i in range(ROWS)])


def write(folder: Path, table: pd.DataFrame | None = None, job: str = JOB) -> None:
    (column() if table is None else table).to_csv(folder / "column.csv", index=False)
    (folder / "column.toml").write_text(job, "utf-8")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model file with the job of its balances; one is exact if the offset that it learned is taken from it."""
    path, model = tmp_path_factory.mktemp("fitted") / "column.safetensors", artifact.load(STORED)
    with torch.no_grad():
        model.model_.conditioning.offset.loc.zero_()
        model.model_.conditioning.offset.log_std.fill_(-100.0)
    artifact.save(model, path, job=MODEL_JOB)
    return path


@pytest.fixture
def readings(folder):
    """The table, and the job in the working folder."""
    write(folder)
    return column()


@pytest.fixture
def reconciled(fitted, readings):
    """Runs the command and gives the table that it wrote."""

    def run(*options):
        assert main([*LINE, str(fitted), *options]) == 0
        return pd.read_csv("out.csv", dtype={"run": str})

    return run


@dataclass(frozen=True)
class Usual:
    """What came of a run: the table, the page, and what was printed."""

    table: pd.DataFrame
    page: str
    printed: str


@pytest.fixture(scope="module")
def usual(fitted, tmp_path_factory):
    """Of one run without options, with a page whose drawings were left out: they take longer than all the rest."""
    folder, screen = tmp_path_factory.mktemp("usual"), io.StringIO()
    write(folder)
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), contextlib.redirect_stdout(screen):
        patch.setattr(charts, "svg", lambda *_: "<svg/>")
        assert main([*LINE, str(fitted), "--report", "column.html"]) == 0
    table = pd.read_csv(folder / "out.csv", dtype={"run": str})
    return Usual(table, (folder / "column.html").read_text("utf-8"), screen.getvalue())


def test_every_row_has_what_the_model_says_of_it_however_it_is_cut(reconciled, readings, fitted, monkeypatch):
    expected = artifact.load(fitted).reconcile(readings[X], readings[OUTPUTS], {"top [kg/s]": 0.02}, level=0.9)
    monkeypatch.setattr(measured_table, "LEAST_ROWS", 1)
    monkeypatch.setattr(measured_table, "CHUNK_ROWS", 32)
    table = reconciled("--level", "0.9")
    for part, values in zip(
        reconcilers.VARIABLE_COLUMNS, (expected.mean, expected.half_widths.after, expected.adjustments), strict=True
    ):
        np.testing.assert_allclose(table[[f"{name} {part}" for name in Y]], values, rtol=1e-5, atol=1e-6)  # float32
    test = expected.likelihood_ratio_test()
    np.testing.assert_allclose(table["global statistic"], expected.statistic, rtol=1e-4)
    np.testing.assert_allclose(table["effective draws"], expected.effective_draws, rtol=1e-4)
    assert list(table["suspect"].fillna("")) == [name or "" for name in test.suspect]
    assert table["run"].tolist() == readings["run"].tolist()


def test_the_lying_meter_is_found_and_what_has_no_meter_is_inferred(usual):
    lying = usual.table[LYING:]
    assert lying["global alarm"].all()
    assert set(lying["suspect"]) == {"top [kg/s]"}
    np.testing.assert_allclose(lying["suspect error"], 1.0, atol=0.1)
    flows = (usual.table[f"{name} [kg/s] reconciled"] for name in ("top", "bottom"))
    assert np.abs(sum(flows) + usual.table["purge [kg/s]"] - usual.table["feed [kg/s]"]).max() < 1e-12
    assert "Calculated from the others where not measured: 'bottom [kg/s]' and 'cooling [kW]'." in usual.printed
    assert "Sensor 'top [kg/s]' is the suspect in 10 rows: it shows " in usual.printed
    assert "cooling [kW]" in usual.page


def test_an_input_that_is_missing_and_a_sensor_of_an_input_are_refused(readings, fitted, refused, folder):
    write(folder, readings.drop(columns="reflux"))
    assert "but got none called 'reflux'" in refused(*LINE, fitted)
    write(folder, readings.drop(columns=OUTPUTS))
    sentence = "'column.csv' must have a column that is measured, but got none of 'top [kg/s]', 'bottom [kg/s]'"
    assert sentence in refused(*LINE, fitted)
    write(folder, job=JOB.replace("top = 0.02", "reflux = 0.01"))
    sentence = "column.toml: [sensors] must name outputs of 'column.safetensors', whose inputs are exact"
    assert f"{sentence}, but got 'reflux'" in refused(*LINE, fitted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"cooling = duty + 0.5"', '"cooling = duty + 0.6"'),
            "must be left out, or be those of 'column.safetensors', but got 'cooling = duty + 0.6' for 'energy'",
        ),
        (('energy = "cooling = duty + 0.5"\n', ""), "but got 'energy' in one of them only"),
        (("energy =", "heat ="), "but got 'heat' in one of them only"),
        (
            ("mass = 0", "mass = 0.1"),
            "[tolerances] must be left out with a model, whose own count, or be those of",
        ),
        (("mass = 0", "energy = 0.1"), "but got another one for 'energy'. Leave it out"),
    ],
)
def test_balances_and_tolerances_that_are_not_the_models_are_refused(fitted, refused, folder, change, message):
    assert change[0] in JOB
    write(folder, job=JOB.replace(*change))
    assert message in refused(*LINE, fitted)


def test_balances_may_be_left_out_or_written_another_way(reconciled, usual, folder):
    head, _, rest = JOB.partition("[balances]")
    sensors = rest[rest.index("[sensors]") : rest.index("[tolerances]")]
    for job in (head + sensors, JOB.replace("feed = top + bottom + purge", "2*feed - 2*purge = 2*top + 2*bottom")):
        write(folder, job=job)
        pd.testing.assert_frame_equal(reconciled(), usual.table)


def test_learned_sensors_show_their_errors_and_a_test_that_does_not_exist_has_no_alarms(usual, fitted):
    learned = 1.959964 * artifact.load(fitted).sensor_std_.loc["bottom [kg/s]", "std"]
    shown = re.search(r"bottom \[kg/s\] +measured redundant +39 +\S+ +(\S+) ", usual.printed)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(learned, rel=5e-3)
    assert re.search(r"mass +kg/s +\S+ +\S+ +\S+ +– ", usual.printed)


def test_the_model_is_not_overwritten(readings, fitted, refused):
    assert "--report must not be a file that is read or written" in refused(*LINE, fitted, "--report", fitted)
