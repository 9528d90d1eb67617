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
from torch.nn.functional import pad

from equipoise.accumulation import DrawBlock
from equipoise.drawn import Drawn, draws_between
from equipoise.gaussian import ConditionedGaussian
from equipoise.ledger import LedgerAccumulator
from equipoise.model import ConstrainedBNN, PosteriorDraws
from equipoise.network import NetworkGaussian
from equipoise.scaling import Standardizer
from equipoise.terms import AnyGaussian, DisjointTerms, account_of, lost_of, moments_of
from equipoise.variational import DRAW_BLOCK

Array = NDArray[np.float64]
DRAWS_BYTES = 2**28  # posterior draws are kept in memory up to here, and made anew beyond
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
        x, target = self._inputs(rows)
        for start in range(0, self.n_draws, DRAW_BLOCK):
            draws = draws_between(self._draws(start // DRAW_BLOCK), 0, self.n_draws - start)
            gaussian, learned = self.model.measured_at(draws, x, target)
            second = None
            if again and isinstance(gaussian, ConditionedGaussian):
                second = self.model.condition(gaussian.prior, target, draws.tol_var_again, draws.offset)
            yield gaussian, self._sensor(learned, rows), second

    def _closed_form(self) -> DisjointTerms | None:
        """For one pass over all rows and draws: it works in memory of its own."""
        return DisjointTerms.of(self.model, sensors=isinstance(self.sensor_var, str))

    def _conditioned(self, rows: slice, closed: DisjointTerms | None) -> Iterator[DrawBlock]:
        """`MOMENTS` of block after block of draws, sensor noise included where values are measured ones."""
        if closed is None:
            blocks = ((moments_of(gaussian), w) for gaussian, w, _ in self._components(rows))
        else:
            blocks = ((closed.moments(said, drawn, t), w) for said, drawn, t, w in self._said(rows, closed))
        for block, w in blocks:
            if isinstance(w, Tensor):
                block["var"].add_(w)
            yield block

    def _account(self, rows: slice, closed: DisjointTerms | None) -> LedgerAccumulator:
        """The ledger of some rows, over all draws."""
        account = LedgerAccumulator(None if closed is None else closed.B != 0)
        if closed is None:
            for gaussian, w, again in self._components(rows, again=True):
                account.add(account_of(gaussian, again), w, lost_of(gaussian))
        else:
            for said, drawn, target, w in self._said(rows, closed):
                account.add(closed.account(said, drawn, target), w)
        return account

    def _said(
        self, rows: slice, closed: DisjointTerms
    ) -> Iterator[tuple[NetworkGaussian, Drawn, Tensor | None, Tensor | float]]:
        """What the network says in block after block of draws, targets with balances first, and sensor variances."""
        x, target = self._inputs(rows)
        x, target = pad(x, (0, 1), value=1.0), None if target is None else target.mT.unsqueeze(1)
        for start in range(0, self.n_draws, DRAW_BLOCK):
            for drawn in self._drawn(start // DRAW_BLOCK, min(DRAW_BLOCK, self.n_draws - start)):
                said = closed.network.at(drawn, x)
                yield said, drawn, target, self._sensor(self._learned(drawn.draws, said), rows)

    def _learned(self, draws: PosteriorDraws, said: NetworkGaussian) -> Tensor | float:
        """The model's own sensor variances, where they are asked for."""
        if draws.sensor_var is None or not isinstance(self.sensor_var, str):
            return 0.0
        return self.model.sensor_var(draws.sensor_var, said)

    def _draws(self, block: int) -> PosteriorDraws:
        """All draws of a block."""
        if block in self._kept_draws:
            return self._kept_draws[block]
        with torch.no_grad():
            draws = self.model.draw(self.seed, block)
        if (len(self._kept_draws) + 1) * draws.weights.nbytes <= DRAWS_BYTES:
            self._kept_draws[block] = draws
        return draws

    def _drawn(self, block: int, n: int) -> list[Drawn]:
        """The first n draws of a block, some at a time."""
        if (block, n) in self._kept_views:
            return self._kept_views[block, n]
        draws, starts = self._draws(block), range(0, n, DRAWS_AT_ONCE)
        parts = [draws_between(draws, start, min(start + DRAWS_AT_ONCE, n)) for start in starts]
        views = [Drawn.of(part, self.model.network) for part in parts]
        if block in self._kept_draws:
            self._kept_views[block, n] = views
        return views

    @cached_property
    def _kept_draws(self) -> dict[int, PosteriorDraws]:
        return {}

    @cached_property
    def _kept_views(self) -> dict[tuple[int, int], list[Drawn]]:
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
