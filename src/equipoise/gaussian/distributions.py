"""Gaussians before and after conditioning on balances.

A network predicts a `DiagonalGaussian` for each draw of its weights. Conditioning it on `B y + ε = t` gives a
`ConditionedGaussian`. Neither forms an `n_y × n_y` matrix unless `.covariance()` is called.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from equipoise.gaussian.curvature import hessian_root, joint_curvature_root
from equipoise.gaussian.operator import LOG_2PI, BalanceOperator, Factor, any_true, safe_sqrt
from equipoise.gaussian.shapes import batch_shape, common_shape
from equipoise.gaussian.subspace import singular_log_prob


class Gaussian(ABC):
    """A Gaussian of a row's outputs, conditioned on balances or not: what predictions and likelihoods are made from.

    Without balances there are zero of them: `n_balances` is 0, arrays with one entry per balance are empty, and
    conditioning changes nothing.

    Attributes:
        prior: The Gaussian before conditioning, over the outputs and any hidden variables after them.
        mean, var: Mean and variances of each output, shape `(..., n_y)`.
        reduction: The variance that conditioning removes, shape `(..., n_y)`.
        shift: `μ_C − μ`, the change of the mean by conditioning, shape `(..., n_y)`.
        innovation: `t − B μ`, by how much the mean before conditioning misses each balance, shape `(..., m)`.
        B: Coefficients of the balances, shape `(m, n_y)` or `(..., m, n_y)`.
        n_balances: Number of balances, m.
    """

    prior: "DiagonalGaussian"
    mean: Float[Tensor, "... n_y"]
    var: Float[Tensor, "... n_y"]
    reduction: Float[Tensor, "... n_y"]
    shift: Float[Tensor, "... n_y"]
    innovation: Float[Tensor, "... m"]
    B: Float[Tensor, "... m n_y"]
    n_balances: int

    @abstractmethod
    def with_prior(self, prior: "DiagonalGaussian") -> "Gaussian":
        """Return the Gaussian with another distribution before conditioning, and the same balances."""

    @abstractmethod
    def with_tolerances(self, tol_var: Float[Tensor, "... m"]) -> "Gaussian":
        """Return the Gaussian conditioned on the same balances with other tolerances.

        Args:
            tol_var: `r ≥ 0`, shape `(..., m)`.
        """

    @abstractmethod
    def take(self, draw: Int[Tensor, " k"], row: Int[Tensor, " k"]) -> "Gaussian":
        """Select from a block of shape `(n_draws, n, n_y)` one Gaussian for each pair of positions.

        Args:
            draw, row: Positions of draws and rows.
        Returns: Gaussians of shape `(k, n_y)`.
        """

    @abstractmethod
    def var_above_rounding(self) -> Float[Tensor, "... n_y"]:
        """Return the variances, kept above the rounding of those before conditioning."""

    @abstractmethod
    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """Return the covariance of the outputs as an `n_y × n_y` matrix."""

    def curvature_root(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "... n_y k"]:
        """Return `L` with `L Lᵀ` the curvature of `−log_prob(y, sensor_var)` in the mean before conditioning (L5).

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        """
        return hessian_root(lambda mean: self.with_prior_mean(mean).log_prob(y, sensor_var), self.prior_mean)

    @property
    def prior_mean(self) -> Float[Tensor, "... n_y"]:
        """The mean of the outputs before conditioning, without hidden variables."""
        return self.prior.mean[..., : self.mean.shape[-1]]

    def with_prior_mean(self, mean: Float[Tensor, "... n_y"]) -> "Gaussian":
        """Return the Gaussian with another mean of the outputs before conditioning."""
        hidden = self.prior.mean[..., mean.shape[-1] :]
        whole = torch.cat([mean, hidden.to(mean.dtype)], -1) if hidden.shape[-1] else mean
        return self.with_prior(DiagonalGaussian(whole, self.prior.var))

    def mean_reduction_lost(self, weight: Float[Tensor, "n_draws n"] | None) -> Float[Tensor, "n m n_y"]:
        """Return the average over draws of `reduction_lost_without` of a block `(n_draws, n, n_y)` (D4).

        Args:
            weight: Weights of the draws in each row, which add up to 1; None for equal ones.
        """
        lost = self.reduction_lost_without()
        return lost.mean(0) if weight is None else torch.einsum("dn,dnkj->nkj", weight, lost)

    def weighted_covariance(self, weight: Float[Tensor, "n_draws n"]) -> Float[Tensor, "n n_y n_y"]:
        """Return the sum over draws of the covariances of a block `(n_draws, n, n_y)`, each multiplied by its weight.

        Args:
            weight: Weights of the draws in each row.
        """
        return torch.einsum("dn,dnij->nij", weight, self.covariance())

    @abstractmethod
    def gain_rows(self) -> Float[Tensor, "... m n_y"]:
        """Return the transposed gain `Kᵀ`, with one row for each balance (C2)."""

    @abstractmethod
    def reduction_lost_without(self) -> Float[Tensor, "... m n_y"]:
        """Return how much less variance each output would lose without each of the balances (D4)."""

    @abstractmethod
    def residual_var(self, joint: bool = True) -> Float[Tensor, "... m"]:
        """Return the variance of each balance's residual `B y − t` after conditioning (Z4).

        Args:
            joint: Whether the outputs are taken together, or as independent with the same variances.
        """

    @abstractmethod
    def sample(self, n_draws: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws ... n_y"]:
        """Draw joint samples.

        Args:
            n_draws: Number of draws, which become axis 0 of the result.
            generator: Source of random numbers; torch's default by default.
        """

    @abstractmethod
    def update(self, y0: Float[Tensor, "... n_y"], noise: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Turn draws before conditioning into draws after conditioning (M1).

        Args:
            y0: Draws before conditioning, shape `(..., n_y)`.
            noise: Standard normal numbers, one for each balance, shape `(..., m)`.
        """

    @abstractmethod
    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Compute the joint log density of measured outputs `y_obs = y + e`, `e ~ N(0, diag(w))` (L2).

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        """


@dataclass(frozen=True)
class DiagonalGaussian(Gaussian):
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

    n_balances = 0

    @property
    def prior(self) -> "DiagonalGaussian":  # type: ignore[override]
        """The Gaussian itself: no balances condition it."""
        return self

    @property
    def reduction(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """Zeros: no balances remove variance."""
        return torch.zeros_like(self.mean)

    @property
    def shift(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """Zeros: no balances change the mean."""
        return torch.zeros_like(self.mean)

    @property
    def innovation(self) -> Float[Tensor, "... 0"]:  # type: ignore[override]
        """Innovations of no balances, an empty last axis."""
        return self.mean[..., :0]

    @property
    def B(self) -> Float[Tensor, "0 n_y"]:  # type: ignore[override]
        """Coefficients of no balances."""
        return self.mean.new_zeros(0, self.mean.shape[-1])

    def to(self, dtype: torch.dtype) -> "DiagonalGaussian":
        """Convert mean and variance to another dtype."""
        same = self.mean.dtype == self.var.dtype == dtype
        return self if same else DiagonalGaussian(self.mean.to(dtype), self.var.to(dtype))

    def sample(self, n_draws: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws ... n_y"]:
        """Draw samples, differentiable with respect to mean and variance.

        Args:
            n_draws: Number of draws, which become axis 0 of the result.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Draws of `y`, shape `(n_draws, ..., n_y)`.
        """
        shape = (n_draws, *common_shape(self.mean.shape, self.var.shape))
        return self.mean + self.var.sqrt() * _standard_normal(shape, self.mean, generator)

    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Compute the joint log density of measured outputs: the sum over those that were measured.

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        Returns:
            Log densities, shape `(...)`.
        """
        return independent_log_prob(y, self.mean, self.var + sensor_var)

    def curvature_root(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "... n_y n_y"]:
        """Return `diag 1/√(v + w)`, 0 where an output was not measured (L5); arguments are those of `Gaussian`."""
        precision = torch.where(y.isnan(), 0.0, 1.0 / (self.var + sensor_var))
        return torch.diag_embed(precision.sqrt())

    def with_prior(self, prior: "DiagonalGaussian") -> "DiagonalGaussian":
        """Return `prior`."""
        return prior

    def with_tolerances(self, tol_var: Float[Tensor, "... m"]) -> "DiagonalGaussian":
        """Return the Gaussian itself: no balances have a tolerance."""
        return self

    def take(self, draw: Int[Tensor, " k"], row: Int[Tensor, " k"]) -> "DiagonalGaussian":
        """Select Gaussians by draw and row; arguments are those of `Gaussian.take`."""
        shape = common_shape(self.mean.shape, self.var.shape)
        mean, var = (part.expand(shape)[draw, row] for part in (self.mean, self.var))
        return DiagonalGaussian(mean, var)

    def var_above_rounding(self) -> Float[Tensor, "... n_y"]:
        """Return the variances."""
        return self.var

    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """Return `diag(v)` as an `n_y × n_y` matrix."""
        return torch.diag_embed(self.var)

    def weighted_covariance(self, weight: Float[Tensor, "n_draws n"]) -> Float[Tensor, "n n_y n_y"]:
        """Sum covariances over draws; arguments are those of `Gaussian.weighted_covariance`."""
        return torch.diag_embed(torch.einsum("dn,dni->ni", weight, self.var.expand(self.mean.shape)))

    def gain_rows(self) -> Float[Tensor, "... 0 n_y"]:
        """Return a matrix without rows."""
        return self.mean.unsqueeze(-2)[..., :0, :]

    def reduction_lost_without(self) -> Float[Tensor, "... 0 n_y"]:
        """Return a matrix without rows."""
        return self.mean.unsqueeze(-2)[..., :0, :]

    def residual_var(self, joint: bool = True) -> Float[Tensor, "... 0"]:
        """Return an empty last axis."""
        return self.mean[..., :0]

    def update(self, y0: Float[Tensor, "... n_y"], noise: Float[Tensor, "... 0"]) -> Float[Tensor, "... n_y"]:
        """Return the draws as they are.

        Args:
            y0: The draws.
            noise: Nothing, for want of balances.
        """
        return y0


@dataclass(frozen=True)
class ConditionedGaussian(Gaussian):
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
        n_hidden: Number of trailing variables (uncertain inputs) that are integrated out of every result.
        dtype: The dtype of results; the algebra itself is done in that of `prior`.
        rounding: Largest `|t − B y|` that counts as obeying an exact balance, shape `(..., m)`;
            `1e-9 (Σ|B||y| + |t|)` by default.

    Example:
        >>> from equipoise import condition
        >>> c = condition(DiagonalGaussian(torch.zeros(2), torch.ones(2)), torch.ones(1, 2), torch.tensor([1.0]))
        >>> c.mean, c.var, c.innovation
        (tensor([0.5000, 0.5000]), tensor([0.5000, 0.5000]), tensor([1.], dtype=torch.float64))
    """

    prior: DiagonalGaussian
    operator: BalanceOperator
    target: Float[Tensor, "... m"]
    tol_var: Float[Tensor, "... m"]
    n_hidden: int = 0
    dtype: torch.dtype = torch.float64
    rounding: Float[Tensor, "... m"] | None = None

    @property
    def n_balances(self) -> int:  # type: ignore[override]
        """Number of balances, m."""
        return self.target.shape[-1]

    @property
    def B(self) -> Float[Tensor, "... m n_y"]:  # type: ignore[override]
        """Coefficients of the outputs in the balances."""
        return self.operator.B[..., : -self.n_hidden] if self.n_hidden else self.operator.B

    @cached_property
    def factor(self) -> Factor:
        """The factorised `S = B diag(v) Bᵀ + diag(r)` (C1)."""
        return self.operator.factor(self.prior.var, self.tol_var)  # C1

    @cached_property
    def innovation(self) -> Float[Tensor, "... m"]:  # type: ignore[override]
        """`t − B μ`, by how much the mean before conditioning misses each balance, shape `(..., m)`."""
        return self.target - self.operator.apply(self.prior.mean)

    @cached_property
    def _gained(self) -> Tensor:
        """`K (t − B μ)`, hidden variables included (C3)."""
        return self.gain(self.innovation)

    @property
    def shift(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """The change of the mean by conditioning, `Δ = K (t − B μ)` (C3), without cancellation, shape `(..., n_y)`."""
        return self._to_outputs(self._gained)

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """The mean after conditioning, `μ_C` (C3), shape `(..., n_y)`."""
        return self._to_outputs(self._correct_exact(self.prior.mean + self._gained, self.target))  # C3

    @cached_property
    def reduction(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """The variance that conditioning removes, `diag(K S Kᵀ) = v² ⊙ diag(Bᵀ S⁻¹ B)` (C4), shape `(..., n_y)`."""
        return self._to_outputs(self.prior.var * self._reduction_share)  # C4

    @cached_property
    def var(self) -> Float[Tensor, "... n_y"]:  # type: ignore[override]
        """The variance after conditioning, `v_C = diag(Σ_C)` (C4), shape `(..., n_y)`; accurate to roundings of `v`."""
        return self._to_outputs(self._var)

    @property
    def _var(self) -> Tensor:
        """`v_C`, hidden variables included (C4)."""
        return torch.addcmul(self.prior.var, self.prior.var, self._reduction_share, value=-1.0)  # C4

    @cached_property
    def _reduction_share(self) -> Tensor:
        """The share of its variance that each output loses, clipped to 1 with the gradient of the unclipped share."""
        share = self.prior.var * self.factor.adjoint_diag
        if not share.requires_grad:
            return share.clamp_max_(1.0)
        return share - (share.detach() - 1.0).clamp_min(0.0)

    def gain(self, balance: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Multiply balance residuals by the gain, `K = diag(v) Bᵀ S⁻¹` (C2).

        Args:
            balance: Residuals, shape `(..., m)`.
        Returns:
            Corrections of the outputs, hidden variables included, shape `(..., n_y)`.
        """
        return self.prior.var * self.operator.adjoint(self.factor.solve(balance))  # C2

    def covariance(self) -> Float[Tensor, "... n_y n_y"]:
        """Compute the covariance after conditioning, `Σ_C = diag(v) − K S Kᵀ` (C4), as an `n_y × n_y` matrix."""
        half = self.reduction_root()
        n = self.prior.var.shape[-1] - self.n_hidden
        return (torch.diag_embed(self.prior.var) - half.mT @ half)[..., :n, :n].to(self.dtype)  # C4

    def reduction_root(self) -> Float[Tensor, "... m n_y"]:
        """Compute `H = S^{-1/2} B diag(v)`, hidden variables included, with `Hᵀ H = K S Kᵀ` (C4)."""
        return self.factor.half() * self.prior.var.unsqueeze(-2)

    def weighted_covariance(self, weight: Float[Tensor, "n_draws n"]) -> Float[Tensor, "n n_y n_y"]:
        """Sum covariances over draws without one matrix for each draw (C4).

        Args:
            weight: Weights of the draws in each row.
        """
        half = weight.sqrt()[..., None, None] * self.reduction_root()
        half = half.movedim(1, 0).flatten(1, 2)
        var, n = self.prior.var.expand(*weight.shape, -1), half.shape[-1] - self.n_hidden
        total = torch.diag_embed(torch.einsum("dn,dni->ni", weight, var)) - half.mT @ half  # C4
        return total[..., :n, :n].to(self.dtype)

    def gain_rows(self) -> Float[Tensor, "... m n_y"]:
        """Compute `Kᵀ = S⁻¹ B diag(v)`, hidden variables included (C2)."""
        return self.factor.inverse_rows() * self.prior.var.unsqueeze(-2)

    def with_prior(self, prior: DiagonalGaussian) -> "ConditionedGaussian":
        """Condition another Gaussian on the same balances."""
        return replace(self, prior=prior)

    def with_tolerances(self, tol_var: Float[Tensor, "... m"]) -> "ConditionedGaussian":
        """Condition on the same balances with other tolerances `r ≥ 0`, shape `(..., m)`."""
        other = replace(self, tol_var=tol_var.to(self.tol_var))
        object.__setattr__(other, "innovation", self.innovation)  # it does not depend on tolerances
        return other

    def take(self, draw: Int[Tensor, " k"], row: Int[Tensor, " k"]) -> "ConditionedGaussian":
        """Select Gaussians by draw and row; arguments are those of `Gaussian.take`."""
        B, shape = self.operator.B, batch_shape(self.prior.mean, self.prior.var, self.target, self.tol_var)
        target, tol_var = (part.expand(*shape, part.shape[-1])[draw, row] for part in (self.target, self.tol_var))
        operator = self.operator
        if B.ndim > 2:
            operator = BalanceOperator(B.expand(*shape, *B.shape[-2:])[draw, row], operator.layout)
        prior = self.prior.take(draw, row)
        return replace(self, prior=prior, operator=operator, target=target, tol_var=tol_var)

    def var_above_rounding(self) -> Float[Tensor, "... n_y"]:
        """Return `v_C`, kept above the rounding of `v`."""
        least = torch.finfo(self.var.dtype).eps * self._to_outputs(self.prior.var)
        return torch.maximum(self.var, least)

    def reduction_lost_without(self) -> Float[Tensor, "... m n_y"]:
        """Compute how much less variance each output would lose without each of the balances.

        Leaving balance k out is `r_k → ∞`, a rank-one downdate::

            diag(K S Kᵀ) − diag(K₋ₖ S₋ₖ K₋ₖᵀ) = K_{·k}² / (S⁻¹)_kk       (D4)

        Returns:
            Variances by balance left out and output, shape `(..., m, n_y)`.
        """
        K = self.gain_rows()
        inverse_diag = self.factor.inverse_diag.unsqueeze(-1).clamp_min(torch.finfo(K.dtype).tiny)
        return self._to_outputs(K.square() / inverse_diag)  # D4

    def mean_reduction_lost(self, weight: Float[Tensor, "n_draws n"] | None) -> Float[Tensor, "n m n_y"]:
        """Average the reductions that are lost without each of the balances over draws (D4).

        Where no two balances share an output, the whole reduction of an output is due to its balance.

        Args:
            weight: Weights of the draws in each row, which add up to 1; None for equal ones.
        """
        if self.operator.coupled or self.n_hidden:
            return super().mean_reduction_lost(weight)
        r = self.reduction
        mean = r.mean(0) if weight is None else torch.einsum("dn,dnj->nj", weight, r)
        return (self.B != 0) * mean.unsqueeze(-2)

    def residual_var(self, joint: bool = True) -> Float[Tensor, "... m"]:
        """Compute the variance of each balance's residual, `r_k − r_k² (S⁻¹)_kk` (Z4), or `Σ_j B_kj² v_C,j`.

        Args:
            joint: Whether the outputs are taken together, or as independent with the same variances.
        Returns:
            Variances, shape `(..., m)`.
        """
        if not joint:
            return self.operator.apply_squared(self._var)
        r = self.tol_var
        return (r - r.square() * self.factor.inverse_diag).clamp_min(0.0)  # Z4

    def sample(self, n_draws: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws ... n_y"]:
        """Draw joint samples by Matheron's rule, exact at `r = 0` too, differentiable with respect to all parameters.

        With `y₀ ~ N(μ, diag(v))`, `ε ~ N(0, R)`::

            y = y₀ + K (t − B y₀ − ε)                  (M1)

        Args:
            n_draws: Number of draws, which become axis 0 of the result.
            generator: Source of random numbers; torch's default by default.
        Returns:
            Draws of `y`, shape `(n_draws, ..., n_y)`.
        """
        parts = (self.prior.mean, self.prior.var, self.target, self.tol_var, self.operator.B[..., 0])
        shape = batch_shape(*parts)
        y0 = self.prior.mean + self.prior.var.sqrt() * _standard_normal(
            (n_draws, *shape, self.prior.mean.shape[-1]), self.prior.mean, generator
        )
        noise = _standard_normal((n_draws, *shape, self.tol_var.shape[-1]), self.prior.mean, generator)
        return self._to_outputs(self.update(y0, noise))

    def update(self, y0: Float[Tensor, "... n_y"], noise: Float[Tensor, "... m"]) -> Float[Tensor, "... n_y"]:
        """Turn draws before conditioning into draws after conditioning by Matheron's rule (M1).

        Args:
            y0: Draws `y₀ ~ N(μ, diag(v))`, shape `(..., n_y)`, hidden variables included.
            noise: Standard normal numbers, `ε = √r · noise`, shape `(..., m)`.
        Returns:
            Draws after conditioning, of the shape of `y0`.
        """
        exact_target = self.target - safe_sqrt(self.tol_var) * noise
        return self._correct_exact(y0 + self.gain(exact_target - self.operator.apply(y0)), exact_target)  # M1

    def _correct_exact(self, y: Tensor, target: Tensor) -> Tensor:
        """Correct `y` so that exact balances are obeyed to rounding; a triangular solve leaves cond(√S) roundings."""
        if not self.operator.coupled or not any_true(exact := self.tol_var == 0):
            return y
        with torch.no_grad():  # a rounding has no gradient
            correction = self.gain(torch.where(exact, target - self.operator.apply(y), 0.0))
        return y + correction

    def log_prob(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "..."]:
        """Compute the joint log density of measured outputs, `y_obs = y + e`, `e ~ N(0, diag(w))`.

        By Bayes' rule it needs only m × m algebra. With `g = v / (v + w)`::

            log p(y_obs | t) = log N(y_obs; μ, diag(v + w))
                             + log N(t; B(μ + g⊙(y_obs − μ)), B diag(g⊙w) Bᵀ + R)
                             − log N(t; B μ, S)                                        (L2)

        A NaN in `y` is an output that was not measured (`w = ∞`): its first term drops and `g⊙w → v`. Balances that
        `y_obs` must obey exactly (`r = 0`, `w = 0`) put the density on the affine subspace `B_e y = t_e`, where their
        part of the second term is `−½ log det(B_e B_eᵀ)` (L3); off the subspace the log density is −∞.

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        Returns:
            Log densities, shape `(...)`.
        """
        return _joint_log_prob(self, y, sensor_var)

    def curvature_root(
        self, y: Float[Tensor, "... n_y"], sensor_var: Float[Tensor, "..."] | float = 0.0
    ) -> Float[Tensor, "... n_y k"]:
        """Compute a root of the curvature of the joint density in μ by m × m algebra (L5).

        Args:
            y: Measured outputs, shape `(..., n_y)`, NaN where missing.
            sensor_var: `w ≥ 0`, broadcast against `y`.
        Returns:
            `L` with `n_y + m` columns.
        """
        _, w, measured = _measurements(self, y, sensor_var)
        S_inverse_B = self.factor.inverse_rows()
        root = joint_curvature_root(self.operator.B, self.prior.var, self.tol_var, S_inverse_B, w, measured)
        return root[..., : self.prior.mean.shape[-1] - self.n_hidden, :].to(self.dtype)

    def _to_outputs(self, values: Tensor) -> Tensor:
        """Drop the hidden variables and convert to the dtype of results."""
        values = values[..., : -self.n_hidden] if self.n_hidden else values
        return values if values.dtype == self.dtype else values.to(self.dtype)


def _measurements(c: ConditionedGaussian, y: Tensor, sensor_var: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, w and which outputs were measured, hidden variables included; w is 0 where they were not."""
    mean = c.prior.mean
    y = torch.nn.functional.pad(y.to(mean.dtype), (0, c.n_hidden), value=math.nan)
    w = torch.as_tensor(sensor_var, dtype=mean.dtype, device=mean.device)
    w = torch.nn.functional.pad(w.expand(*w.shape[:-1], y.shape[-1] - c.n_hidden), (0, c.n_hidden))
    measured = ~y.isnan() & w.isfinite()
    return y, torch.where(measured, w, 0.0), measured


def _joint_log_prob(c: ConditionedGaussian, y: Tensor, sensor_var: Tensor | float) -> Tensor:
    mean, var = c.prior.mean, c.prior.var
    y, w, measured = _measurements(c, y, sensor_var)
    y = torch.where(measured, y, mean)  # not measured: μ + g (y − μ) is μ, and the first term is masked
    total_var = torch.where(measured, var + w, 1.0)
    g = torch.where(measured, var / total_var, 0.0)
    smoothed_var = torch.where(measured, g * w, var)

    output_term = torch.where(measured, normal_log_prob(y, mean, total_var), 0.0).sum(-1)
    residual = c.target - c.operator.apply(mean + g * (y - mean))
    if any_true(c.tol_var == 0):
        balance_term = singular_log_prob(c.operator, residual, smoothed_var, c.tol_var, _rounding(c, y))
    else:
        balance_term = c.operator.factor(smoothed_var, c.tol_var).log_prob(residual)
    return (output_term + balance_term - c.factor.log_prob(c.innovation)).to(c.dtype)  # L2


def _rounding(c: ConditionedGaussian, y: Tensor) -> Tensor:
    if c.rounding is not None:
        return c.rounding
    return max(1e-9, 8 * torch.finfo(c.dtype).eps) * (c.operator.magnitude(y) + c.target.abs())


def normal_log_prob(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Compute `log N(y; mean, var)` element by element, for tensors that broadcast to one shape.

    Args:
        y: Values.
        mean, var: Means and variances of the normal distributions.
    Returns:
        Log densities in nats, of the common shape.

    Example:
        >>> normal_log_prob(torch.zeros(2), torch.zeros(2), torch.ones(2))        # −½ log 2π
        tensor([-0.9189, -0.9189])
    """
    return -0.5 * ((y - mean).square() / var + var.log() + LOG_2PI)


def independent_log_prob(y: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """Compute the log density of rows of independent normals; what is NaN in `y` was not measured and is left out.

    Args:
        y: Values, shape `(..., n_y)`.
        mean, var: Means and variances, broadcast against `y`.
    Returns:
        Log densities of rows in nats, shape `(...)`.
    """
    measured = ~y.isnan()
    return torch.where(measured, normal_log_prob(torch.where(measured, y, mean), mean, var), 0.0).sum(-1)


def _standard_normal(shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
