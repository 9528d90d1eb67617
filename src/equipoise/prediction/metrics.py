"""Scores of a predictive distribution: of its marginals, of its joint, and of its violations of balances.

All are in user units. Measured values are scored against `p.measured()`. A NaN in Y was not measured and is left out.
Scores go through the mixture's components block by block, since there are too many of them for memory.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scoringrules
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from torch import Tensor

from equipoise.balances import Equality
from equipoise.errors import InputError
from equipoise.gaussian import DiagonalGaussian
from equipoise.network import DRAW_BLOCK, derived_seed
from equipoise.prediction.components import Components
from equipoise.prediction.predictive import Predictive
from equipoise.prediction.running_moments import RunningMean, RunningWeights, weighted_mean

Array = NDArray[np.float64]
LOG10_EDGES = np.linspace(-18, 8, 1301)  # bins of 0.02 decades for the sizes of residuals
CRPS_ROWS = 8  # rows at a time: pairs of components stay in cache
LEAST_STD = 1e-12  # of a component, relative to the output's standard deviation


# --- Marginals --------------------------------------------------------------------------------------------------------


def squared_error(p: Predictive, Y: Any) -> Array:
    """Compute the mean squared error of the predictive mean over rows.

    Args:
        p: The prediction.
        Y: Measured outputs, shape `(n, n_y)`.
    Returns:
        Errors in squared user units, shape `(n_y,)`; NaN for an output that was never measured.
    """
    return _mean_over_rows((np.asarray(p.mean, dtype=float) - p.output_values(Y)) ** 2)


def interval_width(p: Predictive, level: float = 0.95) -> Array:
    """Compute the mean width over rows of the central intervals of probability `level`.

    Args:
        p: The prediction.
        level: Probability of the intervals.
    Returns:
        Widths in user units, shape `(n_y,)`.
    """
    lower, upper = p.interval(level)
    return (np.asarray(upper, dtype=float) - np.asarray(lower, dtype=float)).mean(0)


def pit(p: Predictive, Y: Any) -> Array:
    """Compute the probability integral transform: the mixture's distribution function at the measured values.

    ::

        F(y) = Σ_d π_d Φ((y − μ_d) / σ_d)

    It is uniform over rows if the predictive distribution is right.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n, n_y)`.
    Returns:
        Values between 0 and 1, shape `(n, n_y)`; NaN where nothing was measured.
    """
    y = torch.as_tensor(p.standardizer.outputs(p.output_values(Y)))
    result = np.empty(y.shape)
    for rows in p.chunks():
        weights, total = RunningWeights(), RunningMean()
        for part in p.components(rows):
            (weight, share), mean = weights.add_block(part.log_weight, len(part)), part.gaussian.mean
            total.add(weighted_mean(_cdf(p, part, y[rows].to(mean)), weight), share)
        result[rows] = total.value.cpu().numpy()
    return result


def coverage(p: Predictive, Y: Any, levels: Any = 0.95) -> Array:
    """Compute the share of measured values inside their central intervals.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n, n_y)`.
        levels: Probabilities of the intervals, one number or several.
    Returns:
        Shares, shape `(n_levels, n_y)`.
    Raises:
        InputError: If a level is not strictly between 0 and 1.
    """
    return coverage_of_pit(pit(p, Y), levels)


def coverage_of_pit(F: Float[np.ndarray, "n n_y"], levels: Any) -> Float[np.ndarray, "n_levels n_y"]:
    """Compute the share of rows inside central intervals from values of `pit`: `|F − ½| ≤ level / 2`.

    Args:
        F: Values of `pit`, NaN where nothing was measured, shape `(n, n_y)`.
        levels: Probabilities of the intervals, one number or several.
    Returns:
        Shares, shape `(n_levels, n_y)`; NaN for an output that was never measured.
    Raises:
        InputError: If a level is not strictly between 0 and 1.

    Example:
        >>> coverage_of_pit(np.array([[0.01], [0.3], [0.5], [0.9]]), [0.5, 0.9])
        array([[0.5 ],
               [0.75]])
    """
    levels = np.atleast_1d(np.asarray(levels, dtype=float))
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"levels must lie strictly between 0 and 1, but got {levels}. Use 0.95 for 95 %.")
    distance = np.abs(F - 0.5)
    return np.stack([_mean_over_rows(np.where(np.isnan(F), np.nan, distance <= level / 2)) for level in levels])


def crps(p: Predictive, Y: Any, n_components: int = 64) -> Array:
    """Compute the continuous ranked probability score of each row and output; smaller is better.

    ::

        CRPS = ∫ (F(z) − 1{z ≥ y})² dz = E|Z − y| − ½ E|Z − Z'|

    in closed form for the mixture of the first `n_components` draws: draws are independent, so the first ones are as
    good as any, and the work grows with the square of their number.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n, n_y)`.
        n_components: Number of draws.
    Returns:
        Scores in user units, shape `(n, n_y)`; NaN where nothing was measured.
    """
    Y = p.output_values(Y)
    y, result = p.standardizer.outputs(Y), np.empty(Y.shape)
    few = dataclasses.replace(p, n_draws=min(n_components, p.n_draws))
    for rows in few.chunks():
        parts = [(part.gaussian.mean, _std(part), part.log_weights.unsqueeze(-1)) for part in few.components(rows)]
        mean, std, log_weight = (torch.cat(part).movedim(0, -1).cpu() for part in zip(*parts, strict=True))
        mean, std, weight = mean.numpy(), std.numpy(), torch.softmax(log_weight, -1).expand_as(mean).numpy()
        for start in range(0, len(mean), CRPS_ROWS):
            part = slice(start, start + CRPS_ROWS)
            scores = scoringrules.crps_mixnorm(y[rows][part], mean[part], std[part], weight[part], backend="numpy")
            result[rows][part] = scores
    return result * p.standardizer.y_std


def mean_crps(p: Predictive, Y: Any) -> Array:
    """Average the continuous ranked probability score `crps` over the rows in which an output was measured.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n, n_y)`.
    Returns:
        Mean scores in user units, shape `(n_y,)`; NaN for an output that was never measured.
    """
    return _mean_over_rows(crps(p, Y))


# --- The joint --------------------------------------------------------------------------------------------------------


def energy_score(p: Predictive, Y: Any, scale: Any, n: int = 200) -> Float[np.ndarray, " n_rows"]:
    """Compute the energy score of each row as a whole from joint draws; smaller is better.

    ::

        ES = E‖(Z − y) / s‖ − ½ E‖(Z − Z') / s‖

    The second expectation is over pairs of different draws, so that the score is unbiased whatever `n`.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n_rows, n_y)`; a row in which an output is missing gets NaN.
        scale: `s`, such as the training data's standard deviations, shape `(n_y,)`, so that units do not matter.
        n: Number of draws, at least 2.
    Returns:
        Scores without unit, shape `(n_rows,)`.
    Raises:
        InputError: If `n` or `scale` is out of range.
    """
    if n < 2:
        raise InputError(f"n must be at least 2, for pairs of draws, but got {n}.")
    s = np.asarray(scale, dtype=float)
    if s.shape != (len(p.outputs),) or not np.all((s > 0) & np.isfinite(s)):
        raise InputError(f"scale must hold one positive number per output, {len(p.outputs)} of them, but got {scale}.")
    y, draws = p.output_values(Y) / s, p.sample(n) / s
    error = np.linalg.norm(draws - y, axis=-1).mean(0)
    return error - 0.5 * np.array([pdist(draws[:, i]).mean() for i in range(len(y))])


def joint_nll(p: Predictive, Y: Any) -> float:
    """Compute the mean negative log density of whole rows, in nats per row; outputs not measured are marginalised.

    A row in which nothing was measured has density 1 and would only dilute the mean: it is left out. NaN if all are.

    Args:
        p: The prediction of measured values.
        Y: Measured outputs, shape `(n, n_y)`, NaN where not measured.
    Returns:
        The mean over rows in nats, with densities in user units.
    """
    seen = ~np.isnan(p.output_values(Y)).all(1)
    return -float(p.log_prob(Y)[seen].mean()) if seen.any() else math.nan


# --- Balances ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Magnitudes:
    """Absolute values of the balances' residuals over draws and rows.

    Args:
        names: Names of the k series: the balances, then "overall", the mean over balances in their own units, and
            "overall_relative", the mean of `|z_k| / c_k`.
        of_draws: Mean over the rows for each draw, shape `(k, n_draws)`.
        counts: Histogram over draws and rows, shape `(k, n_bins + 2)`: below the first of `LOG10_EDGES` (zeros, too),
            between the edges, and above the last.
    """

    names: tuple[str, ...]
    of_draws: Float[np.ndarray, "k n_draws"]
    counts: Int[np.ndarray, "k n_bins_and_2"]

    @property
    def mean(self) -> Float[np.ndarray, " k"]:
        """Mean of each series over draws and rows."""
        return self.of_draws.mean(1)

    @property
    def sd_over_draws(self) -> Float[np.ndarray, " k"]:
        """Standard deviation over draws of the mean over rows."""
        return self.of_draws.std(1)

    @property
    def median(self) -> Float[np.ndarray, " k"]:
        """Median over draws and rows: exact to 0.02 decades, and better, as the histogram is interpolated."""
        return np.array([_histogram_median(counts) for counts in self.counts])


@torch.no_grad()
def violations(
    p: Predictive,
    n: int = 10_000,
    constraint: Equality | None = None,
    scale: Any = None,
    progress: Callable[[float], None] | None = None,
) -> tuple[Magnitudes, Magnitudes]:
    """Compute how far draws violate balances: conditioned means of posterior draws, and true outputs drawn from each.

    Outputs are drawn as the model was trained: jointly, or independently from the diagonal of `Σ_C` under the marginal
    likelihood.

    Args:
        p: A prediction, for its inputs and posterior; sensor noise is not added.
        n: Number of posterior draws, not limited by `n_draws`.
        constraint: Balances between the same inputs and outputs, in their order; by default those of the fit.
        scale: `c_k`, shape `(m,)`; by default from the standard deviations of the fit's training outputs.
        progress: Called with the share that is done, up to 1.
    Returns:
        Residuals of the means, and of the outputs.
    """
    own, constraint = constraint is None, p.constraint if constraint is None else constraint
    if scale is None:
        scale = p.standardizer.row_scale if own else constraint.scale(p.standardizer.y_std, p.X)
    scale = np.asarray(scale, dtype=float)
    generator = torch.Generator(p.device).manual_seed(derived_seed(p.seed, n, 2))
    of_means, of_outputs = (_Tally(constraint.names, n, len(p.X)) for _ in range(2))
    for first in range(0, n, DRAW_BLOCK):
        for rows in p.chunks():
            means, outputs = torch.empty(2, DRAW_BLOCK, rows.stop - rows.start, len(p.outputs), dtype=torch.float64)
            for places, part in p.equal_draws(rows, range(first, first + DRAW_BLOCK)):
                gaussian = part.gaussian
                source = gaussian if p.model.likelihood.is_joint else DiagonalGaussian(gaussian.mean, gaussian.var)
                means[places], outputs[places] = gaussian.mean.cpu(), source.sample(1, generator)[0].cpu()
            for tally, y in ((of_means, means), (of_outputs, outputs)):
                in_user_units = p.standardizer.outputs_to_user(y[: n - first].numpy())
                tally.add(first, _sizes(constraint.residual(p.X[rows], in_user_units), scale))
        if progress is not None:
            progress(min(1.0, (first + DRAW_BLOCK) / n))
    return of_means.magnitudes(), of_outputs.magnitudes()


def _sizes(z: Float[np.ndarray, "n_draws n m"], scale: Float[np.ndarray, " m"]) -> Float[np.ndarray, "k n_draws n"]:
    """Compute `|z_k|` of each balance, their mean, and the mean of `|z_k| / c_k`."""
    sizes = np.abs(np.moveaxis(z, -1, 0))
    return np.stack([*sizes, sizes.mean(0), (sizes / scale[:, None, None]).mean(0)])


class _Tally:
    """Accumulates absolute residuals over blocks of draws and chunks of rows."""

    def __init__(self, balances: tuple[str, ...], n_draws: int, n_rows: int):
        self.names = (*balances, "overall", "overall_relative")
        self.n_rows = n_rows
        self.sums = np.zeros((len(self.names), n_draws))
        self.counts = np.zeros((len(self.names), len(LOG10_EDGES) + 1), dtype=np.int64)

    def add(self, first: int, sizes: Float[np.ndarray, "k n_draws n"]) -> None:
        """Add the absolute residuals of draws number `first` and following.

        Args:
            first: Number of the first of these draws.
            sizes: Absolute residuals, shape `(k, n_draws, n)`.
        """
        self.sums[:, first : first + sizes.shape[1]] += sizes.sum(2)
        self.counts += _histogram(sizes.reshape(len(sizes), -1))

    def magnitudes(self) -> Magnitudes:
        """Return the accumulated residuals."""
        return Magnitudes(self.names, self.sums / self.n_rows, self.counts)


def _histogram(sizes: Float[np.ndarray, "k n"]) -> Int[np.ndarray, "k n_bins_and_2"]:
    """Count sizes below, between and above `LOG10_EDGES`; in single precision, which is far finer than the bins."""
    n_bins, width = len(LOG10_EDGES) + 1, LOG10_EDGES[1] - LOG10_EDGES[0]
    with np.errstate(divide="ignore", over="ignore"):
        place = np.log10(sizes.astype(np.float32))
    place = (place - np.float32(LOG10_EDGES[0])) * np.float32(1 / width) + np.float32(1)
    bins = place.clip(0, n_bins - 1).astype(np.intp) + n_bins * np.arange(len(sizes))[:, None]
    return np.bincount(bins.ravel(), minlength=n_bins * len(sizes)).reshape(len(sizes), n_bins)


def _histogram_median(counts: Int[np.ndarray, " n_bins_and_2"]) -> float:
    """Interpolate the median in log10 within the middle bin; 0 below the edges and ∞ above them."""
    below = np.cumsum(counts)
    half = 0.5 * below[-1]
    middle = int(np.searchsorted(below, half))
    if middle in (0, len(counts) - 1):
        return 0.0 if middle == 0 else math.inf
    share = (half - below[middle - 1]) / counts[middle]
    left, right = LOG10_EDGES[middle - 1 : middle + 1]
    return float(10 ** (left + share * (right - left)))


# --- Parts ------------------------------------------------------------------------------------------------------------


def _cdf(p: Predictive, part: Components, y: Tensor) -> Tensor:
    """Return the distribution functions of components at values `(n, n_y)`."""
    mean = part.gaussian.mean
    if p.sensor_var is None or p.model.likelihood.normal_noise:
        return torch.special.ndtr((y - mean) / _std(part))
    return p.model.likelihood.measured_cdf(y.expand_as(mean), mean, part.gaussian.var, part.sensor_var)


def _std(part: Components) -> Tensor:
    """Return standard deviations of components, at least `LEAST_STD` where balances leave no variance."""
    return part.std.clamp_min(LEAST_STD)


def _mean_over_rows(values: Float[np.ndarray, "n n_y"]) -> Float[np.ndarray, " n_y"]:
    """Average over the rows that have a value; NaN where none has."""
    seen = ~np.isnan(values)
    count = seen.sum(0)
    return np.where(count > 0, np.where(seen, values, 0.0).sum(0) / np.maximum(count, 1), np.nan)
