"""The measured table of a plant, chunk by chunk: values, their standard deviations, exact columns and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.app.job import Accuracy, Plant

CHUNK_ROWS = 8_192  # rows at a time, fewer in a wide table:
MOST_VALUES = 400_000  # numbers at a time
LEAST_ROWS = 256  # rows at a time, however wide the table


@dataclass(frozen=True)
class MeasuredChunk:
    """Consecutive rows of a measured table.

    Args:
        frame: The table's own columns, cells as they stand.
        values: Measured outputs, `(rows, n_y)`, NaN where nothing was measured; the index counts the rows of the table
            from 1.
        std: Standard deviations of the sensors, `(n_y,)`, or `(rows, n_y)` where some depend on the reading; NaN where
            the job gives none.
        exact: Columns without error, by name.
        time: When each row was measured, `(rows,)`; None without a column of times.
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
        outputs: The variables to be reconciled; those without a column are not measured.
        exact: Columns without error, which must have a number in every row.
        time: The column of times.
        learned: Whether a model has learned the sensors for which the job gives no standard deviation.
    """

    plant: Plant
    path: Path
    outputs: tuple[str, ...]
    exact: tuple[str, ...]
    time: str | None = None
    learned: bool = False

    @cached_property
    def accuracies(self) -> dict[str, Accuracy]:
        """The accuracy of each measured column, by name."""
        return self.plant.accuracies

    def check_header(self, added: Sequence[str]) -> None:
        """Raise TableError if columns are missing, or have the name of a column that will be added.

        Args:
            added: Names of the columns that may be added.
        """
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
        if reserved := [name for name in header if name in added]:
            rule = f"'{self.path.name}' must leave the names of results free, but got {quoted_list(reserved)}"
            raise tables.TableError(f"{rule}. Rename or drop what is called so.")

    def chunks(self) -> Iterator[MeasuredChunk]:
        """Iterate over the rows chunk by chunk.

        Raises: TableError or JobError, with column and line, where a cell cannot be used.
        """
        from equipoise.app import tables

        time_column = None if self.time is None else tables.TimeColumn(self.time, self.path)
        n_rows = max(LEAST_ROWS, min(CHUNK_ROWS, MOST_VALUES // len(self.outputs)))
        for frame in tables.chunks(self.path, n_rows, text=True):
            values = self._values(frame)
            time = None if time_column is None else time_column.read(frame)
            yield MeasuredChunk(frame, values, self._std(values), self._exact(frame), time)

    def _values(self, frame: pd.DataFrame) -> pd.DataFrame:
        import numpy as np
        import pandas as pd

        from equipoise.app import tables

        columns = [name for name in self.outputs if name in frame.columns]
        values = pd.DataFrame(np.nan, frame.index + 1, list(self.outputs))
        values[columns] = tables.numbers(frame, columns, self.path, missing_ok=True)
        if not self.learned:
            self._check_sensors(values)
        return values

    def _check_sensors(self, values: pd.DataFrame) -> None:
        """Raise JobError if an output has readings, but no standard deviation in the job."""
        from equipoise.app.job import JobError
        from equipoise.balances import quoted_list

        measured = values.columns[values.notna().any()]
        unknown = [name for name in measured if name not in self.accuracies]
        if unknown:
            rule = "[sensors] must give a standard deviation for every output that is measured"
            advice = "Add it, or take the column out of the table if its values are not to be used"
            raise JobError(f"{self.plant.file}: {rule}, but got none for {quoted_list(unknown)}. {advice}.")

    def _std(self, values: pd.DataFrame) -> Any:
        """Return the standard deviations of readings; NaN for outputs whose accuracy the job does not give."""
        import numpy as np

        unknown = (np.nan, 0.0)
        absolute, share = np.array([self.accuracies.get(name, unknown) for name in values.columns]).T
        if not share.any():
            return absolute
        readings = values.to_numpy()
        self._check_zeros(values, (absolute == 0) & (share > 0))
        return absolute + share * np.abs(readings)

    def _check_zeros(self, values: pd.DataFrame, share_alone: Any) -> None:
        """Raise JobError if a reading of 0 has an error that is a share alone: no error, which would make it exact.

        Args:
            values: Measured outputs, `(rows, n_y)`.
            share_alone: Whether the error of each output is a share of its reading and nothing else, `(n_y,)`.
        """
        import numpy as np

        from equipoise.app.job import JobError
        from equipoise.app.tables import describe_rows

        zeros = np.argwhere((values.to_numpy() == 0) & share_alone)
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
