"""Hamiltonian Monte Carlo of many chains side by side, in few dimensions (Neal 2011).

A chain has a position and draws a momentum; leapfrog steps along the gradient lead to a proposal far away, which is
accepted by Metropolis' rule. Ridges that are long, narrow and curved, as of variances of which only sums are known, are
followed by steps as small as the ridge is narrow.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

ACCEPTANCE = 0.8  # that adapted steps aim at
STEPS = (0.005, 1.0)
MOST_STEPS = 24  # of a trajectory
LENGTH = 3.0  # of a trajectory

LogDensity = Callable[[Float[Tensor, "w d"]], tuple[Float[Tensor, " w"], Float[Tensor, "w d"]]]
"""From positions of w chains to the log density of each at its own position, and its gradient."""


class HamiltonianChains:
    """Chains that have one size of steps in common, which is adapted while they warm up.

    Args:
        position: Where the chains start, `(w, d)`.
        generator: Source of random numbers, on the processor.
        step: Size of the steps at first.

    Attributes:
        acceptance: Share of the last proposals that was accepted, as a probability.
    """

    def __init__(self, position: Float[Tensor, "w d"], generator: torch.Generator, step: float = 0.1):
        self.position, self.step, self.acceptance = position.clone(), step, math.nan
        self._generator = generator

    def run(self, log_density: LogDensity, n: int = 1, adapt: bool = False, most_steps: int = MOST_STEPS) -> None:
        """Move all chains by some trajectories.

        Args:
            log_density: The log density of each chain at its own position, and its gradient.
            n: Number of trajectories.
            adapt: Whether the size of steps is adapted after each.
            most_steps: Number of steps of a trajectory at most.
        """
        value, gradient = _finite(*log_density(self.position))
        for _ in range(n):
            value, gradient = self._trajectory(log_density, value, gradient, most_steps)
            if adapt:
                self.step *= math.exp(self.acceptance - ACCEPTANCE)
                self.step = min(max(self.step, STEPS[0]), STEPS[1])

    def _trajectory(
        self, log_density: LogDensity, value: Tensor, gradient: Tensor, most_steps: int
    ) -> tuple[Tensor, Tensor]:
        w = len(self.position)
        momentum = self._normal(w, self.position.shape[1])
        step = self.step * (0.6 + 0.6 * self._uniform(w, 1))
        energy = value - 0.5 * momentum.square().sum(-1)
        position, slope, end = self.position, gradient, value
        for _ in range(min(most_steps, math.ceil(LENGTH / self.step))):
            momentum = momentum + 0.5 * step * slope
            position = position + step * momentum
            end, slope = _finite(*log_density(position))
            momentum = momentum + 0.5 * step * slope
        change = end - 0.5 * momentum.square().sum(-1) - energy
        probability = change.nan_to_num(nan=-torch.inf).clamp_max(0.0).exp()
        accepted = self._uniform(w) < probability
        self.acceptance = float(probability.mean())
        self.position = torch.where(accepted[:, None], position, self.position)
        return torch.where(accepted, end, value), torch.where(accepted[:, None], slope, gradient)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(self.position)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64).to(self.position)


def _finite(value: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return log density and gradient of each chain; one that has left all bounds is refused where it stands."""
    lost = ~(value.isfinite() & gradient.isfinite().all(-1))
    return torch.where(lost, -torch.inf, value), torch.where(lost[:, None], 0.0, gradient)
