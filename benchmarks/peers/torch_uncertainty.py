"""torch-uncertainty: layers that draw their weights, with a KL estimated from the draw."""

from collections.abc import Callable

from torch_uncertainty.layers import BayesLinear

from benchmarks.bayes import Task, softplus_inverse
from benchmarks.peers import layered


def network(task: Task) -> layered.Layers:
    def make(fan_in: int, fan_out: int) -> BayesLinear:
        return BayesLinear(fan_in, fan_out, prior_sigma_1=1.0, prior_pi=1.0)

    def tensors(layer):
        return layer.weight_mu, layer.bias_mu, layer.weight_sigma, layer.bias_sigma

    return layered.Layers(task, make, tensors, softplus_inverse)


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are."""
    net = network(task)
    return layered.step(task, net, lambda: sum(layer.lvposterior - layer.lprior for layer in net.layers)), 1
