"""The closed forms for balances that share nothing: against dense normals by scipy, and gradients by differences."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from equipoise.disjoint import joint, marginal

B = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)


def parts(n: int = 5, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(width: int) -> torch.Tensor:
        return torch.randn(n, width, dtype=torch.float64, generator=generator)

    values = {"mean": draw(6), "var": (2 * draw(6)).exp(), "target": draw(2), "tol_var": (3 * draw(2)).exp()}
    return values | {"y": draw(6), "w": (3 * draw(6)).exp()}


def conditioned(p: dict[str, torch.Tensor], row: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance after conditioning, by the dense textbook formula."""
    mean, v, t, r = (p[name][row].numpy() for name in ("mean", "var", "target", "tol_var"))
    b, V = B.numpy(), np.diag(v)
    S = b @ V @ b.T + np.diag(r)
    K = V @ b.T @ np.linalg.inv(S)
    return mean + K @ (t - b @ mean), V - K @ S @ K.T


def test_the_joint_density_is_the_dense_normal_with_sensor_noise():
    p = parts()
    got, _ = joint(B, **p)
    for row in range(5):
        mean, cov = conditioned(p, row)
        expected = multivariate_normal(mean, cov + np.diag(p["w"][row].numpy())).logpdf(p["y"][row].numpy())
        np.testing.assert_allclose(got[row], expected, rtol=1e-9)


def test_the_marginal_density_is_the_product_of_normals_on_the_diagonal():
    p = parts()
    del p["w"]
    got, _ = marginal(B, **p)
    for row in range(5):
        mean, cov = conditioned(p, row)
        expected = norm(mean, np.sqrt(np.diag(cov))).logpdf(p["y"][row].numpy()).sum()
        np.testing.assert_allclose(got[row], expected, rtol=1e-9)


@pytest.mark.parametrize("function", [joint, marginal])
def test_gradients_are_those_of_finite_differences(function):
    p, step = parts(3), 1e-6
    if function is marginal:
        del p["w"]
    gradients = function(B, **p)[1](1.0)
    for name in p.keys() - {"y"}:
        ours = getattr(gradients, "sensor_var" if name == "w" else name)
        for column in range(p[name].shape[1]):
            up, down = (p | {name: p[name].clone()} for _ in range(2))
            up[name][:, column] += step * p[name][:, column].abs()
            down[name][:, column] -= step * p[name][:, column].abs()
            slope = (function(B, **up)[0] - function(B, **down)[0]) / (up[name] - down[name])[:, column]
            torch.testing.assert_close(ours[:, column], slope, rtol=1e-5, atol=1e-6)


def test_without_balances_the_outputs_are_independent_normals():
    p = parts()
    none = {"B": torch.zeros(0, 6, dtype=torch.float64), "target": torch.zeros(5, 0), "tol_var": torch.zeros(5, 0)}
    none = {name: value.double() for name, value in none.items()}
    got, _ = joint(**(p | none))
    expected = norm(p["mean"], (p["var"] + p["w"]).sqrt()).logpdf(p["y"]).sum(-1)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_an_output_that_its_balance_determines_has_the_variance_of_rounding():
    p = parts(3)
    del p["w"]
    alone = torch.zeros(1, 6, dtype=torch.float64)
    alone[0, 2] = 2.0
    p |= {"target": 2.0 * p["y"][:, 2:3], "tol_var": torch.full((3, 1), 1e-40, dtype=torch.float64)}
    got, pull = marginal(alone, **p)
    left = p["var"].clone()
    left[:, 2] *= torch.finfo(torch.float64).eps
    at = p["mean"].clone()
    at[:, 2] = p["y"][:, 2]
    np.testing.assert_allclose(got, norm(at, left.sqrt()).logpdf(p["y"]).sum(-1), rtol=1e-9)
    assert all(gradient.isfinite().all() for gradient in pull(1.0)[:4])
