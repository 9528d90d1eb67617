"""Adam over groups of parameters that learn at different rates: torch's kernel without what torch has around it.

`torch.optim.Adam` imports torch's compiler when it is made, which takes two seconds in every process that fits, and
looks at all of its options in every step, which at the sizes of these networks takes longer than the step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

BETAS, EPS = (0.9, 0.999), 1e-8  # those of torch


class Adam:
    """Adam (Kingma & Ba 2015) as `torch.optim.Adam` with its defaults has it, to the bit.

    Args:
        groups: Each with its parameters under "params"; whatever else is in them stays there.
        fused: Whether the device has a fused kernel.

    Attributes:
        param_groups: The groups. Set "lr" in each before a step.

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

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            state = [self._state[parameter] for parameter in moved]
            adam(
                moved,
                [parameter.grad for parameter in moved],
                [mean for _, mean, _ in state],
                [square for _, _, square in state],
                [],
                [step for step, _, _ in state],
                foreach=False,
                fused=self.fused,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=group["lr"],
                weight_decay=0.0,
                eps=EPS,
                maximize=False,
            )

    def state_dict(self) -> dict[str, list[Tensor]]:
        """Step, running mean and running square of each parameter, in the order of the groups."""
        return {str(i): list(self._state[parameter]) for i, parameter in enumerate(self._parameters)}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Sequence[Tensor]]) -> None:
        """Go on from an earlier `state_dict` of the same parameters."""
        for i, parameter in enumerate(self._parameters):
            for mine, kept in zip(self._state[parameter], state[str(i)], strict=True):
                mine.copy_(kept)

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _fresh(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor, Tensor]:
        step = torch.zeros((), device=parameter.device if self.fused else None)
        return step, torch.zeros_like(parameter), torch.zeros_like(parameter)
