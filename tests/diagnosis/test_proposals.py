import numpy as np
import pytest

from equipoise.diagnosis.proposals import make_proposal
from equipoise.diagnosis.sparse_combinations import Combination

NAMES = ["top [t/h]", "bottom [t/h]", "feed [t/h]"]
SUM = Combination((0, 1, 2), (1.0, 1.0, -1.0), 0.01)


def column(n=500, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    top, bottom = rng.uniform(1, 3, (2, n))
    return np.column_stack([top, bottom, top + bottom]) + noise * rng.standard_normal((n, 3))


def test_the_single_term_stands_on_the_left():
    found = make_proposal(SUM, column(), NAMES)
    assert found.equation == "`feed [t/h]` = `top [t/h]` + `bottom [t/h]`"
    assert found.coefficients == {"top [t/h]": -1.0, "bottom [t/h]": -1.0, "feed [t/h]": 1.0}
    assert found.unit == "t/h"


def test_sizes_are_those_of_the_rows_that_hold_and_the_others_are_counted():
    table = column()
    table[:7, 0] = 0.0
    table[7:10, 1] = np.nan
    found = make_proposal(SUM, table, NAMES)
    residual = table[10:, 2] - table[10:, 0] - table[10:, 1]
    assert (found.n_rows, found.n_broken) == (497, 7)
    assert found.std == pytest.approx(residual.std(ddof=1))
    assert found.relative == pytest.approx(residual.std(ddof=1) / np.sqrt(table[10:].var(axis=0, ddof=1).sum()))


@pytest.mark.parametrize("seed", range(5))
def test_a_constant_has_as_few_digits_as_three_standard_errors_allow(seed):
    table = column(n=144, noise=0.1, seed=seed) + np.array([0, 0, 40.0])
    found = make_proposal(SUM, table, NAMES)
    assert found.constant == -40.0
    assert found.equation == "`feed [t/h]` = `top [t/h]` + `bottom [t/h]` + 40"


def test_what_only_rows_far_off_have_in_common_is_no_proposal():
    table = np.random.default_rng(0).uniform(1, 3, (500, 3))
    table[:5, :2] = 1e6
    assert make_proposal(Combination((0, 1), (1.0, -1.0), 0.001), table, NAMES) is None
    assert make_proposal(Combination((0, 1), (1.0, -1.0), 0.001), np.ones((50, 3)), NAMES) is None
