"""Counts of the rows of a table that a command went through, and the notes that it prints on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.console import format_number, print_note

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of one table, or of several after adding.

    Attributes:
        n_rows: Rows that were used.
        n_beyond: Those of them in which an input lies beyond the range of the training data.
        inputs_beyond: Names of these inputs.
        n_incomplete: Rows that were left out, since an input is missing.
        n_blank: Rows that were passed over, since they have no value at all.
        ambiguous_columns: Carried columns in which a point may separate thousands or decimals.
    """

    n_rows: int = 0
    n_beyond: int = 0
    inputs_beyond: frozenset[str] = frozenset()
    n_incomplete: int = 0
    n_blank: int = 0
    ambiguous_columns: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: ConstrainedBNNRegressor, X: Any, *, n_incomplete: int = 0, n_blank: int = 0) -> RowCounts:
        """Count the rows of a table, and those beyond the range of the training data.

        Args:
            model: A fitted model.
            X: Its inputs and known columns, `(rows, n_x)`, in their own units.
            n_incomplete: Rows that were left out before.
            n_blank: Rows that were passed over before.
        """
        import numpy as np

        from equipoise.app.report import input_names

        beyond = model.standardizer_.beyond(np.asarray(X, dtype=float))
        names = frozenset(input_names(model)[j] for j in np.flatnonzero(beyond.any(0)))
        return cls(len(beyond), int(beyond.any(1).sum()), names, n_incomplete, n_blank)

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(
            self.n_rows + other.n_rows,
            self.n_beyond + other.n_beyond,
            self.inputs_beyond | other.inputs_beyond,
            self.n_incomplete + other.n_incomplete,
            self.n_blank + other.n_blank,
            self.ambiguous_columns | other.ambiguous_columns,
        )

    def print_notes(self, model: ConstrainedBNNRegressor) -> None:
        """Print a note on each count that is not zero; the model knows the range of its training data."""
        print_omissions(self.n_incomplete, self.n_blank)
        print_ambiguous_columns(self.ambiguous_columns)
        self._print_extrapolation(model)

    def _print_extrapolation(self, model: ConstrainedBNNRegressor) -> None:
        from equipoise.app.report import input_names

        s = model.standardizer_
        if not self.n_beyond or s.x_lowest is None or s.x_highest is None:
            return
        bounds = zip(input_names(model), s.x_lowest, s.x_highest, strict=False)  # known columns come after
        ranges = [
            f"{name!r} from {format_number(low, 6)} to {format_number(high, 6)}"
            for name, low, high in bounds
            if name in self.inputs_beyond
        ]
        rows = f"{self.n_beyond} of {self.n_rows} rows have inputs beyond those trained on ({', '.join(ranges)})"
        print_note(f"{rows}: neither predictions nor their intervals can be relied on there.")


def omission_sentences(n_incomplete: int, n_blank: int) -> Iterator[str]:
    """Yield a sentence on rows that were left out, as an input is missing, and one on rows without any value.

    Args:
        n_incomplete: Number of rows that were left out.
        n_blank: Number of rows without any value.
    Example:
        >>> list(omission_sentences(2, 0)), list(omission_sentences(0, 1))
        (['2 rows were left out, in which an input is missing.'], ['1 row without any value was passed over.'])
    """
    if n_incomplete:
        rows = "1 row was" if n_incomplete == 1 else f"{n_incomplete:,} rows were"
        yield f"{rows} left out, in which an input is missing."
    if n_blank:
        rows = "1 row without any value was" if n_blank == 1 else f"{n_blank:,} rows without any value were"
        yield f"{rows} passed over."


def print_omissions(n_incomplete: int, n_blank: int) -> None:
    """Print a note on rows that were left out, and one on rows that were passed over, if there are any.

    Args:
        n_incomplete: Number of rows that were left out.
        n_blank: Number of rows without any value.
    """
    for sentence in omission_sentences(n_incomplete, n_blank):
        print_note(sentence)


def print_ambiguous_columns(names: Collection[str]) -> None:
    """Print a note on carried columns in which a point may separate thousands or decimals, if there are any."""
    from equipoise.balances import quoted_list

    if names:
        advice = "are carried over as they stand: they may separate thousands, and are read as decimal points now."
        print_note(f"points in {quoted_list(sorted(names))} {advice}")
