"""The evidence of a linearised network at some rows: what the data say about its means, and how strong the prior is.

About a point `θ*` the means are linear in the weights: `f = μ* + J δ`. A normal prior `θ ~ N(0, Δ⁻¹)` makes them a
Gaussian process with mean `μ* − J θ*` and covariance `J Δ⁻¹ Jᵀ`, the tangent kernel. A likelihood whose curvature in
the means is `F = L Lᵀ` (L5) and whose gradient at `μ*` is `η = L e` measures them as `Lᵀ f` would be measured with unit
noise::

    z = e + Lᵀ J θ*,   M = 1 + Lᵀ J Δ⁻¹ Jᵀ L,   α = M⁻¹ z                                 (K5)
    log p(y) ≈ Σ_i L2_i(μ*) + ½ eᵀ e − ½ zᵀ M⁻¹ z − ½ log det M                           (K6)

with one row of `M` for each row of data and column of `L`. Everything that follows from the weights is a product of
this matrix with kernels of their groups; no matrix has a row for each weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equipoise.gaussian import Gaussian
from equipoise.network import BayesianMLP, Likelihood, MeanHead, layer_views, n_weights

PRECISIONS = (1e-3, 1e6)  # bounds of the prior precision of a group of weights
DAMPING = 0.5  # share of a change of a log precision that is made at once
PROBES = 32  # random vectors that estimate traces
SINGULAR = 1e-6  # of the largest singular value of L: smaller ones carry no information


@dataclass
class PriorPrecisions:
    """Precisions `Δ` of the weights' prior: one for each input of the network, and one for each other group.

    Groups are the weights of each input, the biases of each layer, the weights of each further layer. Weights of the
    variance and sensor heads have none: they belong to no group and do not vary.

    Args:
        group: Number of each weight's group, −1 for none, shape `(P,)`.
        of_group: Precision of each group.
        n_inputs: Number of inputs of the network, whose groups come first.

    Example:
        >>> PriorPrecisions.scaled_by_fan_in(sizes=(2, 2), n_outputs=1).of_each
        tensor([2., 0., 2., 0., 1., 0.], dtype=torch.float64)
    """

    group: Int64[Tensor, " P"]
    of_group: Float[Tensor, " n_groups"]
    n_inputs: int

    @classmethod
    def scaled_by_fan_in(cls, sizes: Sequence[int], n_outputs: int) -> "PriorPrecisions":
        """Start with variances `1 / fan_in` of the weights and 1 of the biases.

        Args:
            sizes: Widths of inputs, hidden layers and last layer.
            n_outputs: Number of means, the first units of the last layer.
        """
        group = torch.full((n_weights(sizes),), -1.0, dtype=torch.float64)
        precisions: list[float] = []
        for layer, (W, bias) in enumerate(layer_views(group, sizes)):
            last = layer == len(sizes) - 2
            W, bias = (W[:, :n_outputs], bias[:n_outputs]) if last else (W, bias)
            if layer == 0:
                W.copy_(torch.arange(len(W))[:, None])
                precisions += [float(max(sizes[0], 1))] * len(W)
            else:
                W.fill_(len(precisions))
                precisions.append(float(sizes[layer]))
            bias.fill_(len(precisions))
            precisions.append(1.0)
        return cls(group.long(), torch.tensor(precisions, dtype=torch.float64), sizes[0])

    @property
    def of_each(self) -> Float[Tensor, " P"]:
        """Precision of each weight; 0 where it belongs to no group."""
        return torch.where(self.group >= 0, self.of_group[self.group], 0.0)

    @property
    def spread(self) -> Float[Tensor, " P"]:
        """Prior standard deviation of each weight; 0 for those that do not vary."""
        return torch.where(self.group >= 0, self.of_group[self.group].rsqrt(), 0.0)

    def layer_variances(self, layer: int) -> tuple[Float[Tensor, " n_variances"], Float[Tensor, ""]]:
        """Return the prior variances of a layer's weights, one for each input in the first, and of its biases.

        Args:
            layer: Number of the layer, from 0.
        """
        var, n_x = 1.0 / self.of_group, self.n_inputs
        if layer == 0:
            return var[:n_x], var[n_x]
        return var[n_x + 2 * layer - 1].reshape(1), var[n_x + 2 * layer]

    def update(
        self, squares: Float[Tensor, " n_groups"], determined: Float[Tensor, " n_groups"], damping: float = DAMPING
    ) -> None:
        """Move towards the precisions with the largest evidence, by MacKay's fixed point::

            Δ_g ← Σ_(i in g) γ_i / Σ_(i in g) θ_i²                                        (K7)

        Args:
            squares: Sum of the squared weights of each group at the mode.
            determined: `Σ γ_i`, how many of the group's weights the data determine.
            damping: Share of the change of a log precision that is made.
        """
        best = ((determined + 1e-2) / (squares + 1e-4)).clamp(*PRECISIONS)
        self.of_group = self.of_group * (best / self.of_group).pow(damping)


class TangentKernel:
    """The covariance `J Δ⁻¹ Jᵀ` of the means of a linearised network at some rows.

    Args:
        network: Gives sizes and activation.
        point: `θ*`.
        x: Standardized inputs of n rows.

    Attributes:
        head: The mean head at `θ*`, in float64.
    """

    def __init__(self, network: BayesianMLP, point: Float[Tensor, " P"], x: Float[Tensor, "n n_x"]):
        self.point = point.double()
        self.head = MeanHead.at(self.point, x.double(), network.sizes, network.n_outputs, network.activation)

    @cached_property
    def of_outputs(self) -> list[Tensor]:
        """For each layer, products of the means' derivatives by its pre-activations, `(n · n_y, n · n_y)`."""
        flat = [signal.flatten(0, 1) for signal in self.head.signals()]
        return [signal @ signal.mT for signal in flat]

    @property
    def offset(self) -> Float[Tensor, "n n_y"]:
        """`J θ*`, by how much the means at `θ*` differ from those of the prior."""
        return self.head.tangents(self.point[None])[0]

    def covariance(self, precisions: PriorPrecisions) -> Float[Tensor, "n_by_n_y n_by_n_y"]:
        """Compute `J Δ⁻¹ Jᵀ`, with outputs of the same row side by side.

        Args:
            precisions: `Δ`.
        """
        n, n_y = self.head.mean.shape
        total = torch.zeros_like(self.of_outputs[0])
        for layer, (h, products) in enumerate(zip(self.head.inputs, self.of_outputs, strict=True)):
            of_weights, of_biases = precisions.layer_variances(layer)
            rows = (h * of_weights) @ h.mT + of_biases
            total += (products.view(n, n_y, n, n_y) * rows[:, None, :, None]).view_as(products)
        return total


@dataclass(frozen=True)
class Measurements:
    """A likelihood of the means at some rows, to second order about `μ*`.

    Args:
        root: `L`, shape `(n, n_y, c)`.
        gradient: `η`, shape `(n, n_y)`.
        log_likelihood: `Σ_i L2_i(μ*)`.
    """

    root: Float[Tensor, "n n_y c"]
    gradient: Float[Tensor, "n n_y"]
    log_likelihood: float = 0.0

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        likelihood: Likelihood,
        gaussian_at: Callable[[Tensor], Gaussian],
        mean: Float[Tensor, "n n_y"],
        y: Float[Tensor, "n n_y"],
        sensor_var: Tensor | float,
        weight: float = 1.0,
    ) -> "Measurements":
        """Expand the log likelihood about means before conditioning.

        Args:
            likelihood: The likelihood.
            gaussian_at: Returns the Gaussian of the true outputs for given means.
            mean: `μ*`.
            y: Measured outputs.
            sensor_var: Sensor variances.
            weight: How often each row counts.
        """
        with torch.enable_grad():
            leaf = mean.detach().requires_grad_()
            density = likelihood(gaussian_at(leaf), y, sensor_var).sum()
            (gradient,) = torch.autograd.grad(density, leaf)
        root = narrowed(likelihood.curvature_root(gaussian_at(mean), y, sensor_var))
        return cls(weight**0.5 * root, weight * gradient, weight * float(density))

    @cached_property
    def errors(self) -> Float[Tensor, "n c"]:
        """`e`, with `η = L e`."""
        inverse = torch.linalg.pinv(self.root, rtol=SINGULAR)
        return (inverse @ self.gradient.unsqueeze(-1)).squeeze(-1)

    def loss(self, change: Float[Tensor, "n n_y"]) -> tuple[float, Float[Tensor, "n n_y"]]:
        """Return the negative log likelihood of means `μ* + δ`, and its gradient.

        Args:
            change: `δ`.
        """
        missed = self.errors - (self.root.mT @ change.unsqueeze(-1)).squeeze(-1)
        value = 0.5 * float(missed.square().sum() - self.errors.square().sum()) - self.log_likelihood
        return value, -(self.root @ missed.unsqueeze(-1)).squeeze(-1)

    def project(self, covariance: Float[Tensor, "n_by_n_y k"]) -> Float[Tensor, "n_by_c k"]:
        """Multiply by `Lᵀ` from the left."""
        n, n_y, _ = self.root.shape
        return (self.root.mT @ covariance.view(n, n_y, -1)).flatten(0, 1)

    def spread_out(self, values: Float[Tensor, "n_by_c k"]) -> Float[Tensor, "n_by_n_y k"]:
        """Multiply by `L` from the left."""
        n, _, c = self.root.shape
        return (self.root @ values.view(n, c, -1)).flatten(0, 1)


def narrowed(root: Float[Tensor, "n n_y c"]) -> Float[Tensor, "n n_y k"]:
    """Return a root of the same curvature `L Lᵀ` with no more columns than rows.

    Args:
        root: `L`.
    """
    if root.shape[-1] <= root.shape[-2]:
        return root
    values, vectors = torch.linalg.eigh(root @ root.mT)
    return vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)


class LinearEvidence:
    """The posterior of a linearised network at some rows, and its evidence (K5, K6).

    Args:
        kernel: The network, linearised.
        precisions: `Δ`.
        measurements: What the likelihood says.
        covariance: `J Δ⁻¹ Jᵀ`, if it has been computed before.
    """

    def __init__(
        self,
        kernel: TangentKernel,
        precisions: PriorPrecisions,
        measurements: Measurements,
        covariance: Float[Tensor, "n_by_n_y n_by_n_y"] | None = None,
    ):
        self.kernel, self.precisions, self.measurements = kernel, precisions, measurements
        self.covariance = kernel.covariance(precisions) if covariance is None else covariance
        projected = measurements.project(self.covariance)  # Lᵀ K
        M = measurements.project(projected.mT.contiguous())
        M.diagonal().add_(1.0)
        self.projected, self.factor = projected, torch.linalg.cholesky(0.5 * (M + M.mT))
        z = measurements.errors.flatten() + measurements.project(kernel.offset.reshape(-1, 1)).squeeze(-1)
        self.targets = z  # K5
        self.alpha = torch.cholesky_solve(z[:, None], self.factor)

    @property
    def log_evidence(self) -> float:
        """The log evidence (K6)."""
        quadratic = self.measurements.errors.square().sum() - self.targets @ self.alpha[:, 0]
        return self.measurements.log_likelihood + float(0.5 * quadratic - self.factor.diagonal().log().sum())

    @property
    def freedom(self) -> Float[Tensor, "n c"]:
        """Degrees of freedom that the weights leave to the errors of each measurement, from 0 to 1."""
        return torch.cholesky_inverse(self.factor).diagonal().view(self.measurements.errors.shape)

    @property
    def residuals(self) -> Float[Tensor, "n c"]:
        """Errors of the measurements at the mode, in units of their standard deviations."""
        return self.alpha.view(self.measurements.errors.shape)

    @property
    def mode(self) -> Float[Tensor, "n n_y"]:
        """Means at the mode of the linearised network."""
        prior = self.kernel.head.mean - self.kernel.offset
        return prior + (self.projected.mT @ self.alpha).view_as(prior)

    @property
    def spreads(self) -> Float[Tensor, "n_y n n_y"]:
        """Roots of each row's posterior covariance of the means: `n_y` steps, whose squares add up to it."""
        n, n_y = self.kernel.head.mean.shape
        half = torch.linalg.solve_triangular(self.factor, self.projected, upper=False).view(-1, n, n_y)
        own = self.covariance.view(n, n_y, n, n_y).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        values, vectors = torch.linalg.eigh(own - torch.einsum("knj,kni->nji", half, half))
        return (vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)).permute(2, 0, 1)

    def update_precisions(
        self,
        generator: torch.Generator,
        damping: float = DAMPING,
        weights: Float[Tensor, " P"] | None = None,
    ) -> float:
        """Move the prior precisions towards the largest evidence (K7); return how many weights the data determine.

        With random signs ζ, whose products `ζ ζᵀ` are 1 on average,
        `γ_g = E[ Σ_(p in g) (Jᵀ L M^(−½) ζ)_p² / Δ_p ]`.

        Args:
            generator: Randomness of the signs.
            damping: Share of the change of a log precision that is made.
            weights: Weights whose norms count; by default `Δ⁻¹ Jᵀ L α`, those of the mode.
        """
        roots = torch.linalg.solve_triangular(self.factor.mT, self._probes(generator), upper=True)
        pulled = self._pull_back(torch.cat([self.alpha, roots], 1))
        var, own = self.precisions.spread.square(), self.precisions.group >= 0
        weights = var * pulled[0] if weights is None else weights.to(var)
        parts = weights.square(), var * pulled[1:].square().mean(0)
        group, zeros = self.precisions.group[own], torch.zeros_like(self.precisions.of_group)
        squares, determined = (zeros.index_add(0, group, part[own]) for part in parts)
        self.precisions.update(squares, determined, damping)
        return float(determined.sum())

    def _probes(self, generator: torch.Generator) -> Float[Tensor, "n_by_c k"]:
        """Return vectors ζ whose products `ζ ζᵀ` are 1 on average: random ones, or a basis where that is as small."""
        n = len(self.factor)
        if n <= PROBES:
            return n**0.5 * torch.eye(n, dtype=self.factor.dtype, device=self.factor.device)
        return torch.randint(0, 2, (n, PROBES), generator=generator).to(self.factor).mul_(2).sub_(1)

    def _pull_back(self, columns: Float[Tensor, "n_by_c k"]) -> Float[Tensor, "k P"]:
        """Multiply by `Jᵀ L`."""
        n_y = self.kernel.head.mean.shape[1]
        spread_out = self.measurements.spread_out(columns).view(-1, n_y, columns.shape[1])
        return self.kernel.head.pull_back(spread_out.movedim(-1, 0).contiguous())
