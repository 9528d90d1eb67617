"""The cases by name: their tables fit their job files, and are written as examples."""

import numpy as np
import pandas as pd
import pytest

from equipoise.app.job import Job
from equipoise.rivals.cases.case import CaseError
from equipoise.rivals.cases.collection import SYNTHETIC, battery_case, named_case, names, write_case


@pytest.mark.parametrize("name", SYNTHETIC)
def test_true_values_obey_the_balances_but_those_that_are_biased(name):
    case = named_case(name)
    split = case.split(0)
    scale = case.constraint.scale(split.fit.Y.std())
    missed = np.abs(case.constraint.residual(split.test.X, split.test.truth)) / scale
    assert missed.min() > 0.3 if name == "biased" else missed.max() < 1e-12


def test_there_are_exact_noisy_biased_wide_and_small_ones():
    facts = {}
    for name in SYNTHETIC:
        case = named_case(name)
        split, constraint = case.split(0), case.constraint
        exact = np.abs(constraint.residual(split.fit.X, split.fit.Y)).max() < 1e-9
        facts[name] = (bool(exact), bool((constraint.A != 0).any()), constraint.n_outputs, len(split.fit.X))
    assert facts["tank"][:2] == (True, True)
    assert not any(facts[name][0] for name in ("flash", "biased", "hierarchy", "few"))
    assert facts["hierarchy"][2] >= 50
    assert facts["few"][3] <= 200


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_written_case_is_a_job_with_its_table(name, tmp_path):
    path = write_case(name, tmp_path / "examples")
    job = Job.load(path)
    table, truth = pd.read_csv(job.data), pd.read_csv(path.with_name(f"{name}-truth.csv"))
    job.check_header(list(table.columns))
    assert len(table) == (SYNTHETIC[name].n_fit or len(SYNTHETIC[name].make(0).X)) == len(truth)
    assert sorted(file.name for file in path.parent.iterdir()) == [f"{name}-truth.csv", f"{name}.csv", f"{name}.toml"]


def test_the_battery_case_has_the_studys_rows(monkeypatch):
    from equipoise.rivals.cases.battery import data

    X, Y = pd.DataFrame({"x": range(5)}, dtype=float), pd.DataFrame({"y": range(5)}, dtype=float)
    parts = [np.array(rows) for rows in ([4, 0], [2], [1, 3])]
    made = data.BatteryData(X, Y, Y, Y, np.zeros(5, dtype=np.intp), *parts)
    monkeypatch.setattr(data, "load", lambda config, cache: made)
    split = battery_case(size="small").split(7)
    assert split.fit.X["x"].tolist() == [4, 0, 2]
    assert split.held_out.tolist() == [2]
    assert split.test.X["x"].tolist() == [1, 3]


def test_an_unknown_case_is_refused_with_the_nearest_name():
    with pytest.raises(CaseError, match=r"got .flush.\. Did you mean .flash."):
        named_case("flush")
    assert names() == [*SYNTHETIC, "battery"]
