"""Names of columns: units in brackets, suggestions and lists in messages."""

import pytest

from equipoise.balances.names import column_symbol, column_unit, did_you_mean, quoted_list


def test_suggestions_ignore_case_and_unit():
    assert did_you_mean("voltage", ["Current [A]", "Voltage [V]"]) == "Did you mean 'Voltage [V]'?"


@pytest.mark.parametrize(
    ("name", "symbol", "unit"),
    [
        ("Voltage [V]", "Voltage", "V"),
        ("Heat[W.m-3]", "Heat", "W.m-3"),
        ("Voltage", "Voltage", None),
        ("x [a] [b]", "x [a]", "b"),
        ("[V]", "[V]", None),
        ("Flow [kg/s] in", "Flow [kg/s] in", None),
        ("Empty []", "Empty []", None),
    ],
)
def test_a_unit_is_what_stands_in_brackets_at_the_end(name, symbol, unit):
    assert (column_symbol(name), column_unit(name)) == (symbol, unit)


def test_long_lists_of_names_are_cut_in_messages():
    assert quoted_list("abcdef", most=3) == "'a', 'b', 'c' and 3 more"
    assert quoted_list(["a"]) == "'a'"
    assert quoted_list([]) == "none"
