"""What libraries of Bayesian layers have in common: a network from them, a training step, a loop over draws."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from benchmarks.bayes import Task, conditioned, nll

Layer = Callable[[int, int], nn.Module]


class Layers(nn.Module):
    """Bayesian layers with SiLU in between; each starts at the task's weights.

    Args:
        task: With the widths and starting weights.
        make: A layer from its two widths.
        tensors: The layer's means and spreads, for weights and biases: `(mean, bias_mean, spread, bias_spread)`.
        to_spread: From a standard deviation to what the layer keeps of it.
    """

    def __init__(self, task: Task, make: Layer, tensors: Callable[[nn.Module], Sequence[Tensor]], to_spread: Callable):
        super().__init__()
        self.layers = nn.ModuleList([make(*widths) for widths in itertools.pairwise(task.sizes)])
        spread = float(to_spread(torch.tensor(task.init_std)))
        with torch.no_grad():
            for layer, (W, bias) in zip(self.layers, task.layers(), strict=True):
                mean, bias_mean, *spreads = tensors(layer)
                mean.copy_(W.mT)
                bias_mean.copy_(bias)
                for part in spreads:
                    part.fill_(spread)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = nn.functional.silu(layer(x)) if i < len(self.layers) - 1 else layer(x)
        return x


def step(task: Task, network: nn.Module, kl: Callable[[], Tensor]) -> Callable[[], object]:
    """Forward, negative ELBO without balances, backward and Adam."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-5, fused=True)
    x, _, y = task.first()

    def call():
        optimizer.zero_grad()
        (nll(network(x), y) + kl() / task.n_rows).backward()
        optimizer.step()

    return call


def predictor(task: Task, network: nn.Module, n_draws: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Mean and variance of the mixture, draw after draw: every call of the network draws weights of its own."""

    @torch.no_grad()
    def call():
        parts = _components(task, network, n_draws)
        total, square, inner = (torch.zeros(len(task.x), task.sizes[-1] // 2, dtype=torch.float64) for _ in range(3))
        for mean, var in parts:
            total += mean
            square += mean.double().square()
            inner += var
        mean = total / n_draws
        return mean, inner / n_draws + square / n_draws - mean.square()

    return call


def _components(task: Task, network: nn.Module, n_draws: int) -> Iterator[tuple[Tensor, Tensor]]:
    log_tol = task.prior[0] + task.prior[1] * torch.randn(n_draws, len(task.B))
    for rho in log_tol:
        yield conditioned(task, network(task.x), rho.exp())
