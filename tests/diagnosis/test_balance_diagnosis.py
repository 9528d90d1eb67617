import re

import numpy as np
import pytest
import scipy.stats

from equipoise.balances.linear import LinearConstraint
from equipoise.diagnosis import diagnose
from equipoise.diagnosis.balance_diagnosis import Sizes, systematic_residual
from equipoise.diagnosis.repairs import Terms
from equipoise.diagnosis.robust_statistics import robust_std
from equipoise.prediction.trust import residuals

MASS = LinearConstraint.from_equations({"mass": "feed = top + bottom"}, outputs=["feed", "top", "bottom"])
WRONG = LinearConstraint.from_equations({"mass": "feed = top - bottom"}, outputs=["feed", "top", "bottom"])


def plant(variation, noise, n=1000, seed=0):
    """Flows around 100, 60 and 40 that vary and are measured with noise, both relative to their means."""
    rng = np.random.default_rng(seed)
    top, bottom = np.array([60.0, 40.0])[:, None] * (1 + variation * rng.standard_normal((2, n)))
    flows = np.column_stack([top + bottom, top, bottom])
    return flows * (1 + noise * rng.standard_normal(flows.shape))


def finding(constraint, Y, X=None, **keywords):
    X = np.zeros((len(Y), 0)) if X is None else X
    return diagnose(constraint, X, Y, **keywords).balances[0]


# The verdicts


@pytest.mark.parametrize("variation", [0.0, 0.01, 0.03, 0.1, 0.3])
@pytest.mark.parametrize("noise", [0.001, 0.02, 0.04])
def test_a_mass_balance_with_sensor_noise_holds_and_with_a_wrong_sign_does_not(variation, noise):
    flows = plant(variation, noise)
    assert finding(MASS, flows).verdict == "holds within noise"
    wrong = finding(WRONG, flows)
    assert wrong.verdict == "does not hold"
    assert (wrong.repair.kind, wrong.repair.column) == ("sign", "bottom")


def test_a_steady_plant_that_closes_is_not_refused_but_its_variation_is_said_to_be_unexplained():
    found = finding(MASS, plant(0.0, 0.02))
    assert found.holds
    assert "vary as if they were unrelated" in found.reason
    assert "unrelated" not in finding(MASS, plant(0.1, 0.02)).reason


def test_every_row_within_rounding_is_rounding_and_one_row_beyond_is_not():
    flows = plant(0.1, 0.0)
    flows[:, 0] = flows[:, 1] + flows[:, 2]
    assert finding(MASS, flows).verdict == "holds to rounding"
    flows[7, 0] += 1e-9
    found = finding(MASS, flows)
    assert found.verdict == "holds within noise"
    assert (found.n_outliers, found.outliers[0].row) == (1, 7)


def test_numbers_with_few_digits_hold_to_the_rounding_of_these_and_none_of_them_stands_out():
    """Three rounded numbers are off by 1.5 steps at most; in a quarter of the rows their sum is off by one step."""
    flows = plant(0.1, 0.0).round(2)
    found = finding(MASS, flows)
    assert (found.verdict, found.n_outliers) == ("holds to rounding", 0)
    assert "off by more than 0.015" in found.reason
    flows[7, 0] += 0.06  # one step is 0.78 robust standard deviations, and six of these stand out
    found = finding(MASS, flows)
    assert (found.verdict, [row.row for row in found.outliers]) == ("holds within noise", [7])
    assert finding(MASS, plant(0.1, 0.0).round(2) + np.array([0.01, 0, 0])).verdict == "biased"


def test_a_tenth_of_the_rows_that_stand_out_has_no_say_in_the_verdict():
    flows = plant(0.1, 0.001)
    off = flows.copy()
    off[::10, 1] = 0.0
    found, clean = finding(MASS, off), finding(MASS, np.delete(flows, np.s_[::10], axis=0))
    assert (found.verdict, found.n_outliers) == ("holds within noise", 100)
    assert (found.typical, found.reason) == (pytest.approx(clean.typical), clean.reason)
    off[1::10, 1] = 0.0
    assert not finding(MASS, off).holds


@pytest.mark.parametrize("n_off", [50, 100])
def test_rows_without_a_say_in_the_repaired_balance_hide_no_repair(n_off):
    """They do not stand out as long as the sign is wrong: the residual itself varies by as much as they are off."""
    flows = plant(0.3, 0.001)
    flows[:n_off, 0] = 0.0
    wrong, right = finding(WRONG, flows), finding(MASS, flows)
    assert (wrong.repair.kind, wrong.repair.column) == ("sign", "bottom")
    assert (wrong.repair.after, right.verdict) == (pytest.approx(right.typical), "holds within noise")
    assert wrong.repair.before == pytest.approx(2 * 40 * np.sqrt(1 + 0.3**2), rel=0.05)


def test_a_missing_factor_is_fitted_without_the_rows_that_stand_out_from_it():
    flows = plant(0.1, 0.002)
    flows[:, 1] /= 1.15
    flows[::12, 0] = 0.0
    repair = finding(MASS, flows).repair
    assert (repair.kind, repair.column) == ("fitted factor", "top")
    assert repair.factor == pytest.approx(1.15, abs=0.005)


def test_data_of_a_shorter_type_hold_to_their_own_rounding():
    flows = plant(0.1, 0.0).astype(np.float32)
    flows[:, 0] = flows[:, 1] + flows[:, 2]
    assert finding(MASS, flows.astype(float)).verdict == "holds within noise"
    precision = float(np.finfo(np.float32).eps)
    assert finding(MASS, flows.astype(float), precision=precision).verdict == "holds to rounding"


def test_unrelated_columns_do_not_hold():
    rng = np.random.default_rng(0)
    assert finding(MASS, rng.standard_normal((200, 3))).verdict == "does not hold"
    flows = plant(0.15, 0.0)
    flows[:, 0] = rng.permutation(flows[:, 0])
    found = finding(MASS, flows)
    assert found.verdict == "does not hold"
    assert "unrelated" in found.reason
    assert found.repair is None


@pytest.mark.parametrize(("noise", "verdict"), [(0.15, "holds within noise"), (0.3, "does not hold")])
def test_a_fifth_of_its_terms_is_what_noise_may_be(noise, verdict):
    rng = np.random.default_rng(0)
    top, bottom = rng.standard_normal((2, 2000))
    feed = top + bottom + noise * 2.0 * rng.standard_normal(2000)  # the terms together have a size of 2
    found = finding(MASS, np.column_stack([feed, top, bottom]))
    assert found.verdict == verdict
    assert found.relative == pytest.approx(noise, rel=0.1)  # the largest 2 % are not in it


def test_a_small_offset_is_a_bias_and_a_large_one_breaks_the_balance():
    flows = plant(0.1, 0.002)
    flows[:, 0] += 0.3
    found = finding(MASS, flows)
    assert found.verdict == "biased"
    assert found.holds
    half_width = 1.96 * np.std(flows @ [1, -1, -1], ddof=1) / np.sqrt(len(flows))
    match = re.match(r"its mean is off by 0\.3\S* ± (\S+)", found.reason)
    assert match is not None
    assert float(match[1]) == pytest.approx(half_width, rel=0.06)
    flows[:, 0] += 5.0
    found = finding(MASS, flows)
    assert found.verdict == "does not hold"
    assert found.repair.kind == "constant"
    assert found.repair.factor == pytest.approx(-5.3, abs=0.02)


def test_a_wrong_sign_of_a_small_term_does_not_hold_although_the_residual_is_small():
    rng = np.random.default_rng(0)
    big, small = 4 + 0.3 * rng.standard_normal(500), 0.02 * rng.standard_normal(500)
    Y = np.column_stack([big + small, big, small]) + 0.001 * rng.standard_normal((500, 3))
    found = finding(WRONG, Y)
    assert found.relative < 0.02
    assert found.verdict == "does not hold"
    assert found.repair.column == "bottom"
    assert finding(MASS, Y).verdict == "holds within noise"


def test_leaving_out_a_noisy_column_is_no_repair_of_a_balance_that_holds():
    rng = np.random.default_rng(0)
    big = rng.standard_normal(500)
    Y = np.column_stack([big, big, 0.02 * rng.standard_normal(500)])  # bottom is nothing but noise
    found = finding(MASS, Y)
    assert found.verdict == "holds within noise"
    assert found.repair is None


@pytest.mark.parametrize("text", ["total = a - b - c", "total = b - a - c", "total = c - a - b"])
def test_two_wrong_signs_do_not_hold_and_have_no_repair(text):
    # A factor -0.7 on the total would bring the residual down by 20: that is no explanation, and not proposed.
    rng = np.random.default_rng(0)
    a, b, c = 1 + rng.uniform(0, 1, 400), 0.3 * rng.standard_normal(400), rng.uniform(0.2, 0.6, 400)
    balance = LinearConstraint.from_equations(text, outputs=["total", "a", "b", "c"])
    found = finding(balance, np.column_stack([a + b + c, a, b, c]) + 0.003 * rng.standard_normal((400, 4)))
    assert found.verdict == "does not hold"
    assert found.repair is None


def test_a_fitted_factor_that_explains_nearly_all_is_proposed():
    flows = plant(0.1, 0.002)
    flows[:, 1] /= 1.15
    repair = finding(MASS, flows).repair
    assert (repair.kind, repair.column) == ("fitted factor", "top")
    assert repair.factor == pytest.approx(1.15, abs=0.005)


@pytest.mark.parametrize("n", [0, 2])
def test_fewer_than_three_rows_say_nothing(n):
    found = finding(MASS, plant(0.1, 0.02, n=n))
    assert found.verdict == "too few rows"
    assert found.n_rows == n
    assert found.holds


def test_a_fitted_repair_that_leaves_a_bias_is_not_proposed():
    # Two missing columns: a multiple of one of them takes up most of the other, but not its dependence on x.
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, 500)
    total, a, b, c = np.zeros(500), 0.05 * np.sqrt(x), 0.012 * x, rng.uniform(3, 4, 500)
    total = a + b + c
    names = ["total", "a", "b", "c"]
    Y = np.column_stack([total, a, b, c]) + 0.0005 * rng.standard_normal((500, 4))
    balance = LinearConstraint.from_equations("total = c", inputs=["x"], outputs=names)
    found = finding(balance, Y, x[:, None])
    assert found.verdict == "does not hold"
    assert found.repair is None


# Sensors


def test_sensors_that_explain_the_residual_make_it_noise_whatever_its_size():
    rng = np.random.default_rng(0)
    flows = plant(0.1, 0.0) + 20.0 * rng.standard_normal((1000, 3))
    assert finding(MASS, flows).verdict == "does not hold"
    found = finding(MASS, flows, sensor_std=[20.0, 20.0, 20.0])
    assert found.verdict == "holds within noise"
    assert "its sensors explain 35" in found.reason  # 20 √3 = 34.6


def test_what_sensors_explain_is_weighted_by_the_coefficients():
    rng = np.random.default_rng(0)
    a = rng.uniform(1, 2, 500)
    double = LinearConstraint.from_equations("b = 3*a + x", inputs=["x"], outputs=["a", "b"])
    Y = np.column_stack([a, 3 * a]) + 0.1 * rng.standard_normal((500, 2))
    found = finding(double, Y, np.zeros((500, 1)), sensor_std=[0.1, 0.1])
    assert "its sensors explain 0.32" in found.reason  # 0.1 √(3² + 1²)


@pytest.mark.parametrize(("factor", "holds"), [(0.9, True), (1.5, True), (2.5, False)])
def test_a_residual_beyond_twice_what_sensors_explain_does_not_hold(factor, holds):
    rng = np.random.default_rng(0)
    flows = plant(0.1, 0.0) + factor * 0.5 * rng.standard_normal((1000, 3))
    assert finding(MASS, flows, sensor_std=dict.fromkeys(MASS.outputs, 0.5)).holds == holds


def test_a_steady_bias_beyond_the_sensors_is_named():
    flows = plant(0.1, 0.0) + np.array([5.0, 0.0, 0.0])
    found = finding(MASS, flows, sensor_std=[0.5, 0.5, 0.5])
    assert found.verdict == "does not hold"
    assert "its mean is off by 5" in found.reason


def test_few_rows_must_be_certain_to_exceed_the_sensors():
    # 4 rows whose rms is 2.5 times the noise: χ²₄ = 25, probability 5e-5 > 3e-5; three times: 36, 3e-7.
    assert scipy.stats.chi2.sf(25, 4) > scipy.stats.norm.sf(4) > scipy.stats.chi2.sf(36, 4)
    flows, signs = plant(0.1, 0.0, n=4), np.array([1.0, -1.0, -1.0, 1.0])
    for factor, holds in ((2.5, True), (3.0, False)):
        moved = flows + np.outer(factor * np.sqrt(3) * 0.1 * signs, [1, 0, 0])
        assert finding(MASS, moved, sensor_std=[0.1, 0.1, 0.1]).holds == holds


def test_a_balance_with_an_unknown_sensor_is_judged_by_its_terms():
    flows = plant(0.1, 0.02)
    assert finding(MASS, flows, sensor_std={"feed": 1e-6, "top": 1e-6}).verdict == "holds within noise"
    assert finding(MASS, flows, sensor_std={name: 1e-6 for name in MASS.outputs}).verdict == "does not hold"


# Bias


def test_the_systematic_part_is_what_trust_finds_after_a_fit():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 3)), plant(0.1, 0.02, n=80)
    Y[:, 0] += 2.0 * X[:, 1] + 0.5
    balance = LinearConstraint(MASS.B, np.zeros((1, 3)))
    z = balance.residual(X, Y)[:, 0]
    terms = Terms({"feed": 1.0, "top": -1.0, "bottom": -1.0}, 0.0, {}, z, 1e-12)
    found = systematic_residual(terms, dict(zip(balance.columns, X.T, strict=True)))
    (expected,) = residuals(balance, X, Y, 1e-14)
    assert found.input == expected.input == "x1"
    for part in ("mean", "se", "std", "n_rows", "input_slope", "input_z", "n_inputs", "biased"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-9), part
    assert found.biased


def test_noise_of_a_measured_input_is_no_bias_against_it():
    flows = plant(0.03, 0.02)
    balance = LinearConstraint.from_equations("feed = top + bottom", inputs=["feed"], outputs=["top", "bottom"])
    X, Y = flows[:, :1], flows[:, 1:]
    assert residuals(balance, X, Y, 1e-14)[0].slope_is_biased  # which it would be for exact inputs
    assert finding(balance, Y, X).verdict == "holds within noise"


def test_a_wrong_gain_of_an_input_is_a_bias_against_it():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 1000))
    balance = LinearConstraint.from_equations("total = x + y", inputs=["x"], outputs=["total", "y"])
    Y = np.column_stack([0.9 * x + y, y]) + 0.05 * rng.standard_normal((1000, 2))
    found = finding(balance, Y, x[:, None])
    assert found.verdict == "biased"
    assert "per standard deviation of 'x'" in found.reason


def test_a_missing_input_hides_no_slope():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((500, 2)), plant(0.1, 0.02, n=500)
    Y[:, 0] += 2.0 * X[:, 0]
    X[::7] = np.nan
    balance = LinearConstraint(MASS.B, np.zeros((1, 2)))
    assert finding(balance, Y, X).verdict == "biased"


# Numbers


def test_numbers_of_a_finding_are_those_of_the_residual():
    flows = plant(0.1, 0.02, n=49)
    z = flows[:, 0] - flows[:, 1] - flows[:, 2]
    found = finding(MASS, flows)
    assert found.n_rows == 49
    assert found.mean == pytest.approx(np.mean(z), rel=1e-12)
    assert found.std == pytest.approx(np.std(z, ddof=1), rel=1e-12)
    assert found.rms == pytest.approx(np.sqrt(np.mean(z**2)), rel=1e-12)
    assert found.typical == pytest.approx(found.rms, rel=1e-12)  # fewer than 50 rows: nothing is trimmed
    assert found.relative == pytest.approx(found.rms / np.sqrt(np.mean(flows**2, axis=0).sum()), rel=1e-12)
    order = np.argsort(-np.abs(z))[:5]
    assert [row.row for row in found.worst_rows] == order.tolist()
    assert [row.residual for row in found.worst_rows] == pytest.approx(z[order].tolist(), rel=1e-12)
    share = z[order] / np.abs(flows[order]).sum(axis=1)
    assert [row.relative for row in found.worst_rows] == pytest.approx(share.tolist(), rel=1e-12)


def test_the_spread_of_unrelated_terms_is_left_in_full():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40_000))
    sizes = Sizes.from_terms(Terms({"a": 3.0, "b": -4.0}, 0.0, {"a": a + 7, "b": b}, 3 * (a + 7) - 4 * b))
    assert sizes.relative_std == pytest.approx(1.0, abs=0.02)
    constant = Sizes.from_terms(Terms({"a": 1.0}, -1.0, {"a": np.ones(9)}, np.zeros(9)))
    assert constant.relative_std is None
    assert constant.terms == pytest.approx(np.sqrt(2))


def test_outliers_are_far_from_the_median_by_the_robust_deviation():
    flows = plant(0.1, 0.01)
    flows[[3, 500], 0] += [30.0, -60.0]
    z = flows[:, 0] - flows[:, 1] - flows[:, 2]
    flows[700, 0] += np.median(z) + 5 * robust_std(z) - z[700]  # not far enough
    z = flows[:, 0] - flows[:, 1] - flows[:, 2]
    expected = np.flatnonzero(np.abs(z - np.median(z)) > 6 * robust_std(z))
    found = finding(MASS, flows)
    assert found.verdict == "holds within noise"
    assert found.n_outliers == len(expected) == 2
    assert [row.row for row in found.outliers] == [500, 3]
    assert found.outliers[0].residual == pytest.approx(z[500])


def test_sentinels_are_listed_as_outliers_and_do_not_break_a_balance():
    flows = plant(0.1, 0.01)
    flows[::100, 1] = -9999.0
    found = finding(MASS, flows)
    assert found.verdict == "holds within noise"
    assert (found.n_outliers, len(found.outliers)) == (10, 10)


def test_rows_of_a_sensor_that_was_stuck_for_a_while_are_outliers_but_a_third_of_all_rows_are_none():
    flows = plant(0.1, 0.0)
    flows[::10, 0] += 1e-3
    assert finding(MASS, flows).n_outliers == 100
    flows[::3, 0] += 1e-3
    assert finding(MASS, flows).n_outliers == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_missing_constant_is_not_rounded_until_it_leaves_a_bias(seed):
    """273.2 instead of 273.15 is off by 0.3 standard deviations of the residual."""
    rng = np.random.default_rng(seed)
    celsius = rng.uniform(10, 90, 300)
    table = np.column_stack([celsius, celsius + 273.15]) + 0.12 * rng.standard_normal((300, 2))
    equal = LinearConstraint.from_equations({"same": "T2 = T1"}, outputs=["T1", "T2"])
    found = finding(equal, table)
    assert found.verdict == "does not hold"
    assert found.repair.kind == "constant"
    assert -found.repair.factor == pytest.approx(273.15, abs=0.05)


def test_a_balance_that_does_not_hold_has_no_outliers():
    flows = plant(0.1, 0.01)
    flows[3, 0] = 1e5
    assert finding(WRONG, flows).n_outliers == 0
    assert finding(WRONG, flows).worst_rows[0].row == 3
