"""Times of a table: numbers or dates, in order, over all of its pieces."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from equipoise.app.tables import TableError, TimeColumn


def pieces(*texts):
    """Pieces of a table with a column of times."""
    table = pd.DataFrame({"t": [cell for cells in texts for cell in cells]}, dtype=object)
    ends = np.cumsum([0, *map(len, texts)])
    return [table.iloc[start:end] for start, end in pairwise(ends)]


def read(*texts):
    time_column = TimeColumn("t", "plant.csv")
    return [time_column.read(piece) for piece in pieces(*texts)]


def complaint(*texts):
    with pytest.raises(TableError) as caught:
        read(*texts)
    return str(caught.value)


def test_numbers_are_read_as_numbers():
    first, second = read(["1", "2.5"], ["2.5", "1e3"])
    np.testing.assert_array_equal(first, [1.0, 2.5])
    np.testing.assert_array_equal(second, [2.5, 1000.0])


@pytest.mark.parametrize(
    "cells",
    [
        ["2026-03-01 08:30", " 2026-03-01 09:00 "],
        ["2026-03-01T08:30:00Z", "2026-03-01T09:00:00Z"],
        ["01.03.2026 08:30", "1.3.2026 09:00:00"],  # the day comes first
        ["2026-03-01 10:30:00+02:00", "2026-03-01 10:00:00+01:00"],
    ],
)
def test_dates_are_read_in_utc(cells):
    (times,) = read(cells)
    assert list(times) == [np.datetime64("2026-03-01T08:30"), np.datetime64("2026-03-01T09:00")]


def test_dates_of_a_parquet_table_are_taken_as_they_are():
    stored = pd.date_range("2026-03-01 08:30", periods=3, freq="h")
    for column in (pd.Series(stored), pd.Series(stored).astype("timestamp[us][pyarrow]"), pd.Series(stored.date)):
        times = TimeColumn("t", "plant.parquet").read(pd.DataFrame({"t": column}))
        assert times.dtype == "datetime64[ns]"
        assert str(times[0]).startswith("2026-03-01T")


def test_a_time_that_goes_back_is_named_also_between_pieces():
    message = "Column 't' must not go back in time, but got '2' in row 3 of 'plant.csv', which is earlier"
    assert message in complaint(["1", "3", "2"])
    assert message in complaint(["1", "3"], ["2"])
    assert "got '2026-02-28' in row 2" in complaint(["2026-03-01"], ["2026-02-28"])


@pytest.mark.parametrize("cell", ["03/01/2026 08:00", "13.13.2026", "1.3.26", "noon", ""])
def test_a_cell_that_is_no_time_is_named(cell):
    message = complaint(["2026-03-01"], ["2026-03-02", cell])
    rule = "Column 't' must hold numbers, or dates such as 2026-03-01 08:30, in every row"
    assert f"{rule}, but got {cell!r} in row 3 of 'plant.csv'. Correct it." in message


def test_a_missing_time_is_named_and_no_good_one():
    assert "must hold a number in every row, but got none in row 3 of 'plant.csv'" in complaint(["1", "2", "", "3"])
    assert "must hold a number in every row, but got none in row 1 of 'plant.csv'" in complaint(["", "2", "3"])
    assert "but got '' in row 1 of 'plant.csv'" in complaint(["", "2026-03-01"])
    assert "must hold numbers, but got 'noon' in row 2" in complaint(["1", "noon"])


@pytest.mark.parametrize("cell", ["1500-01-01", "2500-06-01 10:00", "1677-12-31", "2262-01-01"])
def test_dates_that_nanoseconds_cannot_hold_are_refused(cell):
    message = f"Column 't' must hold dates from 1678 to 2261, but got '{cell}' in row 1 of 'plant.csv'. Correct it."
    assert message in complaint([cell])
    assert [str(time)[:10] for time in read(["1678-01-01", "2261-12-31"])[0]] == ["1678-01-01", "2261-12-31"]


def test_dates_of_a_parquet_table_that_nanoseconds_cannot_hold_are_refused():
    column = pd.Series(np.array(["2026-01-01", "2900-01-01"], "datetime64[us]"))
    with pytest.raises(TableError, match=r"from 1678 to 2261, but got '2900-01-01.*' in row 2"):
        TimeColumn("t", "plant.parquet").read(pd.DataFrame({"t": column}))


def test_numbers_go_on_as_numbers():
    assert "Column 't' must hold numbers, but got 'noon'" in complaint(["1"], ["noon"])
