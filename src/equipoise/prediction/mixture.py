"""The mixture over posterior draws at the rows of a table, computed one block of draws after the other.

::

    p(y | x) = 1/n Σ_d N(y; μ_C(θ_d, ρ_d), Σ_C(θ_d, ρ_d))                           (P1)

Draw number d is the same (θ, ρ) for all rows: it depends on (seed, d) alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.data import Standardizer
from equipoise.gaussian import Gaussian
from equipoise.network import DRAW_BLOCK, ConstrainedBNN, NetworkGaussian, PosteriorDraws
from equipoise.prediction.ledger import LedgerAccumulator
from equipoise.prediction.per_draw_moments import (
    DisjointTerms,
    ledger_fields_of,
    moment_fields_of,
    reduction_lost_of,
)
from equipoise.prediction.running_moments import BlockBuffer, RunningMoments
from equipoise.prediction.weight_draws import ArrangedDraws, Heads, NetworkEvaluator, draws_between

Array = NDArray[np.float64]
DRAWS_BYTES = 2**28  # of posterior draws kept in memory; further ones are drawn again whenever they are needed
S_BYTES = 2**23  # of the matrices `S` of all rows and draws that are conditioned at once
DRAWS_AT_ONCE = 8  # in closed form: with the rows of a chunk, what they need stays in cache


@dataclass(frozen=True)
class Components:
    """Components of the mixture for some posterior draws at some rows, in standardized units.

    Args:
        rows: The rows.
        gaussian: Gaussians of the true outputs, conditioned on the balances if there are any, shape
            `(n_draws, n, n_y)`; all draws have the same weight.
        sensor_var: Sensor variances to be added for measured values, broadcast against the Gaussians; 0 for true
            values.
        second: The Gaussians conditioned with a second draw of the tolerances; None where nobody asked for it, or
            without balances.
    """

    rows: slice
    gaussian: Gaussian
    sensor_var: Tensor | float
    second: Gaussian | None = None


@dataclass(frozen=True, repr=False)
class Mixture:
    """Components of the mixture, in standardized units; `Predictive` has the public methods.

    Args:
        model: The fitted model, in standardized units.
        standardizer: Translates to and from the user's units.
        X: Inputs (then known columns) in the user's units, shape `(n, n_columns)`.
        outputs: Names of the outputs.
        n_draws: Number of posterior draws to average over.
        seed: Seed of the posterior draws.
        sensor_var: None for true values; for measured ones "model" or variances in squared user units.
    """

    model: ConstrainedBNN
    standardizer: Standardizer
    X: Array
    outputs: tuple[str, ...]
    n_draws: int = 256
    seed: int = 0
    sensor_var: str | Array | None = None

    def components(self, rows: slice, again: bool = False) -> Iterator[Components]:
        """Iterate over the components of the mixture (P1) at some rows, one block of posterior draws after the other.

        Scores, reports and reconciliation are built on this; so can be whatever else needs the whole distribution.
        Memory stays bounded if `rows` are one of `chunks()` at a time.

        Args:
            rows: The rows.
            again: Whether to condition the network's Gaussians of each block a second time, with a second draw of the
                tolerances for the same weights, as the ledger needs (D2).
        """
        (x, target), network = self.standardized_inputs(rows), NetworkEvaluator(self.model.network, self._model_sensors)
        for arranged, heads in self._evaluated(x, network, self._draws_at_once(len(x))):
            draws, prior = arranged.draws, NetworkGaussian(*(head.clone() for head in heads))
            gaussian = self.model.condition(prior, target, draws.tol_var, draws.offset)
            second = None
            if again and gaussian.n_balances:
                second = self.model.condition(gaussian.prior, target, draws.tol_var_again, draws.offset)
            yield Components(rows, gaussian, self._noise_var(self._learned_noise(draws, heads), rows), second)

    def _draws_at_once(self, n_rows: int) -> int:
        """Return the number of draws of a block that are conditioned at once: few if many balances are coupled."""
        layer = self.model.conditioning
        numbers = 0 if layer is None else sum(where.rows.numel() * where.rows.shape[-1] for where in layer.layout)
        return max(1, min(DRAW_BLOCK, S_BYTES // max(8 * n_rows * numbers, 1)))

    def _pieces(self, n: int, n_rows: int) -> Iterator[tuple[int, slice, PosteriorDraws]]:
        """Yield the first n draws piece by piece: number of their block's first draw, places in the block, draws."""
        at_once = self._draws_at_once(n_rows)
        for start in range(0, n, DRAW_BLOCK):
            block, size = self._draws(start // DRAW_BLOCK), min(DRAW_BLOCK, n - start)
            for first in range(0, size, at_once):
                places = slice(first, min(first + at_once, size))
                yield start, places, draws_between(block, places.start, places.stop)

    def _closed_form(self) -> DisjointTerms | None:
        """Return the closed form, with new buffers, for one pass over all rows and draws; None if there is none."""
        return DisjointTerms.of(self.model, self._model_sensors)

    def _moment_blocks(self, rows: slice, closed: DisjointTerms | None) -> Iterator[BlockBuffer]:
        """Yield `MOMENT_FIELDS` of one block of draws after the other, sensor noise included for measured values."""
        if closed is None:
            for part in self.components(rows):
                yield _with_noise(moment_fields_of(part.gaussian), part.sensor_var)
        else:
            for heads, draws, target, w in self._closed_form_arguments(rows, closed.network):
                yield _with_noise(closed.moment_fields(heads, draws, target), w)

    def _ledger_terms(
        self, rows: slice, closed: DisjointTerms | None, moments: RunningMoments | None = None
    ) -> LedgerAccumulator:
        """Accumulate the terms of the ledger at some rows over all draws.

        Args:
            rows: The rows.
            closed: The closed form, or None for the general one.
            moments: To be filled in the same pass, with the very blocks that `_moment_blocks` yields.
        """
        ledger = LedgerAccumulator(None if closed is None else closed.B != 0)
        if closed is None:
            for part in self.components(rows, again=True):
                gaussian, w = part.gaussian, part.sensor_var
                if moments is not None:
                    moments.add(_with_noise(moment_fields_of(gaussian), w))
                ledger.add(ledger_fields_of(gaussian, part.second), w, reduction_lost_of(gaussian))
        else:
            for heads, draws, target, w in self._closed_form_arguments(rows, closed.network):
                if moments is not None:
                    moments.add(_with_noise(closed.moment_fields(heads, draws, target), w))
                ledger.add(closed.ledger_fields(heads, draws, target), w)
        return ledger

    def _closed_form_arguments(
        self, rows: slice, network: NetworkEvaluator
    ) -> Iterator[tuple[Heads, ArrangedDraws, Tensor | None, Tensor | float]]:
        """Yield heads, draws, targets (balances first) and sensor variances of one block of draws after the other."""
        x, target = self.standardized_inputs(rows)
        balances_first = None if target is None else target.mT.unsqueeze(1)
        for draws, heads in self._evaluated(x, network, DRAWS_AT_ONCE):
            yield heads, draws, balances_first, self._noise_var(self._learned_noise(draws.draws, heads), rows)

    def _evaluated(self, x: Tensor, network: NetworkEvaluator, at_once: int) -> Iterator[tuple[ArrangedDraws, Heads]]:
        """Yield all draws, `at_once` at a time, and the network's heads at them."""
        for start in range(0, self.n_draws, DRAW_BLOCK):
            for draws in self._arranged(start // DRAW_BLOCK, min(DRAW_BLOCK, self.n_draws - start), at_once):
                yield draws, network.heads(draws, x)

    def _learned_noise(self, draws: PosteriorDraws, heads: Heads) -> Tensor | float:
        """Return the model's own sensor variances; 0 if they are not wanted or there are none."""
        if draws.sensor_var is None or not self._model_sensors:
            return 0.0
        if len(heads) < 3:
            return draws.sensor_var  # the same for all rows
        return self.model.sensor_var(draws.sensor_var, NetworkGaussian(*heads))

    @property
    def _model_sensors(self) -> bool:
        """Whether measured values have the noise of the model's own sensors."""
        return isinstance(self.sensor_var, str)

    def _draws(self, block: int) -> PosteriorDraws:
        """Return all draws of a block, and keep them if there is room."""
        if block in self._kept_draws:
            return self._kept_draws[block]
        with torch.no_grad():
            draws = self.model.draw(self.seed, block)
        if (len(self._kept_draws) + 1) * draws.weights.nbytes <= DRAWS_BYTES:
            self._kept_draws[block] = draws
        return draws

    def _arranged(self, block: int, n: int, at_once: int) -> list[ArrangedDraws]:
        """Return the first n draws of a block, `at_once` at a time."""
        key = block, n, at_once
        if key in self._kept_arranged:
            return self._kept_arranged[key]
        draws, starts = self._draws(block), range(0, n, at_once)
        parts = [draws_between(draws, start, min(start + at_once, n)) for start in starts]
        arranged = [ArrangedDraws.of(part) for part in parts]
        if block in self._kept_draws:
            self._kept_arranged[key] = arranged
        return arranged

    @cached_property
    def _kept_draws(self) -> dict[int, PosteriorDraws]:
        return {}

    @cached_property
    def _kept_arranged(self) -> dict[tuple[int, int, int], list[ArrangedDraws]]:
        return {}

    def standardized_inputs(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        """Return inputs `(n, n_x)` and targets `(n, m)` in standardized units; no targets without balances.

        Args:
            rows: The rows.
        """
        X, dtype = self.X[rows], self.model.network.posterior.loc.dtype
        x = torch.as_tensor(self.standardizer.inputs(X), dtype=dtype, device=self.device)
        if self.standardizer.constraint is None:
            return x, None
        return x, torch.as_tensor(self.standardizer.target(X), device=self.device)

    def _noise_var(self, learned: Tensor | float, rows: slice) -> Tensor | float:
        """Return sensor variances in standardized units, broadcastable to `(draws, rows, n_y)`; 0 for true values.

        Args:
            learned: The model's own sensor variances.
            rows: The rows.
        """
        if self.sensor_var is None:
            return 0.0
        if isinstance(self.sensor_var, str):
            return learned
        var = self.sensor_var if self.sensor_var.ndim == 1 else self.sensor_var[rows]
        return torch.as_tensor(var / self.standardizer.y_std**2, device=self.device)

    @property
    def device(self) -> torch.device:
        """Device on which the model computes."""
        return self.model.network.posterior.loc.device


def _with_noise(block: BlockBuffer, sensor_var: Tensor | float) -> BlockBuffer:
    """Add sensor variances to the variances in a buffer."""
    if isinstance(sensor_var, Tensor):
        block["var"].add_(sensor_var)
    return block
