import numpy as np
import pandas as pd
import plants
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from plants import NAN

from equipoise.balances.linear import LinearConstraint
from equipoise.reconciliation import ReconciliationError, reconcile

seeds = st.integers(0, 10_000)


def of(plant, **kwargs):
    """Reconcile a plant of `plants.py`; correlated if its covariance is not diagonal."""
    correlated = np.count_nonzero(plant.V - np.diag(np.diagonal(plant.V))) > 0
    std, V = (None, plant.V) if correlated else (plant.std, None)
    return reconcile(plant.values, std, plant.constraint, covariance=V, tolerance=plant.tolerance, **kwargs)


def varied(seed):
    """A random plant of any kind: with unmeasured and exact variables, tolerances and correlations or without."""
    rng = np.random.default_rng(seed)
    missing, exact, tolerant = rng.integers(0, 5), rng.integers(0, 3), rng.integers(0, 3)
    correlated = bool(rng.integers(0, 2))
    return plants.random_plant(seed, missing=missing, exact=exact, tolerant=tolerant, correlated=correlated)


def printed(digits):
    """Half a unit of the last printed digit, and a little for numbers that were rounded upwards from a half."""
    return 0.5001 * 10.0**-digits


# Published answers


def test_the_steam_turbine_of_vdi_2048_comes_out_to_its_printed_digits():
    vdi = plants.vdi_2048()
    result = reconcile(vdi.values, vdi.std, vdi.constraint)
    digits = [3, 5, 3, 3, 3, 3, 6, 4, 4, 4, 4]
    assert (np.abs(result.values - vdi.reconciled) <= [printed(d) for d in digits]).all()
    digits = [3, 6, 7, 7, 6, 6, 6, 6, 6, 5, 5]
    after = result.std * 1.96
    assert (np.abs(after - vdi.printed["half_widths"]) <= [printed(d) for d in digits]).all()
    assert abs(result.statistic - vdi.printed["statistic"]) <= printed(4)
    assert abs(result.threshold - vdi.printed["threshold"]) <= printed(4)
    assert result.degrees_of_freedom == 3
    assert not result.global_test().alarm


def test_half_widths_in_are_half_widths_out():
    vdi = plants.vdi_2048()
    result = reconcile(vdi.values, vdi.std, vdi.constraint)
    np.testing.assert_allclose(result.half_widths.before, vdi.std * 1.959963984540054, rtol=1e-12)
    np.testing.assert_allclose(
        result.half_widths.after, np.array(vdi.printed["half_widths"]) * 1.95996 / 1.96, rtol=1e-5
    )
    assert reconcile(vdi.values, vdi.std, vdi.constraint, level=0.5).half_widths.before[0] == pytest.approx(
        0.6744897501960817 * vdi.std[0], rel=1e-12
    )


def test_a_variable_in_no_balance_is_left_alone():
    vdi = plants.vdi_2048()
    result = reconcile(vdi.values, vdi.std, vdi.constraint)
    assert result.classes[0] == "measured non-redundant"
    assert set(result.classes[1:]) == {"measured redundant"}
    assert result.adjustments[0] == 0.0
    assert result.std[0] == vdi.std[0]


def test_the_heat_exchanger_of_narasimhan_and_jordache_comes_out_to_its_printed_digits():
    plant = plants.heat_exchanger()
    result = reconcile(plant.values, plant.std, plant.constraint)
    assert (np.abs(result.values - plant.reconciled) <= printed(2)).all()


def test_the_heat_exchanger_with_two_unmeasured_flows_comes_out_to_its_printed_digits():
    plant = plants.heat_exchanger("1256")
    result = reconcile(plant.values, plant.std, plant.constraint)
    assert (np.abs(result.values - plant.reconciled) <= printed(2)).all()
    assert list(result.classes[2:4]) == ["unmeasured observable"] * 2
    assert set(result.classes[[0, 1, 4, 5]]) == {"measured redundant"}
    assert np.isnan(result.adjustments[2:4]).all()
    assert np.isnan(result.half_widths.before[2:4]).all()


def test_the_heat_exchanger_with_a_gross_error_has_the_printed_statistic():
    plant = plants.heat_exchanger(gross_error=4.0)
    result = reconcile(plant.values, plant.std, plant.constraint)
    np.testing.assert_allclose(result.residuals.before, plant.printed["residuals"], atol=1e-12)
    assert abs(result.statistic - plant.printed["statistic"]) <= 5.01e-4  # 16.6745, printed without rounding it up
    assert result.threshold == pytest.approx(9.488, abs=5e-4)
    assert result.global_test().alarm


def test_a_levelling_network_with_a_known_point_comes_out_as_gnu_gama_prints_it():
    network = plants.levelling()
    result = reconcile(network.values, network.std, network.constraint, network.inputs)
    assert (np.abs(result.values - network.reconciled) <= 1.001e-5).all()  # differences of printed heights
    assert (np.abs(result.std - network.printed["std"]) <= printed(4)).all()
    assert (np.abs(result.half_widths.after - network.printed["half_widths"]) <= printed(4)).all()
    assert result.statistic == pytest.approx(network.printed["statistic"], rel=1e-5)
    assert result.degrees_of_freedom == network.printed["freedom"]
    assert list(result.classes[8:]) == ["unmeasured observable"] * 3


def test_four_flows_come_out_as_openmodelica_prints_them():
    plant = plants.four_flows()
    result = reconcile(plant.values, plant.std, plant.constraint)
    assert (np.abs(result.values - plant.reconciled) <= printed(5)).all()
    off = np.abs(result.std * 1.96 - plant.printed["half_widths"])
    assert (off <= [printed(d) for d in (5, 6, 6, 5)]).all()


# Against the slow route


@pytest.mark.parametrize("block", range(3))
def test_every_quantity_is_that_of_a_fit_in_the_null_space(block):
    for seed in range(20 * block, 20 * (block + 1)):
        plant = varied(seed)
        result, fit = of(plant), plants.fitted(plant)
        np.testing.assert_allclose(result.values, fit.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.adjustments, fit.values - plant.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.covariance(), fit.covariance, atol=1e-9)
        np.testing.assert_allclose(np.square(result.std), np.diagonal(fit.covariance), atol=1e-9)
        np.testing.assert_allclose(result.statistic, fit.statistic, atol=1e-9)
        assert result.degrees_of_freedom == fit.degrees_of_freedom


def test_reconciled_values_obey_exact_balances_to_rounding():
    for seed in range(15):
        plant = plants.random_plant(seed, missing=seed % 4)
        before, after = of(plant).residuals
        assert np.nanmax(np.abs(after), initial=0.0) < 1e-12
        known = ~(plant.C[:, np.isnan(plant.values)] != 0).any(axis=1)
        missed = np.where(known, plant.C @ np.nan_to_num(plant.values) - plant.b, np.nan)
        np.testing.assert_allclose(before, missed, atol=1e-12)


def test_a_balance_with_a_variable_that_nothing_determines_has_no_residual():
    flows = LinearConstraint.from_equations(["a = b + c", "d = e"], outputs=list("abcde"))
    result = reconcile([1.0, NAN, NAN, 2.0, 2.1], 0.1, flows)
    assert np.isnan(result.residuals.before[0])
    assert np.isnan(result.residuals.after[0])
    assert result.residuals.after[1] == pytest.approx(0, abs=1e-13)
    assert np.isnan(result.values[1:3]).all()
    assert np.isnan(result.std[1:3]).all()
    assert list(result.classes[1:3]) == ["unmeasured unobservable"] * 2


def test_a_tolerance_leaves_each_balance_its_share_of_the_residual():
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    result = reconcile([3.0, 0.0], [1.0, 1.0], flows, tolerance=2.0)  # variances 1, 1 and 4 of 6
    np.testing.assert_allclose(result.values, [2.5, 0.5])
    assert result.residuals.after[0] == pytest.approx(2.0)
    assert result.statistic == pytest.approx(9 / 6)


def test_an_infinite_tolerance_is_no_balance_and_an_infinite_std_no_measurement():
    flows = LinearConstraint.from_equations({"one": "a = b", "two": "b = c"}, outputs=["a", "b", "c"])
    result = reconcile([1.0, 2.0, 9.0], 1.0, flows, tolerance={"one": 0.0, "two": np.inf})
    np.testing.assert_allclose(result.values, [1.5, 1.5, 9.0])
    assert result.classes[2] == "measured non-redundant"
    blind = reconcile([1.0, 2.0, 9.0], [1.0, 1.0, np.inf], flows)
    np.testing.assert_allclose(blind.values, [1.5, 1.5, 1.5])
    assert blind.classes[2] == "unmeasured observable"


def test_exact_sensors_stay_and_determine_what_they_can():
    flows = LinearConstraint.from_equations({"sum": "a = b + c", "same": "c = d"}, outputs=list("abcd"))
    result = reconcile([10.0, 6.5, 4.0, 4.4], [0.0, 1.0, 0.0, 1.0], flows)
    np.testing.assert_allclose(result.values, [10, 6, 4, 4], atol=1e-13)
    np.testing.assert_allclose(result.std, 0, atol=1e-13)
    assert result.degrees_of_freedom == 2
    assert result.statistic == pytest.approx(0.25 + 0.16)


def test_what_would_be_exact_but_was_not_measured_is_estimated():
    flows = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    result = reconcile([3.0, NAN], [1.0, 0.0], flows)
    np.testing.assert_allclose(result.values, [3, 3])
    assert list(result.classes) == ["measured non-redundant", "unmeasured observable"]
    assert result.std[1] == pytest.approx(1.0)


def test_inputs_with_a_std_are_reconciled_like_outputs():
    texts = {"mass": "feed = top + bottom", "split": "top = 0.6*feed + side"}
    outputs, columns = ["top", "bottom", "side"], ["feed", "reserve"]
    mixed = LinearConstraint.from_equations(texts, inputs=columns[:1], known=columns[1:], outputs=outputs)
    whole = LinearConstraint.from_equations(texts, outputs=outputs + columns)
    y, x, y_std, x_std = [61.0, 38.0, 2.0], [100.0, 5.0], [1.0, 2.0, 0.5], [3.0, 1.0]
    result = reconcile(y, y_std, mixed, x, x_std)
    other = reconcile(y + x, y_std + x_std, whole)
    assert result.variables == tuple(outputs + columns)
    np.testing.assert_allclose(result.values, other.values)
    np.testing.assert_allclose(result.covariance(), other.covariance(), atol=1e-12)
    exact = reconcile(y, y_std, mixed, x)
    assert exact.variables == tuple(outputs)
    np.testing.assert_allclose(exact.values, reconcile(y + x, [*y_std, 0.0, 0.0], whole).values[:3])


def test_a_missing_input_is_estimated_where_inputs_are_reconciled():
    flows = LinearConstraint.from_equations("feed = top + bottom", inputs=["feed"], outputs=["top", "bottom"])
    result = reconcile([6.0, 4.0], 1.0, flows, [NAN], [1.0])
    np.testing.assert_allclose(result.values, [6, 4, 10])
    assert result.std[2] == pytest.approx(np.sqrt(2))


def test_a_plant_of_800_variables_is_that_of_the_textbook_formula():
    rng = np.random.default_rng(0)
    C = np.zeros((370, 800))
    for k in range(370):
        C[k, rng.choice(800, 5, replace=False)] = rng.choice([-1.0, 1.0], 5)
        C[k, 2 * k] = 1.0
    std = np.exp(rng.standard_normal(800))
    table = rng.standard_normal((40, 800))
    result = reconcile(table, std, LinearConstraint(C))
    V = np.diag(std**2)
    K = np.linalg.solve(C @ V @ C.T, C @ V).T
    np.testing.assert_allclose(result.values, table - table @ C.T @ K.T, atol=1e-9)
    np.testing.assert_allclose(
        np.square(result.std[0]), std**2 - np.einsum("jk,kj->j", K, C @ V), rtol=1e-7, atol=1e-12
    )
    assert result.degrees_of_freedom[0] == 370


# What must not matter


@settings(max_examples=15)
@given(seeds)
def test_units_do_not_matter_over_twelve_decades(seed):
    plant, rng = varied(seed), np.random.default_rng(seed + 1)
    s, c = 10.0 ** rng.uniform(-6, 6, plant.C.shape[1]), 10.0 ** rng.uniform(-6, 6, len(plant.C))
    one, other = of(plant), of(plant.in_units(s, c))
    np.testing.assert_allclose(other.values / s, one.values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other.std / s, one.std, rtol=1e-6, atol=1e-12)
    assert other.statistic == pytest.approx(one.statistic, rel=1e-8, abs=1e-10)
    assert list(other.classes) == list(one.classes)
    np.testing.assert_allclose(other.residuals.before / c, one.residuals.before, rtol=1e-6)


@settings(max_examples=12)
@given(seeds)
def test_the_order_of_variables_and_balances_does_not_matter(seed):
    plant, rng = varied(seed), np.random.default_rng(seed + 1)
    variables, balances = rng.permutation(plant.C.shape[1]), rng.permutation(len(plant.C))
    one, other = of(plant), of(plant.permuted(variables, balances))
    np.testing.assert_allclose(other.values, one.values[variables], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.std, one.std[variables], rtol=1e-7, atol=1e-9)
    assert other.statistic == pytest.approx(one.statistic, rel=1e-9, abs=1e-10)
    assert list(other.classes) == list(one.classes[variables])


@settings(max_examples=15)
@given(seeds)
def test_a_balance_that_follows_from_the_others_changes_nothing(seed):
    plant = plants.random_plant(seed, missing=seed % 4, exact=seed % 2)
    weights = np.random.default_rng(seed).choice([-1.0, 0.5, 2.0], len(plant.C))
    C = np.zeros((len(plant.C) + 1, plant.C.shape[1] + 1))  # one more variable, known to be 0, lets the balance be said
    C[:-1, :-1], C[-1] = plant.C, [*(weights @ plant.C), 1.0]
    V = np.zeros((len(plant.V) + 1,) * 2)
    V[:-1, :-1] = plant.V
    values, b = np.append(plant.values, 0.0), np.append(plant.b, weights @ plant.b)
    one, other = of(plant), of(plants.Plant(C, b, values, V, np.zeros(len(C))))
    np.testing.assert_allclose(other.values[:-1], one.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.std[:-1], one.std, rtol=1e-7, atol=1e-9)
    assert other.statistic == pytest.approx(one.statistic, rel=1e-8, abs=1e-10)
    assert other.degrees_of_freedom == one.degrees_of_freedom
    assert list(other.classes[:-1]) == list(one.classes)


@settings(max_examples=12)
@given(seeds)
def test_rows_together_are_rows_one_by_one(seed):
    rng = np.random.default_rng(seed)
    plant = plants.random_plant(seed, exact=0)
    table = plant.values + rng.standard_normal((4, plant.C.shape[1]))
    table[rng.random(table.shape) < 0.15] = np.nan
    std = np.exp(rng.standard_normal(table.shape)) if seed % 2 else plant.std
    std = np.where(rng.random(np.shape(std)) < 0.05, 0.0, std) if seed % 4 == 1 else std
    try:
        together = reconcile(table, std, plant.constraint)
    except ReconciliationError:
        return  # too many exact values in one row; `test_solution.py` looks at what is said then
    for i, row in enumerate(table):
        alone = reconcile(row, np.broadcast_to(std, table.shape)[i], plant.constraint)
        np.testing.assert_allclose(together.values[i], alone.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(together.std[i], alone.std, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(together.covariance(i), alone.covariance(), atol=1e-8)
        assert together.statistic[i] == pytest.approx(alone.statistic, rel=1e-8, abs=1e-9)
        assert together.degrees_of_freedom[i] == alone.degrees_of_freedom
        assert list(together.classes[i]) == list(alone.classes)


# Truth by simulation


def test_half_widths_cover_the_truth_at_their_level():
    network, truth = plants.steam_network()
    rng = np.random.default_rng(1)
    std = 0.025 * truth
    std[4] = 0.0
    rows = 20_000
    measured = truth + std * rng.standard_normal((rows, len(truth)))
    measured[:, [7, 20]] = np.nan
    result = reconcile(measured, std, network, level=0.9)
    known = ~np.isin(np.arange(28), [4])
    covered = (np.abs(result.values - truth) <= result.half_widths.after)[:, known].mean(axis=0)
    assert np.abs(covered - 0.9).max() < 4.5 * np.sqrt(0.9 * 0.1 / rows)  # 27 binomial shares: 1 in 5,000 leaves it
    assert (result.half_widths.after[0, known] <= np.nan_to_num(result.half_widths.before[0, known], nan=np.inf)).all()


# Tables of people


def test_a_data_frame_comes_back_in_kind_with_its_index():
    vdi = plants.vdi_2048()
    frame = pd.DataFrame([vdi.values, vdi.values + 0.1], columns=list(vdi.constraint.outputs), index=["am", "pm"])
    frame["remark"] = "calm"
    shuffled = frame[frame.columns[::-1]]
    result = reconcile(shuffled, dict(zip(vdi.constraint.outputs, vdi.std, strict=True)), vdi.constraint)
    expected = reconcile(vdi.values, vdi.std, vdi.constraint)
    assert list(result.values.columns) == list(vdi.constraint.outputs)
    assert list(result.values.index) == ["am", "pm"]
    np.testing.assert_allclose(result.values.loc["am"], expected.values)
    for part in (result.adjustments, result.std, result.half_widths.after):
        assert isinstance(part, pd.DataFrame)
    columns = {name: [value] for name, value in zip(vdi.constraint.outputs, vdi.values, strict=True)}
    polars = reconcile(pl.DataFrame(columns), vdi.std, vdi.constraint)
    assert isinstance(polars.values, pl.DataFrame)
    np.testing.assert_allclose(polars.values.to_numpy()[0], expected.values)


def test_an_empty_table_is_reconciled_to_an_empty_table():
    vdi = plants.vdi_2048()
    result = reconcile(np.zeros((0, 11)), vdi.std, vdi.constraint)
    assert result.values.shape == result.std.shape == (0, 11)
    assert result.statistic.shape == (0,)
    assert result.measurement_test().statistic.shape == (0, 11)


def test_the_covariance_of_a_table_is_given_for_one_row():
    vdi = plants.vdi_2048()
    table = np.array([vdi.values, vdi.values])
    table[1, 10] = np.nan
    result = reconcile(table, vdi.std, vdi.constraint)
    np.testing.assert_allclose(np.sqrt(np.diagonal(result.covariance(-1))), result.std[1])
    with pytest.raises(ReconciliationError, match="row must be the position of one of 2 rows, but got None"):
        result.covariance()
    with pytest.raises(ReconciliationError, match="but got 2"):
        result.covariance(2)


def test_sensors_and_balances_can_be_left_out_by_name():
    flows = LinearConstraint.from_equations({"one": "a = b", "two": "b = c"}, outputs=["a", "b", "c"])
    result = reconcile([[1.0, 2.0, 9.0], [1.0, 2.0, 6.0]], 1.0, flows)
    np.testing.assert_allclose(result.without("c").values, [[1.5, 1.5, 1.5]] * 2)
    np.testing.assert_allclose(result.without(["two"]).values, [[1.5, 1.5, 9.0], [1.5, 1.5, 6.0]])
    np.testing.assert_allclose(result.without("two").without("one").values, [[1, 2, 9], [1, 2, 6]])
    with pytest.raises(
        ReconciliationError, match=r"names of variables or balances, but got 'tow'\. Did you mean 'two'"
    ):
        result.without("tow")


def test_a_reconciliation_prints_names_units_and_both_half_widths():
    flows = LinearConstraint.from_equations("feed = top", outputs=["feed [kg/s]", "top [kg/s]"])
    text = repr(reconcile([12.0, 10.0], 1.0, flows))
    assert "1 balance, 2 variables, 1 row)" in text
    assert "Global test at 0.95: 2.0000 ≤ 3.8415" in text
    assert "'feed [kg/s]': 12 ± 1.96 → 11 ± 1.386 kg/s, measured redundant" in text


@pytest.mark.parametrize("level", [0, 1, 95, "high", None, NAN])
def test_a_level_that_is_no_probability_is_refused(level):
    vdi = plants.vdi_2048()
    with pytest.raises(ReconciliationError, match="level must lie between 0 and 1"):
        reconcile(vdi.values, vdi.std, vdi.constraint, level=level)


NAMES = ["feed [t/h]", "top [t/h]", "bottom [t/h]"]
COLUMN = LinearConstraint.from_equations("feed = top + bottom", outputs=NAMES)


def test_one_row_is_shown_as_it_is():
    result = reconcile([101.0, 60.0, 38.0], [2.0, 1.0, 1.0], COLUMN)
    table = result.to_frame()
    assert list(table.index) == NAMES
    assert list(table["unit"]) == ["t/h"] * 3
    np.testing.assert_allclose(table["measured"], [101, 60, 38])
    np.testing.assert_allclose(table["reconciled"], result.values)
    np.testing.assert_allclose(table["adjustment"], result.adjustments)
    np.testing.assert_allclose(table["± before"], result.half_widths.before)
    np.testing.assert_allclose(table["± after"], result.half_widths.after)
    assert list(table["class"]) == ["measured redundant"] * 3


def test_a_table_is_shown_by_means_over_what_is_known():
    result = reconcile([[101.0, 60.0, 38.0], [99.0, 60.0, NAN], [99.0, 60.0, NAN]], [2.0, 1.0, 1.0], COLUMN)
    table = result.to_frame()
    assert table.loc["bottom [t/h]", "measured"] == 38
    assert table.loc["bottom [t/h]", "reconciled"] == pytest.approx(result.values[:, 2].mean())
    assert table.loc["bottom [t/h]", "class"] == "unmeasured observable"
    expected = np.sqrt(np.square(result.half_widths.after[:, 2]).mean())
    assert table.loc["bottom [t/h]", "± after"] == pytest.approx(expected)


def test_only_reconciled_inputs_are_shown():
    mixed = LinearConstraint.from_equations("feed = top + bottom", inputs=NAMES[:1], outputs=NAMES[1:])
    assert list(reconcile([60.0, 38.0], 1.0, mixed, [101.0]).to_frame().index) == NAMES[1:]
    assert list(reconcile([60.0, 38.0], 1.0, mixed, [101.0], [2.0]).to_frame().index) == [*NAMES[1:], NAMES[0]]


def test_many_variables_are_not_all_printed():
    many = LinearConstraint(np.ones((1, 40)))
    assert "... and 10 more" in repr(reconcile(np.ones(40), 1.0, many))
    assert repr(reconcile(np.ones(40), 1.0, many)).count("measured redundant") == 30


def test_what_nothing_determines_is_shown_as_such():
    text = repr(reconcile([101.0, NAN, NAN], 1.0, COLUMN))
    assert "'top [t/h]': nan ± nan → nan ± nan t/h, unmeasured unobservable" in text
