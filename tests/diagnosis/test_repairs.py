import numpy as np
import pytest
from hypothesis import given, strategies as st

from equipoise.balances.linear import LinearConstraint
from equipoise.diagnosis.repairs import KINDS, MIN_ROWS, Terms, find_repair, repaired
from equipoise.diagnosis.robust_statistics import trimmed_rms

OUTPUTS = ("total", "a", "b", "c")


def made_up(n=300, noise=0.003, seed=0):
    """Columns with total = a + b + c up to noise, and others that have nothing to do with them."""
    rng = np.random.default_rng(seed)
    a, b, c = 1 + rng.uniform(0, 1, n), 0.3 * rng.standard_normal(n), rng.uniform(0.2, 0.4, n)
    columns = {"total": a + b + c, "a": a, "b": b, "c": c}
    columns = {name: values + noise * rng.standard_normal(n) for name, values in columns.items()}
    return columns | {"other": rng.uniform(0, 1, n), "level": 2 + rng.standard_normal(n)}


def terms_of(columns, coefficients, constant=0.0, unit=None):
    z = constant + sum(c * columns[name] for name, c in coefficients.items())
    used = {name: columns[name] for name in coefficients}
    return Terms(coefficients, constant, used, np.asarray(z), 1e-14, unit)


def repair_of(columns, coefficients, constant=0.0):
    others = {name: values for name, values in columns.items() if name not in coefficients}
    return find_repair(terms_of(columns, coefficients, constant), others, OUTPUTS)


TRUE = {"total": 1.0, "a": -1.0, "b": -1.0, "c": -1.0}


@pytest.mark.parametrize("column", ["a", "b", "c"])
@pytest.mark.parametrize("noise", [0.0, 0.003, 0.02])
def test_a_wrong_sign_is_found(column, noise):
    repair = repair_of(made_up(noise=noise), TRUE | {column: 1.0})
    assert (repair.kind, repair.column, repair.factor) == ("sign", column, -1.0)


@pytest.mark.parametrize("column", ["a", "b", "c"])
def test_a_missing_column_is_found(column):
    coefficients = {name: c for name, c in TRUE.items() if name != column}
    repair = repair_of(made_up(), coefficients)
    assert (repair.kind, repair.column, repair.factor) == ("missing column", column, -1.0)


@pytest.mark.parametrize("factor", [2.0, 0.5, 1000.0, 0.001, 60.0, 3600.0])
@pytest.mark.parametrize("column", ["a", "total"])
def test_a_forgotten_factor_is_found(column, factor):
    columns = made_up()
    columns[column] = columns[column] / factor
    repair = repair_of(columns, TRUE)
    assert (repair.kind, repair.column) == ("factor", column)
    assert repair.factor == pytest.approx(factor, rel=1e-12)


def test_a_missing_column_in_another_unit_is_found():
    columns = made_up()
    columns["b"] = columns["b"] * 1000
    repair = repair_of(columns, {name: c for name, c in TRUE.items() if name != "b"})
    assert (repair.kind, repair.column, repair.factor) == ("missing column with a factor", "b", -0.001)


def test_a_missing_constant_is_found_with_the_digits_that_count():
    columns = made_up()
    columns["total"] = columns["total"] + 273.15
    repair = repair_of(columns, TRUE)
    se = 0.006 / np.sqrt(300)
    assert (repair.kind, repair.column) == ("constant", None)
    assert abs(repair.factor + 273.15) < 0.002 + 5 * se  # rounding to 0.001, and the standard error of the mean
    assert len(f"{repair.factor:.12g}") <= len("-273.1500")


def test_a_factor_of_no_name_is_fitted_and_rounded():
    columns = made_up()
    columns["a"] = columns["a"] / 1.37
    repair = repair_of(columns, TRUE)
    assert (repair.kind, repair.column) == ("fitted factor", "a")
    assert repair.factor == pytest.approx(1.37, abs=0.005)
    assert len(f"{repair.factor:.12g}") <= 5


def test_a_missing_column_of_another_dimension_has_a_fitted_factor():
    pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    current, ocv = rng.uniform(0, 1, (2, 200))
    columns = {"V [V]": ocv - current, "OCV [V]": ocv, "I [A]": current}
    terms = terms_of(columns, {"V [V]": 1.0, "OCV [V]": -1.0})
    repair = find_repair(terms, {"I [A]": current}, ("V [V]", "OCV [V]"))
    assert (repair.kind, repair.column) == ("missing column with a fitted factor", "I [A]")
    assert repair.factor == pytest.approx(1.0)


def test_a_column_that_does_not_belong_is_found():
    columns = made_up()
    repair = repair_of(columns, TRUE | {"level": -1.0})
    assert (repair.kind, repair.column, repair.factor) == ("superfluous column", "level", 0.0)
    assert "level" not in repair.equation


def test_the_only_output_is_not_left_out():
    columns = {"y": np.random.default_rng(0).standard_normal(50), "x": np.zeros(50)}
    repair = find_repair(terms_of(columns, {"y": 1.0, "x": -1.0}), {}, outputs=("y",))
    assert repair is None


def test_what_holds_needs_no_repair():
    assert repair_of(made_up(), TRUE) is None
    assert repair_of(made_up(noise=0.0), TRUE) is None


@pytest.mark.parametrize("coefficients", [TRUE | {"c": 1.0}, {"total": 1.0, "a": -1.0, "b": -1.0}])
def test_the_repaired_equation_can_be_read_and_leaves_what_was_said(coefficients):
    columns = made_up()
    repair = repair_of(columns, coefficients)
    balance = LinearConstraint.from_equations(repair.equation, outputs=list(columns))
    z = balance.residual(np.zeros((300, 0)), np.column_stack(list(columns.values())))[:, 0]
    assert trimmed_rms(z) == pytest.approx(repair.after, rel=1e-9)
    assert repair.after < repair.before / 5
    others = {name: values for name, values in columns.items() if name not in coefficients}
    new, kept = repaired(terms_of(columns, coefficients), others, repair)
    assert kept.all()
    np.testing.assert_allclose(np.abs(new.residual), np.abs(z))


def test_the_message_names_column_sizes_and_unit():
    columns = {f"{name} [V]": values for name, values in made_up().items()}
    total, a, b, c = (columns[f"{name} [V]"] for name in TRUE)
    coefficients = {f"{name} [V]": sign for name, sign in (TRUE | {"c": 1.0}).items()}
    repair = find_repair(terms_of(columns, coefficients, unit="V"), {}, tuple(columns))
    before, after = trimmed_rms(total - a - b + c), trimmed_rms(total - a - b - c)
    assert repair.message == f"flip the sign of `c`: residual {before:.2g} V → {after:.2g} V"


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"drop": "b"}, "add the missing column `b` to its right side"),
        ({"scale": ("a", 0.01)}, "multiply `a` by 100"),
        ({"shift": 3.0}, "add the constant -3 to its left side"),
        ({"extra": "level"}, "leave out `level`"),
    ],
)
def test_each_kind_of_repair_has_its_words(change, advice):
    columns, coefficients = made_up(noise=0.0), dict(TRUE)
    if "drop" in change:
        del coefficients[change["drop"]]
    if "scale" in change:
        name, factor = change["scale"]
        columns[name] = columns[name] * factor
    if "extra" in change:
        coefficients[change["extra"]] = -1.0
    columns["total"] = columns["total"] + change.get("shift", 0.0)
    assert repair_of(columns, coefficients).message.startswith(advice + ": residual ")


def test_the_simplest_of_repairs_that_do_as_well_is_proposed():
    # The missing column equals half of `twin`, and 1.5 times `a` would do as well: a column ±1 comes first.
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 1, 100)
    columns = {"total": 1.5 * a, "a": a, "half": 0.5 * a, "twin": a}
    terms = terms_of(columns, {"total": 1.0, "a": -1.0})
    repair = find_repair(terms, {"half": columns["half"], "twin": columns["twin"]}, ("total",))
    assert (repair.kind, repair.column) == ("missing column", "half")
    assert KINDS.index("sign") < KINDS.index("missing column") < KINDS.index("factor") < KINDS.index("constant")


def test_a_column_with_about_the_right_mean_is_not_a_missing_column():
    # A steady plant that loses 5 units: the meter of another flow of 5 has the right mean, and varies on its own.
    rng = np.random.default_rng(0)
    feed, top = 100 + 0.1 * rng.standard_normal((2, 500))
    columns = {"feed": feed + 5, "top": top, "purge elsewhere": 5 + 0.2 * rng.standard_normal(500)}
    repair = find_repair(
        terms_of(columns, {"feed": 1.0, "top": -1.0}), {"purge elsewhere": columns["purge elsewhere"]}, ("feed", "top")
    )
    assert repair.kind == "constant"


def test_gross_errors_do_not_hide_the_repair():
    columns = made_up(n=500)
    columns["total"][::100] = -9999.0
    columns["c"][3::120] = 1e6
    repair = repair_of(columns, TRUE | {"b": 1.0})
    assert (repair.kind, repair.column) == ("sign", "b")


def test_a_candidate_with_missing_values_is_compared_where_it_is_known():
    columns = made_up()
    columns["b"][::3] = np.nan
    repair = repair_of(columns, {name: c for name, c in TRUE.items() if name != "b"})
    assert (repair.kind, repair.column) == ("missing column", "b")
    columns["b"][::1] = np.nan
    assert repair_of(columns, {name: c for name, c in TRUE.items() if name != "b"}) is None


def test_few_rows_are_no_evidence():
    columns = made_up(n=MIN_ROWS - 1)
    assert repair_of(columns, TRUE | {"a": 1.0}) is None
    assert repair_of(made_up(n=MIN_ROWS), TRUE | {"a": 1.0}).column == "a"


def test_unrelated_columns_are_hardly_ever_repaired_by_chance():
    # At 5 to 20 rows; the module's doc bounds the probability at 5 rows by 3 %, and far less at more rows.
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 20))
        columns = {f"c{j}": rng.standard_normal(n) for j in range(12)}
        terms = terms_of(columns, {"c0": 1.0, "c1": -1.0, "c2": -1.0})
        found += find_repair(terms, {f"c{j}": columns[f"c{j}"] for j in range(3, 12)}, ("c0",)) is not None
    assert found <= 2


@given(st.permutations(list(TRUE)), st.sampled_from([1e-10, 1e-3, 1e6]), st.sampled_from(["a", "b", "c"]))
def test_neither_order_nor_unit_changes_the_repair(order, scale, wrong):
    columns = {name: scale * values for name, values in made_up(n=60).items()}
    coefficients = TRUE | {wrong: 1.0}
    others = {name: columns[name] for name in ("other", "level")}
    terms = terms_of(columns, {name: coefficients[name] for name in order})
    repair = find_repair(terms, others, OUTPUTS)
    assert (repair.kind, repair.column) == ("sign", wrong)
    residual = sum(c * made_up(n=60)[k] for k, c in TRUE.items())
    assert repair.after / scale == pytest.approx(trimmed_rms(residual), rel=1e-6)


def in_units(columns):
    """The same columns: the total and a in V, b and c in mV."""
    units = {"total": ("V", 1.0), "a": ("V", 1.0), "b": ("mV", 1000.0), "c": ("mV", 1000.0)}
    return {f"{name} [{unit}]": factor * columns[name] for name, (unit, factor) in units.items()}


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_several_terms_in_another_unit_are_brought_to_one_together(noise):
    pytest.importorskip("pint")
    columns = in_units(made_up(noise=noise))
    names = list(columns)
    repair = find_repair(terms_of(columns, dict(zip(names, TRUE.values(), strict=True))), {}, tuple(names))
    assert (repair.kind, repair.column) == ("units", None)
    ratios = {name: (1000.0 if "[V]" in name else 1.0) for name in names}
    written = LinearConstraint.from_equations(repair.equation, outputs=names)
    signed = np.array([ratios[name] * c for name, c in zip(names, TRUE.values(), strict=True)])
    assert np.allclose(written.B[0] / written.B[0, 0], signed / signed[0])
    assert repair.after == pytest.approx(trimmed_rms(np.column_stack(list(columns.values())) @ written.B[0]), rel=1e-9)
    assert repair.message.startswith(("bring `total` and `a` to mV: residual ", "bring `b` and `c` to V: residual "))


def test_other_units_do_not_repair_what_does_not_add_up():
    pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    columns = {
        f"{name} [{unit}]": rng.uniform(1, 3, 300) for name, unit in zip("abcd", ("V", "V", "mV", "mV"), strict=True)
    }
    names = list(columns)
    repair = find_repair(terms_of(columns, dict(zip(names, TRUE.values(), strict=True))), {}, tuple(names))
    assert repair is None or repair.kind != "units"
