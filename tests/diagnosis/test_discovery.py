import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from equipoise.balances.linear import LinearConstraint
from equipoise.diagnosis import DiscoveryError, SearchWarning, discovery, propose, units

NAMES = list("abcdefghij")


def two_balances(n=500, noise=0.003, seed=0):
    """a = b + c and e = d + f + g up to noise; h, i, j are unrelated."""
    rng = np.random.default_rng(seed)
    table = rng.uniform(0, 1, (n, 10))
    table[:, 0] = table[:, 1] + table[:, 2]
    table[:, 4] = table[:, 3] + table[:, 5] + table[:, 6]
    return table + noise * rng.standard_normal(table.shape)


def equations(*args, **keywords):
    return [found.equation for found in propose(*args, **keywords)]


def voltages(noise, n=1000, seed=0):
    """State of charge, current, V = OCV - a - b - c with noise in volts; OCV = 3 + SOC is a relation too."""
    rng = np.random.default_rng(seed)
    soc, current = rng.uniform(0, 1, (2, n))
    parts = np.column_stack([3 + soc, 0.2 * np.sqrt(current), 0.1 * current * (1.5 - soc), 0.15 * current**2])
    table = np.column_stack([parts[:, 0] - parts[:, 1:].sum(1), parts])
    return np.column_stack([soc, current, table + noise * rng.standard_normal(table.shape)])


# What is found


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.003])
@pytest.mark.parametrize("unit", ["", " [V]"])
def test_voltages_that_add_up_are_found_in_sensor_noise(noise, unit):
    columns = ["SOC", "current", *(name + unit for name in ("V", "OCV", "a", "b", "c"))]
    quoted = [f"`{name}{unit}`" if unit else name for name in ("OCV", "V", "a", "b", "c")]
    found = {each.equation: each for each in propose(voltages(noise), columns)}
    balance = found[f"{quoted[0]} = " + " + ".join(quoted[1:])]
    assert balance.std == pytest.approx(noise * np.sqrt(5), rel=0.1, abs=1e-15)
    assert set(found.values()) == {balance, found[f"SOC = {quoted[0]} - 3"]}


def test_two_disjoint_balances_are_both_found_and_nothing_else():
    assert equations(two_balances(), NAMES) == ["a = b + c", "e = d + f + g"]


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.01])
def test_a_proposal_says_what_its_equation_leaves(noise):
    table = two_balances(noise=noise)
    for found in propose(table, NAMES):
        balance = LinearConstraint.from_equations(found.equation, outputs=NAMES)
        z = balance.residual(np.zeros((len(table), 0)), table)[:, 0]
        assert found.std == pytest.approx(z.std(ddof=1), rel=1e-9, abs=1e-15)
        assert abs(z.mean()) <= max(0.25 * z.std(), 1e-12)
        assert found.relative == pytest.approx(found.std / balance.scale(table.std(axis=0, ddof=1))[0], rel=1e-9)
        assert found.n_rows == 500
        assert found.to_dict()["coefficients"] == found.coefficients


def test_a_column_and_its_copy_are_equal_and_what_follows_is_not_listed():
    table = two_balances()
    table[:, 9] = table[:, 0]
    assert equations(table, NAMES) == ["a = j", "a = b + c", "e = d + f + g"]
    table[:, 8] = table[:, 0]
    assert equations(table, NAMES) == ["a = i", "a = j", "a = b + c", "e = d + f + g"]


def test_balances_that_share_a_column_are_found_without_their_combinations():
    rng = np.random.default_rng(0)
    b, c, d, e = rng.uniform(0, 1, (4, 500))
    table = np.column_stack([b + c, b, c, d, e, b + c + d + e]) + 0.002 * rng.standard_normal((500, 6))
    assert sorted(equations(table, list("abcdef"))) == ["a = b + c", "f = a + d + e"]


@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_balances_that_lie_inside_others_leave_none_of_these_out(noise):
    """b = 2 a, c = 3 a and d = a + b + e are three independent balances."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        a, e, x = rng.uniform(1, 3, (3, 300))
        clean = np.column_stack([a, 2 * a, 3 * a, 3 * a + e, e, x])
        found = propose(clean + noise * rng.standard_normal(clean.shape), list("abcdex"))
        rows = np.array([[each.coefficients.get(name, 0.0) for name in "abcdex"] for each in found])
        assert rows.shape == (3, 6)
        assert np.linalg.matrix_rank(rows) == 3
        np.testing.assert_allclose(clean @ rows.T, 0, atol=1e-12)


def test_exact_balances_come_first_although_they_are_longer():
    table = two_balances()
    table[:, 4] = table[:, 3] + table[:, 5] + table[:, 6]
    assert equations(table, NAMES) == ["e = d + f + g", "a = b + c"]


def test_a_small_term_is_not_forgotten():
    table = two_balances(noise=0.0005)
    table[:, 9] *= 0.02
    table[:, 0] += table[:, 9]
    assert "a = b + c + j" in equations(table, NAMES)


def test_parts_of_a_whole_have_a_constant():
    parts = np.random.default_rng(0).dirichlet(np.ones(4), 200)
    assert equations(parts, list("abcd")) == ["a + b + c + d = 1"]
    assert equations(100 * parts, list("abcd")) == ["a + b + c + d = 100"]


def test_percentages_without_a_digit_add_up_to_a_hundred():
    """Their sum is off by half a per cent in each row, and by a twentieth of that on average over 400 rows."""
    for seed in range(10):
        shares = (100 * np.random.default_rng(seed).dirichlet([3, 4, 5], 400)).round()
        assert equations(shares, list("abc")) == ["a + b + c = 100"], seed


def test_a_residual_has_the_unit_of_the_columns_without_a_factor():
    rng = np.random.default_rng(0)
    volts, loss = rng.uniform(3, 4, 300), rng.uniform(10, 90, 300)
    table = np.column_stack([volts, loss, volts + loss / 1000])
    (found,) = propose(table, ["U [V]", "loss [mV]", "OCV [V]"])
    assert (found.unit, found.coefficients["loss [mV]"]) in [("mV", 1.0), ("mV", -1.0), ("V", 0.001), ("V", -0.001)]
    (found,) = propose(table, ["U", "loss", "OCV"])
    assert found.unit is None


@pytest.mark.parametrize(
    ("columns", "noise"), [(["U", "loss", "OCV"], 0.0), (["U [V]", "loss [mV]", "OCV [V]"], 0.003)]
)
def test_a_sum_that_nearly_holds_does_not_stand_beside_or_for_the_balance_that_it_is_part_of(columns, noise):
    """U and OCV differ by a loss that is 5 % of their spread."""
    if noise:
        pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    volts, loss = rng.uniform(3, 4, 300), rng.uniform(10, 90, 300)
    table = np.column_stack([volts, loss, volts + loss / 1000])
    (found,) = propose(table + noise * rng.standard_normal(table.shape) * [1, 1000, 1], columns)
    ratios = {name: c / found.coefficients[columns[2]] for name, c in found.coefficients.items()}
    assert ratios == pytest.approx(dict(zip(columns, [-1.0, -0.001, 1.0], strict=True)))


def test_other_scales_with_an_offset_are_found():
    celsius = np.random.default_rng(0).uniform(0, 100, 300)
    assert equations(np.column_stack([celsius, 1.8 * celsius + 32]), ["C", "F"]) == ["F = 1.8*C + 32"]
    (found,) = propose(np.column_stack([celsius, celsius + 273.15]), ["C", "K"])
    assert LinearConstraint.from_equations(found.equation, outputs=["C", "K"]).b[0] == pytest.approx(-273.15)


def test_factors_of_units_are_found():
    table = two_balances()
    table[:, 1] *= 1000
    table[:, 5] *= 60
    (first, second) = propose(table, NAMES)
    ratios = {name: c / first.coefficients["a"] for name, c in first.coefficients.items()}
    assert ratios == pytest.approx({"a": 1.0, "b": -0.001, "c": -1.0})
    ratios = {name: c / second.coefficients["e"] for name, c in second.coefficients.items()}
    assert ratios == pytest.approx({"e": 1.0, "d": -1.0, "f": -1 / 60, "g": -1.0})


def test_columns_of_very_different_size_are_no_obstacle():
    scales = np.array([1e10] * 3 + [1e-10] * 4 + [1.0] * 3)
    found = propose(two_balances() * scales, NAMES)
    assert [each.equation for each in found] == ["a = b + c", "e = d + f + g"]
    plain = propose(two_balances(), NAMES)
    assert [each.relative for each in found] == pytest.approx([each.relative for each in plain], rel=1e-6)


def test_large_means_are_no_obstacle():
    assert equations(two_balances() + 1e8 * np.array([2, 1, 1, 1, 3, 1, 1, 0, 0, 0]), NAMES) == [
        "a = b + c",
        "e = d + f + g",
    ]


def test_missing_values_and_sentinels_are_left_out():
    table = two_balances()
    rng = np.random.default_rng(1)
    table[rng.random(table.shape) < 0.02] = np.nan
    table[3, 1], table[4, 0], table[5, 2] = -9999.0, np.inf, 1e6
    table[:, 9] = np.nan
    found = propose(table, NAMES)
    assert [each.equation for each in found] == ["a = b + c", "e = d + f + g"]
    complete = np.isfinite(table[:, :3]).all(1)
    assert found[0].n_rows == complete.sum()
    assert found[0].n_broken == (complete & (np.abs(table[:, :3]) > 100).any(1)).sum()


GROSS = {
    "off": lambda column: 0.0 * column,
    "stuck": lambda column: np.full_like(column, column[0] + 4.0),
    "twice": lambda column: 2.0 * column + 1.0,
    "in another unit": lambda column: 1000.0 * column + 100.0,
}


@pytest.mark.parametrize("noise", [0.0, 0.003])
@pytest.mark.parametrize("how", GROSS)
@pytest.mark.parametrize("columns", [[1], [1, 5], [0, 1, 4, 6]])
def test_gross_rows_hide_no_balance_and_are_counted(noise, how, columns):
    """20 of 500 rows are spoiled, each in one column: those of b and of a break the first balance."""
    table = two_balances(noise=noise) + np.array([2, 1, 1, 1, 3, 1, 1, 0, 0, 0])
    for i, j in enumerate(columns):
        rows = slice(i, 20, len(columns))
        table[rows, j] = GROSS[how](table[rows, j])
    found = propose(table, NAMES)
    assert [each.equation for each in found] == ["a = b + c", "e = d + f + g"]
    spoiled = [len(range(i, 20, len(columns))) for i in range(len(columns))]
    expected = [sum(n for n, j in zip(spoiled, columns, strict=True) if j in of) for of in ((0, 1, 2), (3, 4, 5, 6))]
    assert [each.n_broken for each in found] == expected
    assert all(each.n_rows == 500 for each in found)
    assert found[0].std == pytest.approx(noise * np.sqrt(3), rel=0.1, abs=1e-14)


def test_gross_rows_of_a_column_that_two_balances_share_hide_neither():
    rng = np.random.default_rng(0)
    b, c, d, e = rng.uniform(1, 3, (4, 500))
    table = np.column_stack([b + c, b, c, d, e, b + d + e]) + 0.002 * rng.standard_normal((500, 6))
    table[:10, 1] = 0.0
    found = propose(table, list("abcdef"))
    assert [(each.equation, each.n_broken) for each in found] == [("a = b + c", 10), ("f = b + d + e", 10)]


def test_a_few_rows_far_off_make_no_balance_of_columns_that_they_have_in_common():
    """In 10 rows two columns are 1000 times as large, and alike to 2 %: elsewhere they are unrelated."""
    rng = np.random.default_rng(0)
    table = rng.uniform(1, 3, (500, 3))
    table[:10, :2] = 1000.0 * rng.uniform(1, 3, (10, 1)) * rng.uniform(0.98, 1.02, (10, 2))
    assert equations(table, list("abc")) == []


def test_balances_have_one_of_the_outputs():
    assert equations(two_balances(), NAMES, outputs=["f", "h"]) == ["e = d + f + g"]
    assert equations(two_balances(), NAMES, outputs=["h"]) == []


def test_at_most_as_many_as_asked_for_and_no_longer_than_asked_for():
    assert equations(two_balances(), NAMES, most=1) == ["a = b + c"]
    assert equations(two_balances(), NAMES, max_terms=3) == ["a = b + c"]


@settings(max_examples=15)
@given(st.permutations(range(10)), st.sampled_from([1e-6, 1.0, 1e5]), st.integers(0, 50))
def test_neither_order_nor_unit_changes_what_is_found(order, scale, seed):
    table = scale * two_balances(n=60, seed=seed)
    found = propose(table[:, order], [NAMES[j] for j in order])
    sets = [frozenset(each.coefficients.items()) for each in found]
    expected = [{"a": 1.0, "b": -1.0, "c": -1.0}, {"e": 1.0, "d": -1.0, "f": -1.0, "g": -1.0}]
    assert sets == [frozenset(each.items()) for each in expected]


# What is not found


def test_nothing_is_found_in_unrelated_columns():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(12, 80)), int(rng.integers(2, 11))
        table = rng.standard_normal((n, p)) * 10.0 ** rng.integers(-2, 3, p) + rng.uniform(-5, 5, p)
        assert equations(table, NAMES[:p]) == [], seed


@pytest.mark.parametrize("n", [30, 200])
def test_gross_rows_and_heavy_tails_make_no_balances(n):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        spoiled = rng.uniform(1, 3, (n, 6))
        spoiled[: n // 50 + 1, 0], spoiled[: n // 50 + 1, 1] = 0.0, 1000.0
        events = np.where(rng.random((n, 6)) < 0.05, rng.exponential(1, (n, 6)), 0.0)
        common = rng.standard_normal((n, 1)) + 0.3 * rng.standard_t(3, (n, 6))
        for table in (spoiled, events, common, rng.standard_cauchy((n, 6)), np.exp(rng.normal(0, 2, (n, 6)))):
            assert equations(table, NAMES[:6]) == [], seed


def test_few_rows_give_nothing():
    with pytest.warns(SearchWarning, match="11 rows have values in all of 10 columns, but at least 12 are needed"):
        assert equations(two_balances(n=11), NAMES) == []
    assert equations(two_balances(n=13), NAMES) == ["a = b + c", "e = d + f + g"]
    assert equations(np.zeros((0, 3)), list("abc")) == []
    fifteen = np.hstack([two_balances(n=15), np.random.default_rng(1).standard_normal((15, 10))])
    with pytest.warns(SearchWarning, match="15 rows have values in all of 20 columns, but at least 21 are needed"):
        assert equations(fifteen, [f"c{j}" for j in range(20)]) == []


def test_a_column_that_is_mostly_empty_is_left_out_and_that_is_said():
    table = two_balances()
    table[:260, 1] = np.nan
    with pytest.warns(
        SearchWarning, match="'b' was left out of the search for balances: 260 of its 500 values are miss"
    ):
        assert equations(table, NAMES) == ["e = d + f + g"]


@pytest.mark.parametrize("table", [np.ones((50, 3)), np.full((50, 3), np.nan), np.zeros((50, 0))])
def test_empty_and_constant_columns_give_nothing(table):
    assert equations(table, NAMES[: table.shape[1]]) == []


def test_events_too_rare_to_be_sampled_and_numbers_too_large_to_be_squared_are_no_obstacle():
    table = two_balances(n=30_000)
    table[:, 7] = 0.0
    table[1, 7] = 1.0  # every row but this one is 0, and it is not among the 20,000 rows that are looked at
    assert 1 not in discovery.evenly_spaced(len(table))
    table[:, 8] *= 1e200
    table[:, 9] *= 1e-200
    assert equations(table, NAMES) == ["a = b + c", "e = d + f + g"]


def test_columns_of_different_units_are_not_added():
    pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1, (2, 300))
    table = np.column_stack([x, x, y, y, x])
    names = ["U [V]", "I [A]", "W [V]", "Z [mV]", "share"]
    assert sorted(equations(table, names)) == ["`I [A]` = share", "`U [V]` = share", "`W [V]` = `Z [mV]`"]


@pytest.mark.parametrize("noise", [0.0, 0.015])
def test_units_of_different_size_are_brought_together(noise):
    """Noise hides factors that are fitted, not those that units have."""
    pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    parts = rng.uniform(1, 3, (3, 400))
    table = np.column_stack([*parts, parts.sum(0) / 1000]) * (1 + noise * rng.standard_normal((400, 4)))
    assert equations(table, ["a [kW]", "b [kW]", "c", "P [MW]"]) == ["1000*`P [MW]` = `a [kW]` + `b [kW]` + c"]
    hourly = np.column_stack([table[:, :3], table[:, 3] * 24])  # 1 t/d = 1000 / 24 kg/h
    (found,) = propose(hourly, ["a [kg/h]", "b [kg/h]", "c [kg/h]", "F [t/d]"])
    assert found.coefficients == pytest.approx({"a [kg/h]": -1, "b [kg/h]": -1, "c [kg/h]": -1, "F [t/d]": 1000 / 24})


def test_numbers_that_add_up_although_their_units_do_not_are_found_as_they_are():
    pytest.importorskip("pint")
    rng = np.random.default_rng(0)
    parts = rng.uniform(1, 3, (2, 400))
    table = np.column_stack([*parts, parts.sum(0)]) * (1 + 0.015 * rng.standard_normal((400, 3)))
    assert equations(table, ["a [kW]", "b [kW]", "P [MW]"]) == ["`P [MW]` = `a [kW]` + `b [kW]`"]


def test_without_pint_units_are_compared_as_text(monkeypatch):
    monkeypatch.setattr(units, "_registry", lambda: None)
    units.read_unit.cache_clear()
    x, y = np.random.default_rng(0).uniform(0, 1, (2, 300))
    found = equations(np.column_stack([x, x, x, y]), ["U [V]", "W [V]", "I [A]", "J [A]"])
    units.read_unit.cache_clear()
    assert found == ["`U [V]` = `W [V]`"]


# Limits


def low_rank(p, n=200):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, p // 2)) @ rng.standard_normal((p // 2, p)), [f"c{j}" for j in range(p)]


def test_a_search_that_is_cut_short_says_so(monkeypatch):
    monkeypatch.setattr(discovery, "MAX_SIGNED_TRIALS", 2000)
    monkeypatch.setattr(discovery, "MAX_FITS", 100)
    with pytest.warns(SearchWarning) as caught:
        assert propose(*low_rank(12)) == []
    texts = [str(warning.message) for warning in caught]
    assert any(
        "coefficients ±1 were looked for up to 3 terms only, not 6: 12 related columns" in text for text in texts
    )
    assert any("other coefficients were looked for up to 2 terms only" in text for text in texts)


def test_a_search_that_found_everything_says_nothing(monkeypatch):
    monkeypatch.setattr(discovery, "MAX_SIGNED_TRIALS", 1000)
    table = two_balances()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert equations(table[:, :3], NAMES[:3]) == ["a = b + c"]


def test_a_balance_hides_among_forty_columns():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((500, 40))
    table[:, 7] = table[:, 1] - table[:, 20] - table[:, 33] + 0.01 * rng.standard_normal(500)
    assert equations(table, [f"c{j}" for j in range(40)]) == ["c1 = c7 + c20 + c33"]


def test_many_columns_with_balances_throughout_are_searched():
    # 24 related columns in 8 balances of three: what is left over after them is unrelated, and the search ends early.
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((400, 16))
    table = np.hstack([parts, parts[:, ::2] + parts[:, 1::2]]) + 0.005 * rng.standard_normal((400, 24))
    found = propose(table, [f"c{j}" for j in range(24)])
    expected = {frozenset({f"c{16 + k}", f"c{2 * k}", f"c{2 * k + 1}"}) for k in range(8)}
    assert {frozenset(each.coefficients) for each in found} == expected


def test_every_two_proposals_are_independent():
    found = propose(voltages(0.003), ["SOC", "current", "V", "OCV", "a", "b", "c"])
    for one, other in itertools.combinations(found, 2):
        both = np.array(
            [
                [each.coefficients.get(n, 0.0) for n in ("SOC", "current", "V", "OCV", "a", "b", "c")]
                for each in (one, other)
            ]
        )
        assert np.linalg.matrix_rank(both) == 2


# What is refused


@pytest.mark.parametrize(
    ("args", "keywords", "said"),
    [
        ((np.zeros((5, 2)), ["a"]), {}, "shape (rows, 1), a column for each name, but got (5, 2)"),
        ((np.zeros(5), ["a"]), {}, "but got (5,)"),
        ((np.zeros((5, 2)), ["a", "a"]), {}, "one name each, but got 'a' twice"),
        (
            (np.zeros((5, 1)), ["flow"]),
            {"outputs": ["flov"]},
            "outputs must be columns, but got 'flov'. Did you mean 'flow'?",
        ),
        (
            (np.zeros((5, 1)), ["a"]),
            {"max_terms": 1},
            "max_terms must be at least 2 and most at least 1, but got 1 and 10",
        ),
        ((np.zeros((5, 1)), ["a"]), {"most": 0}, "but got 6 and 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(args, keywords, said):
    with pytest.raises(DiscoveryError) as caught:
        propose(*args, **keywords)
    assert said in str(caught.value)
