"""Readings: measured outputs that are reconciled with a trained model, and the standard deviations of their errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances import did_you_mean, quoted_list
from equipoise.data import frames
from equipoise.gaussian import exact_directions
from equipoise.prediction import Predictive
from equipoise.reconciliation.measurements import ReconciliationError, as_numbers

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Readings:
    """Rows of measured outputs in the user's units.

    Args:
        outputs: Names of all outputs of the model.
        values: Measured values, shape `(rows, n_y)`, NaN where there is no reading.
        std: Standard deviations of their errors, shape `(rows, n_y)`; NaN stands for the model's own sensors.
        labels: Name of each row.
    """

    outputs: tuple[str, ...]
    values: Array
    std: Array
    labels: Any

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Whether there is a reading with a finite standard deviation, shape `(rows, n_y)`."""
        return ~np.isnan(self.values) & ~np.isinf(self.std)

    def without(self, names: Sequence[str]) -> "Readings":
        """Return the same rows without the readings of several instruments.

        Args:
            names: Names of outputs.
        Raises: ReconciliationError, if there is no such output.
        """
        for name in names:
            if name not in self.outputs:
                rule = "Instruments must be names of outputs"
                raise ReconciliationError(f"{rule}, but got {name!r}. {did_you_mean(str(name), self.outputs)}")
        return replace(self, values=np.where(np.isin(self.outputs, names), np.nan, self.values))


def readings(
    measured: Any, std: Any, outputs: tuple[str, ...], n_rows: int, *, others: Sequence[str] = (), labels: Any = None
) -> Readings:
    """Check the readings and standard deviations that `model.reconcile` was given, and convert them to arrays.

    Args:
        measured: A table `(n_rows, n_y)`; or a frame, or a mapping to columns, with any of the outputs. NaN is no
            reading.
        std: None for the model's own sensors; one number for all; `(n_y,)`, `(n_rows, n_y)`; or a mapping, a named
            series or a frame with any of the outputs. NaN, or an output without a name there, stands for the model's
            own sensor.
        outputs: Names of the outputs.
        n_rows: Number of rows of the inputs.
        others: Names of further columns that a table may have, such as those of inputs.
        labels: Names of the rows, if the inputs have any.
    Returns: Readings of all outputs.
    Raises: ReconciliationError, with the name of what is wrong.
    Example:
        >>> result = readings({"b": [2.0, 3.0]}, {"b": 0.1}, ("a", "b"), 2)
        >>> result.values, result.std[0]
        (array([[nan,  2.],
                [nan,  3.]]), array([nan, 0.1]))
    """
    values = _table("measured", measured, outputs, n_rows, others)
    if (absurd := frames.is_absurd(values)).any():
        row, column = np.argwhere(absurd)[0]
        value = float(values[row, column])
        rule, got = f"measured must be {frames.bound_of(value)}", f"{value} for {outputs[column]!r} in row {row}"
        raise ReconciliationError(f"{rule}, but got {got}. Use NaN for what was not measured.")
    index = getattr(measured, "index", None) if frames.is_frame(measured) else labels
    return Readings(outputs, values, _std(std, outputs, n_rows, others), np.arange(n_rows) if index is None else index)


def check_against(table: Readings, predictive: Predictive) -> None:
    """Refuse readings that cannot be combined with a prediction.

    Args:
        table: The readings.
        predictive: The prediction for the same rows.
    Raises: ReconciliationError, where neither the user nor the model has a standard deviation for a reading, and where
        exact readings determine all outputs of an exact balance.
    """
    _check_known(table, predictive)
    _check_exact(table, predictive)


def _check_known(table: Readings, predictive: Predictive) -> None:
    """Raise a ReconciliationError for readings without any standard deviation."""
    needed = (table.measured & np.isnan(table.std)).any(axis=0)
    if predictive.sensors_per_row and needed.any():
        rule = "std must be given where the fit's sensor_std was given per training row"
        raise ReconciliationError(f"{rule}, but got none for {quoted_list(np.array(table.outputs)[needed].tolist())}.")
    sensor = predictive.model.sensor
    noisy = np.zeros(len(table.outputs), bool) if sensor is None else (sensor.median() > 0).cpu().numpy()
    if (needed & ~noisy).any():
        names = quoted_list(np.array(table.outputs)[needed & ~noisy].tolist())
        rule = "std must be given for outputs of which the model has no sensor noise"
        raise ReconciliationError(f"{rule}, but got none for {names}. Give it, such as std={{'name': 0.1}}.")


def _check_exact(table: Readings, predictive: Predictive) -> None:
    """Raise a ReconciliationError if exact readings leave an exact balance without any uncertain output."""
    layer, s = predictive.model.conditioning, predictive.standardizer
    certain = table.measured & (table.std == 0)
    if layer is None or s.constraint is None or not certain.any():
        return
    B = torch.as_tensor(s.linearise(predictive.X)[0])
    patterns, which = np.unique(certain, axis=0, return_inverse=True)
    if B.ndim == 3:  # coefficients differ from row to row
        patterns, which = certain, np.arange(len(certain))
    hard = (layer.tolerance.median() == 0).cpu()
    determined = exact_directions(B, hard, torch.as_tensor(~patterns)).abs().amax(-1).numpy() > 1e-8
    bad = np.flatnonzero(determined.any(axis=1))
    if len(bad):
        row = int(np.flatnonzero(np.isin(which.reshape(-1), bad))[0])
        balances = quoted_list(
            [n for n, hit in zip(s.constraint.names, determined[which.reshape(-1)[row]], strict=True) if hit]
        )
        rule = f"Exact readings (std 0) must leave {balances} something uncertain"
        got = quoted_list([name for name, hit in zip(table.outputs, certain[row], strict=True) if hit])
        advice = "Give one of them a standard deviation, or leave it out"
        raise ReconciliationError(f"{rule}, but got {got} in row {table.labels[row]}. {advice}.")


def _std(data: Any, outputs: tuple[str, ...], n_rows: int, others: Sequence[str]) -> Array:
    """Return standard deviations of all readings, shape `(n_rows, n_y)`; NaN for those of the model."""
    if data is None or (np.ndim(data) == 0 and _columns(data) is None):
        data = [np.nan if data is None else data] * len(outputs)
    std = _table("std", data, outputs, n_rows, others)
    if (std < 0).any():
        row, column = np.argwhere(std < 0)[0]
        got = f"{std[row, column]:g} for {outputs[column]!r}"
        raise ReconciliationError(f"std must hold numbers ≥ 0, but got {got}. Leave it out, and the model's is taken.")
    return std


def _table(argument: str, data: Any, outputs: tuple[str, ...], n_rows: int, others: Sequence[str]) -> Array:
    """Convert a user's table to numbers of all outputs in all rows, NaN for outputs that it lacks."""
    columns = _columns(data)
    if columns is not None:
        return _assemble(argument, columns, outputs, n_rows, others)
    array = as_numbers(argument, data)
    if len(outputs) == 1 and array.shape == (n_rows,):
        array = array[:, None]
    shapes = [(n_rows, len(outputs))] + ([(len(outputs),)] if argument == "std" else [])
    if array.shape not in shapes:
        wanted = f"{argument} must have {n_rows} rows, like X, and {len(outputs)} columns ({quoted_list(outputs)})"
        raise ReconciliationError(f"{wanted}, but got shape {array.shape}. Use NaN for what was not measured.")
    return np.broadcast_to(array, (n_rows, len(outputs)))


def _columns(data: Any) -> dict[str, Any] | None:
    """Return the columns of a table by name; None if they have no names."""
    if frames.is_frame(data):
        frame = nw.from_native(data, eager_only=True)
        return {name: frame[:, j].to_list() for j, name in enumerate(frames.columns_of(data))}
    if hasattr(data, "items") and hasattr(data, "index") and np.ndim(data) == 1:  # a pandas Series by output
        return dict(data.items())
    return dict(data) if isinstance(data, Mapping) else None


def _assemble(
    argument: str, columns: Mapping[str, Any], outputs: tuple[str, ...], n_rows: int, others: Sequence[str]
) -> Array:
    """Arrange the columns of a table in the order of the outputs, NaN for outputs that it lacks."""
    unknown = [name for name in columns if name not in outputs and name not in others]
    if unknown:
        rule = f"{argument} must name outputs of the model"
        raise ReconciliationError(f"{rule}, but got {unknown[0]!r}. {did_you_mean(str(unknown[0]), outputs)}")
    table = np.full((n_rows, len(outputs)), np.nan)
    for j, name in enumerate(outputs):
        column = as_numbers(f"{argument} of {name!r}", columns.get(name, np.nan))
        if column.shape not in ((), (n_rows,)):
            wanted = f"{argument} must have {n_rows} rows, like X"
            raise ReconciliationError(f"{wanted}, but got {len(column)} for {name!r}. Make them agree.")
        table[:, j] = column
    return table
