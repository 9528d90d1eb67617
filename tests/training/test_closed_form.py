"""The densities in closed form: against dense normals in 50 digits and by scipy, and gradients by differences."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from equipoise.gaussian.operator import BalanceOperator
from equipoise.training.closed_form import joint, marginal
from references import conditioned, joint_log_prob_50_digits

APART = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)
SHARED = torch.tensor([[1.0, -1.0, 2.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0, -0.5, 0.0]], dtype=torch.float64)
BALANCES = pytest.mark.parametrize("B", [APART, SHARED], ids=["apart", "shared"])


def parts(n: int = 5, seed: int = 0, *, missing: bool = False) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(width: int) -> torch.Tensor:
        return torch.randn(n, width, dtype=torch.float64, generator=generator)

    values = {"mean": draw(6), "var": (2 * draw(6)).exp(), "target": draw(2), "tol_var": (3 * draw(2)).exp()}
    values |= {"y": draw(6), "w": (3 * draw(6)).exp()}
    if missing:
        values["y"][0, 1] = values["y"][1, 3] = values["y"][1, 5] = values["y"][2, :] = torch.nan
        values["measured"] = ~values["y"].isnan()
    return values


@BALANCES
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("exact", [False, True], ids=["tolerances", "exact"])
def test_the_joint_density_is_the_dense_normal_of_what_was_measured(B, missing, exact):
    p = parts(missing=missing)
    if exact:
        p["tol_var"].zero_()
    got, _ = joint(BalanceOperator(B), **p)
    for row in range(5):
        mean, var, target, tol_var, y, w = (part[row].numpy() for name, part in p.items() if name != "measured")
        expected = joint_log_prob_50_digits(mean, var, B.numpy(), target, tol_var, y, w)
        np.testing.assert_allclose(got[row], expected, rtol=1e-11, atol=1e-12)


@BALANCES
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
def test_the_marginal_density_is_the_product_of_normals_on_the_diagonal(B, missing):
    p = parts(missing=missing)
    got, _ = marginal(BalanceOperator(B), **p)
    for row in range(5):
        mean, var, target, tol_var, y, w = (part[row].numpy() for name, part in p.items() if name != "measured")
        mean_c, cov_c = conditioned(mean, var, B.numpy(), target, tol_var)
        each = norm(mean_c, np.sqrt(np.diag(cov_c) + w)).logpdf(y)
        np.testing.assert_allclose(got[row], np.nansum(each), rtol=1e-9, atol=1e-12)


@BALANCES
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "outputs missing"])
@pytest.mark.parametrize("function", [joint, marginal])
def test_gradients_are_those_of_finite_differences(function, missing, B):
    p, step, operator = parts(3, missing=missing), 1e-6, BalanceOperator(B)
    gradients = function(operator, **p)[1](1.0)
    for name in p.keys() - {"y", "measured"}:
        ours = getattr(gradients, "sensor_var" if name == "w" else name)
        for column in range(p[name].shape[1]):
            up, down = (p | {name: p[name].clone()} for _ in range(2))
            up[name][:, column] += step * p[name][:, column].abs()
            down[name][:, column] -= step * p[name][:, column].abs()
            slope = (function(operator, **up)[0] - function(operator, **down)[0]) / (up[name] - down[name])[:, column]
            torch.testing.assert_close(ours[:, column], slope, rtol=1e-5, atol=1e-6)


def test_without_balances_the_outputs_are_independent_normals():
    p, none = parts(), torch.zeros(5, 0, dtype=torch.float64)
    empty = BalanceOperator(torch.zeros(0, 6, dtype=torch.float64), [])
    expected = norm(p["mean"], (p["var"] + p["w"]).sqrt()).logpdf(p["y"]).sum(-1)
    for function in (joint, marginal):
        got, _ = function(empty, **(p | {"target": none, "tol_var": none}))
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("function", [joint, marginal])
def test_balances_that_nearly_repeat_each_other_have_no_closed_form(function):
    twice = torch.cat([SHARED[:1], SHARED[:1] * (1 + 1e-9)])
    p = parts() | {"tol_var": torch.full((5, 2), 1e-12, dtype=torch.float64)}
    assert function(BalanceOperator(twice), **p) is None


def test_an_output_that_its_balance_determines_has_the_variance_of_rounding():
    p = parts(3) | {"w": 0.0}
    alone = torch.zeros(1, 6, dtype=torch.float64)
    alone[0, 2] = 2.0
    p |= {"target": 2.0 * p["y"][:, 2:3], "tol_var": torch.full((3, 1), 1e-40, dtype=torch.float64)}
    got, pull = marginal(BalanceOperator(alone), **p)
    left = p["var"].clone()
    left[:, 2] *= torch.finfo(torch.float64).eps
    at = p["mean"].clone()
    at[:, 2] = p["y"][:, 2]
    np.testing.assert_allclose(got, norm(at, left.sqrt()).logpdf(p["y"]).sum(-1), rtol=1e-9)
    assert all(gradient.isfinite().all() for gradient in pull(1.0)[:4])
