"""One training step beside that of the same network without Bayes and without balances, and the algebra's share."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal

from benchmarks import cell, textbook
from benchmarks.results import Result
from benchmarks.timing import race
from equipoise.data.rows import Rows
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.gaussian.operator import LOG_2PI
from equipoise.network.likelihood import Likelihood, joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.training.objective import Objective
from equipoise.training.optimizer import Adam

BATCH = 512
N_ROWS = 12_600
METHODS: dict[str, tuple[Likelihood, bool]] = {
    "joint likelihood, sensor noise learned": (joint, True),
    "joint likelihood": (joint, False),
    "marginal likelihood": (marginal, False),
}


def run(quick: bool) -> Iterator[Result]:
    """Forward, loss, backward and Adam; then conditioning and likelihood alone, forward and backward."""
    X, Y = cell.data(BATCH)
    standardizer = Standardizer.fit(X, Y, cell.BALANCES)
    rows = cell.rows(X, Y, standardizer)
    _check_agreement(standardizer, rows)

    calls = {"plain": plain_step(rows), "without balances": step(ConstrainedBNN(cell.network()), rows)}
    for name, (likelihood, sensor) in METHODS.items():
        model = cell.model(standardizer, likelihood, sensor=sensor)
        calls |= {name: step(model, rows), f"algebra, {name}": _algebra(model, rows)}
    best = race(calls, seconds=1.0 if quick else 20.0)

    sizes = {"batch": BATCH, "n_x": 3, "n_y": 8, "m": 2, "hidden_layers": 2, "width": 64}
    yield Result(
        "training step, Bayesian without balances", "plain torch step", best["without balances"], best["plain"], sizes
    )
    for name in METHODS:
        yield Result(f"training step, {name}", "plain torch step", best[name], best["plain"], sizes)
    for name in METHODS:
        share, note = best[f"algebra, {name}"], "conditioning + likelihood, forward + backward"
        yield Result(f"algebra of it, {name}", "the whole step", share, best[name], sizes, note)


def step(model: ConstrainedBNN, rows: Rows) -> Callable[[], object]:
    """A training step of ours."""
    optimizer, objective = Adam([{"params": list(model.parameters()), "lr": 1e-5}]), Objective(model)
    generator = torch.Generator().manual_seed(0)

    def call():
        objective.backward(rows, N_ROWS, generator)
        optimizer.step()

    return call


def plain_step(rows: Rows) -> Callable[[], object]:
    """The same network without Bayes and without balances."""
    network = plain(cell.network())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-5, fused=True)
    y = rows.y.float()

    def call():
        optimizer.zero_grad()
        plain_nll(network, rows.x, y).backward()
        optimizer.step()

    return call


def _algebra(model: ConstrainedBNN, rows: Rows) -> Callable[[], object]:
    """What a step does between the network's Gaussian and the likelihood, from the draw of the tolerances on."""
    with torch.no_grad():
        gaussian = model.network(rows.x, torch.Generator().manual_seed(0))
    mean, var = gaussian.mean.clone().requires_grad_(), gaussian.var.clone().requires_grad_()
    generator = torch.Generator().manual_seed(0)
    layer, sensor = model.conditioning, model.sensor
    assert layer is not None
    leaves = [mean, var, *layer.tolerance.parameters(), *(() if sensor is None else sensor.parameters())]

    def algebra():
        tol_var = layer.tolerance.draw((BATCH,), generator)
        sensor_var = 0.0 if sensor is None else sensor.draw((BATCH,), generator)
        conditioned = model.condition(DiagonalGaussian(mean, var), rows.target, tol_var)
        torch.autograd.grad(model.likelihood(conditioned, rows.y, sensor_var).mean(), leaves)

    return algebra


def plain(network: BayesianMLP) -> nn.Sequential:
    """The same network in plain torch, at the posterior means of the weights."""
    layers: list[nn.Module] = []
    flat = network.posterior.loc.detach()
    for fan_in, fan_out in zip(network.sizes, network.sizes[1:], strict=False):
        linear = nn.Linear(fan_in, fan_out)
        W, bias, flat = flat.split([fan_in * fan_out, fan_out, len(flat) - (fan_in + 1) * fan_out])
        linear.load_state_dict({"weight": W.view(fan_in, fan_out).mT, "bias": bias})
        layers += [linear, nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def plain_nll(network: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Heteroscedastic Gaussian negative log likelihood per row, in float32 throughout."""
    mean, log_var = network(x).chunk(2, dim=-1)
    return 0.5 * ((y - mean).square() * (-log_var).exp() + log_var + LOG_2PI).sum(-1).mean()


def _check_agreement(standardizer: Standardizer, rows: Rows) -> None:
    """The network against plain torch, the likelihoods against dense normals."""
    model = cell.model(standardizer, joint, sensor=True)
    layer, sensor = model.conditioning, model.sensor
    assert layer is not None
    assert sensor is not None
    assert rows.target is not None
    mean, raw = plain(model.network)(rows.x).chunk(2, dim=-1)
    gaussian = model.network.at_means(rows.x)
    torch.testing.assert_close(gaussian.mean, mean)
    torch.testing.assert_close(gaussian.var, raw.exp(), rtol=0.01, atol=0.0)  # ours are bounded smoothly

    generator = torch.Generator().manual_seed(0)
    tol_var, sensor_var = (q.draw((BATCH,), generator) for q in (layer.tolerance, sensor))
    conditioned = model.condition(gaussian, rows.target, tol_var)
    problem = (gaussian.mean.double(), gaussian.var.double(), layer.B, rows.target, tol_var)
    mean, covariance = textbook.conditioned(*problem)
    var = covariance.diagonal(dim1=-2, dim2=-1)
    dense = MultivariateNormal(mean, covariance + torch.diag_embed(sensor_var))
    torch.testing.assert_close(joint(conditioned, rows.y, sensor_var), dense.log_prob(rows.y), rtol=1e-6, atol=1e-6)
    expected = Normal(mean, var.sqrt()).log_prob(rows.y).sum(-1)
    torch.testing.assert_close(marginal(conditioned, rows.y), expected, rtol=1e-6, atol=1e-6)
