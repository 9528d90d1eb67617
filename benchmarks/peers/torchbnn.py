"""torchbnn: layers that draw their weights."""

from collections.abc import Callable

import torch
import torchbnn
import torchbnn.functional

from benchmarks.bayes import Task
from benchmarks.peers import layered


def network(task: Task) -> layered.Layers:
    def make(fan_in: int, fan_out: int) -> torchbnn.BayesLinear:
        return torchbnn.BayesLinear(0.0, 1.0, fan_in, fan_out)

    def tensors(layer):
        return layer.weight_mu, layer.bias_mu, layer.weight_log_sigma, layer.bias_log_sigma

    return layered.Layers(task, make, tensors, torch.log)


def kl(net: layered.Layers) -> torch.Tensor:
    """Of all weights."""
    return torchbnn.functional.bayesian_kl_loss(net, reduction="sum").sum()


def step(task: Task) -> tuple[Callable[[], object], int]:
    """A training step, and how many that are."""
    net = network(task)
    return layered.step(task, net, lambda: kl(net)), 1
