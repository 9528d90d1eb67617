"""The closed forms for balances that share nothing: against dense normals by scipy, and gradients by differences."""

import numpy as np
import pytest
import torch
from handmade import variances
from scipy.stats import multivariate_normal, norm

import equipoise as eq
from equipoise import disjoint
from equipoise.disjoint import joint_log_prob, marginal_log_prob
from equipoise.likelihood import joint, marginal
from equipoise.model import ConstrainedBNN, Rows
from equipoise.network import BayesianMLP

B = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)


def parts(n: int = 5, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(width: int) -> torch.Tensor:
        return torch.randn(n, width, dtype=torch.float64, generator=generator)

    values = {"mean": draw(6), "var": (2 * draw(6)).exp(), "target": draw(2), "tol_var": (3 * draw(2)).exp()}
    return values | {"y": draw(6), "sensor_var": (3 * draw(6)).exp()}


def conditioned(p: dict[str, torch.Tensor], row: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance after conditioning, by the dense textbook formula."""
    mean, v, t, r = (p[name][row].numpy() for name in ("mean", "var", "target", "tol_var"))
    b, V = B.numpy(), np.diag(v)
    S = b @ V @ b.T + np.diag(r)
    K = V @ b.T @ np.linalg.inv(S)
    return mean + K @ (t - b @ mean), V - K @ S @ K.T


def test_the_joint_density_is_the_dense_normal_with_sensor_noise():
    p = parts()
    got = joint_log_prob(B, **p)
    for row in range(5):
        mean, cov = conditioned(p, row)
        expected = multivariate_normal(mean, cov + np.diag(p["sensor_var"][row].numpy())).logpdf(p["y"][row].numpy())
        np.testing.assert_allclose(got[row], expected, rtol=1e-9)


def test_the_marginal_density_is_the_product_of_normals_on_the_diagonal():
    p = parts()
    del p["sensor_var"]
    got = marginal_log_prob(B, **p)
    for row in range(5):
        mean, cov = conditioned(p, row)
        expected = norm(mean, np.sqrt(np.diag(cov))).logpdf(p["y"][row].numpy()).sum()
        np.testing.assert_allclose(got[row], expected, rtol=1e-9)


@pytest.mark.parametrize(("function", "sensors"), [(joint_log_prob, True), (marginal_log_prob, False)])
def test_gradients_are_those_of_finite_differences(function, sensors):
    p = parts(3)
    names = ["mean", "var", "target", "tol_var", *(["sensor_var"] if sensors else [])]
    inputs = [p[name].clone().requires_grad_() for name in names]

    def value(*values: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, values, strict=True))
        return function(B, y=p["y"], **given)

    assert torch.autograd.gradcheck(value, inputs, eps=1e-7, atol=1e-5, rtol=1e-5)


def simple_model(likelihood, coefficients=B, **options):
    constraint = eq.LinearConstraint(coefficients.numpy())
    layer = eq.ConditioningLayer(constraint, options.get("tolerance"))
    network = BayesianMLP(2, 6, (4,), generator=torch.Generator().manual_seed(0))
    sensor = variances([float("nan")] * 6) if likelihood is joint else None
    return ConstrainedBNN(network, layer, likelihood, sensor)


def rows(missing=False) -> Rows:
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(9, 6, dtype=torch.float64, generator=generator)
    if missing:
        y[2, 1] = torch.nan
    return Rows(torch.randn(9, 2, generator=generator), y, torch.randn(9, 2, dtype=torch.float64, generator=generator))


def negative_elbo(model, batch):
    return model.negative_elbo(batch, 100, torch.Generator().manual_seed(7)).per_row()


@pytest.mark.parametrize("likelihood", [joint, marginal])
def test_a_training_step_is_the_same_both_ways(likelihood, monkeypatch):
    model, batch = simple_model(likelihood), rows()
    parameters = list(model.parameters())
    short = negative_elbo(model, batch)
    ours = torch.autograd.grad(short, parameters)
    monkeypatch.setattr(ConstrainedBNN, "_is_simple", lambda *args: False)
    general = negative_elbo(model, batch)
    torch.testing.assert_close(short, general, rtol=1e-12, atol=0)
    for a, b in zip(ours, torch.autograd.grad(general, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


SHARED = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "missing", "short"),
    [({}, False, True), ({}, True, False), ({"tolerance": 0}, False, False), ({"coefficients": SHARED}, False, False)],
    ids=["simple", "an output is missing", "exact", "a shared output"],
)
def test_the_short_way_is_taken_only_where_it_holds(options, missing, short, monkeypatch):
    model, taken = simple_model(joint, **options), []
    monkeypatch.setattr(disjoint, "joint_log_prob", lambda *args: taken.append(1) or args[1].sum(-1))
    negative_elbo(model, rows(missing))
    assert bool(taken) == short


def test_a_second_derivative_is_refused_rather_than_wrong():
    model = simple_model(joint)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(negative_elbo(model, rows()), list(model.parameters()), create_graph=True)
