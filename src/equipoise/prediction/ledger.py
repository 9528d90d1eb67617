"""The ledger: the exact decomposition of predictive variance, accumulated over blocks of draws.

Over the same draws of (θ, ρ), with `Δ = μ_C − μ` and one ddof (0, so that it is the mixture's own variance)::

    Var[y] = E[v] − E[diag(K S Kᵀ)] + Var[μ] + Var[Δ] + 2 Cov[μ, Δ]                 (D1)
             aleatoric  reduction    epistemic  shift   interaction

Measured values add `E[w]`. `Var[Δ]` is not the tolerance's own share: with r fixed it is not zero. That share is::

    E_θ[Var_r μ_C] = E[½ (μ_C(θ, ρ₁) − μ_C(θ, ρ₂))²]                                (D2)

The terms of single draws are computed in `per_draw_moments.py`; here they are averaged.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.prediction.components import Components
from equipoise.prediction.per_draw_moments import LEDGER_PAIRS, ledger_fields_of
from equipoise.prediction.running_moments import RunningMean, RunningMoments, RunningWeights, weighted_mean

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
    """Accumulates the terms of D1, D2 and D4 at some rows over blocks of draws."""

    def __init__(self):
        self._moments = RunningMoments(LEDGER_PAIRS)
        self._weights, self._sensor, self._lost = RunningWeights(), RunningMean(), RunningMean()

    def add(self, part: Components) -> None:
        """Add the components of a block of draws, conditioned with two draws of the tolerances."""
        gaussian, w = part.gaussian, part.sensor_var
        self._moments.add(ledger_fields_of(gaussian, part.second), part.log_weight)
        weight, share = self._weights.add_block(part.log_weight, len(part))
        if isinstance(w, Tensor):
            self._sensor.add(weighted_mean(w.expand_as(gaussian.mean), weight), share)
        self._lost.add(gaussian.mean_reduction_lost(weight), share)  # D4

    def terms(self) -> dict[str, Float[Tensor, "..."]]:
        """Return arrays `(n, n_y)` by the names of `Ledger`'s fields; `(m, n, n_y)` for `lost_without`."""
        m = self._moments
        result = {name: m.mean(name) for name in ("aleatoric", "reduction", "tolerance_share")}
        result |= {"epistemic": m.cov("mu", "mu"), "shift": m.cov("shift", "shift")}
        result |= {"interaction": 2.0 * m.cov("shift", "mu")}
        result |= {"sensor": self._sensor.value_or(torch.zeros_like(result["shift"]))}
        return result | {"lost_without": self._lost.value.movedim(-2, 0)}  # D4
