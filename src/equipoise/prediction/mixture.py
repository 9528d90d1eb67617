"""The mixture over posterior draws at given rows, block of draws by block of draws.

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
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.network import DRAW_BLOCK, ConstrainedBNN, NetworkGaussian, PosteriorDraws
from equipoise.prediction.ledger import LedgerAccumulator
from equipoise.prediction.per_draw_moments import AnyGaussian, DisjointTerms, account_of, lost_of, moments_of
from equipoise.prediction.running_moments import DrawBlock, RunningMoments
from equipoise.prediction.weight_draws import Drawn, DrawnNetwork, draws_between

Array = NDArray[np.float64]
DRAWS_BYTES = 2**28  # posterior draws are kept in memory up to here, and made anew beyond
S_BYTES = 2**23  # what `S` of all rows and draws that are conditioned at once stays about as small as
DRAWS_AT_ONCE = 8  # of a block, in closed form: with the rows of a chunk, what they need stays in cache


@dataclass(frozen=True, repr=False)
class Mixture:
    """Components of the mixture, in standardized units; `Predictive` is what can be asked of it.

    Args:
        model: Fitted, in standardized units.
        standardizer: Translates to and from the user's units.
        X: Inputs (then known columns) in the user's units, shape `(n, n_columns)`.
        outputs: Names of the outputs.
        n_draws: Posterior draws that are averaged over.
        seed: Which draws.
        sensor_var: None for true values; for measured ones "model", or given variances in squared user units.
    """

    model: ConstrainedBNN
    standardizer: Standardizer
    X: Array
    outputs: tuple[str, ...]
    n_draws: int = 256
    seed: int = 0
    sensor_var: str | Array | None = None

    def _components(
        self, rows: slice, again: bool = False
    ) -> Iterator[tuple[AnyGaussian, Tensor | float, AnyGaussian | None]]:
        """Conditioned Gaussians `(draws, rows, n_y)`, sensor variances, and the same with a second tolerance draw."""
        (x, target), network = self._inputs(rows), DrawnNetwork(self.model.network, self._asks_for_sensors)
        for drawn, said in self._said(x, network, self._draws_at_once(len(x))):
            draws, own = drawn.draws, DiagonalGaussian(said.mean.clone(), said.var.clone())
            gaussian = self.model.condition(own, target, draws.tol_var, draws.offset)
            second = None
            if again and isinstance(gaussian, ConditionedGaussian):
                second = self.model.condition(gaussian.prior, target, draws.tol_var_again, draws.offset)
            yield gaussian, self._sensor(self._learned(draws, said), rows), second

    def _draws_at_once(self, n_rows: int) -> int:
        """Of a block, when they are conditioned: one of many balances that hang together is large."""
        layer = self.model.conditioning
        numbers = 0 if layer is None else sum(where.rows.numel() * where.rows.shape[-1] for where in layer.layout)
        return max(1, min(DRAW_BLOCK, S_BYTES // max(8 * n_rows * numbers, 1)))

    def _pieces(self, n: int, n_rows: int) -> Iterator[tuple[int, slice, PosteriorDraws]]:
        """The first n draws, some of a block at a time: where their block starts, their places in it, and they."""
        at_once = self._draws_at_once(n_rows)
        for start in range(0, n, DRAW_BLOCK):
            block, size = self._draws(start // DRAW_BLOCK), min(DRAW_BLOCK, n - start)
            for first in range(0, size, at_once):
                places = slice(first, min(first + at_once, size))
                yield start, places, draws_between(block, places.start, places.stop)

    def _closed_form(self) -> DisjointTerms | None:
        """For one pass over all rows and draws: it works in memory of its own."""
        return DisjointTerms.of(self.model, self._asks_for_sensors)

    def _conditioned(self, rows: slice, closed: DisjointTerms | None) -> Iterator[DrawBlock]:
        """Yield `MOMENTS` of one block of draws after the other, with sensor noise where values are measured ones."""
        if closed is None:
            for gaussian, w, _ in self._components(rows):
                yield _with_noise(moments_of(gaussian), w)
        else:
            for said, drawn, target, w in self._in_closed_form(rows, closed.network):
                yield _with_noise(closed.moments(said, drawn, target), w)

    def _account(
        self, rows: slice, closed: DisjointTerms | None, moments: RunningMoments | None = None
    ) -> LedgerAccumulator:
        """Accumulate the ledger of some rows over all draws.

        Args:
            rows: Which rows.
            closed: The closed form, or None for the general one.
            moments: To be filled from the same pass, with the very blocks that `_conditioned` yields.
        """
        account = LedgerAccumulator(None if closed is None else closed.B != 0)
        if closed is None:
            for gaussian, w, again in self._components(rows, again=True):
                if moments is not None:
                    moments.add(_with_noise(moments_of(gaussian), w))
                account.add(account_of(gaussian, again), w, lost_of(gaussian))
        else:
            for said, drawn, target, w in self._in_closed_form(rows, closed.network):
                if moments is not None:
                    moments.add(_with_noise(closed.moments(said, drawn, target), w))
                account.add(closed.account(said, drawn, target), w)
        return account

    def _in_closed_form(
        self, rows: slice, network: DrawnNetwork
    ) -> Iterator[tuple[NetworkGaussian, Drawn, Tensor | None, Tensor | float]]:
        """Yield what the closed form needs of one block of draws after the other, and sensor variances."""
        x, target = self._inputs(rows)
        balances_first = None if target is None else target.mT.unsqueeze(1)
        for drawn, said in self._said(x, network, DRAWS_AT_ONCE):
            yield said, drawn, balances_first, self._sensor(self._learned(drawn.draws, said), rows)

    def _said(self, x: Tensor, network: DrawnNetwork, at_once: int) -> Iterator[tuple[Drawn, NetworkGaussian]]:
        """All draws, some at a time, and what the network says."""
        for start in range(0, self.n_draws, DRAW_BLOCK):
            for drawn in self._drawn(start // DRAW_BLOCK, min(DRAW_BLOCK, self.n_draws - start), at_once):
                yield drawn, network.at(drawn, x)

    def _learned(self, draws: PosteriorDraws, said: NetworkGaussian) -> Tensor | float:
        """The model's own sensor variances, where they are asked for."""
        if draws.sensor_var is None or not self._asks_for_sensors:
            return 0.0
        if said.sensor_factor is None:
            return draws.sensor_var  # of all rows the same
        return self.model.sensor_var(draws.sensor_var, said)

    @property
    def _asks_for_sensors(self) -> bool:
        return isinstance(self.sensor_var, str)

    def _draws(self, block: int) -> PosteriorDraws:
        """All draws of a block."""
        if block in self._kept_draws:
            return self._kept_draws[block]
        with torch.no_grad():
            draws = self.model.draw(self.seed, block)
        if (len(self._kept_draws) + 1) * draws.weights.nbytes <= DRAWS_BYTES:
            self._kept_draws[block] = draws
        return draws

    def _drawn(self, block: int, n: int, at_once: int) -> list[Drawn]:
        """The first n draws of a block, some at a time."""
        key = block, n, at_once
        if key in self._kept_views:
            return self._kept_views[key]
        draws, starts = self._draws(block), range(0, n, at_once)
        parts = [draws_between(draws, start, min(start + at_once, n)) for start in starts]
        views = [Drawn.of(part, self.model.network) for part in parts]
        if block in self._kept_draws:
            self._kept_views[key] = views
        return views

    @cached_property
    def _kept_draws(self) -> dict[int, PosteriorDraws]:
        return {}

    @cached_property
    def _kept_views(self) -> dict[tuple[int, int, int], list[Drawn]]:
        return {}

    def _inputs(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        """Inputs `(n, n_x)` and targets `(n, m)` in standardized units."""
        X, dtype = self.X[rows], self.model.network.posterior.loc.dtype
        x = torch.as_tensor(self.standardizer.inputs(X), dtype=dtype, device=self._device)
        if self.standardizer.constraint is None:
            return x, None
        return x, torch.as_tensor(self.standardizer.target(X), device=self._device)

    def _sensor(self, of_model: Tensor | float, rows: slice) -> Tensor | float:
        """Sensor variances in standardized units, broadcastable to `(draws, rows, n_y)`; 0 for true values."""
        if self.sensor_var is None:
            return 0.0
        if isinstance(self.sensor_var, str):
            return of_model
        var = self.sensor_var if self.sensor_var.ndim == 1 else self.sensor_var[rows]
        return torch.as_tensor(var / self.standardizer.y_std**2, device=self._device)

    @property
    def _device(self) -> torch.device:
        return self.model.network.posterior.loc.device


def _with_noise(block: DrawBlock, sensor_var: Tensor | float) -> DrawBlock:
    """Add sensor variances to the variances of a block."""
    if isinstance(sensor_var, Tensor):
        block["var"].add_(sensor_var)
    return block
