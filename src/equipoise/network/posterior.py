"""Posteriors of the network's weights: the contracts, and the mean-field Gaussian of the paper.

There are two contracts, one above the other. `WeightDraws` is all that prediction needs: draws of the flat vector of
weights by number, and how the network is evaluated at them. `WeightPosterior` is what training by the evidence lower
bound needs beside: means, spreads, a divergence from the prior. `equipoise.testing.check_posterior` says whether a
class keeps to the second; one that does can be passed to `ConstrainedBNNRegressor(posterior=...)`.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.errors import InputError, InputTypeError, check_choice, check_count
from equipoise.network.heads import NetworkGaussian

DRAW_BLOCK = 32  # draws that share one seeded stream: draw d depends neither on their number nor on chunks of rows


ForwardPass = Callable[[Tensor, Tensor], NetworkGaussian]
"""From weight draws `(n_draws, P)` and inputs `(n, n_x)` to Gaussians `(n_draws, n, n_y)`, as `BayesianMLP.at`."""


class WeightDraws(nn.Module, ABC):
    """Draws of a network's weights by number, and the network's Gaussians at them: what a prediction averages over.

    Its parameters and buffers are the numbers that a model file keeps.

    Args:
        prior_std: Standard deviation of the prior of each weight.

    Attributes:
        name: Name in messages and model files.
        has_layer_moments: Whether rows can have weight draws of their own in training (V2).
    """

    name: ClassVar[str]
    has_layer_moments: ClassVar[bool] = False

    def __init__(self, prior_std: float = 1.0):
        super().__init__()
        self.prior_std = prior_std

    @abstractmethod
    def draw_block(self, seed: int, block: int, generator: torch.Generator) -> Float[Tensor, "n_draws P"]:
        """Draw weight vectors number `DRAW_BLOCK · block … DRAW_BLOCK · (block + 1) − 1`.

        Args:
            seed: Seed of all blocks; the same (seed, block) always gives the same draws.
            block: Number of the block.
            generator: Randomness on the processor, already seeded from both; tolerances and sensors are drawn from it
                afterwards.
        """

    def evaluate(
        self, network: nn.Module, weights: Float[Tensor, "n_draws P"], x: Float[Tensor, "n n_x"], forward: ForwardPass
    ) -> NetworkGaussian:
        """Evaluate the network at draws: by its forward pass, unless a class does it in another way.

        Args:
            network: The `BayesianMLP`, for other ways: a linearised posterior's mean is `μ(x; loc) + J(x) (θ − loc)`.
            weights: Draws from `draw_block`.
            x: Standardized inputs.
            forward: The network's forward pass, `network.at` or its compiled twin.
        Returns: Gaussians of shape `(n_draws, n, n_y)`.
        """
        return forward(weights, x)

    @property
    def n_distinct(self) -> int | None:
        """Number of different draws if it is finite and they come in turn; None otherwise."""
        return None

    def settings(self) -> dict[str, Any]:
        """Return further arguments with which the class makes such an object again, as JSON can hold them."""
        return {}

    @classmethod
    @abstractmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "WeightDraws":
        """Make an object of the same shape, whose numbers those of a model file will replace.

        Args:
            sizes: Widths of inputs, hidden layers and last layer.
            prior_std: Standard deviation of the prior.
            settings: Those of `settings()`.
        """


class WeightPosterior(WeightDraws):
    """An approximate posterior `q(θ)` of all weights and biases, beside the prior `p(θ) = N(0, prior_std² I)`.

    Args:
        loc: Starting means, shape `(P,)`: weights, then biases, layer after layer.
        sizes: Widths of inputs, hidden layers and last layer.
        prior_std: Standard deviation of the prior; the paper's is 1.
        init_std: Starting standard deviation of every weight.

    Attributes:
        name: Name in messages and model files.
        has_layer_moments: Whether `layer_moments` is defined. Rows then have draws of their own in training; otherwise
            all rows of a batch share one draw, which makes gradients noisier.
        loc: The means, a parameter. The first phase of training moves them alone.
    """

    loc: nn.Parameter

    def __init__(self, loc: Float[Tensor, " P"], sizes: Sequence[int], prior_std: float = 1.0, init_std: float = 1e-2):
        super().__init__(prior_std)
        self.sizes = tuple(sizes)
        self.loc = nn.Parameter(loc.clone())

    @abstractmethod
    def kl(self) -> Float[Tensor, ""]:
        """Compute the divergence `KL(q(θ) ‖ p(θ))`, *summed* over weights, in nats."""

    @abstractmethod
    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """Draw weight vectors, differentiable with respect to all parameters.

        Args:
            n: Number of draws.
            generator: The only source of randomness, so that the same generator gives the same draws.
        """

    @abstractmethod
    def set_std(self, std: float) -> None:
        """Set the standard deviation of every weight, from all sources of spread, leaving the means as they are."""

    def draw_block(self, seed: int, block: int, generator: torch.Generator) -> Float[Tensor, "n_draws P"]:
        """Draw a block of weight vectors from `generator`; arguments are those of `WeightDraws.draw_block`."""
        return self.draw(DRAW_BLOCK, generator)

    def spreads(self) -> list[nn.Parameter]:
        """Return the parameters that determine the spread of the weights: all but `loc`."""
        return [parameter for name, parameter in self.named_parameters() if name != "loc"]

    def layer_moments(
        self, layer: int, h: Float[Tensor, "n fan_in"]
    ) -> tuple[Float[Tensor, "n fan_out"], Float[Tensor, "n fan_out"]]:
        """Compute mean and variance of the pre-activations of a layer, which must be independent given its inputs.

        Args:
            layer: Number of the layer, from 0.
            h: Its inputs.
        """
        raise InputTypeError(f"The posterior {self.name!r} has no layer moments.")

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "WeightPosterior":
        """Make a posterior with means 0; arguments are those of `WeightDraws.blank`."""
        return cls(torch.zeros(n_weights(sizes)), sizes, prior_std, **settings)


PosteriorFactory = Callable[..., WeightPosterior]


class MeanFieldGaussian(WeightPosterior):
    """The paper's posterior, independent normals `q(θ) = N(loc, diag(std²))`.

    Arguments are those of `WeightPosterior`.

    Example:
        >>> q = MeanFieldGaussian(torch.zeros(3), (2, 1), prior_std=1.0, init_std=1.0)
        >>> q.kl().item()
        0.0
    """

    name, has_layer_moments = "mean-field", True

    def __init__(self, loc: Float[Tensor, " P"], sizes: Sequence[int], prior_std: float = 1.0, init_std: float = 1e-2):
        super().__init__(loc, sizes, prior_std, init_std)
        self.log_std = nn.Parameter(torch.full_like(loc, init_std).log())

    @property
    def std(self) -> Float[Tensor, " P"]:
        """Standard deviation of each weight."""
        return self.log_std.exp()

    def kl(self) -> Float[Tensor, ""]:
        """Compute the divergence `KL(q(θ) ‖ p(θ))`, *summed* over weights, in nats.

        ::

            KL = Σ_i [ log(σ_p / σ_i) + (σ_i² + μ_i²) / (2 σ_p²) − ½ ]            (K1)
        """
        log_ratio = self.log_std.double() - math.log(self.prior_std)  # sums of thousands of terms, in float64
        squares = (2.0 * log_ratio).exp() + (self.loc.double() / self.prior_std).square()
        return (0.5 * squares - log_ratio - 0.5).sum()

    def draw(self, n: int, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """Draw weight vectors `θ = loc + std ⊙ ξ` for standard normal numbers `ξ` (V1).

        Args:
            n: Number of draws.
            generator: Source of the standard normal numbers.
        """
        return self.loc + self.std * standard_normals((n, len(self.loc)), self.loc, generator)

    @torch.no_grad()
    def set_std(self, std: float) -> None:
        """Set the standard deviation of every weight."""
        self.log_std.fill_(math.log(std))

    def layer_moments(
        self, layer: int, h: Float[Tensor, "n fan_in"]
    ) -> tuple[Float[Tensor, "n fan_out"], Float[Tensor, "n fan_out"]]:
        """Compute mean and variance of the pre-activations of a layer, `h M + m` and `h² V + u` (V2).

        Args:
            layer: Number of the layer, from 0.
            h: Its inputs.
        """
        shapes = list(itertools.pairwise(self.sizes))
        fan_in, fan_out = shapes[layer]
        first = sum((a + 1) * b for a, b in shapes[:layer])
        bias, end = first + fan_in * fan_out, first + (fan_in + 1) * fan_out
        var = self.log_std[first:end].exp().square().clamp_min(torch.finfo(h.dtype).tiny)
        mean = torch.addmm(self.loc[bias:end], h, self.loc[first:bias].view(fan_in, fan_out))
        W_var, bias_var = var[: bias - first].view(fan_in, fan_out), var[bias - first :]
        return mean, torch.addmm(bias_var, h.square(), W_var)


def n_weights(sizes: Sequence[int]) -> int:
    """Return the number of weights and biases of a network.

    Args:
        sizes: Widths of inputs, hidden layers and last layer.
    """
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


POSTERIORS: dict[str, PosteriorFactory] = {"mean-field": MeanFieldGaussian}


def standard_normals(
    shape: Sequence[int], like: Tensor, generator: torch.Generator | None = None
) -> Float[Tensor, "..."]:
    """Draw standard normal numbers on the generator's device, so that every device gets the same ones from the CPU.

    Args:
        shape: Shape of the result.
        like: A tensor with the dtype and device of the result.
        generator: Source of random numbers; torch's default by default.
    """
    device = like.device if generator is None else generator.device
    return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=device).to(like.device)


@dataclass(frozen=True)
class Laplace:
    """The choice of a linearised Laplace posterior: `posterior=Laplace(n_members=5)`, or "laplace" with defaults.

    Networks are trained to modes of their posterior, with priors whose strength follows from the evidence, and their
    means are linear in the weights about these modes (V5).

    Args:
        n_members: Number of networks, trained side by side, which share tolerances and sensors.
    Raises:
        InputError: If `n_members` is not a whole number of at least 1.

    Example:
        >>> Laplace(n_members=1)
        Laplace(n_members=1)
    """

    n_members: int = 3

    name: ClassVar[str] = "laplace"

    def __post_init__(self):
        check_count("n_members", self.n_members)


def as_posterior(posterior: Any) -> PosteriorFactory | Laplace:
    """Return what makes the posterior that a user names or passes, or the choice of a Laplace posterior.

    Args:
        posterior: "mean-field", "laplace", a `Laplace`, a class that derives from `WeightPosterior`, or
            `functools.partial` of one.
    Raises:
        InputError: For another name, or a class of yours with one of these names.
        InputTypeError: If it is neither a name nor such a class.

    Example:
        >>> as_posterior("mean-field").__name__
        'MeanFieldGaussian'
    """
    if isinstance(posterior, Laplace):
        return posterior
    made = posterior.func if isinstance(posterior, partial) else posterior
    if isinstance(made, type) and issubclass(made, WeightPosterior):
        name = getattr(made, "name", None)
        if not (isinstance(name, str) and name):
            raise InputError(
                f"{made.__name__} must have a name, but got {name!r}. Set the attribute name in the class."
            )
        if name == Laplace.name or POSTERIORS.get(name, made) is not made:
            rule = f"{made.__name__} must have a name of its own, but got {made.name!r}"
            raise InputError(f"{rule}, which belongs to the library. Give the class another one.")
        return posterior
    if not isinstance(posterior, str):
        advice = "Pass a class that derives from equipoise.WeightPosterior, or functools.partial of one."
        raise InputTypeError(f"posterior must be a name or a class, but got {posterior!r}. {advice}")
    check_choice("posterior", posterior, [*POSTERIORS, Laplace.name])
    return Laplace() if posterior == Laplace.name else POSTERIORS[posterior]


def posterior_name(posterior: Any) -> str:
    """Return the name of the posterior that a user names or passes; the argument is that of `as_posterior`."""
    made = as_posterior(posterior)
    return (made.func if isinstance(made, partial) else made).name  # type: ignore[attr-defined]
