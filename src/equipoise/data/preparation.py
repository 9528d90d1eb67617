"""Data made ready to be learned from: what they say of balances and sensors before anything is trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.balances import LinearConstraint
from equipoise.data.rows import Rows, StreamedRows, standardized
from equipoise.data.scaling import Standardizer
from equipoise.data.sensors import parse_sensor_std, sensor_posterior
from equipoise.data.table_passes import Moments, Positions, Table, pieces
from equipoise.errors import InputError
from equipoise.gaussian import ConditioningLayer, LogNormalVariance, TolerancePrior, tolerance_posterior

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
ROUNDINGS = 64  # of the outputs, within which the terms of a balance cancel where it is obeyed to rounding
LEAST_ROUNDING = 1e-9  # relative: what float64 makes of a residual through standardized units
FLOOR = 4  # roundings: no learned tolerance is smaller


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Data in the user's units, with what is needed to build a model for them.

    Args:
        X: Inputs, then known columns, shape `(n, n_x + n_known)`.
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        precision: Relative rounding of the outputs as they came.
        standardizer: Of the rows that are trained on; it holds the balances.
        obeyed: Which balances all rows obey to rounding, shape `(m,)`.
        sensor_std: Standard deviations of the sensors, NaN where learned: `(n_y,)`, `(n, n_y)`, or None for none.
    """

    X: Table
    Y: Table
    precision: float
    standardizer: Standardizer
    obeyed: Mask
    sensor_std: Array | None

    @property
    def relative_rounding(self) -> float:
        """Part of the terms of a balance that its residual may be by rounding alone."""
        return ROUNDINGS * self.precision

    @property
    def sensor_std_per_row(self) -> Array | None:
        """Where they are known for each row, shape `(n, n_y)`."""
        return None if self.sensor_std is None or self.sensor_std.ndim == 1 else self.sensor_std

    def rows(self, positions: Positions) -> Rows:
        """Rows in standardized units, in memory."""
        per_row = self.sensor_std_per_row
        X, Y = (np.asarray(table[positions], dtype=np.float64) for table in (self.X, self.Y))
        return standardized(self.standardizer, X, Y, None if per_row is None else per_row[positions])

    def streamed(self, positions: Positions, device: torch.device) -> StreamedRows:
        """The same rows, read when they are needed."""
        return StreamedRows(self.X, self.Y, self.standardizer, positions, self.sensor_std_per_row, device)

    def sensor(self) -> LogNormalVariance | None:
        """Prior and posterior of sensor variances; None where they are none, or known for each row."""
        if self.sensor_std is None or self.sensor_std.ndim == 2:
            return None
        largest = np.array([Moments.over(y for (y,) in pieces(self.Y)).largest])
        return sensor_posterior(self.sensor_std, largest, self.standardizer, self.precision)

    def conditioning(self, tolerance: Mapping[str, Any], offset: bool) -> ConditioningLayer | None:
        """The balances in standardized units with what was said of each, as `tolerance_by_balance` has it."""
        s, c = self.standardizer, self.standardizer.constraint
        if c is None:
            return None
        floor = torch.as_tensor(s.rounding(self.X, self.Y, FLOOR * self.precision)) ** 2
        posterior = tolerance_posterior(tolerance, c.names, torch.as_tensor(s.row_scale), floor)
        exact = torch.as_tensor(self.obeyed) & (posterior.median() == 0)  # nothing may move a balance that is a fact
        standardized = LinearConstraint(s.B, names=c.names, outputs=c.outputs)
        return ConditioningLayer(standardized, posterior, offset=~exact & offset)

    def rounding(self) -> Tensor | None:
        """Largest residual of each balance in standardized units that is rounding alone, shape `(m,)`."""
        if self.standardizer.constraint is None:
            return None
        relative = max(LEAST_ROUNDING, self.relative_rounding)
        return torch.as_tensor(self.standardizer.rounding(self.X, self.Y, relative))

    def check_exact(self, tolerance: LogNormalVariance) -> None:
        """Raise if noise-free sensors contradict an exact balance: it would have no likelihood under L2."""
        c = self.standardizer.constraint
        if c is None:
            return
        exact = (tolerance.median() == 0).cpu().numpy()
        std = np.zeros(c.n_outputs) if self.sensor_std is None else self.sensor_std
        noisy = (np.atleast_2d(std) != 0).any(0)
        bound = exact & ~self.obeyed & ~((c.B != 0) & noisy).any(1)
        if not bound.any():
            return
        worst, magnitude = (Moments.over(part[i] for part in closures(c, self.X, self.Y)).largest for i in (0, 1))
        for k in np.flatnonzero(bound & (worst > max(LEAST_ROUNDING, self.relative_rounding) * magnitude)):
            raise InputError(
                f"Balance '{c.names[k]}' is exact (tolerance 0) and its sensors noise-free, but the data miss it "
                f"by up to {worst[k]:.3g} {c.units[k] or ''}. Give its outputs a sensor_std "
                "(or 'learn'), or the balance a tolerance."
            )


def closures(constraint: LinearConstraint, X: Table, Y: Table) -> Iterator[tuple[Array, Array]]:
    """Residuals and magnitudes of balances, shapes `(n, m)`, piece by piece of the rows."""
    return ((constraint.residual(x, y), constraint.magnitude(x, y)) for x, y in pieces(X, Y))


def obeyed_to_rounding(constraint: LinearConstraint | None, X: Table, Y: Table, precision: float) -> Mask:
    """Which balances all rows obey as well as their digits allow, and three rows at least say so; shape `(m,)`.

    Example:
        >>> balances = LinearConstraint([[1, 1, -1], [1, -1, 0]])
        >>> Y = np.array([[0.1, 0.2, 0.1 + 0.2], [0.3, 0.4, 0.7], [0.5, 0.5, 1.0]])
        >>> obeyed_to_rounding(balances, np.zeros((3, 0)), Y, precision=2.2e-16)
        array([ True, False])
    """
    if constraint is None:
        return np.zeros(0, dtype=bool)
    misses, n_seen = np.zeros((2, constraint.n_balances), dtype=int)
    for z, magnitude in closures(constraint, X, Y):
        misses += (np.abs(z) > ROUNDINGS * precision * magnitude).sum(0)
        n_seen += (~np.isnan(z)).sum(0)
    return (misses == 0) & (n_seen >= 3)


def tolerance_by_balance(said: Any, names: tuple[str, ...], obeyed: Mask) -> dict:
    """What was said of each balance; those that the data obey to rounding and that were to be learned are exact.

    Example:
        >>> tolerance_by_balance({"heat": 0.1}, ("heat", "mass"), np.array([True, True]))
        {'heat': 0.1, 'mass': 0.0}
    """
    each = dict(said) if isinstance(said, Mapping) else dict.fromkeys(names, said)
    for name, obeys in zip(names, obeyed, strict=True):
        if obeys and (each.get(name) is None or isinstance(each[name], TolerancePrior)):
            each[name] = 0.0
    return each


def resolve_sensor_std(
    said: Any, outputs: tuple[str, ...], n_rows: int, constraint: LinearConstraint | None, likelihood: str, obeyed: Mask
) -> Array | None:
    """Sensor standard deviations in the user's units, NaN where learned: `(n_y,)`, `(n, n_y)`, or None for none.

    Learned are those of outputs that enter balances, none of which the data obey to rounding.

    Args:
        said: By the user, as `parse_sensor_std` takes it.
        outputs: Names.
        n_rows: Rows of data.
        constraint: The balances.
        likelihood: "joint" or "marginal".
        obeyed: Which balances the data obey to rounding, shape `(m,)`.
    """
    std, c = parse_sensor_std(said, outputs, n_rows), constraint
    if c is None or likelihood == "marginal":
        learnable = np.zeros(len(outputs), dtype=bool)
    else:
        learnable = (c.B != 0).any(0) & ~(c.B[obeyed] != 0).any(0)
    if std.ndim == 1:  # per row they are given, and may be many
        std = np.where(np.isnan(std) & ~learnable, 0.0, std)
    if likelihood == "marginal" and c is not None and (std > 0).any():
        raise InputError(
            "sensor_std must be None or 'learn' with likelihood='marginal', which takes what was measured for the "
            f"truth, but got {said!r}. Use likelihood='joint' to keep sensor noise apart."
        )
    return std if (np.isnan(std) | (std > 0)).any() else None
