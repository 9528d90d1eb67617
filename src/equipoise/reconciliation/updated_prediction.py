"""A model's prediction after the fact: the mixture over its draws, given readings of what was predicted.

Draws are weighted in each row by how well they foresaw its readings (R11). Where too few of them count, the Gaussian
with the moments of the mixture is conditioned instead (R13). Everything is streamed over chunks of rows and blocks of
draws, as in `predictive`; everything here is in standardized units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import BalanceOperator, ConditionedGaussian, DiagonalGaussian, condition
from equipoise.network import DRAW_BLOCK, derived_seed
from equipoise.prediction import ROW_BLOCK, AnyGaussian, Predictive
from equipoise.reconciliation.assimilation import Assimilated, MatchedGaussian, MixtureMoments, RunningMean, assimilate
from equipoise.reconciliation.contributions import balance_moves, moves_of_draws, prior_of

Array = NDArray[np.float64]
Averaged = Callable[[AnyGaussian], Tensor]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Moments of true values before and after the readings, shape `(rows, n_y)`, and where they come from.

    Args:
        prior_mean, prior_var: Of the prediction.
        mean, var: Given the readings.
        effective: How many draws count, shape `(rows,)`.
        gaussian: Whether they were too few, so that the matched Gaussian was used, shape `(rows,)`.
    """

    prior_mean: Array
    prior_var: Array
    mean: Array
    var: Array
    effective: Array
    gaussian: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Hindsight:
    """A prediction and readings of it.

    Args:
        predictive: The prediction, its `sensor_var` being "model".
        y: Readings, shape `(rows, n_y)`, NaN where there are none.
        sensor_var: Their variances, likewise; NaN where they are the model's, ∞ where a reading says nothing.
        least_draws: How many effective draws there must be.
    """

    predictive: Predictive
    y: Array
    sensor_var: Array
    least_draws: float

    def take(self, rows: NDArray[np.intp] | slice) -> Hindsight:
        """Some of the rows."""
        predictive = replace(self.predictive, X=self.predictive.X[rows])
        return replace(self, predictive=predictive, y=self.y[rows], sensor_var=self.sensor_var[rows])

    @cached_property
    def outcome(self) -> Outcome:
        """Moments of all rows, in one pass over all draws, and a second one where too few of them count."""
        p, shape = self.predictive, self.y.shape
        prior_mean, prior_var, mean, var = (np.empty(shape) for _ in range(4))
        effective = np.empty(len(self.y))
        for rows in p._chunks(self._bytes_per_row):
            before, after = MixtureMoments(), MixtureMoments()
            for block in self._blocks(rows):
                before.add(torch.zeros_like(block.log_evidence), block.before)
                after.add(block.log_evidence, block.after)
            prior_mean[rows], prior_var[rows] = _numpy(before.mean), _numpy(before.second)
            mean[rows], var[rows] = _numpy(after.mean), _numpy(after.second)
            effective[rows] = _numpy(after.weights.effective)
        few = effective < self.least_draws
        if few.any():
            mean[few], var[few] = self.take(np.flatnonzero(few))._matched_moments()
        return Outcome(prior_mean, prior_var, mean, var, effective, few)

    def covariance(self) -> Array:
        """Covariance of the true values of each row, given the readings, shape `(rows, n_y, n_y)`."""
        result = np.empty((*self.y.shape, self.y.shape[1]))
        for few, positions, part in self._kinds():
            for rows in part.predictive._chunks(part._dense_bytes_per_row):
                cov = part.matched(rows)[0].conditioned_cov if few else part._mixture_covariance(rows)
                result[positions[rows]] = cov
        return result

    def moves(self) -> tuple[Array, Array, Array, Array]:
        """Network, sensors, balances and draws of `Moves` (R14)."""
        (n, k), m = self.y.shape, self.n_balances
        result = np.zeros((n, k)), np.zeros((n, k, k)), np.zeros((n, m, k)), np.zeros((n, k))
        for few, positions, part in self._kinds():
            for rows in part.predictive._chunks(part._dense_bytes_per_row):
                found = part._matched_moves(rows) if few else map(_numpy, moves_of_draws(part._blocks(rows)))
                for whole, piece in zip(result, found, strict=True):
                    whole[positions[rows]] = piece
        return result

    def sample(self, n: int, seed: int) -> Array:
        """Draws of whole rows of true values, given the readings, shape `(n, rows, n_y)`.

        The noise of a row depends on seed, n and its position alone.
        """
        result = np.empty((n, *self.y.shape))
        few, width = self.outcome.gaussian, self.y.shape[1] + self.n_balances
        for rows in self.predictive._chunks(max(self._bytes_per_row, 24 * n * width)):
            uniform, normal = _row_noise(rows, n, width, seed)
            for kind in (False, True):
                chosen = np.flatnonzero(few[rows] == kind)
                if len(chosen):
                    part, noise = self.take(rows.start + chosen), normal[:, chosen]
                    drawn = part._sample_matched(noise) if kind else part._sample_draws(uniform[:, chosen], noise)
                    result[:, rows.start + chosen] = drawn
        return result

    def matched(self, rows: slice, *averaged: Averaged) -> tuple[MatchedGaussian, list[Array]]:
        """The prediction as one Gaussian with the readings, and averages over the draws of whatever else is asked for.

        Args:
            rows: Which.
            averaged: Functions of a block of draws, whose results have draws on axis 0, then rows.
        """
        moments, noise, others = MixtureMoments(dense=True), RunningMean(), [RunningMean() for _ in averaged]
        for gaussian, w in self._components(rows):
            even = torch.zeros(gaussian.mean.shape[:2], dtype=gaussian.mean.dtype, device=gaussian.mean.device)
            share = moments.add(even, gaussian)
            noise.add(torch.where(w.isfinite(), w, 0.0).expand_as(gaussian.mean).mean(0), share)
            for mean, function in zip(others, averaged, strict=True):
                mean.add(function(gaussian).mean(0), share)
        y = np.where(np.isinf(self.sensor_var[rows]), np.nan, self.y[rows])
        matched = MatchedGaussian(_numpy(moments.mean), _numpy(moments.second), y, _numpy(noise.value))
        return matched, [_numpy(mean.value) for mean in others]

    @property
    def n_balances(self) -> int:
        """How many balances the model has."""
        layer = self.predictive.model.conditioning
        return 0 if layer is None else len(layer.names)

    # ------------------------------------------------------------------ streaming

    def _components(self, rows: slice) -> Iterator[tuple[AnyGaussian, Tensor]]:
        """Blocks of draws with the sensor variances of the readings."""
        given = torch.as_tensor(self.sensor_var[rows], device=self.predictive._device)
        for gaussian, learned, _ in self.predictive._components(rows):
            learned = torch.as_tensor(learned, dtype=given.dtype, device=given.device)
            yield gaussian, torch.where(given.isnan(), learned, given)

    def _blocks(self, rows: slice) -> Iterator[Assimilated]:
        y = torch.as_tensor(self.y[rows], device=self.predictive._device)
        for gaussian, w in self._components(rows):
            yield assimilate(gaussian, y, w)

    def _kinds(self) -> Iterator[tuple[bool, NDArray[np.intp], Hindsight]]:
        """Rows of the mixture, then those of the matched Gaussian: which, their positions, and they themselves."""
        for few in (False, True):
            positions = np.flatnonzero(self.outcome.gaussian == few)
            if len(positions):
                yield few, positions, self.take(positions)

    @property
    def _bytes_per_row(self) -> int:
        return 8 * DRAW_BLOCK * self.y.shape[1] * 8

    @property
    def _dense_bytes_per_row(self) -> int:
        return 8 * (3 * DRAW_BLOCK * self.y.shape[1] * (self.n_balances + 2) + 8 * self.y.shape[1] ** 2)

    # ------------------------------------------------------------------ the mixture

    def _mixture_covariance(self, rows: slice) -> Array:
        after = MixtureMoments(dense=True)
        for block in self._blocks(rows):
            after.add(block.log_evidence, block.after)
        return _numpy(after.second)

    def _sample_draws(self, uniform: Array, normal: Array) -> Array:
        """Draws are picked by their weights, and their Gaussians drawn from by Matheron's rule (M1)."""
        everything, noise = slice(0, len(self.y)), torch.as_tensor(normal)
        log_evidence = torch.cat([block.log_evidence for block in self._blocks(everything)])
        cumulative = torch.softmax(log_evidence, 0).cumsum(0).T.contiguous().cpu()
        picked = torch.searchsorted(cumulative, torch.as_tensor(uniform.T.copy()))
        picked = picked.clamp_max(len(log_evidence) - 1).T
        result, start = torch.empty(*normal.shape[:2], self.y.shape[1], dtype=noise.dtype), 0
        for block in self._blocks(everything):
            n_draws = len(block.log_evidence)
            which, row = torch.nonzero((picked >= start) & (picked < start + n_draws), as_tuple=True)
            own = noise[which, row].to(block.log_evidence.device)
            result[which, row] = _drawn(block.after, picked[which, row] - start, row, own).cpu()
            start += n_draws
        return result.numpy()

    # ------------------------------------------------------------------ the matched Gaussian

    def _matched_moments(self) -> tuple[Array, Array]:
        mean, var = np.empty(self.y.shape), np.empty(self.y.shape)
        for rows in self.predictive._chunks(self._dense_bytes_per_row):
            matched, _ = self.matched(rows)
            var[rows] = _variances(matched)
            mean[rows] = self._obeying(matched.conditioned_mean, var[rows], rows)
        return mean, var

    def _matched_moves(self, rows: slice) -> tuple[Array, Array, Array, Array]:
        matched, (network, balances) = self.matched(rows, lambda gaussian: prior_of(gaussian).mean, balance_moves)
        return network, matched.moves(), balances, np.zeros_like(network)

    def _sample_matched(self, normal: Array) -> Array:
        everything = slice(0, len(self.y))
        matched, _ = self.matched(everything)
        drawn = matched.sample(normal[..., : self.y.shape[1]])
        return self._obeying(drawn, _variances(matched), everything)

    def _obeying(self, values: Array, var: Array, rows: slice) -> Array:
        """Values whose exact balances hold to rounding: dense algebra leaves `√eps` of them in draws (C3)."""
        exact, target = self._exact, self.predictive._inputs(rows)[1]
        if exact is None or target is None:
            return values
        B = torch.as_tensor(self.predictive.standardizer.B)[exact]
        gaussian = DiagonalGaussian(torch.as_tensor(values), torch.as_tensor(var).expand(values.shape))
        return condition(gaussian, BalanceOperator(B), target.cpu()[:, exact], 0.0).mean.numpy()

    @cached_property
    def _exact(self) -> Tensor | None:
        """Which balances hold exactly, in all draws the same; None if none does."""
        layer = self.predictive.model.conditioning
        if layer is None:
            return None
        exact = (layer.tolerance.median() == 0).cpu()
        if layer.offset is not None:
            exact = exact & ~layer.offset.learned.cpu()
        return exact if bool(exact.any()) else None


def _drawn(gaussian: AnyGaussian, draw: Tensor, row: Tensor, noise: Tensor) -> Tensor:
    """One value from each of some (draw, row) of a block, shape `(picked, n_y)`."""
    prior, n_y = prior_of(gaussian), gaussian.mean.shape[-1]
    mean, var = prior.mean[draw, row], prior.var[draw, row]
    y0 = mean + var.sqrt() * noise[:, :n_y]
    if not isinstance(gaussian, ConditionedGaussian):
        return y0
    shape = (*prior.mean.shape[:2], gaussian.tol_var.shape[-1])
    target, tol_var = (part.expand(shape)[draw, row] for part in (gaussian.target, gaussian.tol_var))
    own = replace(gaussian, prior=DiagonalGaussian(mean, var), target=target, tol_var=tol_var)
    return own.update(y0, noise[:, n_y:])  # M1


def _variances(matched: MatchedGaussian) -> Array:
    return np.clip(np.diagonal(matched.conditioned_cov, axis1=1, axis2=2), 0.0, None)


def _row_noise(rows: slice, n: int, width: int, seed: int) -> tuple[Array, Array]:
    """Uniform `(n, rows)` and standard normal `(n, rows, width)` numbers by (seed, row block)."""
    uniform, normal = [], []
    for start in range(rows.start, rows.stop, ROW_BLOCK):
        generator = torch.Generator().manual_seed(derived_seed(seed, start // ROW_BLOCK, 4))
        uniform.append(torch.rand(n, ROW_BLOCK, generator=generator, dtype=torch.float64))
        normal.append(torch.randn(n, ROW_BLOCK, width, generator=generator, dtype=torch.float64))
    count = rows.stop - rows.start
    return torch.cat(uniform, 1)[:, :count].numpy(), torch.cat(normal, 1)[:, :count].numpy()


def _numpy(tensor: Tensor) -> Array:
    return tensor.cpu().numpy()
