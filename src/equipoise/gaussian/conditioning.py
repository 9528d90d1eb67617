"""Conditioning of Gaussians on balances, as a function and as a layer for any torch model."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.balances import Equality, LinearConstraint, check_equality_kind, linearised
from equipoise.errors import InputError
from equipoise.gaussian.connected_blocks import block_layout
from equipoise.gaussian.distributions import ConditionedGaussian, DiagonalGaussian
from equipoise.gaussian.operator import BalanceOperator
from equipoise.gaussian.shapes import batch_shape, common_shape
from equipoise.gaussian.tolerance import GaussianOffset, Tolerance, tolerance_posterior
from equipoise.gaussian.variances import VariancePosterior


def condition(
    gaussian: DiagonalGaussian,
    B: Float[Tensor, "... m n_y"] | BalanceOperator,
    target: Float[Tensor, "... m"],
    tol_var: Float[Tensor, "... m"] | float = 0.0,
    *,
    A: Float[Tensor, "... m n_x"] | None = None,
    input_var: Float[Tensor, "... n_x"] | None = None,
    rounding: Float[Tensor, "... m"] | None = None,
) -> ConditionedGaussian:
    """Condition a diagonal Gaussian on noisy linear observations of itself.

    For `y ~ N(μ, diag(v))` and `t = B y + ε`, `ε ~ N(0, diag(r))`::

        S   = B diag(v) Bᵀ + diag(r)                   (C1)
        K   = diag(v) Bᵀ S⁻¹                           (C2)
        μ_C = μ + K (t − B μ)                          (C3)
        Σ_C = diag(v) − K S Kᵀ                         (C4)

    Inputs with variances `input_var` enter as hidden outputs `δx ~ N(0, diag(input_var))` with coefficients
    `A`, which adds `A diag(input_var) Aᵀ` to `S` (C5). The network mean's own dependence on x is neglected.

    Args:
        gaussian: `N(μ, diag(v))`, any leading batch shape, event `(n_y,)`.
        B: Coefficients, shared `(m, n_y)` or per row `(..., m, n_y)`, or an operator made of them.
        target: `t = b − A x`, shape `(..., m)`.
        tol_var: Tolerance variances `r ≥ 0`, a number or shape `(..., m)`; 0 makes a balance exact.
        A: Input coefficients, shape `(m, n_x)`; needed with `input_var` only.
        input_var: Variances of the inputs, shape `(..., n_x)`, 0 for inputs known exactly.
        rounding: Largest residual of an exact balance that `log_prob` counts as rounding, shape `(..., m)`.
    Returns:
        A `ConditionedGaussian`. The algebra runs in float64; results have the dtype of `gaussian.mean`.
    Raises:
        InputError: If shapes do not agree, a tolerance variance is negative, or `A` is missing beside `input_var`.

    Example:
        Three equal parts must sum to 1; the mean starts at a sum of 3.

        >>> g = DiagonalGaussian(torch.ones(3), torch.ones(3))
        >>> c = condition(g, torch.ones(1, 3), torch.tensor([1.0]))
        >>> c.mean, c.var
        (tensor([0.3333, 0.3333, 0.3333]), tensor([0.6667, 0.6667, 0.6667]))
    """
    dtype, work = gaussian.mean.dtype, _work_dtype(gaussian.mean)
    _check_shapes(gaussian, B.B if isinstance(B, BalanceOperator) else B, target)
    operator = B if isinstance(B, BalanceOperator) else BalanceOperator(B.to(work))
    prior, target, n_hidden = gaussian.to(work), target.to(work), 0
    tol_var = _tolerance_variances(tol_var, target, work)
    if input_var is not None:
        if A is None:
            raise InputError("input_var needs A, the coefficients of the inputs, but got A=None. Pass A=constraint.A.")
        n_hidden = A.shape[-1]
        prior, operator = _with_hidden_inputs(prior, operator.B, A.to(work), input_var.to(work))
    return ConditionedGaussian(prior, operator, target, tol_var, n_hidden, dtype, rounding)


def _tolerance_variances(tol_var: Tensor | float, target: Tensor, work: torch.dtype) -> Tensor:
    tol_var = torch.as_tensor(tol_var, dtype=work, device=target.device)
    tol_var = tol_var.expand(target.shape[-1:]) if tol_var.ndim == 0 else tol_var
    if tol_var.is_meta or torch.compiler.is_compiling() or tol_var.numel() == 0:
        return tol_var
    if (least := tol_var.detach().min().item()) < 0:
        raise InputError(f"tol_var holds variances, which must be ≥ 0, but got {least}.")
    return tol_var


def _check_shapes(gaussian: DiagonalGaussian, B: Tensor, target: Tensor) -> None:
    if B.ndim < 2 or B.shape[-1] != gaussian.mean.shape[-1] or target.shape[-1:] != B.shape[-2:-1]:
        got = f"mean {tuple(gaussian.mean.shape)}, B {tuple(B.shape)} and target {tuple(target.shape)}"
        raise InputError(f"mean (..., n_y), B (..., m, n_y) and target (..., m) must fit together, but got {got}.")


def _work_dtype(like: Tensor) -> torch.dtype:
    return torch.float32 if like.is_mps else torch.float64  # Apple's GPU has no float64


def _with_hidden_inputs(
    gaussian: DiagonalGaussian, B: Tensor, A: Tensor, input_var: Tensor
) -> tuple[DiagonalGaussian, BalanceOperator]:
    """Append the input errors δx, which have mean 0, to the outputs, and `A` to the coefficients (C5)."""
    mean, var = gaussian.mean, gaussian.var
    shape = batch_shape(mean, input_var)
    input_var = input_var.expand(*shape, input_var.shape[-1])
    mean = torch.cat([mean.expand(*shape, mean.shape[-1]), torch.zeros_like(input_var)], -1)
    var = torch.cat([var.expand(*shape, var.shape[-1]), input_var], -1)
    uncertain = (input_var.reshape(-1, input_var.shape[-1]) > 0).any(0)
    lead = common_shape(A.shape[:-2], B.shape[:-2])
    coefficients = torch.cat([B.expand(*lead, *B.shape[-2:]), (A * uncertain).expand(*lead, *A.shape[-2:])], -1)
    return DiagonalGaussian(mean, var), BalanceOperator(coefficients)  # C5


class ConditioningLayer(nn.Module):
    """Conditioning on balances as the last layer of *any* torch model that predicts a mean and a variance.

    Args:
        constraint: The balances `A x + B y = b`, in the units of the model's outputs. Those of another `Equality` are
            computed from x by numpy, without gradients with respect to x.
        tolerance: `None` learns the tolerance of each balance (default prior on the relative tolerance), `0` makes
            balances exact, a positive number is a fixed standard deviation in the balance's own unit, a
            `TolerancePrior`, or a `VariancePrior` of your own, learns the tolerance from that prior; or a mapping from
            balance names to any of these. A `VariancePosterior` of relative tolerances is used unchanged.
        output_std: Standard deviations of the outputs, shape `(n_y,)`, which set the scales of the balances that
            *relative* tolerances refer to (Z2). Ones by default.
        offset: Whether to learn an offset per balance, `A x + B y = b + δ`, too; or a mask of the balances that have
            one, shape `(m,)`.
        X: Rows of inputs, then known columns, shape `(n, n_columns)`, over which scales are averaged; needed where
            coefficients differ from row to row.

    Example:
        >>> import equipoise as eq
        >>> balance = eq.LinearConstraint.from_equations("total = a + b", outputs=["total", "a", "b"])
        >>> layer = eq.ConditioningLayer(balance, tolerance=0)
        >>> layer(torch.tensor([4.0, 1.0, 2.0]), torch.ones(3)).mean.detach()
        tensor([3.6667, 1.3333, 2.3333])
    """

    def __init__(
        self,
        constraint: Equality,
        tolerance: Tolerance | VariancePosterior = None,
        *,
        output_std=None,
        offset: bool | Tensor = False,
        X=None,
    ):
        super().__init__()
        check_equality_kind(constraint)
        self.names = constraint.names
        linear = isinstance(constraint, LinearConstraint)
        self._other = None if linear else constraint
        self.needs_inputs = not linear or bool((constraint.A != 0).any())
        self.row_scale: Tensor
        self.register_buffer("row_scale", torch.as_tensor(constraint.scale(_ones_or(output_std, constraint), X)))
        self.pattern = torch.as_tensor(constraint.pattern.copy())
        A, b = (constraint.A, constraint.b) if linear else (None, None)
        for name, array in {"A": A, "B": constraint.shared_B, "b": b}.items():  # checkpoints depend on the order
            values = None if array is None else torch.as_tensor(array.copy())
            self.register_buffer(name, None if values is None else self._scaled(values))
        self.A: Tensor | None
        self.B: Tensor | None
        self.b: Tensor | None
        if not isinstance(tolerance, VariancePosterior):
            tolerance = tolerance_posterior(tolerance, constraint.names, self.row_scale)
        self.tolerance = tolerance
        mask = offset if isinstance(offset, Tensor) else torch.full((constraint.n_balances,), bool(offset))
        self.offset = GaussianOffset(constraint.n_balances, mask) if bool(mask.any()) else None
        self.layout = block_layout(self.pattern.double())
        self.coupled = any(group.rows.shape[-1] > 1 for group in self.layout)

    def target(self, x: Float[Tensor, "... n_x"] | None) -> Float[Tensor, "... m"]:
        """Compute the target, `t = b − A x` for a `LinearConstraint`, each balance divided by its scale.

        Args:
            x: Inputs, shape `(..., n_x)`; may be None if no balance has an input.
        Returns:
            Shape `(..., m)`, or `(m,)` without `x`.
        Raises:
            InputError: If a balance has inputs but `x` is None.
        """
        if x is None:
            if self.needs_inputs:
                raise InputError("These balances involve inputs, but got x=None. Pass the inputs as x.")
            return self.b  # type: ignore[return-value]
        if self.A is None or self.b is None:
            return self._linearised(x)[1]
        return self.b - x.to(self.A.dtype) @ self.A.mT

    def forward(
        self,
        mean: Float[Tensor, "... n_y"],
        var: Float[Tensor, "... n_y"],
        x: Float[Tensor, "... n_x"] | None = None,
        generator: torch.Generator | None = None,
        input_var: Float[Tensor, "... n_x"] | None = None,
    ) -> ConditionedGaussian:
        """Condition `N(mean, diag(var))` on the balances at inputs `x` (C1–C4).

        In training mode each row draws its own tolerance from the posterior; in evaluation mode the posterior's
        median `exp(E[ρ])` is used, so that the layer is deterministic.

        Args:
            mean, var: `μ` and `v`, shape `(..., n_y)`.
            x: Inputs, shape `(..., n_x)`; may be None if no balance has an input.
            generator: Source of the draws in training mode.
            input_var: Variances of uncertain inputs, shape `(..., n_x)` (C5).
        Returns:
            A `ConditionedGaussian`, event shape `(n_y,)`.
        """
        B, target = (None, self.target(x)) if self._other is None or x is None else self._linearised(x)
        if mean.shape[-1] != self.pattern.shape[-1]:
            raise InputError(
                f"mean must have one entry per output of the balances ({self.pattern.shape[-1]}) on its last axis, "
                f"but got shape {tuple(mean.shape)}."
            )
        shape = mean.shape[:-1] if self.training else ()
        tol_var = self.tolerance.draw(shape, generator) if self.training else self.tolerance.median()
        if self.offset is not None:
            target = target + (self.offset.draw(shape, generator) if self.training else self.offset.loc)
        if input_var is not None:
            if self.A is None or self.B is None:
                raise InputError("input_var needs the coefficients A of a LinearConstraint, but got another Equality.")
            B = self.B.to(_work_dtype(mean))
            return condition(DiagonalGaussian(mean, var), B, target, tol_var, A=self.A, input_var=input_var)
        return self.condition(DiagonalGaussian(mean, var), target, tol_var, B=B)

    def condition(
        self,
        gaussian: DiagonalGaussian,
        target: Float[Tensor, "... m"],
        tol_var: Float[Tensor, "... m"],
        rounding: Float[Tensor, " m"] | None = None,
        B: Float[Tensor, "... m n_y"] | None = None,
    ) -> ConditionedGaussian:
        """Condition a Gaussian on targets and tolerances in units of the balances' scales (C1–C4).

        Args:
            gaussian: `N(μ, diag(v))`, event shape `(n_y,)`.
            target: `t`, each balance divided by its scale, shape `(..., m)`.
            tol_var: Relative tolerance variances, shape `(..., m)`.
            rounding: As in `condition`, each balance divided by its scale.
            B: Coefficients that differ from row to row, each balance divided by its scale; None for those of the layer.
        Returns:
            The distribution after conditioning, event shape `(n_y,)`.
        """
        return condition(gaussian, self.operator(_work_dtype(gaussian.mean), B), target, tol_var, rounding=rounding)

    def operator(self, dtype: torch.dtype, B: Float[Tensor, "... m n_y"] | None = None) -> BalanceOperator:
        """Return the coefficients `B`, each balance divided by its scale, as an operator with the layer's blocks.

        Args:
            dtype: Type of the operator's numbers.
            B: Coefficients that differ from row to row, 0 outside the layer's `pattern`; None for those of the layer.
        Raises:
            InputError: If there are none in either place.
        """
        B = self.B if B is None else B
        if B is None:
            raise InputError("The coefficients of these balances differ from row to row, but got B=None. Pass B.")
        return BalanceOperator(B.to(dtype), self.layout)

    def _linearised(self, x: Float[Tensor, "... n_columns"]) -> tuple[Tensor | None, Tensor]:
        """Compute coefficients, None for those of the layer, and targets of an equality that is no LinearConstraint."""
        equality: Equality = self._other  # type: ignore[assignment]
        if x.shape[-1] != equality.n_columns:
            raise InputError(
                f"x must have columns {equality.columns} on its last axis, but got shape {tuple(x.shape)}."
            )
        rows = x.detach().double().cpu().numpy().reshape(-1, equality.n_columns)
        B, target = (torch.as_tensor(part).to(self.row_scale) for part in linearised(equality, rows))
        target = (target / self.row_scale).reshape(*x.shape[:-1], -1)
        return None if B.ndim == 2 else self._scaled(B).reshape(*x.shape[:-1], *B.shape[1:]), target

    def _scaled(self, values: Tensor) -> Tensor:
        return values / (self.row_scale.unsqueeze(-1) if values.ndim >= 2 else self.row_scale)

    def kl(self) -> Float[Tensor, ""]:
        """Compute the KL divergence of tolerances and offsets from their priors in nats (K2, K3).

        Add it to the loss once per data set, not once per row.
        """
        kl = self.tolerance.kl_terms().sum()
        return kl if self.offset is None else kl + self.offset.kl_terms().sum()


def _ones_or(output_std, constraint: Equality):
    return np.ones(constraint.n_outputs) if output_std is None else np.asarray(output_std, dtype=float)
