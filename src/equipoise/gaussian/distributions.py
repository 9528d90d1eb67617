"""The values passed around: Gaussians before and after conditioning on balances.

A `DiagonalGaussian` is what a network says for one draw of its weights. Conditioning it on `B y + ε = t`
gives a `ConditionedGaussian`. Neither ever forms an `n_y × n_y` matrix unless `.covariance()` is called.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.gaussian.operator import LOG_2PI, BalanceOperator, Factor, safe_sqrt, somewhere
from equipoise.gaussian.shapes import batch_shape, common_shape
from equipoise.gaussian.subspace import singular_log_prob


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent normals `y ~ N(μ, diag(v))`.

    Args:
        mean: `μ`, shape `(..., n_y)`.
        var: Variances `v` (not standard deviations), shape `(..., n_y)`.

    Example:
        >>> g = DiagonalGaussian(torch.zeros(2), torch.ones(2))
        >>> round(g.log_prob(torch.zeros(2)).item(), 4)        # −log 2π
        -1.8379
    """

    mean: Float[Tensor, "... n_y"]
    var: Float[Tensor, "... n_y"]

    def to(self, dtype: torch.dtype) -> "DiagonalGaussian":
        """The same in another dtype."""
        same = self.mean.dtype == self.var.dtype == dtype
        return self if same else DiagonalGaussian(self.mean.to(dtype), self.var.to(dtype))

    def sample(self, n_draws: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws ... n_y"]:
        """Reparameterised draws on axis 0."""
        shape = (n_draws, *common_shape(self.mean.shape, self.var.shape))
        return self.mean + self.var.sqrt() * _standard_normal(shape, self.mean, generator)

    def log_prob(self, y: Float[Tensor, "... n_y"]) -> Float[Tensor, "..."]:
        """Joint log density, summed over outputs."""
        return normal_log_prob(y, self.mean, self.var).sum(-1)


@dataclass(frozen=True)
class ConditionedGaussian:
    """`N(μ, diag(v))` conditioned on `B y + ε = t`, `ε ~ N(0, diag(r))`; made by `condition()`.

    ::

        λ   = S⁻¹ (t − B μ)
        μ_C = μ + diag(v) Bᵀ λ                         (C3)
        v_C = v − v² ⊙ diag(Bᵀ S⁻¹ B)                  (C4)

    Args:
        prior: The Gaussian before conditioning, over the outputs and any hidden variables after them.
        operator: `B`.
        target: `t`, shape `(..., m)`.
        tol_var: `r ≥ 0`, shape `(..., m)`.
        n_hidden: How many trailing variables (uncertain inputs) are integrated out of every result.
        dtype: The dtype results come back in; the algebra itself is done in that of `prior`.
        rounding: Largest `|t − B y|` that still counts as obeying an exact balance, shape `(..., m)`;
            `1e-9 (Σ|B||y| + |t|)` by default.
    """

    prior: DiagonalGaussian
    operator: BalanceOperator
    target: Float[Tensor, "... m"]
    tol_var: Float[Tensor, "... m"]
    n_hidden: int = 0
    dtype: torch.dtype = torch.float64
    rounding: Float[Tensor, "... m"] | None = None

    @cached_property
    def factor(self) -> Factor:
        """`S`, factorised (C1)."""
        return self.operator.factor(self.prior.var, self.tol_var)

    @cached_property
    def innovation(self) -> Float[Tensor, "... m"]:
        """`t − B μ`: by how much the network's mean misses each balance."""
        return self.target - self.operator.apply(self.prior.mean)

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:
        """`μ_C` (C3)."""
        return self._seen(self._obeying(self.prior.mean + self.gain(self.innovation), self.target))

    @cached_property
    def reduction(self) -> Float[Tensor, "... n_y"]:
        """`diag(K S Kᵀ) = v² ⊙ diag(Bᵀ S⁻¹ B)`: the variance that the balances take away (C4)."""
        return self._seen(self.prior.var * self._share)

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:
        """`v_C = diag(Σ_C)` (C4), accurate to a few roundings of `v`."""
        return self._seen(self.prior.var * (1.0 - self._share))

    @cached_property
    def _share(self) -> Tensor:
        """The share of its variance that each output loses; rounding must not lift it above 1, nor cut its gradient."""
        share = self.prior.var * self.factor.adjoint_diag
        return share - (share.detach() - 1.0).clamp_min(0.0)

    def gain(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """`K` times a vector of balance residuals, `K = diag(v) Bᵀ S⁻¹` (C2)."""
        return self.prior.var * self.operator.adjoint(self.factor.solve(balance))

    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """`Σ_C = diag(v) − K S Kᵀ` (C4), the only place where an `n_y × n_y` matrix is formed."""
        half = self.factor.half() * self.prior.var.unsqueeze(-2)
        n = self.prior.var.shape[-1] - self.n_hidden
        return (torch.diag_embed(self.prior.var) - half.mT @ half)[..., :n, :n].to(self.dtype)

    def reduction_lost_without(self) -> Float[Tensor, "... m n_y"]:
        """The reduction each output would lose if one balance alone were left out.

        Dropping balance k is `r_k → ∞`, a rank-one downdate::

            diag(K S Kᵀ) − diag(K₋ₖ S₋ₖ K₋ₖᵀ) = K_{·k}² / (S⁻¹)_kk       (D4)
        """
        K = self.factor.inverse_rows() * self.prior.var.unsqueeze(-2)
        return self._seen(K.square() / self.factor.inverse_diag.unsqueeze(-1).clamp_min(torch.finfo(K.dtype).tiny))

    def sample(self, n_draws: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws ... n_y"]:
        """Joint draws by Matheron's rule, exact at `r = 0` too, reparameterised, draws on axis 0.

        With `y₀ ~ N(μ, diag(v))`, `ε ~ N(0, R)`::

            y = y₀ + K (t − B y₀ − ε)                  (M1)
        """
        parts = (self.prior.mean, self.prior.var, self.target, self.tol_var, self.operator.B[..., 0])
        shape = batch_shape(*parts)
        y0 = self.prior.mean + self.prior.var.sqrt() * _standard_normal(
            (n_draws, *shape, self.prior.mean.shape[-1]), self.prior.mean, generator
        )
        noise = _standard_normal((n_draws, *shape, self.tol_var.shape[-1]), self.prior.mean, generator)
        return self._seen(self.update(y0, noise))

    def update(self, y0: Float[Tensor, "... n_y"], noise: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """M1 for given draws `y₀` and standard normal `noise` (ε = √r · noise)."""
        wanted = self.target - safe_sqrt(self.tol_var) * noise
        return self._obeying(y0 + self.gain(wanted - self.operator.apply(y0)), wanted)

    def _obeying(self, y: Tensor, wanted: Tensor) -> Tensor:
        """Bring exact balances from the cond(√S) roundings that a triangular solve leaves down to rounding."""
        exact = self.tol_var == 0
        if not (self.operator.coupled and somewhere(exact)):
            return y
        with torch.no_grad():  # a rounding has no gradient
            correction = self.gain(torch.where(exact, wanted - self.operator.apply(y), 0.0))
        return y + correction

    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Joint log density of measured outputs, `y_obs = y + e`, `e ~ N(0, diag(w))`.

        By Bayes' rule it needs only m × m algebra. With `g = v / (v + w)`::

            log p(y_obs | t) = log N(y_obs; μ, diag(v + w))
                             + log N(t; B(μ + g⊙(y_obs − μ)), B diag(g⊙w) Bᵀ + R)
                             − log N(t; B μ, S)                                        (L2)

        A NaN in `y` was not measured (`w = ∞`): its first term drops and `g⊙w → v`. Balances that `y_obs` must
        obey exactly (`r = 0`, `w = 0`) put the density on the affine subspace `B_e y = t_e`, where their part of the
        second term is `−½ log det(B_e B_eᵀ)` (L3), and −∞ off it.

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        """
        return _joint_log_prob(self, y, sensor_var)

    def _seen(self, values: Tensor) -> Tensor:
        """Drop the hidden variables and return to the caller's dtype."""
        values = values[..., : -self.n_hidden] if self.n_hidden else values
        return values if values.dtype == self.dtype else values.to(self.dtype)


def _joint_log_prob(c: ConditionedGaussian, y: Tensor, sensor_var: Tensor | float) -> Tensor:
    mean, var = c.prior.mean, c.prior.var
    y = torch.nn.functional.pad(y.to(mean.dtype), (0, c.n_hidden), value=math.nan)
    w = torch.as_tensor(sensor_var, dtype=mean.dtype, device=mean.device)
    w = torch.nn.functional.pad(w.expand(*w.shape[:-1], y.shape[-1] - c.n_hidden), (0, c.n_hidden))
    measured = ~y.isnan() & w.isfinite()
    w = torch.where(measured, w, 0.0)
    y = torch.where(measured, y, mean)  # not measured: μ + g (y − μ) is μ, and the first term is masked
    total_var = torch.where(measured, var + w, 1.0)
    g = torch.where(measured, var / total_var, 0.0)
    smoothed_var = torch.where(measured, g * w, var)

    first = torch.where(measured, normal_log_prob(y, mean, total_var), 0.0).sum(-1)
    left = c.target - c.operator.apply(mean + g * (y - mean))
    if somewhere(c.tol_var == 0):
        middle = singular_log_prob(c.operator, left, smoothed_var, c.tol_var, _rounding(c, y))
    else:
        middle = c.operator.factor(smoothed_var, c.tol_var).log_prob(left)
    return (first + middle - c.factor.log_prob(c.innovation)).to(c.dtype)


def _rounding(c: ConditionedGaussian, y: Tensor) -> Tensor:
    if c.rounding is not None:
        return c.rounding
    return max(1e-9, 8 * torch.finfo(c.dtype).eps) * (c.operator.magnitude(y) + c.target.abs())


def normal_log_prob(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """`log N(y; mean, var)` element by element."""
    return -0.5 * ((y - mean).square() / var + var.log() + LOG_2PI)


def _standard_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
