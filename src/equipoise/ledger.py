"""The exact account of predictive variance, streamed over draws.

Over the same draws of (θ, ρ), with `Δ = μ_C − μ` and one ddof (0, so that it is the mixture's own variance)::

    Var[y] = E[v] − E[diag(K S Kᵀ)] + Var[μ] + Var[Δ] + 2 Cov[μ, Δ]                 (D1)
             aleatoric  reduction    epistemic  shift   interaction

Measured values add `E[w]`. `Var[Δ]` is not the tolerance's own share: with r fixed it is not zero. That share is::

    E_θ[Var_r μ_C] = E[½ (μ_C(θ, ρ₁) − μ_C(θ, ρ₂))²]                                (D2)
"""

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ledger:
    """Where the predictive variance of each row and output comes from; arrays `(n, n_y)`, in squared units (D1).

    Args:
        aleatoric: `E[v]`, the network's own noise before conditioning.
        reduction: `E[diag(K S Kᵀ)]`, what the balances take away; to be subtracted.
        epistemic: `Var[μ]`, disagreement between weight draws before conditioning.
        shift: `Var[Δ]`, spread of what conditioning does to the mean.
        interaction: `2 Cov[μ, Δ]`; negative where conditioning undoes disagreement.
        sensor: `E[w]` for measured values, 0 for true ones.
        tolerance_share: `E_θ[Var_r μ_C]` (D2), part of `shift + interaction`, not a term of its own.
        lost_without: Per balance, the reduction lost if it alone were left out (D4), shape `(m, n, n_y)`.
        outputs, balances: Their names.
        baseline: Variance of a separately trained network without balances, where one was given.
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

    @property
    def total(self) -> Array:
        """Predictive variance: the sum of the terms (D1)."""
        return self.aleatoric - self.reduction + self.epistemic + self.shift + self.interaction + self.sensor

    @property
    def before(self) -> Array:
        """Variance of the same network before conditioning, `E[v] + Var[μ] (+ E[w])` (D3)."""
        return self.aleatoric + self.epistemic + self.sensor

    def to_frame(self) -> pd.DataFrame:
        """Averages over rows, one line per output."""
        terms = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "total", "before")
        columns = {name: getattr(self, name).mean(0) for name in (*terms, "tolerance_share")}
        columns |= {
            f"lost without {name}": self.lost_without[k].mean(0) for k, name in enumerate(self.balances)
        }
        if self.baseline is not None:
            columns["baseline"] = self.baseline.mean(0)
        return pd.DataFrame(columns, index=pd.Index(self.outputs, name="output"))


class LedgerAccumulator:
    """Adds blocks of draws one after another; Chan's update keeps second moments exact to rounding."""

    def __init__(self):
        self.count = 0
        self.sums: dict[str, Tensor] = {}
        self.mean: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}

    def add(
        self,
        gaussian: DiagonalGaussian | ConditionedGaussian,
        again: ConditionedGaussian | None = None,
        sensor_var: Tensor | None = None,
    ) -> None:
        """A block of draws on axis 0; `again` is the same block with a second draw of the tolerances."""
        conditioned = isinstance(gaussian, ConditionedGaussian)
        prior = gaussian.prior if conditioned else gaussian
        shift = gaussian.mean - prior.mean
        sums = {"aleatoric": prior.var, "mean_C": gaussian.mean, "var_C": gaussian.var}
        if conditioned:
            sums |= {"reduction": gaussian.reduction, "lost_without": gaussian.reduction_lost_without().movedim(-2, 0)}
        if again is not None:
            sums["tolerance_share"] = 0.5 * (gaussian.mean - again.mean).square()
        if sensor_var is not None:
            sums["sensor"] = sensor_var.expand_as(prior.var)
        n = prior.mean.shape[0]
        for name, values in sums.items():
            axis = 1 if name == "lost_without" else 0
            self.sums[name] = self.sums.get(name, 0.0) + values.sum(axis)  # type: ignore[operator]
        self._add_moments(prior.mean, shift, n)

    def _add_moments(self, mu: Tensor, shift: Tensor, n: int) -> None:
        block = {"mu": mu.mean(0), "shift": shift.mean(0)}
        d_mu, d_shift = mu - block["mu"], shift - block["shift"]
        second = {"mu": d_mu.square().sum(0), "shift": d_shift.square().sum(0), "cross": (d_mu * d_shift).sum(0)}
        if self.count == 0:
            self.mean, self.second, self.count = block, second, n
            return
        gap = {name: block[name] - self.mean[name] for name in block}
        weight = self.count * n / (self.count + n)
        pairs = {"mu": ("mu", "mu"), "shift": ("shift", "shift"), "cross": ("mu", "shift")}
        for name, (one, other) in pairs.items():
            self.second[name] = self.second[name] + second[name] + weight * gap[one] * gap[other]
        self.count += n
        self.mean = {name: self.mean[name] + gap[name] * n / self.count for name in block}

    def average(self, name: str) -> Tensor | None:
        return None if name not in self.sums else self.sums[name] / self.count

    def terms(self) -> dict[str, Float[Tensor, "... n n_y"]]:
        """The terms of D1 and D2 in standardized units, besides mean and variance of the mixture."""
        zero = torch.zeros_like(self.sums["aleatoric"])
        result = {name: zero if (value := self.average(name)) is None else value for name in _AVERAGED}
        result["epistemic"] = self.second["mu"] / self.count
        result["shift"] = self.second["shift"] / self.count
        result["interaction"] = 2.0 * self.second["cross"] / self.count
        lost = self.average("lost_without")
        result["lost_without"] = zero.new_zeros(0, *zero.shape) if lost is None else lost
        return result


_AVERAGED = ("mean_C", "var_C", "aleatoric", "reduction", "sensor", "tolerance_share")
LEDGER_TERMS = tuple(f.name for f in fields(Ledger) if f.name not in ("outputs", "balances", "baseline"))
