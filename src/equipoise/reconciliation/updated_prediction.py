"""A prediction updated by readings: moments, covariances, contributions and draws of the true values.

Draws of the network are weighted in each row by the evidence of its readings (R11). Where the effective number of draws
is too small, the Gaussian with the moments of the mixture is conditioned instead (R13). All results are streamed over
chunks of rows and blocks of draws, as in `Predictive`, and are in standardized units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import BalanceOperator, DiagonalGaussian, Gaussian, condition
from equipoise.network import DRAW_BLOCK, derived_seed
from equipoise.prediction import (
    ROW_BLOCK,
    Components,
    MixtureMoments,
    Predictive,
    RunningMean,
    selected_draws,
    weighted_mean,
)
from equipoise.reconciliation.assimilation import (
    Assimilated,
    MatchedGaussian,
    assimilate,
)
from equipoise.reconciliation.contributions import balance_contributions, mixture_contributions

Array = NDArray[np.float64]
Averaged = Callable[[Gaussian], Tensor]


@dataclass(frozen=True, eq=False)
class UpdatedMoments:
    """Moments of the true values before and after the readings, shape `(rows, n_y)`, and how they were calculated.

    Args:
        prior_mean, prior_var: Mean and variance of the prediction.
        mean, var: Mean and variance given the readings.
        effective: Effective number of draws, shape `(rows,)`.
        gaussian: Whether they were too few, so that the matched Gaussian was used, shape `(rows,)`.
    """

    prior_mean: Array
    prior_var: Array
    mean: Array
    var: Array
    effective: Array
    gaussian: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class UpdatedPrediction:
    """A prediction and readings of its outputs.

    Args:
        predictive: The prediction, its `sensor_var` being "model".
        y: Readings, shape `(rows, n_y)`, NaN where there are none.
        sensor_var: Their variances, shape `(rows, n_y)`; NaN stands for the model's own, ∞ is as good as no reading.
        least_draws: Smallest effective number of draws for which the mixture is used.
    """

    predictive: Predictive
    y: Array
    sensor_var: Array
    least_draws: float

    def take(self, rows: NDArray[np.intp] | slice) -> UpdatedPrediction:
        """Select rows.

        Args:
            rows: Their positions.
        """
        predictive = replace(self.predictive, X=self.predictive.X[rows])
        return replace(self, predictive=predictive, y=self.y[rows], sensor_var=self.sensor_var[rows])

    @cached_property
    def moments(self) -> UpdatedMoments:
        """Moments of all rows, by one pass over all draws, and a second one where effective draws are too few (R12)."""
        p, shape = self.predictive, self.y.shape
        prior_mean, prior_var, mean, var = (np.empty(shape) for _ in range(4))
        effective = np.empty(len(self.y))
        for rows in p.chunks(self._bytes_per_row):
            before, after = MixtureMoments(), MixtureMoments()
            for block in self._blocks(rows):
                before.add(block.log_weight, block.before)
                after.add(block.updated_log_weight, block.after)
            prior_mean[rows], prior_var[rows] = _numpy(before.mean), _numpy(before.second)
            mean[rows], var[rows] = _numpy(after.mean), _numpy(after.second)
            effective[rows] = _numpy(after.weights.effective)
        too_few = effective < self.least_draws
        if too_few.any():
            mean[too_few], var[too_few] = self.take(np.flatnonzero(too_few))._matched_moments()
        return UpdatedMoments(prior_mean, prior_var, mean, var, effective, too_few)

    def covariance(self) -> Array:
        """Return the covariance of the true values given the readings, shape `(rows, n_y, n_y)` (R12, R13)."""
        result = np.empty((*self.y.shape, self.y.shape[1]))
        for is_gaussian, positions, part in self._by_method():
            for rows in part.predictive.chunks(part._dense_bytes_per_row):
                cov = part.matched(rows)[0].conditioned_cov if is_gaussian else part._mixture_covariance(rows)
                result[positions[rows]] = cov
        return result

    def contributions(self) -> tuple[Array, Array, Array, Array]:
        """Return the arrays `network`, `sensors`, `balances` and `draws` of `Contributions` (R14)."""
        (n, k), m = self.y.shape, self.n_balances
        result = np.zeros((n, k)), np.zeros((n, k, k)), np.zeros((n, m, k)), np.zeros((n, k))
        for is_gaussian, positions, part in self._by_method():
            average = part._matched_contributions if is_gaussian else part._mixture_contributions
            for rows in part.predictive.chunks(part._dense_bytes_per_row):
                terms = average(rows)
                for array, term in zip(result, terms, strict=True):
                    array[positions[rows]] = term
        return result

    def sample(self, n: int, seed: int) -> Array:
        """Draw whole rows of true values given the readings, shape `(n, rows, n_y)` (M1).

        The noise of a row depends only on seed, n and the row's position.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers.
        """
        result = np.empty((n, *self.y.shape))
        gaussian_rows, width = self.moments.gaussian, self.y.shape[1] + self.n_balances
        for rows in self.predictive.chunks(max(self._bytes_per_row, 24 * n * width)):
            uniform, normal = _row_noise(rows, n, width, seed)
            for is_gaussian in (False, True):
                selected = np.flatnonzero(gaussian_rows[rows] == is_gaussian)
                if len(selected):
                    part, noise = self.take(rows.start + selected), normal[:, selected]
                    result[:, rows.start + selected] = (
                        part._sample_matched(noise) if is_gaussian else part._sample_draws(uniform[:, selected], noise)
                    )
        return result

    def matched(self, rows: slice, *averaged: Averaged) -> tuple[MatchedGaussian, list[Array]]:
        """Match one Gaussian to the mixture of each row, and average functions of the draws on the way.

        Args:
            rows: Consecutive rows.
            averaged: Functions of a block of draws, whose results have draws on axis 0, then rows.
        Returns: The matched Gaussian with the readings, and the average of each function.
        """
        moments, noise, averages = MixtureMoments(dense=True), RunningMean(), [RunningMean() for _ in averaged]
        for part, w in self._components(rows):
            share, weight = moments.add(part.log_weights, part.gaussian), torch.softmax(part.log_weights, 0)
            noise.add(weighted_mean(torch.where(w.isfinite(), w, 0.0).expand_as(part.gaussian.mean), weight), share)
            for mean, function in zip(averages, averaged, strict=True):
                mean.add(weighted_mean(function(part.gaussian), weight), share)
        y = np.where(np.isinf(self.sensor_var[rows]), np.nan, self.y[rows])
        matched = MatchedGaussian(_numpy(moments.mean), _numpy(moments.second), y, _numpy(noise.value))
        return matched, [_numpy(mean.value) for mean in averages]

    @property
    def n_balances(self) -> int:
        """Number of balances of the model."""
        layer = self.predictive.model.conditioning
        return 0 if layer is None else len(layer.names)

    def _components(self, rows: slice) -> Iterator[tuple[Components, Tensor]]:
        """Iterate over blocks of draws with the variances of the readings."""
        user_var = torch.as_tensor(self.sensor_var[rows], device=self.predictive.device)
        for part in self.predictive.components(rows):
            model_var = torch.as_tensor(part.sensor_var, dtype=user_var.dtype, device=user_var.device)
            yield part, torch.where(user_var.isnan(), model_var, user_var)

    def _blocks(self, rows: slice) -> Iterator[Assimilated]:
        """Iterate over blocks of draws conditioned on the readings."""
        y = torch.as_tensor(self.y[rows], device=self.predictive.device)
        for part, w in self._components(rows):
            yield assimilate(part.gaussian, y, w, part.log_weights)

    def _by_method(self) -> Iterator[tuple[bool, NDArray[np.intp], UpdatedPrediction]]:
        """Iterate over the mixture's rows, then the matched Gaussian's: whether Gaussian, positions, rows."""
        for is_gaussian in (False, True):
            positions = np.flatnonzero(self.moments.gaussian == is_gaussian)
            if len(positions):
                yield is_gaussian, positions, self.take(positions)

    @property
    def _bytes_per_row(self) -> int:
        return 8 * DRAW_BLOCK * self.y.shape[1] * 8

    @property
    def _dense_bytes_per_row(self) -> int:
        return 8 * (3 * DRAW_BLOCK * self.y.shape[1] * (self.n_balances + 2) + 8 * self.y.shape[1] ** 2)

    def _mixture_covariance(self, rows: slice) -> Array:
        after = MixtureMoments(dense=True)
        for block in self._blocks(rows):
            after.add(block.updated_log_weight, block.after)
        return _numpy(after.second)

    def _sample_draws(self, uniform: Array, normal: Array) -> Array:
        """Select draws by their weights, and sample from their Gaussians by Matheron's rule (M1)."""
        all_rows, noise = slice(0, len(self.y)), torch.as_tensor(normal)
        log_weight = torch.cat([block.updated_log_weight for block in self._blocks(all_rows)])
        selected = selected_draws(log_weight.cpu(), torch.as_tensor(uniform))
        result, start = torch.empty(*normal.shape[:2], self.y.shape[1], dtype=noise.dtype), 0
        for block in self._blocks(all_rows):
            n_draws = len(block.log_evidence)
            sample, row = torch.nonzero((selected >= start) & (selected < start + n_draws), as_tuple=True)
            row_noise = noise[sample, row].to(block.log_evidence.device)
            result[sample, row] = _sample_selected(block.after, selected[sample, row] - start, row, row_noise).cpu()
            start += n_draws
        return result.numpy()

    def _matched_moments(self) -> tuple[Array, Array]:
        mean, var = np.empty(self.y.shape), np.empty(self.y.shape)
        for rows in self.predictive.chunks(self._dense_bytes_per_row):
            matched, _ = self.matched(rows)
            var[rows] = _variances(matched)
            mean[rows] = self._onto_exact_balances(matched.conditioned_mean, var[rows], rows)
        return mean, var

    def _mixture_contributions(self, rows: slice) -> tuple[Array, Array, Array, Array]:
        network, sensors, balances, draws = map(_numpy, mixture_contributions(self._blocks(rows)))
        return network, sensors, balances, draws

    def _matched_contributions(self, rows: slice) -> tuple[Array, Array, Array, Array]:
        matched, (network, balances) = self.matched(rows, lambda gaussian: gaussian.prior.mean, balance_contributions)
        return network, matched.contributions(), balances, np.zeros_like(network)

    def _sample_matched(self, normal: Array) -> Array:
        all_rows = slice(0, len(self.y))
        matched, _ = self.matched(all_rows)
        draws = matched.sample(normal[..., : self.y.shape[1]])
        return self._onto_exact_balances(draws, _variances(matched), all_rows)

    def _onto_exact_balances(self, values: Array, var: Array, rows: slice) -> Array:
        """Condition values on the exact balances (C3): dense algebra leaves an error of `√eps` in draws."""
        exact = self._exact
        if exact is None:
            return values
        B, target = map(torch.as_tensor, self.predictive.standardizer.linearise(self.predictive.X[rows]))
        gaussian = DiagonalGaussian(torch.as_tensor(values), torch.as_tensor(var).expand(values.shape))
        return condition(gaussian, BalanceOperator(B[..., exact, :]), target[:, exact], 0.0).mean.numpy()

    @cached_property
    def _exact(self) -> Tensor | None:
        """Whether each balance holds exactly in all draws; None if none does."""
        layer = self.predictive.model.conditioning
        if layer is None:
            return None
        exact = (layer.tolerance.median() == 0).cpu()
        if layer.offset is not None:
            exact = exact & ~layer.offset.learned.cpu()
        return exact if bool(exact.any()) else None


def _sample_selected(gaussian: Gaussian, draw: Tensor, row: Tensor, noise: Tensor) -> Tensor:
    """Sample one value from each selected Gaussian of a block (M1).

    Args:
        gaussian: A block of draws.
        draw, row: Positions of the selected draws and rows, shape `(k,)`.
        noise: Standard normal numbers, shape `(k, n_y + m)`.
    Returns: Shape `(k, n_y)`.
    """
    selected, n_y = gaussian.take(draw, row), gaussian.mean.shape[-1]
    y0 = selected.prior.mean + selected.prior.var.sqrt() * noise[:, :n_y]
    return selected.update(y0, noise[:, n_y:])  # M1


def _variances(matched: MatchedGaussian) -> Array:
    return np.clip(np.diagonal(matched.conditioned_cov, axis1=1, axis2=2), 0.0, None)


def _row_noise(rows: slice, n: int, width: int, seed: int) -> tuple[Array, Array]:
    """Return uniform `(n, rows)` and standard normal `(n, rows, width)` numbers that depend on seed and row block."""
    uniform, normal = [], []
    for start in range(rows.start, rows.stop, ROW_BLOCK):
        generator = torch.Generator().manual_seed(derived_seed(seed, start // ROW_BLOCK, 4))
        uniform.append(torch.rand(n, ROW_BLOCK, generator=generator, dtype=torch.float64))
        normal.append(torch.randn(n, ROW_BLOCK, width, generator=generator, dtype=torch.float64))
    count = rows.stop - rows.start
    return torch.cat(uniform, 1)[:, :count].numpy(), torch.cat(normal, 1)[:, :count].numpy()


def _numpy(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
