"""Adam against torch's own, bit for bit."""

import subprocess
import sys

import pytest
import torch

from equipoise.training.optimizer import Adam, clip_norm


def weights():
    rng = torch.Generator().manual_seed(0)
    single, double = torch.randn(50, generator=rng), torch.randn(7, generator=rng, dtype=torch.float64)
    return [torch.nn.Parameter(single), torch.nn.Parameter(double), torch.nn.Parameter(single.clone())]


def run(parameters, optimizer, steps):
    """Gradients that depend on where the parameters are, and rates that fall; the last one has none at first."""
    a, b, c = parameters
    for k in steps:
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 / (k + 1)
        a.grad, b.grad = torch.sin(a.detach() * k), torch.cos(b.detach() + k)
        c.grad = torch.cos(c.detach() + k) if k >= 5 else None
        optimizer.step()


def groups_of(parameters):
    return [{"params": parameters[:1]}, {"params": parameters[1:], "peak": 3.0}]


@pytest.mark.parametrize("fused", [True, False])
def test_it_moves_as_torchs_own_to_the_bit(fused):
    ours, theirs = weights(), weights()
    run(ours, Adam(groups_of(ours), fused), range(30))
    run(theirs, torch.optim.Adam(groups_of(theirs), fused=fused), range(30))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def test_an_earlier_state_goes_on_to_the_same_bits():
    whole, cut = weights(), weights()
    run(whole, Adam(groups_of(whole)), range(20))
    first = Adam(groups_of(cut))
    run(cut, first, range(12))
    kept = {name: [part.clone() for part in parts] for name, parts in first.state_dict().items()}
    second = Adam(groups_of(cut))
    second.load_state_dict(kept)
    run(cut, second, range(12, 20))
    for mine, other in zip(cut, whole, strict=True):
        assert torch.equal(mine, other)


def test_groups_without_any_gradient_stay_where_they_are():
    parameters = weights()
    optimizer = Adam([{"params": parameters[:1], "lr": 1.0}, {"params": parameters[1:], "lr": 1.0}])
    parameters[0].grad = torch.ones(50)
    optimizer.step()
    assert torch.equal(parameters[2], weights()[2])
    assert not torch.equal(parameters[0], weights()[0])


@pytest.mark.parametrize("max_norm", [0.3, 100.0])
def test_gradients_are_clipped_as_torch_does_to_the_bit(max_norm):
    ours, theirs = weights()[::2], weights()[::2]
    for parameters in (ours, theirs):
        for k, parameter in enumerate(parameters):
            parameter.grad = torch.sin(parameter.detach() + k)
    clip_norm(ours, max_norm)
    torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine.grad, other.grad)
    assert (ours[0].grad.norm() < 0.3) == (max_norm < 1)


def test_without_gradients_nothing_is_clipped():
    parameters = weights()
    clip_norm(parameters, 1.0)
    assert [parameter.grad for parameter in parameters] == [None] * 3


def test_torchs_compiler_is_not_imported():
    code = (
        "import sys, torch; from equipoise.training.optimizer import Adam; w = torch.nn.Parameter(torch.ones(3)); "
        "o = Adam([{'params': [w], 'lr': 0.1}]); w.grad = torch.ones(3); o.step(); "
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
