"""The space of a search: what lies in it, what Optuna suggests from it, and what is refused."""

import math

import optuna
import pytest

from equipoise.app.tuning.search_space import Choice, Uniform, Whole, check_first, check_space


@pytest.mark.parametrize("values", [Choice([(8,), None, "silu", 2]), Uniform(0.5, 2.0, log=True), Whole(1, 3)])
def test_what_optuna_suggests_lies_in_the_space_and_is_read_back_from_its_journal(values):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = []
    for _ in range(30):
        values.suggest(trial := study.ask(), "parameter")
        seen.append(values.decode(trial.params["parameter"]))
        assert seen[-1] in values
        assert values.encode(seen[-1]) == trial.params["parameter"]
    assert len(set(seen)) == (30 if isinstance(values, Uniform) else len(getattr(values, "options", (1, 2, 3))))


def test_a_logarithmic_range_is_even_in_its_logarithm():
    """Half of 400 values lie below the geometric mean of the bounds, within 3 standard errors of a half."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    values, seen = Uniform(1e-6, 1.0, log=True), []
    for _ in range(400):
        values.suggest(trial := study.ask(), "rate")
        seen.append(trial.params["rate"])
    assert abs(sum(value < 1e-3 for value in seen) / 400 - 0.5) < 3 * 0.5 / math.sqrt(400)


@pytest.mark.parametrize(
    ("values", "outside"),
    [(Choice([1, 2]), 3), (Uniform(0.0, 1.0), 1.1), (Uniform(0.0, 1.0), "0.5"), (Whole(1, 3), 2.5), (Whole(1, 3), 4)],
)
def test_what_lies_outside_is_not_in_it(values, outside):
    assert outside not in values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choice([]), r"options that all differ, but got \[\]"),
        (lambda: Choice([(8,), (8,)]), r"options that all differ, but got \[\(8,\), \(8,\)\]"),
        (lambda: Uniform(2.0, 1.0), r"Uniform must have low < high, both finite, but got Uniform\(low=2.0, high=1.0"),
        (lambda: Uniform(0.0, math.inf), "Uniform must have low < high, both finite"),
        (lambda: Uniform(0.0, 1.0, log=True), "Uniform with log=True must have low > 0"),
        (lambda: Whole(1.5, 3), "Whole must have low < high"),
    ],
)
def test_ranges_that_hold_nothing_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("space", "error", "message"),
    [
        ({}, ValueError, "space must name one parameter at least, but got none"),
        ({"rat": Whole(1, 2)}, ValueError, r"of the estimator or of TrainingPlan, but got 'rat'\. Did you mean 'rate'"),
        ({"rate": [1, 2]}, TypeError, r"space\['rate'\] must be a Choice, Uniform or Whole, but got \[1, 2\]"),
    ],
)
def test_a_space_of_something_else_is_refused(space, error, message):
    check_space({"rate": Whole(1, 2)}, {"rate", "width"})
    with pytest.raises(error, match=message):
        check_space(space, {"rate", "width"})


def test_values_tried_first_must_lie_in_the_space():
    space = {"rate": Uniform(0.1, 0.2), "width": Choice([8, 16])}
    check_first([{"rate": 0.1}, {"width": 16, "rate": 0.2}, {}], space)
    with pytest.raises(ValueError, match=r"parameters of the space, but got 'widht'\. Did you mean 'width'"):
        check_first([{"rate": 0.1}, {"widht": 8}], space)
    with pytest.raises(ValueError, match=r"values in the space, but got 9 for 'width': Choice\(options=\(8, 16\)\)"):
        check_first([{"rate": 0.1, "width": 9}], space)
