"""The evidence of variances where the weights are integrated out, for many values at once.

In coordinates c of the weights (V7) a normal likelihood is quadratic. Rows with the same variances share its curvature
F and the matrix H that turns a residual `z = (y − f, t − B f)` into a gradient, so that sums over rows are taken once::

    Λ = 1 + Σ_g Σ_jj' F_g,jj' Σ_(i in g) U_ijᵀ U_ij',   Λ c̄ = Σ_g Σ_jq H_g,qj Σ_(i in g) U_ijᵀ z_iq            (V8)
    log p(y | φ) = E[Σ_i L2_i(f; φ)] − ½ (tr Λ⁻¹ + c̄ᵀ c̄ − k + log det Λ),   c ~ N(c̄, Λ⁻¹)                     (K9)

which is (K6). Its gradient in φ is that of the expected log likelihood with the distribution of c held fixed, and that
expectation needs the squares and products of the residuals alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.network import ConstrainedBNN
from equipoise.training.residual_rows import ResidualRows, RowKinds, VarianceDensity

FARTHEST = 19.5  # logarithms of variances that are considered; heads are bounded by 20
ROUNDING = 1e-13
HUGE = 1e12  # squares of residuals that mean that numbers have overflowed


@dataclass(frozen=True)
class QuadraticSums:
    """Sums over the rows of each group, for w chains of one member.

    Args:
        count: Numbers of rows, `(G,)`.
        slope: By how much log v differs from its level, `(G, n_y)`.
        measured: Which outputs were measured, `(G, n_y)`.
        effect: `−∂z/∂f`, `(G, q, n_y)`.
        squares: `Σ_i z_i z_iᵀ`, `(w, G, q, q)`.
        cross: `Σ_i U_ij z_iq`, `(w, G, n_y · q, k)`.
        gram: `Σ_i U_ijᵀ U_ij'`, plus its transpose where `j < j'`, for all pairs `j ≤ j'`, `(G, pairs, k · k)`.
        centre: Coordinates about which residuals are taken, `(w, k)`.
    """

    count: Tensor
    slope: Tensor
    measured: Tensor
    effect: Tensor
    squares: Tensor
    cross: Tensor
    gram: Tensor
    centre: Tensor

    def precision(self, H: Float[Tensor, "w G q n_y"]) -> Float[Tensor, "w k k"]:
        """Compute the precision Λ of the coordinates (V8).

        Args:
            H: Gradients for unit residuals.
        """
        w, k = self.centre.shape
        F = self.effect.mT @ H
        rows, columns = _pairs(F.shape[-1])
        Lambda = (F[..., rows, columns].reshape(w, -1) @ self.gram.view(-1, k * k)).view(w, k, k)
        return Lambda + torch.eye(k, dtype=F.dtype, device=F.device)  # V8

    def condition(
        self, H: Float[Tensor, "w G q n_y"]
    ) -> tuple[Float[Tensor, "w k"], Float[Tensor, "w k k"], Float[Tensor, " w"]]:
        """Compute mean and covariance of the coordinates, and their divergence from the prior (V8).

        Args:
            H: Gradients for unit residuals.
        """
        w, k = self.centre.shape
        b = (H.mT.reshape(w, 1, -1) @ self.cross.reshape(w, -1, k))[:, 0] - self.centre
        factor, failed = torch.linalg.cholesky_ex(self.precision(H))
        factor = torch.where(failed[:, None, None] > 0, torch.eye(k, dtype=b.dtype, device=b.device), factor)
        covariance = torch.cholesky_inverse(factor)
        change = (covariance @ b.unsqueeze(-1)).squeeze(-1)  # V8
        log_det = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
        divergence = 0.5 * (trace + (change + self.centre).square().sum(-1) - k + log_det)
        return change, covariance, torch.where(failed > 0, torch.inf, divergence)

    def expected(self, change: Float[Tensor, "w k"], covariance: Float[Tensor, "w k k"]) -> Float[Tensor, "w G q q"]:
        """Compute expected squares and products of the residuals.

        Args:
            change, covariance: Mean of the coordinates, less `centre`, and their covariance.
        """
        (w, k), (G, q, n_y) = self.centre.shape, self.effect.shape
        second = change.unsqueeze(-1) * change.unsqueeze(-2) + covariance
        products = (second.view(w, k * k) @ self.gram.view(-1, k * k).mT).view(w, G, -1)
        of_means, (rows, columns) = products.new_zeros(w, G, n_y, n_y), _pairs(n_y)
        of_means[..., rows, columns] = torch.where(rows == columns, 1.0, 0.5).to(products) * products
        of_means = torch.tril(of_means.mT) + torch.triu(of_means, 1)
        cross = (self.cross @ change[:, None, :, None]).view(w, G, n_y, q)
        moved = self.effect @ cross
        return self.squares - moved - moved.mT + self.effect @ of_means @ self.effect.mT


def quadratic_sums(
    kinds: RowKinds,
    columns: Float[Tensor, "n n_y k"],
    means: Float[Tensor, "w n n_y"],
    centre: Float[Tensor, "w k"],
    gram: Float[Tensor, "G pairs k_k"] | None = None,
) -> QuadraticSums:
    """Take the sums over rows.

    Args:
        kinds: The rows; those without groups have no such sums.
        columns: `U`, of the coordinates that are integrated out.
        means: Means about which residuals are taken.
        centre: Their coordinates.
        gram: Result of `gram_of` for each group, if it has been computed before.
    """
    groups = kinds.groups or []
    k = columns.shape[-1]
    y, target = kinds.differences(means)
    missing = torch.stack([kinds.rows.y[group[0]].isnan() for group in groups])
    z = torch.cat([y.nan_to_num(0.0), target], -1)
    effect = torch.diag_embed((~missing).to(columns))
    if kinds.operator is not None:
        effect = torch.cat([effect, kinds.operator.to(columns).expand(len(groups), -1, -1)], 1)
    squares = torch.stack([z[:, group].mT @ z[:, group] for group in groups], 1)
    crosses = [torch.einsum("njk,wnq->wjqk", columns[group], z[:, group]).reshape(len(z), -1, k) for group in groups]
    if gram is None:
        gram = torch.stack([gram_of(columns[group]) for group in groups])
    count = torch.tensor([len(group) for group in groups], dtype=columns.dtype, device=columns.device)
    return QuadraticSums(count, kinds.slope, ~missing, effect, squares, torch.stack(crosses, 1), gram, centre)


def gram_of(columns: Float[Tensor, "n n_y k"]) -> Float[Tensor, "pairs k_k"]:
    """Compute `Σ_i U_ijᵀ U_ij'` plus its transpose for pairs of outputs `j < j'`, and without for `j = j'`.

    Args:
        columns: `U` at the rows of a group.
    """
    parts = []
    for j, other in zip(*_pairs(columns.shape[1]), strict=True):
        product = columns[:, j].mT @ columns[:, other]
        parts.append(product if j == other else product + product.mT)
    return torch.stack(parts).flatten(1)


def _pairs(n_y: int) -> tuple[Tensor, Tensor]:
    """Return the pairs `j ≤ j'` of outputs."""
    rows, columns = torch.triu_indices(n_y, n_y)
    return rows, columns


class CollapsedEvidence:
    """The log evidence of variances with their priors, and its gradient, for chains of several members (K9).

    Args:
        model: The model.
        members: Sums over the rows of each member, for its chains.
    """

    def __init__(self, model: ConstrainedBNN, members: Sequence[QuadraticSums]):
        self.model, self.members = model, members
        self.n_groups = max(len(each.count) for each in members)
        self.counts = [len(each.centre) for each in members]
        self.slope, self.count, measured = (
            self._together(lambda each, name=name: getattr(each, name)) for name in ("slope", "count", "measured")
        )
        self.unmeasured = measured == 0

    def _together(self, part) -> Tensor:
        """Repeat a part for each chain of its member, and fill up to the same number of groups."""
        repeated = []
        for each in self.members:
            values = part(each).to(each.squares)
            extra = values.new_zeros(self.n_groups - len(values), *values.shape[1:])
            values = torch.cat([values, extra])
            repeated.append(values.expand(len(each.centre), *values.shape))
        return torch.cat(repeated)

    def __call__(self, values: Float[Tensor, "w d"]) -> tuple[Float[Tensor, " w"], Float[Tensor, "w d"]]:
        """Compute log evidence and gradient of each chain at its own values.

        Args:
            values: Levels of log v, learned `ρ`, learned `log ω`.
        """
        inside = (values.abs() < FARTHEST).all(-1)
        values = torch.where(inside[:, None], values, 0.0)
        H = self.unit_gradients(values)
        squares, divergences = [], []
        for each, own in zip(self.members, H.split(self.counts), strict=True):
            G = len(each.count)
            change, covariance, divergence = each.condition(own[:, :G])
            expected = each.expected(change, covariance)
            squares.append(
                torch.cat([expected, expected.new_zeros(len(own), self.n_groups - G, *expected.shape[2:])], 1)
            )
            divergences.append(divergence)
        leaf = values.detach().requires_grad_()
        with torch.enable_grad():
            value = VarianceDensity(self.model, self._rows(torch.cat(squares)))(leaf)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        log_evidence = value.detach() - torch.cat(divergences)  # K9
        return torch.where(inside, log_evidence, -torch.inf), gradient

    def unit_gradients(self, values: Float[Tensor, "w d"]) -> Float[Tensor, "w G q n_y"]:
        """Compute gradients of the likelihood in the means for unit residuals, H.

        Args:
            values: Levels of log v, learned `ρ`, learned `log ω`.
        """
        density, n_y = VarianceDensity(self.model, self._rows(None)), self.slope.shape[-1]
        rows = density.rows
        leaf = torch.zeros_like(rows.y).requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(density.likelihood(values, leaf).sum(), leaf)
        return gradient.view(len(values), self.n_groups, -1, n_y)

    def _rows(self, squares: Float[Tensor, "w G q q"] | None) -> ResidualRows:
        """Return rows with these squares and products; for None, those of unit residuals."""
        w, G, n_y = self.slope.shape
        q = self.members[0].squares.shape[-1]
        if squares is None:
            z = torch.eye(q, dtype=self.slope.dtype, device=self.slope.device).expand(w, G, q, q)
            count = torch.ones_like(z[..., 0])
        else:
            finite = squares.isfinite().all(-1).all(-1) & (squares.diagonal(dim1=-2, dim2=-1) < HUGE).all(-1)
            z = _root(torch.where(finite[..., None, None], squares, 0.0)).mT
            z = torch.cat([z, torch.zeros_like(z[..., :1, :])], -2)
            count = torch.ones_like(z[..., 0])
            count[..., -1] = self.count - q
        y = torch.where(self.unmeasured.unsqueeze(-2), torch.nan, z[..., :n_y])
        slope = self.slope.unsqueeze(-2).expand_as(y)
        return ResidualRows(*(each.flatten(1, 2) for each in (y, z[..., n_y:], count, slope)))


def _root(squares: Float[Tensor, "*b q q"]) -> Float[Tensor, "*b q q"]:
    """Return triangular roots of positive semidefinite matrices, to rounding of their diagonals."""
    diagonal = squares.diagonal(dim1=-2, dim2=-1)
    unit = torch.where(diagonal > 0, diagonal, 1.0).sqrt()
    scaled = squares / unit.unsqueeze(-1) / unit.unsqueeze(-2)
    eye = torch.eye(squares.shape[-1], dtype=squares.dtype, device=squares.device)
    factor, failed = torch.linalg.cholesky_ex(scaled + ROUNDING * eye)
    if bool((failed > 0).any()):
        values, vectors = torch.linalg.eigh(scaled)
        factor = torch.where(
            (failed > 0)[..., None, None], vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2), factor
        )
    return unit.unsqueeze(-1) * factor
