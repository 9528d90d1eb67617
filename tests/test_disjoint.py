"""The closed forms for balances that share nothing: against dense normals by scipy, and gradients by differences."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

import equipoise as eq
from equipoise.disjoint import joint_log_prob, marginal_log_prob
from equipoise.gaussian import DiagonalGaussian, _joint_log_prob
from equipoise.likelihood import marginal

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


def test_the_short_way_is_taken_for_whole_rows_only():
    p = parts()
    gaussian = eq.condition(DiagonalGaussian(p["mean"], p["var"]), B, p["target"], p["tol_var"])
    assert gaussian.all_disjoint(p["y"])
    missing = p["y"].clone()
    missing[1, 2] = torch.nan
    assert not gaussian.all_disjoint(missing)
    exact = eq.condition(DiagonalGaussian(p["mean"], p["var"]), B, p["target"], torch.zeros(5, 2, dtype=torch.float64))
    assert not exact.all_disjoint(p["y"])
    shared = B.clone()
    shared[1, 0] = 1.0
    coupled = eq.condition(DiagonalGaussian(p["mean"], p["var"]), shared, p["target"], p["tol_var"])
    assert not coupled.all_disjoint(p["y"])


def test_both_ways_agree():
    p = parts()
    gaussian = eq.condition(DiagonalGaussian(p["mean"], p["var"]), B, p["target"], p["tol_var"])
    torch.testing.assert_close(
        gaussian.log_prob(p["y"], p["sensor_var"]),
        _joint_log_prob(gaussian, p["y"], p["sensor_var"]),
        rtol=1e-12,
        atol=0,
    )
    no_sensors = torch.zeros_like(p["y"])  # a tensor of zeros takes the general way
    torch.testing.assert_close(marginal(gaussian, p["y"]), marginal(gaussian, p["y"], no_sensors), rtol=1e-12, atol=0)
