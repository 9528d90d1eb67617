import pickle
import re
import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from equipoise.balances.equations import MAX_CHARACTERS, EquationError, LinearEquation, format_equation, parse_equation

CELL = ["V", "V_ocv", "eta_p", "eta_n", "dV_ir", "I"]


def attempt(text, columns):
    try:
        return parse_equation(text, columns)
    except EquationError as error:
        return error


def refusal(text, columns=("a", "b", "c")):
    with pytest.raises(EquationError) as caught:
        parse_equation(text, columns)
    return str(caught.value)


# What can be written


def test_a_balance_becomes_the_coefficients_of_left_minus_right():
    equation = parse_equation("V = V_ocv - eta_p - eta_n - dV_ir", CELL)
    assert equation == LinearEquation(
        "V = V_ocv - eta_p - eta_n - dV_ir", {"V": 1.0, "V_ocv": -1.0, "eta_p": 1.0, "eta_n": 1.0, "dV_ir": 1.0}, 0.0
    )


def test_numbers_parentheses_and_constants_may_stand_on_both_sides():
    equation = parse_equation(" 0.2*feed + 3 = 2*(a + b)/4 - 1e-3*c ", ["feed", "a", "b", "c"])
    assert equation.coefficients == {"feed": 0.2, "a": -0.5, "b": -0.5, "c": 1e-3}
    assert equation.constant == 3.0
    assert equation.text == "0.2*feed + 3 = 2*(a + b)/4 - 1e-3*c"


@pytest.mark.parametrize(
    ("text", "coefficients", "constant"),
    [
        ("a = 1_000", {"a": 1}, -1000),
        ("--a = +b", {"a": 1, "b": -1}, 0),
        ("a*2*3 = b/2/5", {"a": 6, "b": -0.1}, 0),
        (".5*a = 5.*b", {"a": 0.5, "b": -5}, 0),
        ("1E+2*a = 1e-2*b", {"a": 100, "b": -0.01}, 0),
        ("0 = -(a - (b - 1))", {"a": 1, "b": -1}, 1),
        ("a\n  = b\n\t+ c", {"a": 1, "b": -1, "c": -1}, 0),
        ("a – b = c", {"a": 1, "b": -1, "c": -1}, 0),  # as word processors write it
        ("a − b = 2·c × 3 ÷ 4", {"a": 1, "b": -1, "c": -1.5}, 0),
        ("a=-b", {"a": 1, "b": 1}, 0),
        ("(2 - 1)*(3 + a) = 0", {"a": 1}, 3),
    ],
)
def test_arithmetic_is_read_as_people_write_it(text, coefficients, constant):
    equation = parse_equation(text, ["a", "b", "c"])
    assert equation.coefficients == pytest.approx(coefficients, rel=1e-13)
    assert equation.constant == constant


def test_columns_that_cancel_are_left_out():
    assert parse_equation("a + b = a", ["a", "b"]).coefficients == {"b": 1}
    assert parse_equation("0*a + b = 0", ["a", "b"]).coefficients == {"b": 1}


def test_columns_that_cancel_up_to_rounding_are_left_out():
    equation = parse_equation("0.1*a + 0.2*a + b + 0.1 + 0.2 = 0.3*a + 0.3", ["a", "b"])
    assert equation.coefficients == {"b": 1}
    assert equation.constant == 0.0


def test_a_sum_may_have_more_terms_than_the_stack_has_frames():
    columns = [f"c{j}" for j in range(1500)]
    coefficients = parse_equation("0 = " + " + ".join(columns), columns).coefficients
    assert coefficients == dict.fromkeys(columns, -1.0)


def test_an_equation_can_be_hashed_and_pickled():
    equation = parse_equation("a = b", ["a", "b"])
    assert hash(equation) == hash(parse_equation("a = b", ["a", "b"]))
    assert pickle.loads(pickle.dumps(equation)) == equation


# Names


def test_backticks_quote_any_name():
    columns = ["Voltage [V]", "OCV [V]", "R [Ohm]", "a=b*(c", "for"]
    equation = parse_equation("`Voltage [V]` = `OCV [V]` - `R [Ohm]` + `a=b*(c` - `for`", columns)
    expected = {"Voltage [V]": 1, "OCV [V]": -1, "R [Ohm]": 1, "a=b*(c": -1, "for": 1}
    assert equation.coefficients == expected


def test_a_doubled_backtick_stands_for_one_inside_a_quoted_name():
    assert parse_equation("`a``b` = 0", ["a`b", "ab"]).coefficients == {"a`b": 1}


def test_a_name_without_its_unit_finds_its_column():
    columns = ["Voltage [V]", "Loss pos [V]", "Loss neg[V]"]
    equation = parse_equation("Voltage = `Loss pos` + `Loss neg`", columns)
    assert equation.coefficients == {"Voltage [V]": 1, "Loss pos [V]": -1, "Loss neg[V]": -1}


def test_an_exact_match_wins_over_a_match_without_unit():
    columns = ["Voltage [V]", "Voltage", "Voltage [mV]"]
    assert parse_equation("Voltage = 0", columns).coefficients == {"Voltage": 1}
    assert parse_equation("`Voltage [mV]` = 0", columns).coefficients == {"Voltage [mV]": 1}


def test_an_ambiguous_name_is_refused_with_its_candidates():
    message = refusal("Voltage = 0", ["Voltage [V]", "Voltage [mV]", "Current [A]"])
    assert "'Voltage', which fits 'Voltage [V]' and 'Voltage [mV]'." in message
    assert "full name in backticks" in message
    assert "Current" not in message


def test_a_quoted_name_with_another_unit_does_not_match():
    assert "Did you mean 'Voltage [V]'?" in refusal("`Voltage [mV]` = 0", ["Voltage [V]"])


@pytest.mark.parametrize("name", ["η", "Q̇", "x̄", "ΔV", "θ_1", "Größe", "电压", "µ", "x²", "lambda", "None", "in", "_0"])
def test_unicode_names_and_keywords_need_no_backticks(name):
    coefficients = parse_equation(f"2*{name} = other", [name, "other"]).coefficients
    assert coefficients == {name: 2, "other": -1}


def test_differently_composed_spellings_of_a_name_are_the_same_column():
    micro, mu, composed, decomposed = "\u00b5", "\u03bc", "\u00e9", "e\u0301"
    assert parse_equation(f"{mu} = {decomposed}", [micro, composed]).coefficients == {micro: 1, composed: -1}
    assert parse_equation(f"`{mu}` = 0", [f"{micro} [Pa.s]"]).coefficients == {f"{micro} [Pa.s]": 1}
    assert parse_equation(f"{mu} = 0", [micro, mu]).coefficients == {mu: 1}


def test_a_superscript_is_not_taken_for_a_digit_of_a_name():
    assert "'x²'" in refusal("x² = 0", ["x", "x2"])


def test_an_unknown_column_is_refused_with_the_closest_ones():
    message = refusal("V = V_ocw - eta_p", CELL)
    assert message.startswith("Equation 'V = V_ocw - eta_p' must use known columns only, but got 'V_ocw'.")
    assert "Did you mean 'V_ocv'?" in message


def test_an_unknown_column_without_a_close_one_lists_what_is_known():
    assert "but got 'zzz'. Known: 'a', 'b' and 'c'." in refusal("zzz = a")


# What is refused


@pytest.mark.parametrize(
    ("text", "informative"),
    [
        ("a", "exactly one '=', but got none"),
        ("", "exactly one '=', but got none"),
        ("a = b = c", "exactly one '=', but got '=' and '='"),
        ("a == b", "exactly one '=', but got '=='"),
        ("a <= b", "exactly one '=', but got '<='"),
        ("a => b", "exactly one '=', but got '=>'"),
        ("a != b", "exactly one '=', but got '!='"),
        ("a += b", "exactly one '=', but got '+='"),
        ("a < b", "exactly one '=', but got '<'"),
        ("a = b > c", "exactly one '=', but got '=' and '>'"),
        ("a ≤ b", "exactly one '=', but got '≤'"),
        ("(a := b)", "exactly one '=', but got ':='"),
        ("= a", "terms on both sides of '=', but got an empty side"),
        ("a = ", "terms on both sides of '=', but got an empty side"),
        ("`a = b", "close every backtick"),
        ("a = b + `c", "close every backtick"),
    ],
)
def test_an_equation_has_one_equality_and_two_sides(text, informative):
    assert informative in refusal(text)


@pytest.mark.parametrize(
    ("text", "informative"),
    [
        ("V * I = a", "linear in its columns, but got the product V * I"),
        ("a = 2*V*3*I", "the product 2 * V * 3 * I"),
        ("a = (V + 1)*(I - a)", "the product (V + 1) * (I - a)"),
        ("a = `Loss [W]`*V", "the product `Loss [W]` * V"),
        ("a = 1/V", "linear in its columns, but got the quotient 1 / V"),
        ("a = V/(I + 1)", "the quotient V / (I + 1)"),
        ("a = V**2", "the power V ** 2"),
        ("a = V^2", "the power V ^ 2"),
        ("a = 10**-3*V", "such as 1e-3"),
    ],
)
def test_a_balance_that_is_not_linear_says_where(text, informative):
    assert informative in refusal(text, ["V", "I", "a", "Loss [W]"])


@pytest.mark.parametrize(
    ("text", "informative"),
    [
        ("a = b/0", "not divide by zero, but got b / 0"),
        ("a = b/(1 - 1)", "not divide by zero, but got b / (1 - 1)"),
        ("a = b/(0.1 + 0.2 - 0.3)", "not divide by zero"),
        ("a = 1e999*b", "finite numbers, but got one beyond 1.8e+308"),
        ("a = 1" + "0" * 400, "finite numbers, but got one beyond"),
        ("a = 1e200*1e200*b", "finite coefficients, but got -inf for column 'b'"),
        ("a = 1e308*b + 1e308*b", "finite coefficients, but got inf for column 'b'"),
        ("a = 1e200*1e200", "as its constant"),
        ("a = 1e200*1e200*b - 1e200*1e200*b", "finite coefficients"),
    ],
)
def test_numbers_must_be_finite_and_divisors_not_zero(text, informative):
    assert informative in refusal(text)


@pytest.mark.parametrize(
    ("text", "informative"),
    [
        ("f(a) = b", "the call f(a). Write '*' for a product"),
        ("2(a + b) = c", "the call 2(a + b). Write '*' for a product"),
        ("a.b = c", "the attribute a.b"),
        ("a[0] = b", "the subscript a[0]"),
        ("Voltage [V] = b", "the subscript Voltage[V]. Put a column name that holds brackets"),
        ("0,5*a = b", "Write decimals with a point"),
        ("~a = b", "the expression ~a"),
        ("a // 2 = b", "the expression a // 2"),
        ("a % 2 = b", "the expression a % 2"),
        ("[a] = b", "the expression [a]"),
        ("{a} = b", "the expression {a}"),
        ("... = b", "the expression ..."),
        ("2a = b", "an operator between its terms, but got '2' next to 'a'"),
        ("a b = c", "an operator between its terms, but got 'a' next to 'b'"),
        ("Loss pos = a", "put a column name that holds blanks in backticks"),
        ("3j*a = b", "but got '3' next to 'j'"),
        ("0x10*a = b", "but got '0' next to 'x10'"),
        ("True*a = b", "but got 'True'"),
        ("'a' = b", 'the character "\'"'),
        ('"a" = b', "the character '\"'"),
        ("a = b # or c", "the character '#'"),
        ("a = b \\ c", "the character '\\\\'"),
        ("a = b +", "plain arithmetic, but got 'b +' (invalid syntax)"),
        ("a = (b", "'(' was never closed"),
        ("a = b)", "unmatched ')'"),
        ("a; b = c", "plain arithmetic, but got 'a; b'"),
        ("a = \x00", "plain arithmetic"),
        ("a = \ud800", "plain arithmetic"),
        ("a = b∞", "plain arithmetic"),
        ("a = 007", "leading zeros"),
        ("a = 1" + "0" * 5000, "plain arithmetic"),
    ],
)
def test_anything_but_plain_arithmetic_is_refused(text, informative):
    assert informative in refusal(text)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('x')",
        "__import__(os).system(x)",
        "getattr(a, b)(c)",
        "(lambda: launched())()",
        "lambda x: launched()",
        "(x := launched())",
        "f'{launched()}'",
        "[launched() for x in a]",
        "launched() if a else b",
        "launched()",
        "a.launched",
        "a[launched()]",
        "`launched()`",
        "b + (yield launched())",
        "await launched()",
        "exec(b)",
        "*launched()",
        "{**launched()}",
    ],
)
def test_code_is_refused_and_never_run(code, monkeypatch):
    launches = []
    monkeypatch.setattr("builtins.launched", lambda: launches.append(1), raising=False)
    monkeypatch.setattr("os.system", lambda command: launches.append(command))
    for text in (f"a = {code}", f"{code} = a", f"a = 2*({code})"):
        with pytest.raises(EquationError):
            parse_equation(text, ["a", "b", "c"])
    assert launches == []


LONG = MAX_CHARACTERS // 2 - 10
DEEP = ["(" * LONG, "-" * LONG + "a", "a+" * LONG + "a", "2*" * LONG + "a"]


@pytest.mark.parametrize("deep", [*DEEP, "`" * LONG, "[" * LONG, "a(" * LONG, "1-(" * 6000, "2" * LONG + "x"])
def test_deep_text_is_refused_with_a_short_message_and_does_not_crash(deep):
    assert len(refusal(f"a = {deep}")) < 1500


def test_deep_text_does_not_crash_a_thread_with_a_small_stack():
    refusals = []
    previous = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=lambda: refusals.extend(refusal(f"a = {deep}") for deep in DEEP))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(previous)
    assert len(refusals) == 4


def test_text_that_is_too_long_is_refused():
    assert f"at most {MAX_CHARACTERS} characters, but got" in refusal("a = " + " " * MAX_CHARACTERS + "b")


def test_an_equation_error_is_a_value_error():
    assert issubclass(EquationError, ValueError)


# Random expressions, against coefficients worked out in exact fractions

COLUMNS = ["a", "b_1", "Q̇ [W]", "Loss pos [V]", "lambda", "x`y"]
WRITTEN = {"a": "a", "b_1": "`b_1`", "Q̇ [W]": "Q̇", "Loss pos [V]": "`Loss pos`", "lambda": "lambda", "x`y": "`x``y`"}


def plus(left, right, sign=1):
    keys = left.keys() | right.keys()
    return {key: left.get(key, Fraction(0)) + sign * right.get(key, Fraction(0)) for key in keys}


def times(form, factor):
    return {key: value * factor for key, value in form.items()}


numbers = st.sampled_from(["1", "2", "0.5", "3", ".25", "1.5e1", "0.1", "7"])
constants = numbers.map(lambda text: (text, {None: Fraction(text)}))
variables = st.sampled_from(COLUMNS).map(lambda name: (WRITTEN[name], {name: Fraction(1)}))


def combined(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: (f"({p[0][0]} + {p[1][0]})", plus(p[0][1], p[1][1]))),
        pairs.map(lambda p: (f"({p[0][0]}-{p[1][0]})", plus(p[0][1], p[1][1], -1))),
        children.map(lambda e: (f"(-{e[0]})", times(e[1], -1))),
        st.tuples(numbers, children).map(lambda p: (f"{p[0]}*{p[1][0]}", times(p[1][1], Fraction(p[0])))),
        st.tuples(children, numbers).map(lambda p: (f"({p[0][0]}) *{p[1]}", times(p[0][1], Fraction(p[1])))),
        st.tuples(children, numbers).map(lambda p: (f"({p[0][0]})/ {p[1]}", times(p[0][1], 1 / Fraction(p[1])))),
    )


expressions = st.recursive(constants | variables, combined, max_leaves=12)


@settings(max_examples=100, deadline=None)
@given(left=expressions, right=expressions)
def test_random_expressions_have_the_coefficients_that_fractions_give(left, right):
    expected = plus(left[1], right[1], -1)
    equation = parse_equation(f"{left[0]} = {right[0]}", COLUMNS)
    found = {**equation.coefficients, None: equation.constant}
    assert found.keys() <= expected.keys() | {None}
    for key, value in expected.items():
        assert found.get(key, 0.0) == pytest.approx(float(value), rel=1e-12, abs=1e-12)


finite = st.floats(allow_nan=False, allow_infinity=False).filter(bool)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(coefficients=st.dictionaries(names, finite, max_size=6), constant=finite | st.just(0.0))
def test_written_equations_read_back_exactly(coefficients, constant):
    equation = parse_equation(format_equation(coefficients, constant), list(coefficients))
    assert equation.coefficients == coefficients
    assert equation.constant == constant


@pytest.mark.parametrize(
    ("coefficients", "constant", "text"),
    [
        ({"Q": 1.0, "P": -1.0, "R": -1.0}, 0.0, "Q = P + R"),
        ({"a": 1.0, "b": 2.5}, 0.0, "a + 2.5*b = 0"),
        ({"a": -1.0, "b": -2.0}, -3.0, "-a - 2*b = 3"),
        ({"a": 1.0, "b": -2.0}, 3.0, "a = 2*b - 3"),
        ({"a": 1.0}, 1e-3, "a = -0.001"),
        ({"Loss pos": 1e20}, 0.0, "1e+20*`Loss pos` = 0"),
        ({}, 1.0, "0 = -1"),
    ],
)
def test_written_equations_are_readable(coefficients, constant, text):
    assert format_equation(coefficients, constant) == text


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30) | st.text("ab=+-*/(). `0123e,[]", max_size=30))
def test_any_text_is_either_read_or_refused_by_an_equation_error(text):
    outcome = attempt(text, ["a", "b"])
    if isinstance(outcome, EquationError):
        assert re.search(r" must .*, but got ", str(outcome), re.DOTALL)
    else:
        assert set(outcome.coefficients) <= {"a", "b"}
