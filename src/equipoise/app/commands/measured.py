"""A measured table piece by piece, as reconciliation takes it: values, their errors, what is exact, and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.job import Accuracy, Plant

CHUNK, FEWEST, CELLS = 8_192, 256, 400_000  # rows at a time; fewer where that many numbers are exceeded


@dataclass(frozen=True)
class Piece:
    """Some rows of a measured table.

    Args:
        frame: The table's own columns, cells as they stand.
        values: What was measured, NaN where nothing was, by name; the index counts the rows of the table from 1.
        std: Standard deviations, `(n,)`, or `(rows, n)` where some depend on the reading.
        exact: Columns without error, by name.
        time: When each row was measured, if that is known.
    """

    frame: pd.DataFrame
    values: pd.DataFrame
    std: Any
    exact: pd.DataFrame
    time: Any


@dataclass(frozen=True)
class MeasuredTable:
    """The table of a plant.

    Args:
        plant: Its sensors.
        path: The file.
        outputs: What is reconciled. What has no column is not measured.
        exact: Columns without error, which must be there in every row.
        time: The column that says when a row was measured.
        learned: Whether sensors that the job says nothing of were learned by a model.
    """

    plant: Plant
    path: Path
    outputs: tuple[str, ...]
    exact: tuple[str, ...]
    time: str | None = None
    learned: bool = False

    @cached_property
    def accuracies(self) -> dict[str, Accuracy]:
        """How well columns are measured, by name."""
        return self.plant.accuracies

    def check_header(self, added: Sequence[str]) -> None:
        """Raise if columns are missing, or have the names of those that will be added."""
        from equipoise.app import tables
        from equipoise.balances import did_you_mean, quoted_list

        header, sensors = tables.header(self.path), () if self.learned else self.accuracies
        for name in (*sensors, *self.exact, *filter(None, [self.time])):
            if name not in header:
                rule = f"'{self.path.name}' must have the columns that are measured, exact or asked for"
                raise tables.TableError(f"{rule}, but got none called {name!r}. {did_you_mean(name, header)}")
        if not set(header) & set(self.outputs):
            rule = f"'{self.path.name}' must have a column that is measured"
            raise tables.TableError(f"{rule}, but got none of {quoted_list(self.outputs)}. Name its columns so.")
        if taken := [name for name in header if name in added]:
            rule = f"'{self.path.name}' must leave the names of results free, but got {quoted_list(taken)}"
            raise tables.TableError(f"{rule}. Rename or drop what is called so.")

    def pieces(self) -> Iterator[Piece]:
        """The rows, piece by piece. Raises where a cell cannot be used."""
        from equipoise.app import tables

        time_column = None if self.time is None else tables.TimeColumn(self.time, self.path)
        rows = max(FEWEST, min(CHUNK, CELLS // len(self.outputs)))
        for frame in tables.chunks(self.path, rows, text=True):
            values = self._values(frame)
            time = None if time_column is None else time_column.read(frame)
            yield Piece(frame, values, self._std(values), self._exact(frame), time)

    def _values(self, frame: pd.DataFrame) -> pd.DataFrame:
        import numpy as np
        import pandas as pd

        from equipoise.app import tables

        there = [name for name in self.outputs if name in frame.columns]
        values = pd.DataFrame(np.nan, frame.index + 1, list(self.outputs))
        values[there] = tables.numbers(frame, there, self.path, missing_ok=True)
        if not self.learned:
            self._check_sensors(values)
        return values

    def _check_sensors(self, values: pd.DataFrame) -> None:
        from equipoise.app.job import JobError
        from equipoise.balances import quoted_list

        known, seen = self.accuracies, values.notna().any()
        unknown = [name for name in values.columns[seen] if name not in known]
        if unknown:
            rule = "[sensors] must give a standard deviation for every output that is measured"
            advice = "Add it, or take the column out of the table if its values are not to be used"
            raise JobError(f"{self.plant.file}: {rule}, but got none for {quoted_list(unknown)}. {advice}.")

    def _std(self, values: pd.DataFrame) -> Any:
        """Standard deviations; NaN for what the job says nothing of."""
        import numpy as np

        nothing = (np.nan, 0.0)
        absolute, share = np.array([self.accuracies.get(name, nothing) for name in values.columns]).T
        if not share.any():
            return absolute
        readings = values.to_numpy()
        self._check_zeros(values, readings, (absolute == 0) & (share > 0))
        return absolute + share * np.abs(readings)

    def _check_zeros(self, values: pd.DataFrame, readings: Any, pure: Any) -> None:
        """A share of nothing is no error at all, which would make the reading exact."""
        import numpy as np

        from equipoise.app.job import JobError
        from equipoise.app.tables import describe_rows

        zeros = np.argwhere((readings == 0) & pure)
        if len(zeros):
            row, column = zeros[0]
            rule = f"{values.columns[column]!r} in [sensors] must give a reading of 0 an error, too"
            where = f"{describe_rows([int(values.index[row]) - 1], self.path)} of '{self.path.name}'"
            got = f"a share alone, and 0 in {where}"
            raise JobError(f"{self.plant.file}: {rule}, but got {got}. Write it as '1 % + 0.05', for instance.")

    def _exact(self, frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        from equipoise.app import tables

        cells = tables.complete_numbers(frame, self.exact, self.path)
        return pd.DataFrame(cells, frame.index + 1, list(self.exact))
