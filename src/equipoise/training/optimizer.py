"""Adam over groups of parameters that learn at different rates, by torch's kernel without its optimizer class.

`torch.optim.Adam` imports torch's compiler when it is constructed, which takes two seconds in every process that fits,
and checks all of its options in every step, which takes longer than the step at the sizes of these networks. So does
`clip_grad_norm_`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

BETAS, EPS = (0.9, 0.999), 1e-8  # those of torch


class Adam:
    """Adam (Kingma & Ba 2015), with the same bits as `torch.optim.Adam` with its defaults.

    Args:
        groups: Mappings with a list of parameters under "params"; other entries are kept.
        fused: Whether the device has a fused kernel.

    Attributes:
        param_groups: The groups. Set the learning rate "lr" in each before a step.

    Example:
        >>> weight = nn.Parameter(torch.zeros(2))
        >>> optimizer = Adam([{"params": [weight], "lr": 0.1}])
        >>> weight.grad = torch.tensor([3.0, -0.02])
        >>> optimizer.step()
        >>> weight.detach()
        tensor([-0.1000,  0.1000])
    """

    def __init__(self, groups: Sequence[Mapping[str, Any]], fused: bool = True):
        self.param_groups = [dict(group) for group in groups]
        self.fused = fused
        self._state = {parameter: self._fresh(parameter) for parameter in self._parameters}
        self._kinds = [self._by_kind(group["params"]) for group in self.param_groups]

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for group, kinds in zip(self.param_groups, self._kinds, strict=True):
            for kind in kinds:
                index = [k for k, parameter in enumerate(kind[0]) if parameter.grad is not None]
                if index:
                    with_gradient = kind if len(index) == len(kind[0]) else [[part[k] for k in index] for part in kind]
                    self._update(group["lr"], *with_gradient)

    def _update(self, rate: float, parameters: list, steps: list, means: list, squares: list) -> None:
        """Update parameters of one data type on one device."""
        grads = [parameter.grad for parameter in parameters]
        state: Any = parameters, grads, means, squares, [], steps
        options: Any = {"lr": rate, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": 0.0}
        if self.fused:
            torch._foreach_add_(steps, 1)  # type: ignore[reportPrivateImportUsage]
            torch._fused_adam_(*state, amsgrad=False, maximize=False, **options)  # type: ignore[reportPrivateImportUsage]
        else:
            adam(*state, foreach=False, fused=False, amsgrad=False, maximize=False, **options)

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Return step, running mean and running square of each parameter by its number in the order of the groups."""
        return {str(i): list(self._state[parameter]) for i, parameter in enumerate(self._parameters)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Continue from an earlier `state_dict` of the same parameters."""
        for i, parameter in enumerate(self._parameters):
            for own, saved in zip(self._state[parameter], state[str(i)], strict=True):
                own.copy_(saved)

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _by_kind(self, parameters: Iterable[nn.Parameter]) -> list[list[list]]:
        """Group parameters and their state by data type and device, in lists as the kernel expects them."""
        kinds: dict[tuple, list] = {}
        for parameter in parameters:
            kinds.setdefault((parameter.dtype, parameter.device), []).append((parameter, *self._state[parameter]))
        return [[list(part) for part in zip(*kind, strict=True)] for kind in kinds.values()]

    def _fresh(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor, Tensor]:
        step = torch.zeros((), device=parameter.device if self.fused else None)
        return step, torch.zeros_like(parameter), torch.zeros_like(parameter)


@torch.no_grad()
def clip_norm(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Scale all gradients together so that their norm is at most `max_norm`, with the same bits as `clip_grad_norm_`.

    Args:
        parameters: Parameters with gradients.
        max_norm: Largest norm of all gradients together.
    Example:
        >>> weight = nn.Parameter(torch.zeros(2))
        >>> weight.grad = torch.tensor([30.0, 40.0])
        >>> clip_norm([weight], 5.0)
        >>> weight.grad
        tensor([3.0000, 4.0000])
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if grads:
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in grads]))
        if (scale := max_norm / (norm + 1e-6)) < 1.0:
            torch._foreach_mul_(grads, scale)  # type: ignore[reportPrivateImportUsage]
