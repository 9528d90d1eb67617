import numpy as np
import plants
import pytest

from equipoise.reconciliation.observability import NON_REDUNDANT, OBSERVABLE, REDUNDANT, UNOBSERVABLE, Pattern, examine


def pattern(n, m, *, unmeasured=(), exact=(), tolerant=(), dropped=()):
    marks = [(unmeasured, n), (exact, n), (tolerant, m), (dropped, m)]
    return Pattern(*(np.isin(np.arange(size), list(chosen)) for chosen, size in marks))


def classes(C, **marks):
    C = np.asarray(C, float)
    known = pattern(C.shape[1], len(C), **marks)
    return list(examine(C, known).classes(known.unmeasured))


SPLIT = [[1, -1, -1, 0], [0, 0, 1, -1]]  # a = b + c, c = d


def test_all_that_balances_connect_is_redundant_when_all_is_measured():
    assert classes(SPLIT) == [REDUNDANT] * 4
    assert classes([[1, -1, 0]]) == [REDUNDANT, REDUNDANT, NON_REDUNDANT]


def test_an_unmeasured_variable_uses_up_a_balance():
    assert classes(SPLIT, unmeasured=[1]) == [NON_REDUNDANT, OBSERVABLE, REDUNDANT, REDUNDANT]
    assert classes(SPLIT, unmeasured=[2]) == [REDUNDANT, REDUNDANT, OBSERVABLE, REDUNDANT]


def test_two_unmeasured_variables_in_one_balance_cannot_be_told_apart():
    assert classes(SPLIT, unmeasured=[0, 1]) == [UNOBSERVABLE, UNOBSERVABLE, REDUNDANT, REDUNDANT]
    assert classes(SPLIT, unmeasured=[1, 2, 3]) == [NON_REDUNDANT, UNOBSERVABLE, UNOBSERVABLE, UNOBSERVABLE]


def test_only_their_difference_may_be_determined_and_neither_of_them():
    both = [[1, -1, 1, 0, 0], [1, -1, 0, 1, 0], [0, 0, 0, 1, 1]]
    assert classes(both, unmeasured=[0, 1]) == [UNOBSERVABLE, UNOBSERVABLE, REDUNDANT, REDUNDANT, REDUNDANT]


def test_an_exact_value_is_redundant_if_the_others_would_determine_it():
    assert classes(SPLIT, exact=[0], unmeasured=[2]) == [REDUNDANT, REDUNDANT, OBSERVABLE, REDUNDANT]
    assert classes(SPLIT, exact=[0], unmeasured=[1, 2]) == [NON_REDUNDANT, OBSERVABLE, OBSERVABLE, NON_REDUNDANT]


def test_a_dropped_balance_says_nothing():
    assert classes(SPLIT, dropped=[0]) == [NON_REDUNDANT, NON_REDUNDANT, REDUNDANT, REDUNDANT]
    C = np.asarray(SPLIT, float)
    assert list(examine(C, pattern(4, 2, dropped=[0])).checked) == [False, True]


def test_degrees_of_freedom_are_balances_between_measured_variables_alone():
    C = np.asarray(SPLIT, float)
    assert examine(C, pattern(4, 2)).degrees_of_freedom == 2
    assert examine(C, pattern(4, 2, unmeasured=[1])).degrees_of_freedom == 1
    assert examine(C, pattern(4, 2, unmeasured=[1, 2, 3])).degrees_of_freedom == 0
    assert examine(C, pattern(4, 2, exact=[2, 3])).degrees_of_freedom == 1  # c = d is about exact values alone
    assert examine(C, pattern(4, 2, exact=[2, 3], tolerant=[1])).degrees_of_freedom == 2
    assert examine(C, pattern(4, 2, exact=[0, 1, 2, 3])).degrees_of_freedom == 0


@pytest.mark.parametrize("block", range(3))
def test_classes_are_what_their_definitions_say(block):
    for seed in range(20 * block, 20 * (block + 1)):
        rng = np.random.default_rng(seed)
        plant = plants.random_plant(seed, missing=int(rng.integers(0, 6)), exact=int(rng.integers(0, 3)))
        unmeasured = np.isnan(plant.values)
        known = Pattern(unmeasured, (plant.std == 0) & ~unmeasured, np.zeros(4, bool), np.zeros(4, bool))
        found = examine(plant.C, known)
        fit = plants.fitted(plant)
        assert found.degrees_of_freedom == fit.degrees_of_freedom
        np.testing.assert_array_equal(found.observable[unmeasured], fit.observable[unmeasured])
        measured = np.flatnonzero(~unmeasured)
        np.testing.assert_array_equal(found.redundant[measured], [plants.redundant(plant, j) for j in measured])


def test_outputs_that_make_balances_independent_save_the_rank_and_change_nothing():
    for seed in range(10):
        plant = plants.random_plant(seed, missing=3)
        known = pattern(9, 4, unmeasured=np.flatnonzero(np.isnan(plant.values)))
        assert examine(plant.C, known, 9).rank == examine(plant.C, known).rank == 4
