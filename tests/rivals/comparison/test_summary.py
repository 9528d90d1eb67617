"""Means, paired differences and marks, from made-up trials whose answers are plain."""

import math

import numpy as np
import pytest
import scipy.stats

from equipoise.rivals.comparison.summary import mean_and_se, paired, summarise
from equipoise.rivals.comparison.trial import TrialResult

NAN = math.nan


def trials(**scores):
    """Trials of each method with one score, `rmse`, by seed."""
    found = []
    for method, values in scores.items():
        name = {"ours": "vi+learned"}.get(method, f"{method}+none")
        found += [
            TrialResult(case="line", method=name, seed=seed, scores={"rmse": value, "coverage": 0.9})
            for seed, value in enumerate(values)
        ]
    return found


def cells(found, score="rmse"):
    return {line.method: line.cells[score] for line in summarise(found)}


def test_mean_and_standard_error_are_those_of_the_seeds():
    cell = cells(trials(vi=[1.0, 2.0, 4.0]))["vi+none"]
    assert (cell.mean, cell.n) == (pytest.approx(7 / 3), 3)
    assert cell.se == pytest.approx(scipy.stats.sem([1.0, 2.0, 4.0]))


def test_differences_to_ours_are_paired_by_seed():
    found = cells(trials(ours=[10.0, 20.0, 30.0], vi=[10.5, 20.4, 30.6]))
    assert found["vi+none"].to_ours == pytest.approx(0.5)
    assert found["vi+none"].to_ours_se == pytest.approx(0.1 / math.sqrt(3))
    assert found["vi+learned"].to_ours == 0.0


def test_what_is_within_noise_of_the_best_is_marked_and_what_is_not_is_not():
    close, clear = [1.0, 2.2, 2.9], [1.5, 2.5, 3.5]
    found = cells(trials(ours=[1.0, 2.0, 3.0], vi=close, ensemble=clear))
    marks = {method: (cell.best, cell.near_best) for method, cell in found.items()}
    assert marks == {"vi+learned": (True, True), "vi+none": (False, True), "ensemble+none": (False, False)}


def test_one_seed_marks_the_best_alone():
    found = cells(trials(ours=[1.0], vi=[1.0001]))
    assert (found["vi+learned"].best, found["vi+none"].near_best) == (True, False)
    assert math.isnan(found["vi+none"].to_ours_se)


def test_a_method_with_fewer_seeds_is_not_called_the_best():
    found = cells(trials(ours=[1.0, 2.0], deterministic=[0.5]))
    assert (found["vi+learned"].best, found["deterministic+none"].best) == (True, False)


def test_scores_without_a_better_direction_have_no_best():
    assert not any(cell.best for cell in cells(trials(ours=[1.0, 2.0], vi=[2.0, 3.0]), "coverage").values())


def test_a_score_that_does_not_exist_is_left_out():
    found = cells(trials(ours=[1.0, 2.0], vi=[NAN, NAN]))
    assert (found["vi+none"].n, found["vi+none"].best) == (0, False)
    assert math.isnan(found["vi+none"].mean)


def test_cases_are_kept_apart_and_failures_told_once():
    failed = [TrialResult(case="town", method="vi+none", seed=s, failure="no solver") for s in range(2)]
    lines = summarise(trials(vi=[1.0]) + failed)
    assert [(line.case, line.failures) for line in lines] == [("line", ()), ("town", ("no solver",))]


def test_few_values_leave_the_error_open():
    assert np.isnan(mean_and_se([])).all()
    assert mean_and_se([3.0])[0] == 3.0
    assert np.isnan(paired({0: 1.0}, {1: 1.0})).all()
