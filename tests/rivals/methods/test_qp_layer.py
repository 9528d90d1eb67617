"""The QP layer is the closed form, in values and gradients, at another price."""

import sys

import numpy as np
import pytest
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer, condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network.likelihood import marginal
from equipoise.network.members import Members, starting_members
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods import qp_layer
from equipoise.rivals.methods.gains import GainGaussian, orthogonal_gain
from equipoise.rivals.methods.qp_layer import SolvedGaussian, fine_tune, quadratic_layer
from equipoise.training.plan import TrainingPlan

B = torch.tensor([[1.0, -1.0, -1.0, 0.0], [0.0, 2.0, 0.5, 1.0]], dtype=torch.float64)


@pytest.fixture
def installed():
    pytest.importorskip("cvxpylayers", reason="the extra 'compare' is not installed")


@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_layer_equals_the_closed_form_in_values_and_gradients():
    generator = torch.Generator().manual_seed(0)
    mean, target = (torch.randn(6, k, dtype=torch.float64, generator=generator).requires_grad_() for k in (4, 2))
    weight = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    solved = quadratic_layer(B)(mean, target)
    closed = mean + (target - mean @ B.mT) @ orthogonal_gain(B).mT
    np.testing.assert_allclose(solved.detach(), closed.detach(), atol=1e-6)
    by_solver, by_formula = (torch.autograd.grad((y * weight).sum(), [mean, target]) for y in (solved, closed))
    for one, other in zip(by_solver, by_formula, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.usefixtures("installed")
def test_a_solved_gaussian_is_the_projected_one():
    generator = torch.Generator().manual_seed(0)
    mean, target = (torch.randn(3, k, generator=generator).double() for k in (4, 2))
    var = torch.rand(3, 4, generator=generator).double() + 0.1
    conditioned = condition(DiagonalGaussian(mean, var), B, target)
    solved = SolvedGaussian.by(quadratic_layer(B), conditioned)
    projected = GainGaussian.of(conditioned, orthogonal_gain)
    np.testing.assert_allclose(solved.mean, projected.mean, atol=1e-6)
    assert torch.equal(solved.var, projected.var)


@pytest.fixture
def clock(monkeypatch):
    """A clock on which every call of the solver takes a second and all else no time."""
    now, make = [0.0], qp_layer.quadratic_layer

    def timed(B):
        solve = make(B)

        def solved(mean, target):
            now[0] += 1.0
            return solve(mean, target)

        return solved

    monkeypatch.setattr(qp_layer, "quadratic_layer", timed)
    monkeypatch.setattr(qp_layer.time, "perf_counter", lambda: now[0])


@pytest.mark.usefixtures("installed", "long_training", "clock")
def test_fine_tuning_ends_where_the_closed_form_would_and_costs_more(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 1)), rng.standard_normal((12, 3))
    rows = Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), torch.zeros(12, 1).double())
    network = BayesianMLP(1, 3, (4,), generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0, -1.0]]), 0.0)
    start = starting_members(network, [1])
    model = ConstrainedBNN(network.with_posterior(Members(start)), layer, marginal)
    tuned, seconds = fine_tune(model, rows, TrainingPlan(), 1)
    assert seconds == {"closed form": 0.0, "qp": 1.0}  # a step solves once, for all of its rows
    assert tuned.imposition is None
    assert torch.equal(model.network.posterior.weights, start)
    monkeypatch.setattr(SolvedGaussian, "mean", GainGaussian.mean)
    by_formula, _ = fine_tune(model, rows, TrainingPlan(), 1)
    weights, others = (each.network.posterior.weights.detach() for each in (tuned, by_formula))
    np.testing.assert_allclose(weights, others, atol=1e-6)
    assert float((weights - start).abs().max()) > 1e-4


def test_a_missing_package_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpylayers.torch", None)
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"needs cvxpylayers.*pip install 'equipoise\[compare\]'"):
        qp_layer.quadratic_layer(B)
