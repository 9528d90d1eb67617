"""The exact account of predictive variance, streamed over draws.

Over the same draws of (θ, ρ), with `Δ = μ_C − μ` and one ddof (0, so that it is the mixture's own variance)::

    Var[y] = E[v] − E[diag(K S Kᵀ)] + Var[μ] + Var[Δ] + 2 Cov[μ, Δ]                 (D1)
             aleatoric  reduction    epistemic  shift   interaction

Measured values add `E[w]`. `Var[Δ]` is not the tolerance's own share: with r fixed it is not zero. That share is::

    E_θ[Var_r μ_C] = E[½ (μ_C(θ, ρ₁) − μ_C(θ, ρ₂))²]                                (D2)
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Ledger:
    """Where the predictive variance of each row and output comes from; arrays `(n, n_y)`, in squared units (D1).

    Args:
        aleatoric: `E[v]`, the network's own noise before conditioning.
        reduction: `E[diag(K S Kᵀ)]`, what the balances take away; to be subtracted.
        epistemic: `Var[μ]`, disagreement between weight draws before conditioning.
        shift: `Var[Δ]`, spread of what conditioning does to the mean.
        interaction: `2 Cov[μ, Δ]`; negative where conditioning undoes disagreement.
        sensor: `E[w]` for measured values, 0 for true ones.
        tolerance_share: `E_θ[Var_r μ_C]` (D2), part of `shift`, not a term of its own.
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
        """Averages over rows, one line per output."""
        terms = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "total", "before")
        columns = {name: getattr(self, name).mean(0) for name in (*terms, "tolerance_share")}
        columns |= {f"lost without {name}": self.lost_without[k].mean(0) for k, name in enumerate(self.balances)}
        if self.baseline is not None:
            columns["baseline"] = self.baseline.mean(0)
        return pd.DataFrame(columns, index=pd.Index(self.outputs, name="output"))


class RunningMoments:
    """Means and chosen covariances (ddof 0) over draws that come in blocks on axis 0.

    Blocks are merged by Chan's update, so that nothing is lost to cancellation.

    Args:
        *pairs: Pairs of names whose covariances are wanted.
    """

    def __init__(self, *pairs: tuple[str, str]):
        self.pairs = pairs
        self.count = 0
        self._mean: dict[str, Tensor] = {}
        self._second: dict[tuple[str, str], Tensor] = {}

    def add(self, **values: Float[Tensor, "n_draws ..."]) -> None:
        n = len(next(iter(values.values())))
        mean = {name: value.mean(0) for name, value in values.items()}
        centred = {name: values[name] - mean[name] for name in {name for pair in self.pairs for name in pair}}
        gap = {name: mean[name] - self._mean.get(name, mean[name]) for name in mean}
        weight = self.count * n / (self.count + n)
        for a, b in self.pairs:
            block = torch.linalg.vecdot(centred[a], centred[b], dim=0) + weight * gap[a] * gap[b]
            self._second[a, b] = self._second.get((a, b), 0.0) + block  # type: ignore[operator]
        self.count += n
        self._mean = {name: mean[name] - gap[name] * (1 - n / self.count) for name in mean}

    def mean(self, name: str, missing: Tensor | None = None) -> Tensor:
        """The mean of what was added by this name; `missing` if nothing was."""
        return self._mean[name] if missing is None else self._mean.get(name, missing)

    def cov(self, a: str, b: str) -> Tensor:
        return self._second[a, b] / self.count


class LedgerAccumulator:
    """The terms of D1 and D2, from blocks of draws."""

    def __init__(self):
        self.moments = RunningMoments(("mu", "mu"), ("shift", "shift"), ("mu", "shift"))
        self._touched: Tensor | None = None  # which balance has which output, where no two share one

    def add(
        self,
        gaussian: DiagonalGaussian | ConditionedGaussian,
        again: DiagonalGaussian | ConditionedGaussian | None,
        sensor_var: Tensor | float,
    ) -> None:
        """A block of draws on axis 0; `again` is the same block with a second draw of the tolerances."""
        prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
        terms = {"mu": prior.mean, "shift": gaussian.mean - prior.mean, "aleatoric": prior.var}
        if isinstance(sensor_var, Tensor):
            terms["sensor"] = sensor_var.expand_as(prior.mean)
        if again is not None:
            terms["tolerance_share"] = (gaussian.mean - again.mean).square_().mul_(0.5)  # D2
        if isinstance(gaussian, ConditionedGaussian):
            terms["reduction"] = gaussian.reduction
            if gaussian.operator.coupled or gaussian.operator.B.ndim > 2:
                terms["lost_without"] = gaussian.reduction_lost_without()
            else:
                self._touched = gaussian.operator.B != 0
        self.moments.add(**terms)

    def terms(self) -> dict[str, Float[Tensor, "..."]]:
        """Arrays `(n, n_y)`, and `(m, n, n_y)` for `lost_without`."""
        m = self.moments
        zero = torch.zeros_like(m.mean("mu"))
        result = {name: m.mean(name, zero) for name in ("aleatoric", "reduction", "sensor", "tolerance_share")}
        result |= {"epistemic": m.cov("mu", "mu"), "shift": m.cov("shift", "shift")}
        result |= {"interaction": 2.0 * m.cov("mu", "shift"), "lost_without": self._lost_without(result["reduction"])}
        return result

    def _lost_without(self, reduction: Tensor) -> Float[Tensor, "m n n_y"]:
        """The reduction that each balance alone brings (D4): where no two share an output, all of it."""
        if self._touched is None:
            return self.moments.mean("lost_without", reduction.unsqueeze(-2)[..., :0, :]).movedim(-2, 0)
        n_seen = reduction.shape[-1]
        return torch.where(self._touched[:, None, :n_seen], reduction, 0.0)
