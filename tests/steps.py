"""Models and rows of all kinds for a training step, and its oracle: autograd over the definition, `negative_elbo`."""

from unittest.mock import patch

import torch
from handmade import variances

import equipoise as eq
from equipoise.data.rows import Rows
from equipoise.network import layers
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN

APART = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)
SHARED = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)
NEARLY_TWICE = SHARED[:1] + torch.tensor([[0.0] * 6, [1e-5, 0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
NAN = float("nan")
SENSORS = {"none": None, "learned": [NAN] * 6, "some": [0.3, NAN, NAN, 0.1, NAN, NAN]}


def bnn(likelihood=joint, B=APART, sensor="learned", activation="silu", *, head=True, **options):
    layer = None
    if B is not None:
        layer = eq.ConditioningLayer(
            eq.LinearConstraint(B.numpy()), options.get("tolerance"), offset=options.get("offset", False)
        )
    rng = torch.Generator().manual_seed(0)
    has_head = head and sensor == "learned"
    network = BayesianMLP(2, 6, (4, 3), activation, sensor_head=has_head, prior_std=0.7, init_std=0.2, generator=rng)
    spread = SENSORS[sensor]
    model = ConstrainedBNN(network, layer, likelihood, None if spread is None else variances(spread))
    for parameter in model.parameters():  # nowhere special
        parameter.data += 0.1 * torch.randn(parameter.shape, dtype=parameter.dtype, generator=rng)
    network.to(options.get("dtype", torch.float64))
    return model


def rows(dtype=torch.float64, *, missing=False, sensors=False, balances=True) -> Rows:
    rng = torch.Generator().manual_seed(3)
    y = torch.randn(9, 6, dtype=torch.float64, generator=rng)
    target = torch.randn(9, 2, dtype=torch.float64, generator=rng) if balances else None
    if missing:
        y[2, 1] = NAN
    given = torch.rand(9, 6, dtype=torch.float64, generator=rng) + 0.1 if sensors else None
    return Rows(torch.randn(9, 2, generator=rng).to(dtype), y, target, given)


def both_ways(step, model, batch, kl_weight=0.6, temperature=0.3):
    """`(nll, gradients)` by a step, called with the model and what `Objective.backward` takes, and by autograd."""
    parameters = dict(model.named_parameters())
    nll = step(model, batch, 100, torch.Generator().manual_seed(7), kl_weight, temperature)
    ours = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    with patch.object(layers, "WIDEST", 0):  # all in operators of torch
        elbo = model.negative_elbo(batch, 100, torch.Generator().manual_seed(7))
    naive = torch.autograd.grad(elbo.per_row(kl_weight, temperature), list(parameters.values()), materialize_grads=True)
    return (nll, ours), (elbo.nll.detach(), dict(zip(parameters, naive, strict=True)))


def assert_same(step, model, batch, rtol=1e-10):
    """Compare each parameter's gradient with autograd's, relative to its largest element.

    A gradient sums terms that cancel, so a small element carries the roundings of the large ones. In these models the
    largest variance is up to 1e5 times the smallest, and a rounding grows by as much: `rtol` is some hundreds of
    roundings at a condition of 1e3. On three kinds of instructions (SSE, AVX2, AVX-512) 8e-13 was reached.
    """
    (nll, ours), (expected, naive) = both_ways(step, model, batch)
    torch.testing.assert_close(nll, expected, rtol=rtol, atol=0.0, check_dtype=False)
    for name, gradient in naive.items():
        largest = gradient.abs().max().item() if gradient.numel() else 0.0
        torch.testing.assert_close(
            ours[name], gradient, rtol=0.0, atol=rtol * largest, msg=lambda m, name=name: f"{name}: {m}"
        )


CASES = {
    "joint, sensors with a head": {},
    "joint, sensors without a head": {"head": False},
    "joint, some sensors given": {"sensor": "some"},
    "joint, no sensors": {"sensor": "none"},
    "joint, offsets": {"offset": True},
    "joint, one tolerance given": {"tolerance": {"balance 1": 0.3}},
    "marginal": {"likelihood": marginal, "sensor": "none"},
    "marginal, offsets": {"likelihood": marginal, "sensor": "none", "offset": True},
    "marginal, sensors": {"likelihood": marginal},
    "coupled": {"B": SHARED},
    "coupled, no sensors": {"B": SHARED, "sensor": "none"},
    "coupled, marginal": {"B": SHARED, "likelihood": marginal, "sensor": "none"},
    "coupled, exact": {"B": SHARED, "tolerance": 0},
    "exact": {"tolerance": 0},
    "no balances": {"B": None},
    "no balances, no sensors": {"B": None, "sensor": "none"},
}
