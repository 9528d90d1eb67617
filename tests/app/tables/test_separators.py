"""Points and commas in numbers: what columns say of them, against numbers that were written in a known way."""

import pytest
from hypothesis import given, strategies as st

from equipoise.app.tables.separators import OTHER_SIGN, ColumnSeparators, decimal_sign, has_ambiguous_sign

decimals = st.floats(-1e6, 1e6).map(lambda value: f"{value:.2f}")  # never three decimals
wholes = st.integers(-(10**9), 10**9)


def written(number, decimal):
    """What a program of a country with this decimal sign writes."""
    return f"{number}".translate(str.maketrans(",.", f"{OTHER_SIGN[decimal]}{decimal}"))


@given(st.lists(decimals, min_size=1), st.sampled_from(",."))
def test_the_sign_before_decimals_is_recognised(numbers, decimal):
    column = ColumnSeparators.of([written(number, decimal) for number in numbers])
    assert column.proves_decimal(decimal)
    assert not column.proves_decimal(OTHER_SIGN[decimal])


@given(st.lists(wholes, min_size=1), st.sampled_from(",."))
def test_separated_thousands_never_pass_for_decimals_beside_smaller_numbers(numbers, decimal):
    column = ColumnSeparators.of([written(f"{number:,}", decimal) for number in [*numbers, 947, 1926]])
    assert decimal_sign([column], ";") == decimal
    assert OTHER_SIGN[decimal] in column.ambiguous


@given(wholes.filter(lambda number: abs(number) >= 10**6), st.sampled_from(",."))
def test_two_separators_are_beyond_doubt(number, decimal):
    assert ColumnSeparators.of([written(f"{number:,}", decimal)]).proves_decimal(decimal)
    assert ColumnSeparators.of([written(f"{number:,}.5", decimal)]).proves_decimal(decimal)


@given(st.lists(decimals), st.lists(decimals))
def test_a_column_in_two_parts_shows_what_the_whole_shows(first, second):
    assert ColumnSeparators.of(first) | ColumnSeparators.of(second) == ColumnSeparators.of([*first, *second])


@pytest.mark.parametrize(
    ("columns", "decimal"),
    [
        ([["1,5"], ["2,5"], ["24.12"]], ","),
        ([["1,5"], ["24.12", "01.03"]], ","),
        ([["1.5"], ["2.5"], ["3,5"]], "."),
        ([["3.412", "3.398"]], "."),  # three decimals in every row
        ([["3.412", "0"]], "."),  # what many write where nothing was measured
        ([["1.926", "947"]], ","),
        ([["1,926", "947"]], "."),
        ([["1.926", "947"], ["0,5"]], ","),
        ([["1.926", "947"], ["0.5"]], "."),
        ([["1,5", "2.5"]], "."),
        ([["1", "2"]], "."),
        ([["two\n3,5"]], "."),  # a line of a longer text
    ],
)
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_most_columns_decide(columns, decimal, delimiter):
    assert decimal_sign([ColumnSeparators.of(cells) for cells in columns], delimiter) == decimal


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["1.926"]], False),  # a point is one nearly everywhere
        ([["1,926"]], True),
        ([["1.926"], ["2,345"]], True),  # one of them separates thousands
        ([["1.926"], ["2,345"], ["0.5"]], False),
        ([["1.926"], ["2,345", "01,03"]], False),  # which are no numbers
        ([["1.92"], ["2,345"]], False),
    ],
)
def test_a_point_is_in_doubt_where_commas_are(columns, expected):
    signs = [ColumnSeparators.of(cells) for cells in columns]
    assert has_ambiguous_sign(signs, decimal_sign(signs, "\t"), "\t") is expected


def test_where_columns_balance_a_semicolon_speaks_for_the_comma():
    columns = [ColumnSeparators.of(["1,5"]), ColumnSeparators.of(["2.5"])]
    assert (decimal_sign(columns, ";"), decimal_sign(columns, "\t")) == (",", ".")
