"""Scores: how well predictions agree with measured values, output by output, in the user's units.

Arrays have rows first, outputs last; a NaN in Y was not measured and is left out. Values that balances fix to rounding
have no distribution: they are left out of calibration, and their deviations are compared with rounding errors.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit
from equipoise.prediction import Predictive, coverage_of_pit, pit

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
LEVELS = np.linspace(0.05, 0.95, 19)
PIT_BINS = 10
PLOTTED_POINTS = 2_400  # in the figures of all outputs together
POINTS_PER_OUTPUT = (60, 300)  # at least and at most
WORST_ROWS = 10
FAR = 4.0  # predicted standard deviations beyond which a value counts as far from its prediction
ROUNDING = 64 * np.finfo(float).eps


@dataclass(frozen=True)
class Score:
    """Errors of the predictive means of one output against its measured values.

    Args:
        output, unit: Name and unit of the output.
        n: Number of measured values.
        r2: Coefficient of determination; NaN where the output does not vary.
        rmse: Root mean squared error.
        bias: Mean of predicted minus measured.
        expected: The RMSE that the model expects: the root of the mean predicted variance of measured values.
        baseline_r2, baseline_rmse: R² and RMSE of another model, NaN where there is none.
    """

    output: str
    unit: str | None
    n: int
    r2: float
    rmse: float
    bias: float
    expected: float
    baseline_r2: float = math.nan
    baseline_rmse: float = math.nan


@dataclass(frozen=True, eq=False)
class Calibration:
    """Agreement of predicted distributions with measured values.

    Args:
        coverage: Shares of measured values inside central intervals of `LEVELS`, shape `(n_levels, n_y)`.
        pit_counts: Histograms of the distribution function at measured values, shape `(n_bins, n_y)`.
    """

    coverage: Array
    pit_counts: NDArray[np.int64]

    def at(self, level: float) -> Array:
        """Return the coverage of each output at the nearest of `LEVELS`, shape `(n_y,)`."""
        return self.coverage[int(np.abs(LEVELS - level).argmin())]

    @property
    def n(self) -> NDArray[np.int64]:
        """Number of measured values that each output is judged by, shape `(n_y,)`."""
        return self.pit_counts.sum(0)


@dataclass(frozen=True, eq=False)
class PlottedRows:
    """Rows for the figures of predicted against measured values; arrays of shape `(k, n_y)`.

    Args:
        measured: Measured values, NaN where an output is not plotted in a row.
        mean, lower, upper: Predictive mean and bounds of 95 % intervals of measured values.
    """

    measured: Array
    mean: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Outlier:
    """A row with its worst predicted output.

    Args:
        row: Position of the row in the table, from 0.
        output, unit: Name and unit of the output.
        measured, predicted, std: Measured value, predictive mean and predictive standard deviation of this output.
        z: Measured minus predicted in predicted standard deviations.
        x: Inputs and known columns of the row.
    """

    row: int
    output: str
    unit: str | None
    measured: float
    predicted: float
    std: float
    z: float
    x: tuple[float, ...]


@dataclass(frozen=True)
class Outliers:
    """The rows with the worst predictions.

    Args:
        worst: Rows with the largest standardized residuals, `WORST_ROWS` at most.
        n_values: Number of measured values in all rows.
        n_far: Number of those more than `FAR` predicted standard deviations from their prediction.
    """

    worst: tuple[Outlier, ...]
    n_values: int
    n_far: int


def score_outputs(p: Predictive, Y: Array, baseline: Predictive | None = None) -> tuple[Score, ...]:
    """Score the predictive means of each output.

    Args:
        p: Predictive distribution of measured values.
        Y: Measured values, NaN where not measured, shape `(n, n_y)`.
        baseline: Predictive distribution of another model, for the same rows.
    Returns: One score per output.
    """
    error = p.mean - Y
    columns = [np.isfinite(Y).sum(0), r2(Y, error), _rms(error), _mean(error)]
    columns.append(_rms(np.where(np.isfinite(Y), p.std, np.nan)))
    if baseline is not None:
        columns += [r2(Y, baseline.mean - Y), _rms(baseline.mean - Y)]
    lines = zip(p.outputs, *(column.tolist() for column in columns), strict=True)
    return tuple(Score(output, column_unit(output), *numbers) for output, *numbers in lines)


def calibration(p: Predictive, Y: Array) -> Calibration:
    """Compute coverage and histograms of the probability integral transform (PIT) of each output.

    Args:
        p: Predictive distribution of measured values.
        Y: Measured values, NaN where not measured, shape `(n, n_y)`.
    """
    F = np.where(p.std <= _rounding(Y), np.nan, pit(p, Y))
    counts = [np.histogram(column[np.isfinite(column)], PIT_BINS, (0.0, 1.0))[0] for column in F.T]
    return Calibration(coverage_of_pit(F, LEVELS), np.stack(counts, 1).astype(np.int64))


def plotted_rows(p: Predictive, Y: Array) -> PlottedRows:
    """Pick rows for the figures: for each output, rows in which it was measured; the same ones for all if possible.

    Args:
        p: Predictive distribution of measured values.
        Y: Measured values, NaN where not measured, shape `(n, n_y)`.
    """
    order = np.random.default_rng(len(Y)).permutation(len(Y))
    most = int(np.clip(PLOTTED_POINTS // Y.shape[1], *POINTS_PER_OUTPUT))
    chosen = [order[np.isfinite(Y[order, j])][:most] for j in range(Y.shape[1])]
    rows = np.unique(np.concatenate(chosen))
    if not len(rows):
        return PlottedRows(*np.empty((4, 0, Y.shape[1])))
    is_plotted = np.stack([np.isin(rows, rows_of_output) for rows_of_output in chosen], 1)
    q = select_rows(p, rows)
    return PlottedRows(np.where(is_plotted, Y[rows], np.nan), q.mean, *q.quantile([0.025, 0.975]))


def outliers(p: Predictive, Y: Array) -> Outliers:
    """Find the rows with the largest standardized residuals, each with the output that has it.

    Args:
        p: Predictive distribution of measured values.
        Y: Measured values, NaN where not measured, shape `(n, n_y)`.
    """
    z = (Y - p.mean) / np.maximum(p.std, _rounding(Y))
    size = np.where(np.isfinite(z), np.abs(z), -np.inf)
    order = np.argsort(-size.max(1), kind="stable")[:WORST_ROWS]
    worst = [_outlier(p, Y, z, int(i), int(size[i].argmax())) for i in order if np.isfinite(size[i]).any()]
    return Outliers(tuple(worst), int(np.isfinite(Y).sum()), int((size > FAR).sum()))


def _outlier(p: Predictive, Y: Array, z: Array, i: int, j: int) -> Outlier:
    measured, mean, std, deviation = (float(array[i, j]) for array in (Y, p.mean, p.std, z))
    return Outlier(i, p.outputs[j], column_unit(p.outputs[j]), measured, mean, std, deviation, tuple(p.X[i].tolist()))


def select_rows(p: Predictive, rows: Rows) -> Predictive:
    """Restrict a predictive distribution to some of its rows.

    Args:
        p: The predictive distribution.
        rows: Positions of the rows.
    """
    var = p.sensor_var
    if isinstance(var, np.ndarray) and var.ndim == 2:
        var = var[rows]
    return dataclasses.replace(p, X=p.X[rows], sensor_var=var)


def r2(Y: Array, error: Array) -> Array:
    """Compute R² = `1 − Σ error² / Σ (y − ȳ)²` of each output; NaN where the output is constant to rounding.

    Args:
        Y: Measured outputs, shape `(n, n_y)`; NaN where missing.
        error: Predicted less measured values, shape `(n, n_y)`.
    Example:
        >>> y = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [np.nan, 5.0]])
        >>> r2(y, np.array([[0.5, 0.0]]) * np.ones_like(y))
        array([0.625,   nan])
    """
    error = np.where(np.isfinite(Y), error, np.nan)
    scatter = _rms(Y - _mean(Y))
    varies = scatter > _rounding(Y)
    return np.where(varies, 1 - (_rms(error) / np.where(varies, scatter, 1.0)) ** 2, np.nan)


def _rms(values: Array) -> Array:
    return np.sqrt(_mean(values**2))


def _mean(values: Array) -> Array:
    """Average each column over its finite values; NaN where there are none."""
    is_value = np.isfinite(values)
    count = is_value.sum(0)
    return np.where(count > 0, np.where(is_value, values, 0.0).sum(0) / np.maximum(count, 1), np.nan)


def _rounding(Y: Array) -> Array:
    """Return the largest difference that rounding alone may cause, for each output, always above 0."""
    largest = np.where(np.isfinite(Y), np.abs(Y), 0.0).max(0, initial=0.0)
    return np.maximum(ROUNDING * largest, np.finfo(float).tiny)
