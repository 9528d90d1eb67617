"""Rows of data in standardized units: in memory, or read from files batch by batch.

Training needs only the number of its rows and some of them at a time, so a table need not be in memory. The order of an
epoch is a permutation of all rows, as in memory. Kept in memory are 8 bytes per row for it, 8 bytes per row for the
positions of the rows to train on, and one batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from equipoise.data.scaling import Standardizer
from equipoise.data.table_passes import PIECE, Array, Positions, Table, gather, pieces


@dataclass(frozen=True)
class Rows:
    """Rows of data in standardized units.

    Args:
        x: Network inputs, shape `(n, n_x)`.
        y: Outputs, NaN where not measured, shape `(n, n_y)`.
        target: Targets `t'` of the balances (Z3), shape `(n, m)`; None without balances.
        sensor_var: Sensor variances that differ per row, shape `(n, n_y)`; None if they do not.
        B: Coefficients `B'` of the balances (Z3) that differ per row, shape `(n, m, n_y)`; None if they do not.
        known_complete: Whether every output is known to be measured, which spares the search for missing ones.
    """

    x: Float[Tensor, "n n_x"]
    y: Float[Tensor, "n n_y"]
    target: Float[Tensor, "n m"] | None = None
    sensor_var: Float[Tensor, "n n_y"] | None = None
    B: Float[Tensor, "n m n_y"] | None = None
    known_complete: bool = field(default=False, kw_only=True, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def complete(self) -> bool:
        """Whether every output of every row is measured."""
        return self.known_complete or bool(self.y.isfinite().all())

    @property
    def measured(self) -> Bool[Tensor, "n n_y"] | None:
        """Mask of the measured outputs, shape `(n, n_y)`; None if all are measured."""
        return None if self.complete else ~self.y.isnan()

    @property
    def device(self) -> torch.device:
        """Device of torch that holds the rows."""
        return self.x.device

    def take(self, index: Tensor | slice) -> "Rows":
        """Return the rows at these positions, in the order of the positions."""
        return self._with_each(lambda part: part[index])

    def to(self, device: torch.device | str) -> "Rows":
        """Return the rows on a device of torch."""
        return self._with_each(lambda part: part.to(device))

    def pieces(self) -> Iterator["Rows"]:
        """Iterate over all rows in their order, at most `PIECE` at a time."""
        return (self.take(slice(start, start + PIECE)) for start in range(0, len(self), PIECE))

    def parts(self) -> list[Tensor | None]:
        """Return inputs, outputs, targets and sensor variances, None if absent; then coefficients, if they differ."""
        return [self.x, self.y, self.target, self.sensor_var, *([] if self.B is None else [self.B])]

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        parts = (None if part is None else change(part) for part in self.parts())
        return Rows(*parts, known_complete=self.complete)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class StreamedRows:
    """Rows with the interface of `Rows`, read from tables and standardized batch by batch.

    Args:
        X: Inputs, then known columns, in the user's units, shape `(N, n_x + n_known)`.
        Y: Outputs in the user's units, NaN where not measured, shape `(N, n_y)`.
        standardizer: Translation to standardized units.
        positions: Positions of these rows among the N, ascending, shape `(n,)`.
        sensor_std: Standard deviations of the sensors where they differ per row, shape `(N, n_y)`.
        device: Device of torch on which batches are put.

    Example:
        >>> X, Y = np.arange(6.0).reshape(6, 1), np.arange(6.0).reshape(6, 1)
        >>> rows = StreamedRows(X, Y, Standardizer.fit(X, Y), np.array([0, 2, 5]))
        >>> rows.standardizer.outputs_to_user(rows.take(torch.tensor([2, 0])).y.numpy())
        array([[5.],
               [0.]])
    """

    X: Table
    Y: Table
    standardizer: Standardizer
    positions: Positions
    sensor_std: Table | None = None
    device: torch.device | str = "cpu"

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def complete(self) -> bool:
        """Whether every output of every row is measured."""
        return not any(np.isnan(y).any() for (y,) in pieces(self.Y, rows=self.positions))

    def take(self, index: Tensor | slice) -> Rows:
        """Read the rows at these positions among the n, in standardized units and in the order of the positions."""
        chosen = self.positions[index.cpu().numpy() if isinstance(index, Tensor) else index]
        per_row = None if self.sensor_std is None else gather(self.sensor_std, chosen)
        rows = standardize(self.standardizer, gather(self.X, chosen), gather(self.Y, chosen), per_row)
        return replace(rows, known_complete=self.complete).to(self.device)

    def pieces(self) -> Iterator[Rows]:
        """Iterate over all rows in their order, at most `PIECE` at a time."""
        return (self.take(slice(start, start + PIECE)) for start in range(0, len(self), PIECE))


AnyRows = Rows | StreamedRows


def standardize(standardizer: Standardizer, X: Array, Y: Array, sensor_std: Array | None = None) -> Rows:
    """Translate rows of data to standardized units: inputs in single precision, all else in double.

    Args:
        standardizer: Translation to standardized units.
        X: Inputs, then known columns, in the user's units, shape `(n, n_x + n_known)`.
        Y: Outputs in the user's units, NaN where not measured, shape `(n, n_y)`.
        sensor_std: Standard deviations of the sensors where they differ per row, shape `(n, n_y)`.
    """
    s = standardizer
    B, target = (None, None) if s.constraint is None else map(torch.as_tensor, s.linearise(X))
    return Rows(
        torch.as_tensor(s.inputs(X), dtype=torch.float32),
        torch.as_tensor(s.outputs(Y)),
        target,
        None if sensor_std is None else torch.as_tensor((sensor_std / s.y_std) ** 2),
        None if B is None or B.ndim == 2 else B,
    )


def mean_sensor_var(rows: AnyRows) -> Tensor | None:
    """Compute the mean over all rows of sensor variances that differ per row.

    Args:
        rows: Rows in standardized units.
    Returns: Mean variances in standardized units, shape `(n_y,)`; None if they do not differ per row.
    """
    sums = [part.sensor_var.sum(0) for part in rows.pieces() if part.sensor_var is not None]
    return torch.stack(sums).sum(0) / len(rows) if sums else None
