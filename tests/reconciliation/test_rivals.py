"""Which candidates are the same test, and how large the suspect's number had to be: by trying other numbers."""

import numpy as np
import pytest

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.alarms import worst_of
from equipoise.reconciliation.rivals import distinct, least_to_win, unit_directions


def test_parallel_directions_are_counted_once_and_those_of_no_length_not_at_all():
    f = np.array([[1.0, -3.0, 1.0, 0.0, 1e-9], [1.0, -3.0, 2.0, 0.0, 1e-9]])
    assert distinct(f) == 2
    np.testing.assert_array_equal(distinct(np.stack([f, f[:, [2, 2, 2, 3, 2]], 0 * f])), [2, 1, 0])


def test_the_candidates_of_one_balance_are_one_test():
    flows = LinearConstraint.from_equations("a = b + c", outputs=["a", "b", "c"])
    test = reconcile([10.0, 4.0, 5.0], 1.0, flows).likelihood_ratio_test()
    assert test.critical_value == pytest.approx(1.959964)


@pytest.mark.parametrize("own", [False, True], ids=["the same directions for all rows", "for each row"])
def test_a_suspect_stays_one_just_above_what_it_had_to_exceed_and_is_none_just_below(own):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(200, 3, 6)) if own else np.tile(rng.normal(size=(3, 6)), (200, 1, 1))
    f[:, :, 5] = -2 * f[:, :, 1]
    unit, e, limit = unit_directions(f), 2 * rng.normal(size=(200, 3)), np.full(200, 2.4)
    z = -(e[:, None, :] @ unit)[:, 0]
    least, worst = least_to_win(z, limit, f if own else f[0]), worst_of(z, limit)
    rows = np.flatnonzero(worst >= 0)
    assert (least[rows] > 2.4 + 1e-6).mean() > 0.2  # of some, a rival asks more than the limit
    np.testing.assert_array_equal(least[worst < 0], 2.4)
    a = unit[rows, :, worst[rows]]
    across, sign = e[rows] - a * (a * e[rows]).sum(1, keepdims=True), np.sign(z[rows, worst[rows]])
    for factor, stays in ((1 + 1e-6, True), (1 - 1e-6, False)):
        moved = across - a * (sign * factor * least[rows])[:, None]
        again = worst_of(-(moved[:, None, :] @ unit[rows])[:, 0], limit[rows])
        assert ((again == worst[rows]) == stays).all()
