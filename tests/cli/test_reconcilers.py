"""With a model: what `model.reconcile` says of every row, from the columns that are there."""

import re

import handmade_table
import numpy as np
import pandas as pd
import pytest
from handmade_table import FULL_JOB, OUTPUTS, cell

from equipoise import artifact
from equipoise.cli import main, measured, reconcilers

X, Y = ["Current [A]", "SOC", "Lead [V]"], [*OUTPUTS, "Terminal [V]"]
JOB = FULL_JOB.replace("[tolerances]", "[sensors]\nVoltage = 0.004\n[tolerances]")


@pytest.fixture
def readings(folder):
    """New rows without one output, with a gap, and with a voltmeter that lies in the last ten."""
    table = cell(70, seed=3).drop(columns="Terminal [V]")
    table.loc[5, "OCV [V]"] = np.nan
    table.loc[60:, "Voltage [V]"] += 1.0
    handmade_table.write(folder, table, JOB)
    return table


@pytest.fixture
def reconciled(fitted, readings):
    """Runs the command and gives the table that it wrote."""

    def run(*options):
        assert main(["reconcile", "cell.toml", "cell.csv", "--model", str(fitted), "-o", "out.csv", *options]) == 0
        return pd.read_csv("out.csv", dtype={"run": str})

    return run


def test_every_row_has_what_the_model_says_of_it_however_it_is_cut(reconciled, readings, fitted, monkeypatch):
    expected = artifact.load(fitted).reconcile(readings[X], readings[list(OUTPUTS)], {"Voltage [V]": 0.004}, level=0.9)
    monkeypatch.setattr(measured, "FEWEST", 1)
    monkeypatch.setattr(measured, "CHUNK", 64)
    table = reconciled("--level", "0.9")
    for part, values in zip(
        reconcilers.OF_VARIABLE, (expected.mean, expected.half_widths.after, expected.adjustments), strict=True
    ):
        np.testing.assert_allclose(table[[f"{name} {part}" for name in Y]], values, rtol=1e-5, atol=1e-8)
    check, test = expected.global_test(), expected.likelihood_ratio_test()
    np.testing.assert_allclose(table["global statistic"], check.statistic, rtol=1e-4)
    np.testing.assert_allclose(table["effective draws"], expected.effective_draws, rtol=1e-4)
    assert list(table["suspect"].fillna("")) == [name or "" for name in test.suspect]
    assert table["run"].tolist() == readings["run"].tolist()


def test_the_lying_meter_is_found_and_what_has_no_meter_is_inferred(reconciled, capsys):
    table = reconciled("--report", "cell.html")
    lying = table[60:]
    assert lying["global alarm"].all()
    assert set(lying["suspect"]) == {"Voltage [V]"}
    np.testing.assert_allclose(lying["suspect error"], 1.0, atol=0.02)
    exact = table["Voltage [V] reconciled"] - table["OCV [V] reconciled"] + table["Loss [V] reconciled"]
    assert np.abs(exact).max() < 1e-12
    out = capsys.readouterr().out
    assert "Calculated from the others where not measured: 'OCV [V]' and 'Terminal [V]'." in out
    assert "Sensor 'Voltage [V]' is the suspect in 10 rows: it shows " in out
    with open("cell.html", encoding="utf-8") as page:
        assert "Terminal [V]" in page.read()


def test_an_input_that_is_missing_and_a_sensor_of_an_input_are_refused(readings, fitted, refused, folder):
    line = ("reconcile", "cell.toml", "cell.csv", "--model", fitted, "-o", "out.csv")
    handmade_table.write(folder, readings.drop(columns="SOC"), JOB)
    assert "but got none called 'SOC'" in refused(*line)
    handmade_table.write(folder, readings.drop(columns=list(OUTPUTS)), JOB)
    assert "'cell.csv' must have a column that is measured, but got none of 'Voltage [V]', 'OCV [V]'" in refused(*line)
    handmade_table.write(folder, readings, JOB.replace("Voltage = 0.004", "SOC = 0.01"))
    sentence = refused(*line)
    assert (
        "cell.toml: [sensors] must name outputs of 'cell.safetensors', whose inputs are exact, but got 'SOC'"
        in sentence
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('"Voltage = OCV - Loss"', '"Voltage = OCV - 2*Loss"'),
            "must be left out, or be those of 'cell.safetensors', but got 'Voltage = OCV - 2*Loss' for 'voltage'",
        ),
        (('terminal = "Terminal = Voltage - Lead"\n', ""), "but got 'terminal' in one of them only"),
        (("terminal =", "clamp ="), "but got 'clamp' in one of them only"),
        (
            ("voltage = 0", "voltage = 0.1"),
            "[tolerances] must be left out with a model, whose own count, or be those of",
        ),
        (("voltage = 0", "terminal = 0.1"), "but got another one for 'terminal'. Leave it out"),
    ],
)
def test_balances_and_tolerances_that_are_not_the_models_are_refused(
    readings, fitted, refused, folder, change, message
):
    assert change[0] in JOB
    handmade_table.write(folder, readings, JOB.replace(*change))
    assert message in refused("reconcile", "cell.toml", "cell.csv", "--model", fitted, "-o", "out.csv")


def test_balances_may_be_left_out_or_written_another_way(reconciled, readings, folder):
    head, _, rest = JOB.partition("[balances]")
    sensors, model = rest[rest.index("[sensors]") : rest.index("[tolerances]")], rest[rest.index("[model]") :]
    handmade_table.write(folder, readings, head + sensors + model)
    without = reconciled()
    handmade_table.write(folder, readings, JOB.replace("Voltage = OCV - Loss", "2*OCV = 2*Loss + 2*Voltage"))
    pd.testing.assert_frame_equal(reconciled(), without)


def test_learned_sensors_show_their_errors_and_a_test_that_does_not_exist_has_no_alarms(reconciled, fitted, capsys):
    reconciled()
    out = capsys.readouterr().out
    learned = 1.959964 * artifact.load(fitted).sensor_std_.loc["OCV [V]", "std"]
    shown = re.search(r"OCV \[V\] +measured redundant +69 +\S+ +(\S+) ", out)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(learned, rel=5e-3)
    assert re.search(r"voltage +V +\S+ +\S+ +\S+ +– ", out)


def test_the_model_is_not_overwritten(readings, fitted, refused):
    line = ("reconcile", "cell.toml", "cell.csv", "--model", fitted, "-o", "out.csv", "--report", fitted)
    assert "--report must not be a file that is read or written" in refused(*line)
