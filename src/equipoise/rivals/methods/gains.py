"""Exact balances by a constant gain: orthogonal projection, as in KKT-hPINN, and completion, as in DC3.

Draws `y₀` of the network's Gaussian are shifted along the columns of a constant matrix `G` until they obey::

    y = y₀ + G (t − B y₀),   B G = I

so that their mean is `μ + G (t − B μ)` and their covariance `M diag(v) Mᵀ`, `M = I − G B`. Conditioning (M1) has the
same form with the gain `K` (C2), which depends on the network's variances: uncertain outputs are corrected most.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian import ConditionedGaussian, Gaussian
from equipoise.network import Imposition

GainRule = Callable[[Float[Tensor, "m n_y"]], Float[Tensor, "n_y m"]]


def orthogonal_gain(B: Float[Tensor, "m n_y"]) -> Float[Tensor, "n_y m"]:
    """Return the gain of orthogonal projection onto the balances, `Bᵀ (B Bᵀ)⁻¹`, in the outputs' standardized units.

    Example:
        >>> orthogonal_gain(torch.ones(1, 2, dtype=torch.float64)).flatten()
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    return torch.linalg.pinv(B)


def completing_gain(B: Float[Tensor, "m n_y"]) -> Float[Tensor, "n_y m"]:
    """Return the gain that changes only `m` outputs, which the balances determine from the others: `G_c = B_c⁻¹`.

    Example:
        >>> completing_gain(torch.tensor([[1.0, 3.0]], dtype=torch.float64)).flatten()
        tensor([0.0000, 0.3333], dtype=torch.float64)
    """
    chosen = completed_outputs(B)
    G = torch.zeros_like(B.mT)
    G[chosen] = torch.linalg.inv(B[:, chosen])
    return G


def completed_outputs(B: Float[Tensor, "m n_y"]) -> list[int]:
    """Choose the `m` outputs to be completed: the first pivots of a rank-revealing QR decomposition of `B`."""
    pivots = np.asarray(scipy.linalg.qr(B.cpu().numpy(), mode="r", pivoting=True)[-1])
    return sorted(pivots[: len(B)].tolist())


@dataclass(frozen=True)
class GainGaussian(ConditionedGaussian):
    """`N(μ, diag(v))` shifted onto `B y = t` by a constant gain; `tol_var` must be 0.

    Args:
        rule: Computes the gain `G`, shape `(n_y, m)`, from `B`, shape `(m, n_y)`.
    """

    rule: GainRule = orthogonal_gain

    @classmethod
    def of(cls, conditioned: ConditionedGaussian, rule: GainRule) -> "GainGaussian":
        """Replace the gain of a conditioned Gaussian; its prior and its balances stay.

        Args:
            conditioned: The conditioned Gaussian.
            rule: Computes the gain from the coefficients B.
        """
        arguments = {field.name: getattr(conditioned, field.name) for field in fields(ConditionedGaussian)}
        return cls(**arguments, rule=rule)

    @cached_property
    def G(self) -> Float[Tensor, "n_y m"]:
        """The constant gain."""
        return self.rule(self.operator.B)

    @cached_property
    def M(self) -> Float[Tensor, "n_y n_y"]:
        """`I − G B`, the part of a draw of the network's Gaussian that the shift keeps."""
        return _complement(self.G, self.operator.B)

    def gain(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Multiply a vector of balance residuals by `G`."""
        return balance @ self.G.mT

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:
        """`diag(M diag(v) Mᵀ)`."""
        return self._to_outputs(self.prior.var @ self.M.square().mT)

    @cached_property
    def reduction(self) -> Float[Tensor, "... n_y"]:
        """Variance before the shift less that after it; negative where the constant gain adds variance."""
        return self._to_outputs(self.prior.var) - self.var

    def gain_rows(self) -> Float[Tensor, "... m n_y"]:
        """Return `Gᵀ`, the same for all rows."""
        return self.G.mT.expand(*self.prior.mean.shape[:-1], *self.G.mT.shape)

    def curvature_root(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "... n_y k"]:
        """Return a root of the Hessian of the joint density by autograd; arguments are those of `log_prob`."""
        return Gaussian.curvature_root(self, y, sensor_var)

    def mean_reduction_lost(self, weight: Float[Tensor, "n_draws n"] | None) -> Float[Tensor, "n m n_y"]:
        """Average the reductions that are lost without each of the balances; arguments are those of `Gaussian`."""
        return Gaussian.mean_reduction_lost(self, weight)

    def weighted_covariance(self, weight: Float[Tensor, "n_draws n"]) -> Float[Tensor, "n n_y n_y"]:
        """Sum covariances over draws, `M diag(Σ_d π_d v_d) Mᵀ`.

        Args:
            weight: Weights of the draws in each row.
        """
        var = torch.einsum("dn,dni->ni", weight, self.prior.var)
        return ((self.M * var.unsqueeze(-2)) @ self.M.mT).to(self.dtype)

    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """Compute `M diag(v) Mᵀ`."""
        return ((self.M * self.prior.var.unsqueeze(-2)) @ self.M.mT).to(self.dtype)

    def reduction_lost_without(self) -> Float[Tensor, "... m n_y"]:
        """Compute how much smaller the reduction of each output would be if one balance were left out."""
        B, kept = self.operator.B, range(len(self.operator.B))
        without = [B[[k for k in kept if k != left_out]] for left_out in kept]
        var = [self.prior.var @ _complement(self.rule(rest), rest).square().mT for rest in without if len(rest)]
        return torch.stack(var or [self.prior.var], -2).to(self.dtype) - self.var.unsqueeze(-2)

    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Compute the joint log density of measured outputs; NaN for a row in which one is missing.

        Without sensor noise it is a density on the subspace `B y = t` (L3), and −∞ off it.

        Args:
            y: Measured outputs.
            sensor_var: Variances of the sensor noise, of the shape of `y` or broadcast to it.
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
        residual = (self.target - self.operator.apply(y.nan_to_num(0.0))).abs()
        rounding = self.rounding
        if rounding is None:
            rounding = 1e-9 * (self.operator.magnitude(y.nan_to_num(0.0)) + self.target.abs())
        return torch.where((residual <= rounding).all(-1), density, -torch.inf)


class Projection(Imposition):
    """Orthogonal projection of every draw onto the balances, in standardized units."""

    name = "projection"

    def impose(self, conditioned: ConditionedGaussian) -> GainGaussian:
        """Replace the gain of conditioning by that of orthogonal projection."""
        return GainGaussian.of(conditioned, orthogonal_gain)


class Completion(Imposition):
    """Completion of every draw: as many outputs as there are balances follow from the others."""

    name = "completion"

    def impose(self, conditioned: ConditionedGaussian) -> GainGaussian:
        """Replace the gain of conditioning by that of completion."""
        return GainGaussian.of(conditioned, completing_gain)


def _complement(G: Tensor, B: Tensor) -> Tensor:
    return torch.eye(B.shape[-1], dtype=B.dtype, device=B.device) - G @ B


def _normal_log_prob(error: Float[Tensor, "... n"], cov: Float[Tensor, "... n n"]) -> Float[Tensor, "..."]:
    zero = torch.zeros(error.shape[-1], dtype=error.dtype, device=error.device)
    return torch.distributions.MultivariateNormal(zero, cov).log_prob(error)
