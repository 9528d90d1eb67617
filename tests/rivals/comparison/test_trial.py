"""A trial is kept once it is finished, and only for what it was of."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.rivals.cases.case import Case, CaseTable, Split
from equipoise.rivals.comparison.scoring import SCORES
from equipoise.rivals.comparison.trial import Trial, TrialResult, is_number
from equipoise.rivals.methods.catalogue import Method
from equipoise.rivals.methods.regressor import MethodRegressor
from equipoise.training.checkpoint import TrainingError
from equipoise.training.plan import TrainingPlan

BALANCE = LinearConstraint.from_equations({"sum": "c = a + b"}, inputs=["x"], outputs=["a", "b", "c"])


def split(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, 40)
    Y = pd.DataFrame(np.stack([x, 2 * x, 3 * x], 1) + 0.1 * rng.standard_normal((40, 3)), columns=["a", "b", "c"])
    whole = CaseTable(pd.DataFrame({"x": x}), Y)
    return Split(whole.take(np.arange(30)), np.arange(24, 30), whole.take(np.arange(30, 40)))


CASE = Case("line", "a line", BALANCE, {"hidden": (2,), "n_draws": 8, "training": TrainingPlan(max_epochs=3)}, split)


@pytest.fixture
def fits(monkeypatch):
    """Counts the fits."""
    count, fit = [], MethodRegressor.fit
    monkeypatch.setattr(MethodRegressor, "fit", lambda self, *a, **k: (count.append(1), fit(self, *a, **k))[1])
    return count


def trial(folder, **changes):
    return replace(Trial(CASE, Method("deterministic", "none"), 1, folder), **changes)


@pytest.mark.usefixtures("long_training")
def test_a_finished_trial_is_read_and_not_fitted_again(tmp_path, fits):
    first, second = trial(tmp_path)(), trial(tmp_path)()
    assert first.model_dump_json() == second.model_dump_json()
    assert len(fits) == 1
    assert set(first.scores) == set(SCORES)
    assert [file.name for file in (tmp_path / "line").iterdir()] == ["deterministic+none-seed-1.json"]


@pytest.mark.usefixtures("long_training")
@pytest.mark.parametrize("spoil", ["{", '{"case": "line"}', ""])
def test_a_damaged_file_is_made_anew(tmp_path, fits, spoil):
    kept = trial(tmp_path)()
    (tmp_path / "line" / "deterministic+none-seed-1.json").write_text(spoil)
    again = trial(tmp_path)()
    assert again.scores["rmse"] == kept.scores["rmse"]
    assert len(fits) == 2


def many_balances(last):
    sums = {f"law {k}": f"y{k} = {k + 1}*x" for k in range(24)} | {"law 23": f"y23 = {last}*x"}
    return LinearConstraint.from_equations(sums, inputs=["x"], outputs=[f"y{k}" for k in range(24)])


def test_the_fingerprint_sees_every_coefficient_and_every_default(monkeypatch):
    one, other = (replace(CASE, constraint=many_balances(last)) for last in (24, 25))
    found = {trial(None, case=case)._fingerprint(split(1)) for case in (CASE, one, other)}
    assert len(found) == 3
    before = MethodRegressor.get_params
    monkeypatch.setattr(MethodRegressor, "get_params", lambda self, deep: before(self, deep) | {"n_members": 7})
    assert trial(None)._fingerprint(split(1)) not in found


@pytest.mark.usefixtures("long_training")
def test_other_options_or_data_are_another_trial(tmp_path, fits):
    trial(tmp_path)()
    trial(tmp_path, case=replace(CASE, options=CASE.options | {"hidden": (3,)}))()
    trial(tmp_path, case=replace(CASE, split=lambda seed: split(seed + 5)))()
    assert len(fits) == 3


def test_a_training_that_fails_is_told_and_tried_again(tmp_path, monkeypatch):
    def failing(self, *arguments, **options):
        raise TrainingError("The training loss must stay finite, but got nan.")

    monkeypatch.setattr(MethodRegressor, "fit", failing)
    result = trial(tmp_path)()
    assert result.failure == "The training loss must stay finite, but got nan."
    assert result.scores == {}
    assert trial(tmp_path)._read(result.fingerprint) is None


def test_what_one_method_cannot_do_is_its_failure_alone(monkeypatch):
    def refusing(self, *arguments, **options):
        raise ValueError("Exact balances contradict noisy rows.")

    monkeypatch.setattr(MethodRegressor, "fit", refusing)
    assert trial(None)().failure == "Exact balances contradict noisy rows."


@pytest.mark.usefixtures("long_training")
def test_a_constant_output_is_scored_in_its_own_unit():
    def with_constant(seed):
        whole = split(seed)
        for part in (whole.fit, whole.test):
            part.Y["b"] = 2.0
        return whole

    result = trial(None, case=replace(CASE, split=with_constant))()
    assert result.failure == ""
    assert np.isfinite([result.scores[name] for name in ("rmse", "crps", "energy_score", "width")]).all()


def test_nothing_is_written_without_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Trial, "_run", lambda self, split: TrialResult(case="line", method="vi+none", seed=1))
    trial(None)()
    assert list(tmp_path.iterdir()) == []


def test_a_score_is_there_if_it_is_finite():
    assert [is_number(value) for value in (1.0, None, float("nan"), float("inf"))] == [True, False, False, False]
