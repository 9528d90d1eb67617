import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from equipoise.diagnosis import column_diagnosis
from equipoise.diagnosis.column_diagnosis import (
    ColumnFinding,
    column_warnings,
    copy_warnings,
    diagnose_column,
    duplicated_rows,
)

few_values = st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf, 1e300, 5e-324])


@given(hnp.arrays(float, st.integers(0, 20), elements=few_values))
def test_counts_and_range_of_a_column_are_those_of_its_values(values):
    finite = [v for v in values.tolist() if np.isfinite(v)]
    found = diagnose_column("x", "input", values)
    assert found.missing == sum(map(np.isnan, values.tolist()))
    assert found.infinite == sum(map(np.isinf, values.tolist()))
    assert (found.minimum, found.maximum) == ((min(finite), max(finite)) if finite else (None, None))
    assert found.constant == (len(set(finite)) == 1)


def test_a_column_is_described_in_sentences():
    found = diagnose_column("flow [kg/h]", "output", np.array([3.0, np.nan, 3.0, -np.inf]))
    assert column_warnings(found, 4) == [
        "Column 'flow [kg/h]' misses 1 of 4 values.",
        "Column 'flow [kg/h]' has 1 infinite values.",
        "Column 'flow [kg/h]' is constant (3).",
    ]
    assert column_warnings(diagnose_column("x", "input", np.full(3, np.nan)), 3) == ["Column 'x' has no values at all."]
    assert column_warnings(ColumnFinding("x", "input", 0, 0, 1.0, 2.0), 3) == []


@given(hnp.arrays(float, st.tuples(st.integers(0, 30), st.integers(1, 3)), elements=few_values))
def test_duplicated_rows_are_those_that_pandas_finds(table):
    expected = np.flatnonzero(pd.DataFrame(table + 0.0).duplicated().to_numpy())
    np.testing.assert_array_equal(duplicated_rows(list(table.T)), expected)


def test_duplicates_are_found_among_many_rows():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((50_000, 3))
    copies = rng.choice(np.arange(1000, 50_000), 40, replace=False)
    table[copies] = table[rng.integers(0, 1000, 40)]
    np.testing.assert_array_equal(duplicated_rows(list(table.T)), np.sort(copies))


def test_rows_that_share_a_hash_only_are_no_duplicates(monkeypatch):
    monkeypatch.setattr(column_diagnosis, "_MIX", np.uint64(0))  # now all rows have the same hash
    table = [np.array([1.0, 2.0, 1.0]), np.array([1.0, 1.0, 1.0])]
    assert duplicated_rows(table).tolist() == [2]


@pytest.mark.parametrize("table", [[], [np.zeros(0)]])
def test_an_empty_table_has_no_duplicates(table):
    assert len(duplicated_rows(table)) == 0


@given(st.lists(hnp.arrays(float, 3, elements=few_values), max_size=6))
def test_copies_are_columns_that_vary_and_that_pandas_calls_duplicates(columns):
    table = pd.DataFrame({f"c{i}": values + 0.0 for i, values in enumerate(columns)})
    varying = [name for name in table if table[name].nunique(dropna=False) > 1]
    copied = table[varying].T.duplicated() if varying else pd.Series(dtype=bool)
    warnings = copy_warnings({str(name): values.to_numpy() for name, values in table.items()})
    assert [text.split("'")[1] for text in warnings] == copied[copied].index.tolist()
