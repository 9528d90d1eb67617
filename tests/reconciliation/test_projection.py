import numpy as np
import plants

from equipoise.reconciliation.observability import Pattern, examine
from equipoise.reconciliation.projection import project


def projected(plant, dropped=()):
    unmeasured, m = np.isnan(plant.values), len(plant.C)
    pattern = Pattern(
        unmeasured, (plant.std == 0) & ~unmeasured, plant.tolerance > 0, np.isin(np.arange(m), list(dropped))
    )
    structure = examine(plant.C, pattern)
    return project(plant.C, plant.std, plant.tolerance, pattern, structure), pattern, structure


def test_no_unmeasured_variable_and_no_dropped_balance_enters_the_reduced_balances():
    for seed in range(20):
        plant = plants.random_plant(seed, missing=seed % 5, tolerant=seed % 3, exact=seed % 2)
        done, pattern, structure = projected(plant, dropped=[0] if seed % 4 == 0 else [])
        scaled = plant.C / done.row_scale[:, None]
        np.testing.assert_allclose(done.onto.T @ scaled[:, pattern.unmeasured], 0, atol=1e-12)
        np.testing.assert_allclose(done.onto[pattern.dropped], 0, atol=1e-12)
        np.testing.assert_allclose(done.onto.T @ done.onto, np.eye(done.onto.shape[1]), atol=1e-13)
        assert done.onto.shape[1] == len(plant.C) - len(structure.solved)


def test_balances_are_solved_for_every_variable_they_determine():
    for seed in range(20):
        plant = plants.random_plant(seed, missing=1 + seed % 4)
        done, pattern, structure = projected(plant)
        truth = np.random.default_rng(seed).standard_normal(9)
        lacking = plant.C[:, pattern.unmeasured] @ truth[pattern.unmeasured] / done.row_scale
        observable = structure.observable[pattern.unmeasured]
        solved = done.solve @ lacking
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
    spread = done.onto.T @ (C[:, :4] / done.row_scale[:, None] * std[:4])
    assert np.linalg.cond(spread) < 10  # with rows as they stand it would be 1e15
    expected = 0.3 / (0.3**2 + 0.7**2)  # the two precise balances alone determine what is missing
    assert np.isclose(done.solve[0, 0] / done.row_scale[0], expected, rtol=1e-12)


def test_a_balance_without_any_uncertainty_outweighs_the_others():
    C = np.array([[1.0, -1.0, 0.0], [0.0, 2.0, -1.0]])  # a = u with a exact, and 2 u = c with c measured
    values, std = np.array([5.0, np.nan, 9.0]), np.array([0.0, 1.0, 3.0])
    done, _, _ = projected(plants.Plant(C, np.zeros(2), values, np.diag(std**2), np.zeros(2)))
    assert abs(done.solve[0, 0] / done.row_scale[0] + 1) < 0.01
    assert abs(done.solve[0, 1] / done.row_scale[1]) < 0.01
