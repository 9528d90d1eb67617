"""bayesian-torch: layers that draw their weights and know their KL."""

from collections.abc import Callable

from bayesian_torch.layers import LinearReparameterization
from torch import Tensor, nn

from benchmarks.bayes import Task, softplus_inverse
from benchmarks.peers import layered


def network(task: Task) -> layered.Layers:
    def make(fan_in: int, fan_out: int) -> nn.Module:
        return _Linear(fan_in, fan_out)

    return layered.Layers(task, make, lambda x: (x.mu_weight, x.mu_bias, x.rho_weight, x.rho_bias), softplus_inverse)


class _Linear(LinearReparameterization):
    """Keeps the KL of a call beside its result."""

    def forward(self, input: Tensor, return_kl: bool = True):
        out, self.kl = super().forward(input)
        return out

    def kl_div(self, mu_q: Tensor, sigma_q: Tensor, mu_p: Tensor, sigma_p: Tensor) -> Tensor:
        """The library averages over weights; the ELBO needs the sum."""
        return super().kl_div(mu_q, sigma_q, mu_p, sigma_p) * mu_q.numel()


def kl(net: layered.Layers) -> Tensor:
    """Of all weights, as of the last call."""
    return sum(layer.kl for layer in net.layers)  # type: ignore[return-value]


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are."""
    net = network(task)
    return layered.step(task, net, lambda: kl(net)), 1


def predictors(task: Task, n_draws: int) -> dict[str, Callable]:
    """A loop over draws."""
    return {"bayesian-torch": layered.predictor(task, network(task), n_draws)}
