from dataclasses import replace

import numpy as np
import plants
import pytest
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import reconcile
from equipoise.reconciliation.gross_error_results import worst_candidates
from equipoise.reconciliation.gross_errors import count_distinct, selection_limit, unit_directions

ROWS = 10_000
LEVEL = 0.95


def band(share, looks=1, rows=ROWS):
    """Half-width of the interval that holds all of several binomial shares with probability 0.9999.

    For a share of 5 % it is 0.9 %, or 1.1 % for 40 looks: a level that is really 6.5 % would be seen.
    """
    return scipy.stats.norm.isf(0.5e-4 / looks) * np.sqrt(share * (1 - share) / rows)


def of(plant, **kwargs):
    correlated = np.count_nonzero(plant.V - np.diag(np.diagonal(plant.V))) > 0
    std, V = (None, plant.V) if correlated else (plant.std, None)
    return reconcile(plant.values, std, plant.constraint, covariance=V, tolerance=plant.tolerance, **kwargs)


@pytest.fixture(scope="module")
def steam():
    """The steam network with meters of 2.5 %, one flow unmeasured and one exact: balances, truth, std."""
    network, truth = plants.steam_network()
    std = 0.025 * truth
    std[4] = 0.0
    return network, truth, std


def measured(steam, rows=ROWS, seed=0, bias=None, leak=None):
    """Rows of meter readings, with a bias of one meter or a leak of one node, which another flow makes up for."""
    _, truth, std = steam
    table = truth + std * np.random.default_rng(seed).standard_normal((rows, len(truth)))
    for j, size in (bias or {}).items():
        table[:, j] += size
    table[:, 17] = np.nan
    return table


@pytest.fixture(scope="module")
def honest(steam):
    """Readings with no more than their errors, reconciled."""
    network, _, std = steam
    return reconcile(measured(steam), std, network)


def length_of(steam, j=None, k=None):
    """`‖f‖` of a bias or a leak from first principles: by how much a unit of it moves the reduced residuals."""
    network, _, std = steam
    free = scipy.linalg.null_space(network.B[:, [17]].T)
    keep = [i for i in range(28) if i not in (17, 4)]
    G = free.T @ network.B
    S = G[:, keep] @ np.diag(std[keep] ** 2) @ G[:, keep].T
    g = G[:, j] if k is None else free[k]
    return np.sqrt(g @ np.linalg.solve(S, g))


# Published answers


def test_the_gross_error_of_the_heat_exchanger_is_where_its_authors_put_it():
    plant = plants.heat_exchanger(gross_error=4.0)
    result = reconcile(plant.values, plant.std, plant.constraint)
    nodal = result.nodal_test()
    np.testing.assert_allclose(np.abs(nodal.statistic), plant.printed["nodal"], atol=5.1e-5)
    assert list(nodal.alarms) == [False, True, False, False]
    assert nodal.suspect == "exchanger"
    assert nodal.critical_value == pytest.approx(2.4909, abs=5e-5)
    assert result.measurement_test().suspect == "F2"


def test_local_tests_of_the_vdi_2048_example_are_those_that_openmodelica_prints():
    vdi = plants.vdi_2048()
    found = reconcile(vdi.values, vdi.std, vdi.constraint).measurement_test()
    names = [candidate.name for candidate in found.candidates]
    for name, value in vdi.printed["local"].items():
        assert abs(found.statistic[names.index(name)]) / 1.96 == pytest.approx(value, rel=3e-6)
    assert np.isnan(found.statistic[0])
    assert not found.alarms.any()


def test_the_largest_residual_of_the_levelling_network_is_the_one_that_gnu_gama_names():
    network = plants.levelling()
    found = reconcile(network.values, network.std, network.constraint, network.inputs).measurement_test(correction=None)
    name, size = network.printed["largest"]
    worst = int(np.nanargmax(np.abs(found.statistic)))
    assert found.candidates[worst].name == name
    assert abs(found.statistic[worst]) == pytest.approx(size, abs=0.005)
    assert found.suspect is None


# Against fits with the error left free


def test_statistics_and_sizes_are_those_of_a_fit_with_the_error_left_free():
    for seed in range(12):  # every kind of plant once
        plant = plants.random_plant(seed, missing=seed % 4, exact=seed % 2, tolerant=seed % 3, correlated=seed % 3 == 0)
        test, plain = of(plant).likelihood_ratio_test(), plants.fitted(plant)
        n = plant.C.shape[1]
        for j in range(n):
            if np.isnan(plant.values[j]) or plant.std[j] == 0 or not plants.redundant(plant, j):
                assert np.isnan(test.statistic[j])
                continue
            fit = plants.fitted(plant, bias=j)
            assert test.statistic[j] ** 2 == pytest.approx(plain.statistic - fit.statistic, rel=1e-7, abs=1e-9)
            assert test.size[j] == pytest.approx(fit.size, rel=1e-7, abs=1e-9)
            assert test.size_std[j] == pytest.approx(fit.size_std, rel=1e-7)
        for k in range(len(plant.C)):
            fit = plants.fitted(plant, leak=k)
            if fit.degrees_of_freedom == plain.degrees_of_freedom:
                assert np.isnan(test.statistic[n + k])
                continue
            assert test.statistic[n + k] ** 2 == pytest.approx(plain.statistic - fit.statistic, rel=1e-7, abs=1e-9)
            assert test.size[n + k] == pytest.approx(fit.size, rel=1e-7, abs=1e-8)
            assert test.size_std[n + k] == pytest.approx(fit.size_std, rel=1e-7)


def test_the_size_of_a_bias_has_the_variance_of_reading_and_estimate_without_it():
    for seed in range(8):
        plant = plants.random_plant(seed, missing=seed % 3, tolerant=seed % 2)
        test = of(plant).measurement_test()
        for j in np.flatnonzero(~np.isnan(test.statistic)):
            values = plant.values.copy()
            values[j] = np.nan
            without = plants.fitted(replace(plant, values=values))
            assert test.size_std[j] ** 2 == pytest.approx(plant.V[j, j] + without.covariance[j, j], rel=1e-8)


def test_the_measurement_test_is_the_first_part_of_the_likelihood_ratio_test():
    plant = plants.random_plant(5, missing=1)
    one, both = of(plant).measurement_test(), of(plant).likelihood_ratio_test()
    np.testing.assert_array_equal(one.statistic, both.statistic[:9])
    assert one.critical_value < both.critical_value  # fewer candidates


def test_nodal_tests_are_residuals_in_units_of_their_standard_deviation():
    for seed in range(8):
        plant = plants.random_plant(seed, missing=seed % 2, exact=1, tolerant=2, correlated=seed % 2 == 1)
        test = of(plant).nodal_test()
        spread = np.sqrt(np.diagonal(plant.C @ plant.V @ plant.C.T) + np.square(plant.tolerance))
        complete = ~(plant.C[:, np.isnan(plant.values)] != 0).any(axis=1)
        missed = plant.C @ np.nan_to_num(plant.values) - plant.b
        np.testing.assert_allclose(test.statistic, np.where(complete, missed / spread, np.nan), atol=1e-10)
        np.testing.assert_allclose(test.size, np.where(complete, missed, np.nan), atol=1e-10)


def test_a_leak_that_exact_values_rule_out_is_no_candidate():
    texts = {"first": "a = b", "second": "a = b + c", "third": "b = d"}
    flows = LinearConstraint.from_equations(texts, outputs=["a", "b", "c", "d"])
    test = reconcile([3.0, 5.0, 0.0, 4.0], [1.0, 1.0, 0.0, 1.0], flows).likelihood_ratio_test()
    assert np.isnan(test.statistic[4:6]).all()  # with c exactly 0, neither of the first two can leak alone
    assert np.isfinite(test.statistic[6])


def test_a_balance_that_was_left_out_is_not_tested():
    plant = plants.heat_exchanger(gross_error=4.0)
    result = reconcile(plant.values, plant.std, plant.constraint).without("exchanger")
    for test in (result.nodal_test(), result.likelihood_ratio_test()):
        (k,) = [i for i, candidate in enumerate(test.candidates) if candidate.name == "exchanger"]
        assert np.isnan(test.statistic[k])
        assert np.isfinite(test.statistic[k + 1])


# Truth by simulation


def test_every_test_gives_false_alarms_at_its_nominal_rate(honest):
    assert abs(honest.global_test(LEVEL).alarm.mean() - 0.05) < band(0.05)
    for test in (honest.likelihood_ratio_test(LEVEL, None), honest.nodal_test(LEVEL, None)):
        tested = ~np.isnan(test.statistic[0])
        rates = test.alarms[:, tested].mean(axis=0)
        assert np.abs(rates - 0.05).max() < band(0.05, looks=len(rates))


@pytest.mark.parametrize("correction", ["sidak", "bonferroni"])
def test_corrected_tests_give_false_alarms_in_no_more_rows_than_they_promise(honest, correction):
    for test in (honest.measurement_test, honest.likelihood_ratio_test, honest.nodal_test):
        assert test(LEVEL, correction).alarms.any(axis=1).mean() < 0.05 + band(0.05)


@pytest.mark.parametrize("correction", ["sidak", "bonferroni"])
def test_candidates_that_are_the_same_test_do_not_lower_the_level(correction):
    flows = LinearConstraint.from_equations("a = b + c", outputs=["a", "b", "c"])
    result = reconcile(np.random.default_rng(6).standard_normal((ROWS, 3)), 1.0, flows)
    for test in (result.measurement_test, result.likelihood_ratio_test):
        assert abs(test(LEVEL, correction).alarms.any(axis=1).mean() - 0.05) < band(0.05)


def test_the_level_of_a_plant_is_that_of_the_largest_of_its_different_numbers(honest):
    """Šidák's is on the safe side for numbers that are correlated, and that alone may keep alarms below 5 %."""
    test = honest.likelihood_ratio_test(LEVEL)
    correlation = np.atleast_2d(np.corrcoef(test.statistic[:, ~np.isnan(test.statistic[0])].T))
    first = np.atleast_1d(~np.tril(np.abs(correlation) > 1 - 1e-9, -1).any(axis=1))
    assert first.sum() < len(first)
    assert test.critical_value[0] == pytest.approx(scipy.stats.norm.isf((1 - LEVEL ** (1 / first.sum())) / 2))
    others = np.random.default_rng(8).multivariate_normal(
        np.zeros(first.sum()), correlation[np.ix_(first, first)], ROWS
    )
    expected = (np.abs(others) > test.critical_value[0]).any(axis=1).mean()
    assert abs(test.alarms.any(axis=1).mean() - expected) < np.sqrt(2) * band(expected)
    assert 0.03 < expected < 0.05


def test_sidak_keeps_its_promise_exactly_where_balances_share_nothing():
    apart = LinearConstraint(np.kron(np.eye(6), [1.0, -1.0]))
    table = np.random.default_rng(2).standard_normal((ROWS, 12))
    test = reconcile(table, 1.0, apart).nodal_test(LEVEL)
    assert abs(test.alarms.any(axis=1).mean() - 0.05) < band(0.05)


@pytest.mark.parametrize("sigmas", [3, 5])
@pytest.mark.parametrize("j", [7, 13])
def test_power_against_a_bias_is_that_of_the_noncentral_distributions(steam, sigmas, j):
    network, _, std = steam
    size = sigmas * std[j]
    result = reconcile(measured(steam, seed=3, bias={j: size}), std, network)
    shift = size * length_of(steam, j)
    expected = scipy.stats.ncx2.sf(scipy.stats.chi2.ppf(LEVEL, 10), 10, shift**2)
    assert abs(result.global_test(LEVEL).alarm.mean() - expected) < band(expected)
    one = result.measurement_test(LEVEL, None)
    limit = scipy.stats.norm.ppf((1 + LEVEL) / 2)
    expected = scipy.stats.norm.sf(limit - shift) + scipy.stats.norm.cdf(-limit - shift)
    assert abs(one.alarms[:, j].mean() - expected) < band(expected)


@pytest.mark.parametrize("sigmas", [3, 5])
def test_power_against_a_leak_is_that_of_the_noncentral_distributions(steam, sigmas):
    network, truth, std = steam
    k, spread = 8, np.sqrt(np.square(network.B[8]) @ np.square(std))
    leaky = truth.copy()
    leaky[24] -= sigmas * spread  # the last stream out of node 9, which nothing else sees: what leaves is less
    table = leaky + std * np.random.default_rng(4).standard_normal((ROWS, 28))
    table[:, 17] = np.nan
    result = reconcile(table, std, network)
    size = float(network.B[k] @ leaky)
    shift = abs(size) * length_of(steam, k=k)
    test = result.likelihood_ratio_test(LEVEL, None)
    limit = scipy.stats.norm.ppf((1 + LEVEL) / 2)
    expected = scipy.stats.norm.sf(limit - shift) + scipy.stats.norm.cdf(-limit - shift)
    assert abs(test.alarms[:, 28 + k].mean() - expected) < band(expected)
    error = test.size[:, 28 + k] - size
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(ROWS)
    nodal = result.nodal_test(LEVEL, None)
    expected = scipy.stats.norm.sf(limit - sigmas) + scipy.stats.norm.cdf(-limit - sigmas)
    assert abs(nodal.alarms[:, k].mean() - expected) < band(expected)


def test_estimated_sizes_are_unbiased_and_as_uncertain_as_they_say(steam):
    network, _, std = steam
    result = reconcile(measured(steam, seed=5, bias={7: 5 * std[7]}), std, network)
    test = result.measurement_test()
    error = test.size[:, 7] - 5 * std[7]
    assert abs(error.mean()) < 4 * test.size_std[0, 7] / np.sqrt(ROWS)
    assert error.std() == pytest.approx(test.size_std[0, 7], rel=4 / np.sqrt(2 * ROWS))
    line = test.summary().loc["F8"]
    assert line["size"] == pytest.approx(test.size[:, 7].mean())
    assert line["size std"] == pytest.approx(error.std(ddof=1) / np.sqrt(ROWS))
    assert line["alarms"] == test.alarms[:, 7].sum()


def test_a_standard_deviation_for_each_row_gives_each_row_its_own_test(steam):
    network, _, std = steam
    table = measured(steam, rows=4)
    stds = std * np.array([1.0, 2.0, 0.5, 1.0])[:, None]
    together = reconcile(table, stds, network).likelihood_ratio_test()
    for i in range(4):
        alone = reconcile(table[i], stds[i], network).likelihood_ratio_test()
        np.testing.assert_allclose(together.statistic[i], alone.statistic, atol=1e-9)
        np.testing.assert_allclose(together.size_std[i], alone.size_std, rtol=1e-9)
        assert together.critical_value[i] == alone.critical_value


def test_parallel_directions_are_counted_once_and_those_of_no_length_not_at_all():
    f = np.array([[1.0, -3.0, 1.0, 0.0, 1e-9], [1.0, -3.0, 2.0, 0.0, 1e-9]])
    assert count_distinct(f) == 2
    np.testing.assert_array_equal(count_distinct(np.stack([f, f[:, [2, 2, 2, 3, 2]], 0 * f])), [2, 1, 0])


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
    least, worst = selection_limit(z, limit, f if own else f[0]), worst_candidates(z, limit)
    rows = np.flatnonzero(worst >= 0)
    assert (least[rows] > 2.4 + 1e-6).mean() > 0.2  # of some, a rival asks more than the limit
    np.testing.assert_array_equal(least[worst < 0], 2.4)
    a = unit[rows, :, worst[rows]]
    across, sign = e[rows] - a * (a * e[rows]).sum(1, keepdims=True), np.sign(z[rows, worst[rows]])
    for factor, stays in ((1 + 1e-6, True), (1 - 1e-6, False)):
        moved = across - a * (sign * factor * least[rows])[:, None]
        again = worst_candidates(-(moved[:, None, :] @ unit[rows])[:, 0], limit[rows])
        assert ((again == worst[rows]) == stays).all()
