"""Scores: how well predictions agree with what was measured, output by output, in the user's units.

Arrays have rows first, outputs last; a NaN in Y was not measured and is left out. What balances fix to rounding has no
distribution to be judged: it is left out of calibration, and its residuals are measured against rounding.
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
PICTURED_POINTS = 2_400  # of all outputs together
POINTS_PER_OUTPUT = (60, 300)  # at least and at most
WORST_ROWS = 10
FAR = 4.0  # predicted standard deviations
ROUNDING = 64 * np.finfo(float).eps


@dataclass(frozen=True)
class Score:
    """How far predictive means of one output are off, over what was measured of it.

    Args:
        output, unit, n: Which, and how many measured values.
        r2: Coefficient of determination; NaN where the output does not vary.
        rmse: Root mean squared error.
        bias: Mean of predicted minus measured.
        expected: The RMSE that the model expects: the root of the mean predicted variance of measured values.
        baseline_r2, baseline_rmse: Of another model, NaN where there is none.
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
    """Whether predicted distributions are as wide as they should be.

    Args:
        coverage: Share of measured values inside central intervals of `LEVELS`, shape `(n_levels, n_y)`.
        pit_counts: Histograms of the distribution function at measured values, shape `(n_bins, n_y)`.
    """

    coverage: Array
    pit_counts: NDArray[np.int64]

    def at(self, level: float) -> Array:
        """Coverage of each output at one of `LEVELS`, shape `(n_y,)`."""
        return self.coverage[int(np.abs(LEVELS - level).argmin())]

    @property
    def n(self) -> NDArray[np.int64]:
        """How many values each output was judged on, shape `(n_y,)`."""
        return self.pit_counts.sum(0)


@dataclass(frozen=True, eq=False)
class Pictured:
    """Some rows to be drawn: arrays `(k, n_y)`.

    Args:
        measured: NaN where an output is not to be drawn.
        mean, lower, upper: Predictive mean and the bounds of 95 % intervals of what the sensors show.
    """

    measured: Array
    mean: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Outlier:
    """A row with its worst predicted output.

    Args:
        row: Its position, from 0.
        output, unit: Which output is worst.
        measured, predicted, std: Of this output.
        z: Measured minus predicted in predicted standard deviations.
        x: The row's inputs and known columns.
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
    """What was predicted worst.

    Args:
        worst: Rows whose largest standardized residual is largest, `WORST_ROWS` at most.
        n_values, n_far: Measured values in all rows, and those more than `FAR` standard deviations away.
    """

    worst: tuple[Outlier, ...]
    n_values: int
    n_far: int


def scores(p: Predictive, Y: Array, baseline: Predictive | None = None) -> tuple[Score, ...]:
    """The score of each output.

    Args:
        p: Of measured values.
        Y: What was measured.
        baseline: Of another model, for the same rows.
    """
    error = p.mean - Y
    columns = [np.isfinite(Y).sum(0), r2(Y, error), _rms(error), _mean(error)]
    columns.append(_rms(np.where(np.isfinite(Y), p.std, np.nan)))
    if baseline is not None:
        columns += [r2(Y, baseline.mean - Y), _rms(baseline.mean - Y)]
    lines = zip(p.outputs, *(column.tolist() for column in columns), strict=True)
    return tuple(Score(output, column_unit(output), *numbers) for output, *numbers in lines)


def calibration(p: Predictive, Y: Array) -> Calibration:
    """Coverage and PIT of each output."""
    F = np.where(p.std <= _rounding(Y), np.nan, pit(p, Y))
    counts = [np.histogram(column[np.isfinite(column)], PIT_BINS, (0.0, 1.0))[0] for column in F.T]
    return Calibration(coverage_of_pit(F, LEVELS), np.stack(counts, 1).astype(np.int64))


def pictured(p: Predictive, Y: Array) -> Pictured:
    """For each output some rows in which it was measured; where all were, the same ones for all outputs."""
    order = np.random.default_rng(len(Y)).permutation(len(Y))
    most = int(np.clip(PICTURED_POINTS // Y.shape[1], *POINTS_PER_OUTPUT))
    chosen = [order[np.isfinite(Y[order, j])][:most] for j in range(Y.shape[1])]
    rows = np.unique(np.concatenate(chosen))
    if not len(rows):
        return Pictured(*np.empty((4, 0, Y.shape[1])))
    shown = np.stack([np.isin(rows, some) for some in chosen], 1)
    q = at_rows(p, rows)
    return Pictured(np.where(shown, Y[rows], np.nan), q.mean, *q.quantile([0.025, 0.975]))


def outliers(p: Predictive, Y: Array) -> Outliers:
    """The rows that were predicted worst, each with the output that makes it one.

    Args:
        p: Of measured values.
        Y: What was measured.
    """
    z = (Y - p.mean) / np.maximum(p.std, _rounding(Y))
    size = np.where(np.isfinite(z), np.abs(z), -np.inf)
    order = np.argsort(-size.max(1), kind="stable")[:WORST_ROWS]
    worst = [_outlier(p, Y, z, int(i), int(size[i].argmax())) for i in order if np.isfinite(size[i]).any()]
    return Outliers(tuple(worst), int(np.isfinite(Y).sum()), int((size > FAR).sum()))


def _outlier(p: Predictive, Y: Array, z: Array, i: int, j: int) -> Outlier:
    measured, mean, std, far = (float(part[i, j]) for part in (Y, p.mean, p.std, z))
    return Outlier(i, p.outputs[j], column_unit(p.outputs[j]), measured, mean, std, far, tuple(p.X[i].tolist()))


def at_rows(p: Predictive, rows: Rows) -> Predictive:
    """The same for some rows only."""
    var = p.sensor_var
    if isinstance(var, np.ndarray) and var.ndim == 2:
        var = var[rows]
    return dataclasses.replace(p, X=p.X[rows], sensor_var=var)


def r2(Y: Array, error: Array) -> Array:
    """`1 − Σ error² / Σ (y − ȳ)²` of each output; NaN where it is constant to rounding.

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
    """Over the rows that have a value; NaN where none has."""
    seen = np.isfinite(values)
    count = seen.sum(0)
    return np.where(count > 0, np.where(seen, values, 0.0).sum(0) / np.maximum(count, 1), np.nan)


def _rounding(Y: Array) -> Array:
    """Differences that could be rounding alone, by output, and never 0."""
    largest = np.where(np.isfinite(Y), np.abs(Y), 0.0).max(0, initial=0.0)
    return np.maximum(ROUNDING * largest, np.finfo(float).tiny)
