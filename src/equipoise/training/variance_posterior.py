"""The joint posterior of weights, levels of variances, tolerances and sensors of a linearised network.

Data often determine sums alone: of the network's variance and a sensor's, of a tolerance and the sensors of its
balance. So the posterior is no Gaussian about a mode but a narrow, curved ridge, whose ends the priors decide.
Hamiltonian Monte Carlo draws variances from it with the weights integrated out (K9), and weights are drawn given these,
in coordinates c (V7)::

    Λ = 1 + Uᵀ F U,   Λ c = Uᵀ (η + F J θ*) + ξ + Uᵀ L ε                                           (V9)

for all chains at once by conjugate gradients. Where there are many coordinates, only those with the largest posterior
variance of the means are integrated out and drawn given the variances; the data determine the others whatever the
variances are, and their draws are those at the fitted ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import DiagonalGaussian, SampledVariances, VariancePosterior
from equipoise.network import LOG_VAR_BOUND, ConstrainedBNN, MeanHead, layer_views, spread_over_members
from equipoise.training.collapsed_evidence import CollapsedEvidence, QuadraticSums, gram_of, quadratic_sums
from equipoise.training.evidence import Measurements, PriorPrecisions
from equipoise.training.hamiltonian import HamiltonianChains
from equipoise.training.residual_rows import (
    ResidualRows,
    RowKinds,
    VarianceDensity,
    all_logs,
    n_learned,
    tolerance_of,
    variances_at,
)
from equipoise.training.tangent_basis import TangentBasis
from equipoise.training.variance_fit import VarianceHead, log_var

CHAINS, REPEATED = (
    (64, 32),
    (1, 4),
)  # and draws of the weights for each; where all coordinates are integrated out, or not
TRAJECTORIES = 6, 1  # of variances before the first draws that are kept, and before each
MOST_COLLAPSED = 48  # coordinates that are integrated out
SOLVED, MOST_ITERATIONS = 1e-4, 40  # of conjugate gradients
OFFSETS = (1e-2, 12.0, 14)  # of a grid of ρ about its value: nearest, farthest, number on either side


@dataclass(frozen=True)
class PosteriorSample:
    """Joint draws from the posterior, in the order in which predictions use them.

    Args:
        changes: Changes of the weights, of which those of the variance heads' biases move the levels of `log v`.
        member: Number of the member that each draw belongs to.
        tolerance, sensor: Posteriors of tolerances and sensors, with draws tied to these by their number; None where
            there are none.
    """

    changes: Float[Tensor, "n_kept P"]
    member: Int64[Tensor, " n_kept"]
    tolerance: VariancePosterior | None
    sensor: VariancePosterior | None


class LinearisedMember:
    """A member with its evidence and the draws of its weights given variances, linearised at `θ*`.

    Args:
        model: The model.
        weights: `θ*`.
        precisions: `Δ`.
        rows: The rows.
        weight: Number of rows of the table that each row stands for.
    """

    def __init__(
        self,
        model: ConstrainedBNN,
        weights: Float[Tensor, " P"],
        precisions: PriorPrecisions,
        rows: Rows,
        weight: float,
    ):
        self.model, self.rows, self.weight = model, rows, weight
        self.head = VarianceHead.of(model, weights, rows.x)
        self.slope = log_var(self.head.level + self.head.units @ self.head.slopes) - log_var(self.head.level)
        self.kinds = RowKinds.of(model, rows, self.head)
        self.start = self._fitted()
        network, point = model.network, weights.double()
        head = MeanHead.at(point, rows.x.double(), network.sizes, network.n_outputs, network.activation)
        measured = self._measured(head.mean[None], self.start[None])
        self.information = measured.root.square().sum(-1)
        self.basis = TangentBasis.of(head, point, precisions, self.information)
        self.offset = self.basis.offset
        U = self.basis.columns
        F_U = measured.spread_out(measured.project(U))
        Lambda = U.mT @ F_U
        Lambda.diagonal().add_(1.0)
        self.factor = torch.linalg.cholesky(0.5 * (Lambda + Lambda.mT))
        F_o = measured.spread_out(measured.project(self.offset.reshape(-1, 1))).view_as(head.mean)
        b = U.mT @ (measured.gradient + F_o).flatten()
        self.best = torch.cholesky_solve(b[:, None], self.factor)[:, 0]
        linear = (measured.gradient * self.offset).sum() + 0.5 * (self.offset * F_o).sum() - 0.5 * b @ self.best
        self.log_evidence = measured.log_likelihood - float(linear + self.factor.diagonal().log().sum())  # K6
        self.collapsed = self._loosest()
        self.columns = (U @ self.collapsed).view(*head.mean.shape, -1)
        groups = self.kinds.groups
        self.gram = None if groups is None else torch.stack([gram_of(self.columns[group]) for group in groups])

    def _fitted(self) -> Float[Tensor, " d"]:
        """Return the coordinates of the fitted variances."""
        parts = [log_var(self.head.level)]
        for posterior in (tolerance_of(self.model), self.model.sensor if self.rows.sensor_var is None else None):
            if posterior is not None:
                parts.append(posterior.log_moments()[0][posterior.learned])
        return torch.cat(parts).double().detach()

    def _measured(self, means: Float[Tensor, "w n n_y"], values: Float[Tensor, "w d"]) -> Measurements:
        """Expand the likelihood about means, at the variances of each draw; rows of all draws follow each other."""
        (w, n, n_y), model, rows, tolerance = means.shape, self.model, self.rows, tolerance_of(self.model)
        sensor = model.sensor if rows.sensor_var is None else None
        levels, rho, omega = values.split([n_y, n_learned(tolerance), n_learned(sensor)], -1)
        var = (levels.unsqueeze(1) + self.slope).exp().flatten(0, 1)

        def repeated(each: Any) -> Any:
            return None if each is None else each.repeat(w, *[1] * (each.ndim - 1))

        def of_rows(each: Any) -> Any:
            return None if each is None else each.expand(-1, n, -1).flatten(0, 1)

        target, B, tol_var = repeated(rows.target), repeated(rows.B), of_rows(variances_at(tolerance, rho))
        known = rows.sensor_var is not None
        w_of_rows = repeated(rows.sensor_var) if known else of_rows(variances_at(sensor, omega))
        return Measurements.of(
            model.likelihood,
            lambda mean: model.condition(DiagonalGaussian(mean, var), target, tol_var, None, B),
            means.flatten(0, 1),
            repeated(rows.y),
            0.0 if w_of_rows is None else w_of_rows,
            self.weight,
        )

    def _loosest(self) -> Float[Tensor, "k k_collapsed"]:
        """Return orthonormal directions of c in which the means have the largest posterior variance, in units of noise.

        These are found by subspace iteration.
        """
        U, k = self.basis.columns, self.basis.columns.shape[1]
        if k <= MOST_COLLAPSED:
            return torch.eye(k, dtype=U.dtype, device=U.device)
        noise = torch.randn(k, MOST_COLLAPSED, generator=torch.Generator().manual_seed(0), dtype=U.dtype).to(U)
        directions = noise
        for _ in range(6):
            of_means = self.information.flatten()[:, None] * (U @ directions)
            directions = torch.cholesky_solve(U.mT @ of_means, self.factor)
            directions = torch.linalg.qr(directions).Q
        return directions

    @property
    def has_rest(self) -> bool:
        """Whether there are coordinates that are not integrated out."""
        return self.collapsed.shape[1] < self.collapsed.shape[0]

    def sums(self, c: Float[Tensor, "w k"]) -> QuadraticSums:
        """Take sums over rows about coordinates of chains.

        Args:
            c: Coordinates.
        """
        return quadratic_sums(self.kinds, self.columns, self.basis.means(c), c @ self.collapsed, self.gram)

    def draw_at_start(self, w: int, generator: torch.Generator) -> Float[Tensor, "w k"]:
        """Draw all coordinates of the weights given the fitted variances.

        Args:
            w: Number of draws.
            generator: Source of random numbers, on the processor.
        """
        noise = torch.randn(w, len(self.best), generator=generator, dtype=torch.float64).to(self.best)
        return self.best + torch.linalg.solve_triangular(self.factor.mT, noise.mT, upper=True).mT

    def draw_loosest(
        self, values: Float[Tensor, "w d"], c: Float[Tensor, "w k"], generator: torch.Generator
    ) -> Float[Tensor, "w k"]:
        """Draw the coordinates that are integrated out, given variances and all others (V9).

        Args:
            values: Variances of w chains.
            c: Coordinates, of which the others are kept.
            generator: Source of random numbers, on the processor.
        """
        w, k, (n, n_y) = len(values), self.columns.shape[-1], self.offset.shape
        measured = self._measured(self.basis.means(c), values)
        L, U = measured.root.view(w, n, n_y, -1), self.columns.flatten(0, 1)
        noise = torch.randn(w, n, L.shape[-1], generator=generator, dtype=torch.float64).to(L)
        xi = torch.randn(w, k, generator=generator, dtype=torch.float64).to(L)
        linear = measured.gradient.view(w, -1) + (L @ noise.unsqueeze(-1)).flatten(1)
        right = linear @ U + xi - c @ self.collapsed

        def multiply(change: Tensor) -> Tensor:
            f = (change @ U.mT).view(w, n, n_y)
            return change + (L @ (L.mT @ f.unsqueeze(-1))).flatten(1) @ U

        factor = torch.linalg.cholesky(self._precisions_by_group(values))
        return c + _solved(multiply, right, factor) @ self.collapsed.mT  # V9

    def _precisions_by_group(self, values: Float[Tensor, "w d"]) -> Float[Tensor, "w k k"]:
        """Return the precisions of the coordinates that are integrated out, with the mean variances of each group."""
        c = self.best.expand(len(values), -1)
        evidence = CollapsedEvidence(self.model, [sums := self.sums(c)])
        return sums.precision(evidence.unit_gradients(values))


def _solved(
    multiply: Callable[[Tensor], Tensor], right: Float[Tensor, "w k"], factor: Float[Tensor, "w k k"]
) -> Float[Tensor, "w k"]:
    """Solve equations by conjugate gradients, preconditioned by matrices whose Cholesky factors are given."""

    def precondition(residual: Tensor) -> Tensor:
        return torch.cholesky_solve(residual.unsqueeze(-1), factor).squeeze(-1)

    c = precondition(right)
    residual = right - multiply(c)
    z = precondition(residual)
    direction, product = z, (residual * z).sum(-1, keepdim=True)
    goal = SOLVED**2 * (right * c).sum(-1, keepdim=True)
    for _ in range(MOST_ITERATIONS):
        if bool((product <= goal).all()):
            break
        image = multiply(direction)
        share = product / (direction * image).sum(-1, keepdim=True).clamp_min(1e-300)
        c, residual = c + share * direction, residual - share * image
        z, before = precondition(residual), product
        product = (residual * z).sum(-1, keepdim=True)
        direction = z + product / before.clamp_min(1e-300) * direction
    return c


@torch.no_grad()
def draw_posterior(
    model: ConstrainedBNN,
    members: Sequence[LinearisedMember],
    shares: Float[Tensor, " M"],
    rows: Rows,
    n_kept: int,
    generator: torch.Generator,
) -> PosteriorSample:
    """Draw jointly from the posterior of weights and variances.

    Args:
        model: The model, trained.
        members: Its members, linearised at the rows.
        shares: Weight of each member.
        rows: The rows.
        n_kept: Number of draws.
        generator: Source of random numbers, on the processor.
    """
    return _Sampler(model, members, shares, rows, generator).run(n_kept)


class _Sampler:
    """Gibbs' sampler over chains that belong to members in the members' shares."""

    def __init__(
        self,
        model: ConstrainedBNN,
        members: Sequence[LinearisedMember],
        shares: Float[Tensor, " M"],
        rows: Rows,
        generator: torch.Generator,
    ):
        self.model, self.members, self.rows, self.generator = model, members, rows, generator
        few = int(any(each.has_rest for each in members))
        self.n_chains, self.repeated = CHAINS[few], REPEATED[few]
        member = spread_over_members(shares, self.n_chains)
        self.member, order = member.sort(stable=True)
        self.place = order.argsort()  # of each chain in the order of predictions
        counts = torch.bincount(member, minlength=len(members)).tolist()
        self.counts = {m: count for m, count in enumerate(counts) if count}
        start = torch.cat([members[m].start.expand(count, -1) for m, count in self.counts.items()])
        self.chains = HamiltonianChains(start, generator)
        self.coordinates: list[Tensor] = []
        self.moves = all(members[m].kinds.groups is not None for m in self.counts)

    def run(self, n_kept: int) -> PosteriorSample:
        """Draw, and put what has been drawn in the order of predictions."""
        draws: list[tuple[Tensor, Tensor]] = []
        coordinates: list[list[Tensor]] = []
        warm_up, between = TRAJECTORIES
        while len(draws) * self.n_chains < n_kept:
            self._draw_coordinates()
            if self.moves:
                sums = [self.members[m].sums(c) for m, c in zip(self.counts, self.coordinates, strict=True)]
                evidence = CollapsedEvidence(self.model, sums)
                if not draws:
                    self.chains.run(evidence, warm_up, adapt=True)
                self.chains.run(evidence, between)
            for number in range(self.repeated):
                if number:
                    self._draw_coordinates()
                self._draw_loosest()
                draws.append((self.chains.position, self._other_tolerances()))
                coordinates.append(self.coordinates)
        values, again = (torch.stack(parts) for parts in zip(*draws, strict=True))
        changes = self._changes(values, coordinates)
        values, again, changes = (each[:, self.place].flatten(0, 1)[:n_kept] for each in (values, again, changes))
        member = self.member[self.place].repeat(len(draws))[:n_kept]
        return PosteriorSample(changes, member, *self._posteriors(values, again))

    def _draw_coordinates(self) -> None:
        """Draw coordinates of the weights given the fitted variances."""
        self.coordinates = [self.members[m].draw_at_start(w, self.generator) for m, w in self.counts.items()]

    def _draw_loosest(self) -> None:
        """Draw coordinates of the weights given the variances of each chain, as far as they depend on these."""
        parts = zip(self.counts, self._by_member(self.chains.position), self.coordinates, strict=True)
        if self.moves:
            self.coordinates = [self.members[m].draw_loosest(values, c, self.generator) for m, values, c in parts]

    def _by_member(self, values: Float[Tensor, "w d"]) -> tuple[Tensor, ...]:
        return values.split(list(self.counts.values()))

    def _changes(
        self, values: Float[Tensor, "times w d"], coordinates: Sequence[Sequence[Tensor]]
    ) -> Float[Tensor, "times w P"]:
        """Return changes of the weights, with those of the biases of the variance heads."""
        parts, network, n_y = [], self.model.network, self.model.network.n_outputs
        of_members = values.split(list(self.counts.values()), 1)
        for m, own, c in zip(self.counts, of_members, zip(*coordinates, strict=True), strict=True):
            member, together = self.members[m], torch.cat(c)
            shape = len(together), len(member.basis.point)
            noise = torch.randn(shape, generator=self.generator, dtype=torch.float64).to(together)
            changes = member.basis.changes(together, noise).view(len(values), -1, shape[1])
            raw = LOG_VAR_BOUND * torch.atanh((own[..., :n_y] / LOG_VAR_BOUND).clamp(-0.999, 0.999))
            layer_views(changes, network.sizes)[-1][1][..., n_y : 2 * n_y] = raw - member.head.level
            parts.append(changes)
        return torch.cat(parts, 1)

    def _other_tolerances(self) -> Float[Tensor, "w k"]:
        """Draw each `ρ` once more, given all else but itself, from its density on a grid about its value."""
        if not self.moves:
            return self.chains.position
        parts = [self.members[m] for m in self.counts]
        residuals = [each.kinds.residuals(each.basis.means(c)) for each, c in zip(parts, self.coordinates, strict=True)]
        density = VarianceDensity(self.model, rows := ResidualRows.joined(residuals))
        values, n_y = self.chains.position.clone(), density.n_levels
        near, far, number = OFFSETS
        steps = torch.logspace(torch.tensor(near).log10(), torch.tensor(far).log10(), number, dtype=torch.float64)
        grid = torch.cat([-steps.flip(0), torch.zeros(1, dtype=torch.float64), steps]).to(values)
        widths = 0.5 * torch.cat([grid[1:2] - grid[:1], grid[2:] - grid[:-2], grid[-1:] - grid[-2:-1]])
        repeated = VarianceDensity(self.model, rows.repeated(len(grid)))
        for k in range(n_y, n_y + density.n_tolerances):
            moved = values.repeat_interleave(len(grid), 0)
            moved[:, k] += grid.repeat(len(values))
            log_mass = repeated(moved).view(len(values), -1) + widths.log()
            mass = log_mass.nan_to_num(nan=-torch.inf).softmax(-1).cumsum(-1)
            uniform = torch.rand(len(values), 2, generator=self.generator, dtype=torch.float64).to(values)
            chosen = torch.searchsorted(mass, uniform[:, :1] * mass[:, -1:]).clamp_max(len(grid) - 1)[:, 0]
            values[:, k] += grid[chosen] + (uniform[:, 1] - 0.5) * widths[chosen]
        return values[:, n_y : n_y + density.n_tolerances]

    def _posteriors(self, values: Tensor, again: Tensor) -> list[VariancePosterior | None]:
        n_y, m = self.model.network.n_outputs, n_learned(tolerance_of(self.model))
        tolerance, sensor = tolerance_of(self.model), self.model.sensor
        parts: list[VariancePosterior | None] = [tolerance, sensor]
        if not self.moves:
            return parts
        if tolerance is not None and m:
            rho = all_logs(tolerance, values[:, n_y : n_y + m])
            parts[0] = SampledVariances(tolerance, rho, all_logs(tolerance, again))
        if sensor is not None and values.shape[1] > n_y + m:
            parts[1] = SampledVariances(sensor, all_logs(sensor, values[:, n_y + m :]))
        return parts
