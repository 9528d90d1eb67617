import numpy as np
import plants
import pytest
from plants import NAN

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import ReconciliationError, reconcile, solution
from equipoise.reconciliation.measurements import measurements
from equipoise.reconciliation.solution import Solution

CHAIN = LinearConstraint.from_equations({"first": "a = b", "second": "b = c"}, outputs=["a", "b", "c"])


def rows_of(group, n):
    return np.arange(n)[group.rows].tolist()


def test_rows_are_grouped_by_what_is_measured_in_them():
    table = [[1, 1, 1], [1, NAN, 1], [1, 1, 1], [NAN, NAN, 1], [1, NAN, 1]]
    groups = Solution(measurements(table, 1.0, CHAIN)).groups
    assert [rows_of(group, 5) for group in groups] == [[0, 2], [1, 4], [3]]
    assert [group.adjuster.structure.degrees_of_freedom for group in groups] == [2, 1, 0]


def test_rows_are_grouped_by_what_is_exact_and_what_is_dropped_in_them():
    std = [[1, 1, 0], [1, 1, 1], [2, 2, 0], [1, np.inf, 1]]
    groups = Solution(measurements(np.ones((4, 3)), std, CHAIN)).groups
    assert [rows_of(group, 4) for group in groups] == [[0, 2], [1], [3]]
    dropped = np.array([[False, True], [False, False], [False, True]])
    groups = Solution(measurements(np.ones((3, 3)), 1.0, CHAIN), dropped).groups
    assert [rows_of(group, 3) for group in groups] == [[0, 2], [1]]


def test_rows_that_are_all_alike_are_one_group_that_copies_nothing():
    (group,) = Solution(measurements(np.ones((4, 3)), np.full((4, 3), 2.0), CHAIN)).groups
    assert group.rows == slice(0, 4)
    result = reconcile(np.ones((1000, 3)), 1.0, CHAIN)
    assert result.solution.std.strides[0] == 0  # one row, shown a thousand times


@pytest.mark.parametrize("std_per_row", [False, True])
def test_the_size_of_pieces_changes_nothing(monkeypatch, long_training, std_per_row):
    rng = np.random.default_rng(0)
    table = rng.standard_normal((50, 9))
    table[rng.random(table.shape) < 0.05] = np.nan
    std = np.exp(rng.standard_normal((50, 9))) if std_per_row else np.ones(9)
    plant = plants.random_plant(1)
    whole = reconcile(table, std, plant.constraint)
    monkeypatch.setattr(solution, "PIECE_NUMBERS", 40)
    assert sum(1 for _ in Solution(whole.solution.measurements).pieces()) > 20
    pieces = reconcile(table, std, plant.constraint)
    for name in ("values", "std", "statistic", "degrees_of_freedom"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        pieces.likelihood_ratio_test().statistic, whole.likelihood_ratio_test().statistic, atol=1e-10
    )


def test_exact_values_that_contradict_each_other_are_named():
    with pytest.raises(ReconciliationError) as caught:
        reconcile([[1, 1, 1], [1, 2, 1]], [0.0, 0.0, 1.0], CHAIN)
    message = str(caught.value)
    assert "got 'a' and 'b' in row 1, which contradict 'first'" in message
    assert "give it a standard deviation" in message
    with pytest.raises(ReconciliationError, match="'a' and 'c', which contradict 'first' and 'second'"):
        reconcile([1.0, NAN, 2.0], [0.0, 1.0, 0.0], CHAIN)


def test_exact_values_that_agree_to_rounding_are_no_contradiction():
    flows = LinearConstraint.from_equations(["a = b + c"], outputs=["a", "b", "c"])
    result = reconcile([0.3, 0.1, 0.2], 0.0, flows)
    np.testing.assert_array_equal(result.values, [0.3, 0.1, 0.2])
    assert result.degrees_of_freedom == 0
    assert np.isnan(result.threshold)
    assert not result.global_test().alarm


def test_many_patterns_are_told_apart_and_kept_in_order():
    rng = np.random.default_rng(2)
    table = rng.standard_normal((3000, 9))
    table[rng.random(table.shape) < 0.02] = np.nan
    solution = Solution(measurements(table, 1.0, plants.random_plant(1).constraint))
    seen = np.concatenate([np.arange(3000)[group.rows] for group in solution.groups])
    assert sorted(seen) == list(range(3000))
    firsts = [rows_of(group, 3000)[0] for group in solution.groups]
    assert firsts == sorted(firsts)
    for group in solution.groups[:20]:
        missing = np.isnan(table[group.rows])
        assert (missing == group.adjuster.pattern.unmeasured).all()


def test_the_pattern_of_a_single_row_can_be_asked_for():
    solution = Solution(measurements([[1, 1, 1], [1, NAN, 1]], [[1, 1, 1], [2, 1, 2]], CHAIN))
    assert solution.adjuster_of(1).unmeasured.tolist() == [1]
    np.testing.assert_array_equal(solution.factor_of(1).spread, [2, 2])
    with pytest.raises(ReconciliationError, match="row must be a position among 2, but got 2"):
        solution.adjuster_of(2)
