"""The mixture over posterior draws at the rows of a table, computed one block of draws after the other.

::

    p(y | x) = Σ_d π_d N(y; μ_C(θ_d, ρ_d), Σ_C(θ_d, ρ_d)),    π_d = 1/n unless draws have weights       (P1)

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
from equipoise.network import DRAW_BLOCK, ConstrainedBNN, NetworkGaussian, PosteriorDraws
from equipoise.prediction import sampling
from equipoise.prediction.components import Components
from equipoise.prediction.weight_draws import Heads, NetworkEvaluator, draws_between

Array = NDArray[np.float64]
DRAWS_BYTES = 2**28  # of posterior draws kept in memory; further ones are drawn again whenever they are needed
S_BYTES = 2**23  # of the matrices `S` of all rows and draws that are conditioned at once
Places = slice | tuple[Tensor, Tensor]
"""Positions of draws, or pairs of positions of draws and rows, in an array with draws on axis 0, then rows."""


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

    def components(self, rows: slice, again: bool = False, draws: range | None = None) -> Iterator[Components]:
        """Iterate over the components of the mixture (P1) at some rows, one block of posterior draws after the other.

        Scores, reports and reconciliation are built on this; so can be whatever else needs the whole distribution.
        Memory stays bounded if `rows` are one of `chunks()` at a time.

        Args:
            rows: The rows.
            again: Whether to condition the network's Gaussians of each block a second time, with a second draw of the
                tolerances for the same weights, as the ledger needs (D2).
            draws: Consecutive numbers of posterior draws, beginning with a multiple of 32; those below `n_draws` by
                default.
        """
        x, target, B = self.standardized_inputs(rows)
        network = NetworkEvaluator(self.model.network, self._model_sensors)
        work = torch.float32 if self.device.type == "mps" else torch.float64  # Apple's GPU has no float64
        for part in self._blocks(range(self.n_draws) if draws is None else draws, self._draws_at_once(len(x))):
            heads = network.heads(part, x)
            prior = NetworkGaussian(*(head.to(work, copy=True) for head in heads))
            gaussian, second = self.model.condition(prior, target, part.tol_var, part.offset, B), None
            if again and part.tol_var_again is not None:
                second = gaussian.with_tolerances(part.tol_var_again)
            w = self._noise_var(self._learned_noise(part, heads), rows)
            log_weight = None if part.log_weight is None else part.log_weight.expand(-1, len(x))
            yield Components(rows, gaussian, w, second, log_weight)

    def equal_draws(self, rows: slice, draws: range) -> Iterator[tuple[Places, Components]]:
        """Iterate over draws of components, which all count the same, and the places of these draws.

        Where all weights are equal, draw number d is the component of posterior draw number d. Otherwise it is one of
        the first `n_draws` components of each row, selected with the probability of its weight.

        Args:
            rows: The rows.
            draws: Consecutive numbers of draws, beginning with a multiple of 32, not limited by `n_draws`.
        Returns:
            Positions among these draws, or pairs of positions of draws and rows, which index an array
            `(len(draws), n, ...)`; and the components there.
        """
        first = 0
        for part in self.components(rows, draws=draws):
            if part.log_weight is not None:
                yield from self._selected_by_weight(rows, draws)
                return
            yield slice(first, first + len(part)), part
            first += len(part)

    def _selected_by_weight(self, rows: slice, draws: range) -> Iterator[tuple[Places, Components]]:
        log_weight = torch.cat([part.log_weights for part in self.components(rows)])
        uniform = sampling.shared_uniform(self.seed, draws).unsqueeze(-1).expand(-1, log_weight.shape[1])
        selected, first = sampling.selected_draws(log_weight, uniform.to(log_weight)), 0
        for part in self.components(rows):
            here = (selected >= first) & (selected < first + len(part))
            draw, row = torch.nonzero(here, as_tuple=True)
            yield (draw, row), part.take(selected[draw, row] - first, row)
            first += len(part)

    def _draws_at_once(self, n_rows: int) -> int:
        """Return the number of draws of a block that are conditioned at once: few if many balances are coupled."""
        layer = self.model.conditioning
        numbers = 0 if layer is None else sum(where.rows.numel() * where.rows.shape[-1] for where in layer.layout)
        return max(1, min(DRAW_BLOCK, S_BYTES // max(8 * n_rows * numbers, 1)))

    def _blocks(self, draws: range, at_once: int) -> Iterator[PosteriorDraws]:
        """Yield posterior draws, at most `at_once` at a time."""
        for start in range(draws.start, draws.stop, DRAW_BLOCK):
            block, size = self._draws(start // DRAW_BLOCK), min(DRAW_BLOCK, draws.stop - start)
            for first in range(0, size, at_once):
                yield draws_between(block, first, min(first + at_once, size))

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

    @cached_property
    def _kept_draws(self) -> dict[int, PosteriorDraws]:
        return {}

    def standardized_inputs(self, rows: slice) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the arguments of `ConstrainedBNN.at` at some rows, in standardized units.

        Args:
            rows: The rows.
        Returns: Inputs `(n, n_x)`; targets `(n, m)`, None without balances; and coefficients `(n, m, n_y)`, None unless
            they differ from row to row.
        """
        X, dtype = self.X[rows], self.model.network.like.dtype
        x = torch.as_tensor(self.standardizer.inputs(X), dtype=dtype, device=self.device)
        if self.standardizer.constraint is None:
            return x, None, None
        B, target = (torch.as_tensor(part, device=self.device) for part in self.standardizer.linearise(X))
        return x, target, None if B.ndim == 2 else B

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
        return self.model.network.like.device
