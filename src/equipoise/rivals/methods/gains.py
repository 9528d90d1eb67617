"""Hard balances by a constant gain: orthogonal projection, as in KKT-hPINN, and completion, as in DC3.

Whatever the network says, its draws `y₀` are moved along fixed directions `G` until they obey::

    y = y₀ + G (t − B y₀),   B G = I

so that mean and covariance follow as `μ + G (t − B μ)` and `M diag(v) Mᵀ`, `M = I − G B`. Conditioning (M1) is the
same with the gain `K` that the network's own variances choose, which are better informed than any constant.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian

GainRule = Callable[[Float[Tensor, "m n_y"]], Float[Tensor, "n_y m"]]


def orthogonal_gain(B: Float[Tensor, "m n_y"]) -> Float[Tensor, "n_y m"]:
    """`Bᵀ (B Bᵀ)⁻¹`: to the nearest point that obeys, in the unit metric of the outputs as they are scaled.

    Example:
        >>> orthogonal_gain(torch.ones(1, 2, dtype=torch.float64)).flatten()
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return torch.linalg.pinv(B)


def completing_gain(B: Float[Tensor, "m n_y"]) -> Float[Tensor, "n_y m"]:
    """Leave all outputs as they are but `m` of them, which the balances then give: `G_c = B_c⁻¹`, 0 elsewhere.

    Example:
        >>> completing_gain(torch.tensor([[1.0, 3.0]], dtype=torch.float64)).flatten()
        tensor([0.0000, 0.3333], dtype=torch.float64)
    """
    chosen = completed_outputs(B)
    G = torch.zeros_like(B.mT)
    G[chosen] = torch.linalg.inv(B[:, chosen])
    return G


def completed_outputs(B: Float[Tensor, "m n_y"]) -> list[int]:
    """Positions of the outputs that are completed: the first pivots of a rank-revealing QR, the best conditioned."""
    pivots = np.asarray(scipy.linalg.qr(B.cpu().numpy(), mode="r", pivoting=True)[-1])
    return sorted(pivots[: len(B)].tolist())


@dataclass(frozen=True)
class GainGaussian(ConditionedGaussian):
    """`N(μ, diag(v))` moved onto `B y = t` along a constant gain; `tol_var` must be 0.

    Args:
        rule: Gives `G` for given balances.
    """

    rule: GainRule = orthogonal_gain

    @classmethod
    def of(cls, conditioned: ConditionedGaussian, rule: GainRule) -> "GainGaussian":
        """The same Gaussian and balances, met by another gain."""
        given = {field.name: getattr(conditioned, field.name) for field in fields(ConditionedGaussian)}
        return cls(**given, rule=rule)

    @cached_property
    def G(self) -> Float[Tensor, "n_y m"]:
        return self.rule(self.operator.B)

    @cached_property
    def M(self) -> Float[Tensor, "n_y n_y"]:
        """`I − G B`: what is left of a draw of the network's Gaussian."""
        return _left(self.G, self.operator.B)

    def gain(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """`G` times a vector of balance residuals."""
        return balance @ self.G.mT

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:
        """`diag(M diag(v) Mᵀ)`."""
        return self._to_outputs(self.prior.var @ self.M.square().mT)

    @cached_property
    def reduction(self) -> Float[Tensor, "... n_y"]:
        """What the balances take away of the variance; negative where a constant gain adds to it."""
        return self._to_outputs(self.prior.var) - self.var

    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """`M diag(v) Mᵀ`."""
        return ((self.M * self.prior.var.unsqueeze(-2)) @ self.M.mT).to(self.dtype)

    def reduction_lost_without(self) -> Float[Tensor, "... m n_y"]:
        """The reduction each output would lose if one balance alone were left out."""
        B, kept = self.operator.B, range(len(self.operator.B))
        without = [B[[k for k in kept if k != left_out]] for left_out in kept]
        var = [self.prior.var @ _left(self.rule(rest), rest).square().mT for rest in without if len(rest)]
        return torch.stack(var or [self.prior.var], -2).to(self.dtype) - self.var.unsqueeze(-2)

    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Joint log density of measured outputs; NaN for a row in which one is missing.

        Without sensor noise it is a density on the subspace `B y = t` (L3), and −∞ off it.
        """
        w = torch.as_tensor(sensor_var, dtype=self.prior.mean.dtype, device=y.device).expand_as(y)
        error = torch.where(y.isnan(), 0.0, y) - self.mean
        if bool((w > 0).any()):
            density = _normal_log_prob(error, self.covariance() + torch.diag_embed(w))
        else:
            density = self._on_subspace(error, y)
        return torch.where(y.isnan().any(-1), torch.nan, density)

    def _on_subspace(self, error: Tensor, y: Tensor) -> Tensor:
        N = torch.as_tensor(scipy.linalg.null_space(self.operator.B.cpu().numpy()), device=y.device)
        density = _normal_log_prob(error @ N, N.mT @ self.covariance() @ N)
        missed = (self.target - self.operator.apply(y.nan_to_num(0.0))).abs()
        rounding = self.rounding
        if rounding is None:
            rounding = 1e-9 * (self.operator.magnitude(y.nan_to_num(0.0)) + self.target.abs())
        return torch.where((missed <= rounding).all(-1), density, -torch.inf)


def _left(G: Tensor, B: Tensor) -> Tensor:
    return torch.eye(B.shape[-1], dtype=B.dtype, device=B.device) - G @ B


def _normal_log_prob(error: Float[Tensor, "... n"], cov: Float[Tensor, "... n n"]) -> Float[Tensor, "..."]:
    zero = torch.zeros(error.shape[-1], dtype=error.dtype, device=error.device)
    return torch.distributions.MultivariateNormal(zero, cov).log_prob(error)
