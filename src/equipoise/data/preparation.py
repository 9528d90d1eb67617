"""Preparation of a fit: which balances the data obey to rounding, which tolerances and sensors are learned.

"To rounding" means here within the rounding of floating-point arithmetic, `ROUNDINGS` machine epsilons of the terms.
The diagnosis before training uses the same limit, but its verdict `HOLDS_TO_ROUNDING`, in
`diagnosis/balance_diagnosis.py`, also accepts residuals that are explained by numbers rounded in the table, such as to
one decimal. Such a balance is not exact here: its tolerance is learned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.balances import Equality
from equipoise.data.rows import Rows, StreamedRows, standardize
from equipoise.data.scaling import Standardizer
from equipoise.data.sensors import parse_sensor_std, sensor_posterior
from equipoise.data.table_passes import Moments, Positions, Table, pieces
from equipoise.errors import InputError
from equipoise.gaussian import ConditioningLayer, VariancePosterior, VariancePrior, tolerance_posterior

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
ROUNDINGS = 64  # machine epsilons, relative to its terms, within which a residual counts as rounding
LEAST_ROUNDING = 1e-9  # relative rounding of a residual that is computed in standardized units in float64
FLOOR = 4  # machine epsilons, relative to the terms of a balance: no learned tolerance is smaller


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of a fit in the user's units, and what is needed to build a model for them.

    Args:
        X: Inputs, then known columns, shape `(n, n_x + n_known)`.
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        precision: Relative rounding of the outputs in the user's table.
        standardizer: The standardizer that was fitted to the rows to train on; it has the balances.
        obeyed: Mask of the balances that all rows obey to rounding, shape `(m,)`.
        sensor_std: Standard deviations of the sensors, NaN where learned: `(n_y,)`, `(n, n_y)`, or None for noise-free
            sensors.
    """

    X: Table
    Y: Table
    precision: float
    standardizer: Standardizer
    obeyed: Mask
    sensor_std: Array | None

    @property
    def relative_rounding(self) -> float:
        """Largest residual of a balance that is rounding alone, relative to the size of its terms."""
        return ROUNDINGS * self.precision

    @property
    def sensor_std_per_row(self) -> Array | None:
        """Standard deviations of the sensors where they differ per row, shape `(n, n_y)`; else None."""
        return None if self.sensor_std is None or self.sensor_std.ndim == 1 else self.sensor_std

    def rows(self, positions: Positions) -> Rows:
        """Return the rows at these positions in standardized units, in memory."""
        per_row = self.sensor_std_per_row
        X, Y = (np.asarray(table[positions], dtype=np.float64) for table in (self.X, self.Y))
        return standardize(self.standardizer, X, Y, None if per_row is None else per_row[positions])

    def streamed(self, positions: Positions, device: torch.device) -> StreamedRows:
        """Return the rows at these positions, to be read and standardized batch by batch.

        Args:
            positions: Positions of n rows of the table, shape `(n,)`.
            device: Device of the batches.
        """
        return StreamedRows(self.X, self.Y, self.standardizer, positions, self.sensor_std_per_row, device)

    def sensor(self) -> VariancePosterior | None:
        """Make the posterior of the sensor variances; None where sensors are noise-free or known for each row."""
        if self.sensor_std is None or self.sensor_std.ndim == 2:
            return None
        largest = np.array([Moments.over(y for (y,) in pieces(self.Y)).largest])
        return sensor_posterior(self.sensor_std, largest, self.standardizer, self.precision)

    def conditioning(self, tolerance: Mapping[str, Any], offset: bool) -> ConditioningLayer | None:
        """Make the layer that conditions on the balances, in standardized units.

        Args:
            tolerance: Setting of each balance, as `tolerance_by_balance` returns it.
            offset: Whether balances have learned offsets; those that are exact to rounding have none.
        Returns: The layer; None without balances.
        """
        s, c = self.standardizer, self.standardizer.constraint
        if c is None:
            return None
        floor = torch.as_tensor(s.rounding(self.X, self.Y, FLOOR * self.precision)) ** 2
        posterior = tolerance_posterior(tolerance, c.names, torch.as_tensor(s.row_scale), floor)
        exact = torch.as_tensor(self.obeyed) & (posterior.median() == 0)  # nothing may move a balance that is a fact
        return ConditioningLayer(s.balances(), posterior, offset=~exact & offset)

    def rounding(self) -> Tensor | None:
        """Compute the largest residual of each balance in standardized units that is rounding alone, shape `(m,)`."""
        if self.standardizer.constraint is None:
            return None
        relative = max(LEAST_ROUNDING, self.relative_rounding)
        return torch.as_tensor(self.standardizer.rounding(self.X, self.Y, relative))

    def check_exact(self, tolerance: VariancePosterior) -> None:
        """Raise if the data miss an exact balance whose sensors are noise-free: its likelihood L2 would be 0.

        Args:
            tolerance: Posterior of the balances' tolerances.
        Raises: InputError, with the balance's name and its largest residual.
        """
        c = self.standardizer.constraint
        if c is None:
            return
        exact = (tolerance.median() == 0).cpu().numpy()
        std = np.zeros(c.n_outputs) if self.sensor_std is None else self.sensor_std
        noisy = (np.atleast_2d(std) != 0).any(0)
        suspects = exact & ~self.obeyed & ~(c.pattern & noisy).any(1)
        if not suspects.any():
            return
        worst, magnitude = (Moments.over(part[i] for part in _residuals(c, self.X, self.Y)).largest for i in (0, 1))
        for k in np.flatnonzero(suspects & (worst > max(LEAST_ROUNDING, self.relative_rounding) * magnitude)):
            raise InputError(
                f"Balance '{c.names[k]}' is exact (tolerance 0) and its sensors noise-free, but the data miss it "
                f"by up to {worst[k]:.3g} {c.units[k] or ''}. Give its outputs a sensor_std "
                "(or 'learn'), or the balance a tolerance."
            )


def _residuals(constraint: Equality, X: Table, Y: Table) -> Iterator[tuple[Array, Array]]:
    """Compute residuals and magnitudes of balances piece by piece, shapes `(rows, m)`."""
    return ((constraint.residual(x, y), constraint.magnitude(x, y)) for x, y in pieces(X, Y))


def obeyed_to_rounding(constraint: Equality | None, X: Table, Y: Table, precision: float) -> Mask:
    """Mark the balances that the data obey to rounding.

    Args:
        constraint: The balances; None for none.
        X: Inputs, then known columns, shape `(n, n_x + n_known)`.
        Y: Outputs, NaN where not measured, shape `(n, n_y)`.
        precision: Relative rounding of the outputs.
    Returns:
        Mask, shape `(m,)`: at least three rows have all outputs of the balance, and none misses it by more than 64
        roundings of its terms.
    Example:
        >>> from equipoise import LinearConstraint
        >>> balances = LinearConstraint([[1, 1, -1], [1, -1, 0]])
        >>> Y = np.array([[0.1, 0.2, 0.1 + 0.2], [0.3, 0.4, 0.7], [0.5, 0.5, 1.0]])
        >>> obeyed_to_rounding(balances, np.zeros((3, 0)), Y, precision=2.2e-16)
        array([ True, False])
    """
    if constraint is None:
        return np.zeros(0, dtype=bool)
    n_missed, n_rows = np.zeros((2, constraint.n_balances), dtype=int)
    for z, magnitude in _residuals(constraint, X, Y):
        n_missed += (np.abs(z) > ROUNDINGS * precision * magnitude).sum(0)
        n_rows += (~np.isnan(z)).sum(0)
    return (n_missed == 0) & (n_rows >= 3)


def tolerance_by_balance(tolerance: Any, names: tuple[str, ...], obeyed: Mask) -> dict:
    """Resolve the user's setting of tolerances for each balance.

    Tolerances that were to be learned are 0 where the data obey the balance to rounding.

    Args:
        tolerance: None (learned), a standard deviation in the balance's unit, a `VariancePrior`, or a mapping from
            names of balances to these.
        names: Names of the balances.
        obeyed: Mask of the balances that the data obey to rounding, shape `(m,)`.
    Returns: Settings by name; balances that are not named in a mapping and not obeyed to rounding are left out.
    Example:
        >>> tolerance_by_balance({"heat": 0.1}, ("heat", "mass"), np.array([True, True]))
        {'heat': 0.1, 'mass': 0.0}
    """
    settings = dict(tolerance) if isinstance(tolerance, Mapping) else dict.fromkeys(names, tolerance)
    for name, is_obeyed in zip(names, obeyed, strict=True):
        if is_obeyed and (settings.get(name) is None or isinstance(settings[name], VariancePrior)):
            settings[name] = 0.0
    return settings


def resolve_sensor_std(
    sensor_std: Any,
    outputs: tuple[str, ...],
    n_rows: int,
    constraint: Equality | None,
    has_sensor_noise: bool,
    obeyed: Mask,
) -> Array | None:
    """Resolve the user's setting of sensor noise for each output.

    Sensors can be learned for outputs that enter balances, none of which the data obey to rounding, and with the joint
    likelihood; other sensors that were to be learned are noise-free.

    Args:
        sensor_std: The setting, as of `parse_sensor_std`.
        outputs: Names of the outputs.
        n_rows: Number of rows of the data.
        constraint: The balances; None for none.
        has_sensor_noise: Whether the likelihood keeps sensor noise apart from the true values.
        obeyed: Mask of the balances that the data obey to rounding, shape `(m,)`.
    Returns:
        Standard deviations in the outputs' units, NaN where learned, shape `(n_y,)` or `(n, n_y)`; None where all
        sensors are noise-free.
    Raises: InputError, if sensors have noise but the likelihood has none.
    """
    std, c = parse_sensor_std(sensor_std, outputs, n_rows), constraint
    if c is None or not has_sensor_noise:
        learnable = np.zeros(len(outputs), dtype=bool)
    else:
        learnable = c.pattern.any(0) & ~c.pattern[obeyed].any(0)
    if std.ndim == 1:  # those per row are never learned
        std = np.where(np.isnan(std) & ~learnable, 0.0, std)
    if not has_sensor_noise and c is not None and (std > 0).any():
        raise InputError(
            "sensor_std must be None or 'learn' with likelihood='marginal', which takes what was measured for the "
            f"truth, but got {sensor_std!r}. Use likelihood='joint' to keep sensor noise apart."
        )
    return std if (np.isnan(std) | (std > 0)).any() else None
