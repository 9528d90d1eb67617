import numpy as np
import plants
import pytest

from equipoise.reconciliation.observability import (
    NON_REDUNDANT,
    OBSERVABLE,
    REDUNDANT,
    UNOBSERVABLE,
    Pattern,
    classify,
    project,
)


def pattern(n, m, *, unmeasured=(), exact=(), tolerant=(), dropped=()):
    marks = [(unmeasured, n), (exact, n), (tolerant, m), (dropped, m)]
    return Pattern(*(np.isin(np.arange(size), list(chosen)) for chosen, size in marks))


def classes(C, **marks):
    C = np.asarray(C, float)
    known = pattern(C.shape[1], len(C), **marks)
    return list(classify(C, known).classes(known.unmeasured))


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
    assert list(classify(C, pattern(4, 2, dropped=[0])).checked) == [False, True]


def test_degrees_of_freedom_are_balances_between_measured_variables_alone():
    C = np.asarray(SPLIT, float)
    assert classify(C, pattern(4, 2)).degrees_of_freedom == 2
    assert classify(C, pattern(4, 2, unmeasured=[1])).degrees_of_freedom == 1
    assert classify(C, pattern(4, 2, unmeasured=[1, 2, 3])).degrees_of_freedom == 0
    assert classify(C, pattern(4, 2, exact=[2, 3])).degrees_of_freedom == 1  # c = d is about exact values alone
    assert classify(C, pattern(4, 2, exact=[2, 3], tolerant=[1])).degrees_of_freedom == 2
    assert classify(C, pattern(4, 2, exact=[0, 1, 2, 3])).degrees_of_freedom == 0


@pytest.mark.parametrize("block", range(3))
def test_classes_are_what_their_definitions_say(block):
    for seed in range(20 * block, 20 * (block + 1)):
        rng = np.random.default_rng(seed)
        plant = plants.random_plant(seed, missing=int(rng.integers(0, 6)), exact=int(rng.integers(0, 3)))
        unmeasured = np.isnan(plant.values)
        known = Pattern(unmeasured, (plant.std == 0) & ~unmeasured, np.zeros(4, bool), np.zeros(4, bool))
        found = classify(plant.C, known)
        fit = plants.fitted(plant)
        assert found.degrees_of_freedom == fit.degrees_of_freedom
        np.testing.assert_array_equal(found.observable[unmeasured], fit.observable[unmeasured])
        measured = np.flatnonzero(~unmeasured)
        np.testing.assert_array_equal(found.redundant[measured], [plants.redundant(plant, j) for j in measured])


def test_outputs_that_make_balances_independent_save_the_rank_and_change_nothing():
    for seed in range(10):
        plant = plants.random_plant(seed, missing=3)
        known = pattern(9, 4, unmeasured=np.flatnonzero(np.isnan(plant.values)))
        assert classify(plant.C, known, 9).rank == classify(plant.C, known).rank == 4


def projected(plant, dropped=()):
    unmeasured, m = np.isnan(plant.values), len(plant.C)
    pattern = Pattern(
        unmeasured, (plant.std == 0) & ~unmeasured, plant.tolerance > 0, np.isin(np.arange(m), list(dropped))
    )
    structure = classify(plant.C, pattern)
    return project(plant.C, plant.std, plant.tolerance, pattern, structure), pattern, structure


def test_no_unmeasured_variable_and_no_dropped_balance_enters_the_reduced_balances():
    for seed in range(20):
        plant = plants.random_plant(seed, missing=seed % 5, tolerant=seed % 3, exact=seed % 2)
        done, pattern, structure = projected(plant, dropped=[0] if seed % 4 == 0 else [])
        scaled = plant.C / done.row_scale[:, None]
        np.testing.assert_allclose(done.combinations.T @ scaled[:, pattern.unmeasured], 0, atol=1e-12)
        np.testing.assert_allclose(done.combinations[pattern.dropped], 0, atol=1e-12)
        np.testing.assert_allclose(
            done.combinations.T @ done.combinations, np.eye(done.combinations.shape[1]), atol=1e-13
        )
        assert done.combinations.shape[1] == len(plant.C) - len(structure.solved)


def test_balances_are_solved_for_every_variable_they_determine():
    for seed in range(20):
        plant = plants.random_plant(seed, missing=1 + seed % 4)
        done, pattern, structure = projected(plant)
        truth = np.random.default_rng(seed).standard_normal(9)
        lacking = plant.C[:, pattern.unmeasured] @ truth[pattern.unmeasured] / done.row_scale
        observable = structure.observable[pattern.unmeasured]
        solved = done.left_inverse @ lacking
        np.testing.assert_allclose(solved[observable], truth[pattern.unmeasured][observable], atol=1e-10)


def test_rows_are_divided_by_the_uncertainty_of_their_balance():
    plant = plants.random_plant(3, missing=2, tolerant=2)
    done, pattern, _ = projected(plant)
    var = np.square(plant.C[:, ~pattern.unmeasured]) @ np.square(plant.std[~pattern.unmeasured])
    np.testing.assert_allclose(np.square(done.row_scale), var + np.square(plant.tolerance))


def test_balances_of_very_different_precision_keep_their_digits_when_they_share_an_unmeasured_variable():
    C = np.array([[1.0, 0, 0, 0, 0.3], [0, 1.0, 0, 0, 0.7], [0, 0, 1.0, 0, 1.1], [0, 0, 0, 1.0, 0.9]])
    values, std = np.array([1.0, 1, 1, 1, np.nan]), np.array([1e-9, 1e-9, 1.0, 1e6, 1.0])
    done, _, _ = projected(plants.Plant(C, np.zeros(4), values, np.diag(std**2), np.zeros(4)))
    spread = done.combinations.T @ (C[:, :4] / done.row_scale[:, None] * std[:4])
    assert np.linalg.cond(spread) < 10  # with rows as they stand it would be 1e15
    expected = 0.3 / (0.3**2 + 0.7**2)  # the two precise balances alone determine what is missing
    assert np.isclose(done.left_inverse[0, 0] / done.row_scale[0], expected, rtol=1e-12)


def test_a_balance_without_any_uncertainty_outweighs_the_others():
    C = np.array([[1.0, -1.0, 0.0], [0.0, 2.0, -1.0]])  # a = u with a exact, and 2 u = c with c measured
    values, std = np.array([5.0, np.nan, 9.0]), np.array([0.0, 1.0, 3.0])
    done, _, _ = projected(plants.Plant(C, np.zeros(2), values, np.diag(std**2), np.zeros(2)))
    assert abs(done.left_inverse[0, 0] / done.row_scale[0] + 1) < 0.01
    assert abs(done.left_inverse[0, 1] / done.row_scale[1]) < 0.01
