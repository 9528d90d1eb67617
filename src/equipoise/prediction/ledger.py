"""The ledger: the exact decomposition of predictive variance, accumulated over blocks of draws.

Over the same draws of (θ, ρ), with `Δ = μ_C − μ` and one ddof (0, so that it is the mixture's own variance)::

    Var[y] = E[v] − E[diag(K S Kᵀ)] + Var[μ] + Var[Δ] + 2 Cov[μ, Δ]                 (D1)
             aleatoric  reduction    epistemic  shift   interaction

Measured values add `E[w]`. `Var[Δ]` is not the tolerance's own share: with r fixed it is not zero. That share is::

    E_θ[Var_r μ_C] = E[½ (μ_C(θ, ρ₁) − μ_C(θ, ρ₂))²]                                (D2)

The terms of single draws, `LEDGER_FIELDS`, are computed in `per_draw_moments.py`; here they are averaged.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.prediction.running_moments import BlockBuffer, RunningMoments

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Ledger:
    """The parts of the predictive variance of each row and output; arrays `(n, n_y)`, in squared user units (D1).

    Args:
        aleatoric: `E[v]`, the network's own noise before conditioning.
        reduction: `E[diag(K S Kᵀ)]`, the variance that the balances remove; to be subtracted.
        epistemic: `Var[μ]`, disagreement between weight draws before conditioning.
        shift: `Var[Δ]`, spread of the change of the mean by conditioning.
        interaction: `2 Cov[μ, Δ]`; negative where conditioning undoes disagreement.
        sensor: `E[w]` for measured values, 0 for true ones.
        tolerance_share: `E_θ[Var_r μ_C]` (D2), part of `shift`, not a term of its own.
        lost_without: Per balance, the reduction lost if it alone were left out (D4), shape `(m, n, n_y)`.
        outputs, balances: Names of outputs and balances.
        baseline: Variance of a separately trained network without balances; None without one.
    """

    aleatoric: Array
    reduction: Array
    epistemic: Array
    shift: Array
    interaction: Array
    sensor: Array
    tolerance_share: Array
    lost_without: Array
    outputs: tuple[str, ...]
    balances: tuple[str, ...]
    baseline: Array | None = None

    def __repr__(self) -> str:
        return f"Ledger, averages over {len(self.aleatoric)} rows:\n{self.to_frame().T.to_string()}"

    @property
    def total(self) -> Array:
        """Predictive variance: the sum of the terms (D1)."""
        return self.aleatoric - self.reduction + self.epistemic + self.shift + self.interaction + self.sensor

    @property
    def before(self) -> Array:
        """Variance of the same network before conditioning, `E[v] + Var[μ] (+ E[w])` (D3)."""
        return self.aleatoric + self.epistemic + self.sensor

    def to_frame(self) -> pd.DataFrame:
        """Return averages over rows as a table with one line per output."""
        terms = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "total", "before")
        columns = {name: getattr(self, name).mean(0) for name in (*terms, "tolerance_share")}
        columns |= {f"lost without {name}": self.lost_without[k].mean(0) for k, name in enumerate(self.balances)}
        if self.baseline is not None:
            columns["baseline"] = self.baseline.mean(0)
        return pd.DataFrame(columns, index=pd.Index(self.outputs, name="output"))


class LedgerAccumulator:
    """Accumulates the terms of D1, D2 and D4 at some rows over blocks of draws.

    Args:
        touched: Which balance has which output, if no two share one: the whole reduction of an output is then due to
            its balance. None if the reduction lost without each balance is added with the blocks.
    """

    def __init__(self, touched: Bool[Tensor, "m n_y"] | None = None):
        self._moments = RunningMoments()
        self._touched = touched
        self._sensor: Tensor | float = 0.0
        self._lost: Tensor | float = 0.0

    def add(self, block: BlockBuffer, sensor_var: Tensor | float, lost: Float[Tensor, "m n n_y"] | float = 0.0) -> None:
        """Add a block of draws.

        Args:
            block: `LEDGER_FIELDS` of the draws.
            sensor_var: `w` of each draw, or `(n, n_y)` or `(n_y,)` for all draws.
            lost: The reduction lost without each balance, summed over draws.
        """
        self._moments.add(block)
        if isinstance(sensor_var, Tensor):
            self._sensor = self._sensor + (sensor_var.sum(0) if sensor_var.ndim == 3 else len(block) * sensor_var)
        self._lost = self._lost + lost

    def terms(self) -> dict[str, Float[Tensor, "..."]]:
        """Return arrays `(n, n_y)` by the names of `Ledger`'s fields; `(m, n, n_y)` for `lost_without`."""
        m, touched = self._moments, self._touched
        result = {name: m.mean(name) for name in ("aleatoric", "reduction", "tolerance_share")}
        result |= {"epistemic": m.cov("mu", "mu"), "shift": m.cov("shift", "shift")}
        result |= {"interaction": 2.0 * m.cov("shift", "mu")}
        result |= {"sensor": torch.zeros_like(result["shift"]) + self._sensor / m.count}
        lost = torch.as_tensor(self._lost) / m.count if touched is None else touched.unsqueeze(1) * result["reduction"]
        return result | {"lost_without": lost}  # D4
