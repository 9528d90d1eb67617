import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from equipoise.balances.linear import ConstraintError, LinearConstraint
from equipoise.diagnosis import diagnose, units

INPUTS = ["Current [A]", "SOC", "Temperature [K]"]
OUTPUTS = ["Voltage [V]", "OCV [V]", "Loss pos [V]", "Loss neg [V]", "IR drop [V]"]
GOOD = "Voltage = OCV - `Loss pos` - `Loss neg` - `IR drop`"
WRONG = "Voltage = OCV + `Loss pos` - `Loss neg` - `IR drop`"


def cell(n=400, noise=0.002, seed=0):
    """Inputs and outputs of a made-up cell whose voltages add up, with sensor noise in volts."""
    rng = np.random.default_rng(seed)
    current, soc, temperature = rng.uniform(0.5, 5, n), rng.uniform(0.05, 0.95, n), rng.uniform(280, 320, n)
    ocv = 3 + 1.2 * soc - 0.3 * np.exp(-10 * soc)
    pos = 0.04 * np.arcsinh(3 * current) * np.exp(10 * (300 / temperature - 1))
    neg, drop = 0.05 * np.sqrt(current) * (1.5 - 0.5 * soc), 0.012 * current
    Y = np.column_stack([ocv - pos - neg - drop, ocv, pos, neg, drop])
    return np.column_stack([current, soc, temperature]), Y + noise * rng.standard_normal(Y.shape)


def balance(text=GOOD, **keywords):
    columns = {"inputs": INPUTS, "outputs": OUTPUTS} | keywords
    return LinearConstraint.from_equations({"voltage": text}, **columns)


def refusal(*args, **keywords):
    with pytest.raises(ConstraintError) as caught:
        diagnose(*args, **keywords)
    return str(caught.value)


def test_a_good_balance_holds_and_there_is_nothing_to_say():
    found = diagnose(balance(), *cell())
    assert found.holds
    assert found.balances[0].verdict == "holds within noise"
    assert found.warnings == ()
    assert found.n_rows == 400


def test_a_wrong_sign_is_found_and_the_advice_repairs_it():
    X, Y = cell()
    found = diagnose(balance(WRONG), X, Y)
    assert not found.holds
    repair = found.balances[0].repair
    before, after = (np.sort(np.abs(balance(text).residual(X, Y)[:, 0]))[:392] for text in (WRONG, GOOD))
    sizes = [f"{np.sqrt(np.mean(z**2)):.2g} V" for z in (before, after)]  # without the largest 8 of 400
    assert repair.message == f"flip the sign of `Loss pos`: residual {sizes[0]} → {sizes[1]}"
    (warning,) = found.warnings
    assert warning.startswith("Balance 'voltage' does not hold: ")
    assert warning.endswith(f"To repair it, {repair.message}.")
    repaired = balance(repair.equation)
    assert diagnose(repaired, X, Y).holds
    np.testing.assert_allclose(np.abs(repaired.residual(X, Y)), np.abs(balance().residual(X, Y)))


def test_findings_are_of_the_constraints_own_residual():
    rng = np.random.default_rng(0)
    A, B, b = rng.integers(-2, 3, (3, 4)), rng.integers(-2, 3, (3, 5)), rng.standard_normal(3)
    constraint = LinearConstraint(B, A, b, known=["k0", "k1"])
    X, Y = rng.standard_normal((200, 4)), rng.standard_normal((200, 5))
    X[::9, 1], Y[::11, 2], Y[5, 0] = np.nan, np.nan, np.inf
    z = constraint.residual(X, Y)
    for k, found in enumerate(diagnose(constraint, X, Y).balances):
        seen = z[np.isfinite(z[:, k]), k]
        assert found.n_rows == len(seen) < 200
        assert found.mean == pytest.approx(seen.mean(), rel=1e-9)
        assert found.std == pytest.approx(seen.std(ddof=1), rel=1e-9)
        assert z[found.worst_rows[0].row, k] == pytest.approx(found.worst_rows[0].residual)


def test_a_missing_column_is_looked_for_among_inputs_outputs_known_and_other_columns():
    rng = np.random.default_rng(0)
    top, bottom, purge = rng.uniform(1, 2, (3, 100))
    feed = top + bottom + purge
    for role in ("inputs", "known", "outputs", "other"):
        names = {"inputs": [], "known": [], "outputs": ["top", "bottom", "feed"]}
        names.get(role, []).append("purge")
        constraint = LinearConstraint.from_equations("feed = top + bottom", **names)
        X = purge[:, None] if role in ("inputs", "known") else np.zeros((100, 0))
        Y = np.column_stack([top, bottom, feed, purge][: len(names["outputs"])])
        found = diagnose(constraint, X, Y, candidates={"purge": purge} if role == "other" else None)
        assert found.balances[0].repair.column == "purge"
        assert [c.role for c in found.columns if c.name == "purge"] == [role.removesuffix("s")]
        place = {"known": ["purge"]} if role == "other" else {}
        text = found.balances[0].repair.equation
        assert text == "feed = top + bottom + purge"
        LinearConstraint.from_equations(text, **(names | place))


def test_each_balance_has_its_own_verdict():
    X, Y = cell()
    two = LinearConstraint.from_equations(
        {"voltage": WRONG, "ohm": "`IR drop` = 0.012*Current"}, inputs=INPUTS, outputs=OUTPUTS
    )
    found = diagnose(two, X, Y)
    assert [each.verdict for each in found.balances] == ["does not hold", "holds within noise"]
    assert not found.holds


def test_missing_infinite_constant_and_duplicated_are_reported_by_name():
    X, Y = cell()
    X[:, 2] = 300.0
    Y[3, 1], Y[:7, 4] = np.inf, np.nan
    X[-2:], Y[-2:] = X[10:12], Y[10:12]
    found = diagnose(balance(), X, Y, candidates={"empty": np.full(400, np.nan)})
    columns = {column.name: column for column in found.columns}
    assert (columns["IR drop [V]"].missing, columns["OCV [V]"].infinite) == (7, 1)
    assert columns["Temperature [K]"].constant
    assert (found.n_duplicates, found.duplicates) == (2, (398, 399))
    assert found.balances[0].n_rows == 393
    text = " ".join(found.warnings)
    for words in (
        "Column 'IR drop [V]' misses 7 of 400 values.",
        "Column 'OCV [V]' has 1 infinite values.",
        "Column 'Temperature [K]' is constant (300).",
        "Column 'empty' has no values at all.",
        "2 of 400 rows repeat an earlier one exactly.",
    ):
        assert words in text


def test_outliers_are_reported_with_their_rows():
    X, Y = cell()
    Y[[17, 230], 0] += [0.5, -0.8]
    found = diagnose(balance(), X, Y)
    assert found.warnings == ("Balance 'voltage': residuals of 2 rows stand out (230, 17).",) == found.remarks


def test_rows_are_called_as_the_caller_calls_them():
    X, Y = cell()
    Y[[17, 30, 230, 231], 0] += [0.5, 0.4, -0.8, 0.9]
    warnings = diagnose(balance(), X, Y, called=lambda rows: f"lines {[row + 2 for row in rows]}").warnings
    assert warnings == ("Balance 'voltage': residuals of 4 rows stand out (first of all lines [233, 232, 19]).",)
    Y[[17, 30, 231]] = np.nan
    assert "Balance 'voltage': the residual of 1 row stands out (230)." in diagnose(balance(), X, Y).warnings


def test_remarks_repeat_no_verdict_and_no_reason():
    X, Y = cell()
    found = diagnose(balance(WRONG), X, np.where(np.arange(len(Y))[:, None] == 3, np.nan, Y))
    assert any("does not hold" in warning for warning in found.warnings)
    assert found.remarks
    assert not any("does not hold" in remark for remark in found.remarks)


def test_too_few_rows_are_said():
    X, Y = cell(2)
    found = diagnose(balance(), X, Y)
    assert found.holds
    assert found.warnings == (
        "Balance 'voltage' has too few rows: 2 rows have all its columns; at least 3 are needed.",
    )


def test_a_bias_is_said_and_does_not_fail():
    X, Y = cell()
    Y[:, 0] += 0.004
    found = diagnose(balance(), X, Y)
    assert found.holds
    assert found.warnings[0].startswith("Balance 'voltage' is biased: its mean is off by 0.00")


def test_a_balance_that_chance_could_make_is_said():
    rng = np.random.default_rng(0)
    Y = np.array([100.0, 60.0, 40.0]) * (1 + 0.01 * rng.standard_normal((500, 3)))
    mass = LinearConstraint.from_equations({"mass": "feed = top + bottom"}, outputs=["feed", "top", "bottom"])
    found = diagnose(mass, np.zeros((500, 0)), Y)
    assert found.holds
    assert found.warnings[0].startswith("Balance 'mass' cannot be told from chance")


def test_units_that_do_not_agree_are_reported():
    pytest.importorskip("pint")
    X, Y = cell()
    Y[:, 2] *= 1000
    outputs = [name.replace("Loss pos [V]", "Loss pos [mV]") for name in OUTPUTS]
    found = diagnose(balance(outputs=outputs), X, Y)
    assert found.units_checked is True
    assert (
        "Balance 'voltage': 'Loss pos [mV]' is in mV and 'Voltage [V]' in V: its factor 0.001 is missing."
        in found.warnings
    )
    assert found.balances[0].repair.kind == "factor"
    assert found.balances[0].repair.factor == 0.001


def test_units_are_not_looked_at_without_pint_and_this_is_said(monkeypatch):
    monkeypatch.setattr(units, "_registry", lambda: None)
    units.read_unit.cache_clear()
    found = diagnose(balance(), *cell())
    units.read_unit.cache_clear()
    assert found.units_checked is False
    assert found.warnings == ("Units were not looked at: pint is not installed. Install equipoise[units].",)


def test_names_without_units_have_none_to_check():
    plain = LinearConstraint.from_equations("a = b", outputs=["a", "b"])
    values = np.arange(10.0)[:, None].repeat(2, axis=1)
    assert diagnose(plain, np.zeros((10, 0)), values).units_checked is None


@pytest.mark.parametrize("spoil", ["nothing", "empty", "infinite", "constant", "no rows"])
def test_a_diagnosis_is_plain_json_without_nan(spoil):
    X, Y = cell(0 if spoil == "no rows" else 60)
    if spoil == "empty":
        Y[:, 0] = np.nan
    if spoil == "infinite":
        Y[0] = np.inf
    if spoil == "constant":
        X[:], Y[:] = 1.0, 0.0
    found = diagnose(balance(WRONG), X, Y, candidates={"other": np.arange(float(len(X)))})
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["holds"] == found.holds
    assert plain["balances"][0]["verdict"] == found.balances[0].verdict
    assert {"name", "role", "missing", "infinite", "minimum", "maximum", "constant"} == set(plain["columns"][0])


def test_sensors_may_be_named_listed_or_left_to_be_learned():
    X, Y = cell()
    named = diagnose(balance(), X, Y, sensor_std=dict.fromkeys(OUTPUTS, 0.0005))
    assert named.balances[0].verdict == "does not hold"  # a noise of 0.002 is four times what was said
    assert "its sensors explain 0.0011 V only" in named.balances[0].reason  # 0.0005 √5
    assert diagnose(balance(), X, Y, sensor_std=[0.0005] * 5) == named
    for unknown in (None, "learn", {"OCV [V]": 0.0005}, {"OCV [V]": "learn"}, [0.0005] * 4 + [np.nan], [0.0] * 5):
        assert diagnose(balance(), X, Y, sensor_std=unknown).holds


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        (
            {"sensor_std": {"Voltag": 0.1}},
            "sensor_std must name outputs, but got 'Voltag'. Did you mean 'Voltage [V]'?",
        ),
        ({"sensor_std": [0.1, 0.2]}, "shape (5,), but got shape (2,). The outputs are 'Voltage [V]'"),
        ({"sensor_std": {"OCV [V]": -1.0}}, "finite and ≥ 0, but got -1.0 for 'OCV [V]'"),
        ({"sensor_std": {"OCV [V]": np.inf}}, "finite and ≥ 0, but got inf for 'OCV [V]'"),
        ({"sensor_std": {"OCV [V]": "often"}}, "numbers or 'learn', one per output, but got [nan, 'often'"),
        ({"candidates": {"OCV [V]": np.zeros(400)}}, "the constraint has not, but got 'OCV [V]'"),
        ({"candidates": {"short": np.zeros(3)}}, "400 in X and shape (3,) for 'short'"),
        ({"candidates": {"wide": np.zeros((400, 2))}}, "shape (400, 2) for 'wide'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(keywords, said):
    assert said in refusal(balance(), *cell(), **keywords)


def test_tables_of_the_wrong_shape_are_refused():
    X, Y = cell()
    assert "X must have shape (rows, 3), but got (400, 2). Its columns are 'Current [A]'" in refusal(
        balance(), X[:, :2], Y
    )
    assert "Y must have shape (rows, 5), but got (400,)" in refusal(balance(), X, Y[:, 0])
    assert "400 in X and shape (399,) for 'Y'" in refusal(balance(), X, Y[1:])


@settings(max_examples=12)
@given(
    st.lists(st.sampled_from([1e-9, 1e-3, 1.0, 60.0, 1e6]), min_size=5, max_size=5),
    st.sampled_from([GOOD, WRONG]),
    st.randoms(use_true_random=False),
)
def test_units_of_columns_and_balances_and_the_order_of_rows_change_no_verdict(scales, text, random):
    X, Y = cell(80)
    order = list(range(80))
    random.shuffle(order)
    plain = [name.removesuffix(" [V]") for name in OUTPUTS]
    text = balance(text, inputs=["I", "SOC", "T"], outputs=plain)
    other = LinearConstraint(7.0 * text.B / scales, text.A, inputs=["I", "SOC", "T"], outputs=plain)
    here = diagnose(text, X, Y).balances[0]
    there = diagnose(other, X[order], (Y * scales)[order]).balances[0]
    assert there.verdict == here.verdict
    assert there.relative == pytest.approx(here.relative, rel=1e-6)
    assert (there.repair and there.repair.column) == (here.repair and here.repair.column)
