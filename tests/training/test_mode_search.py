"""The search for a mode against exact linear regression, autograd and least squares."""

import torch

from equipoise.gaussian import DiagonalGaussian
from equipoise.network import BayesianMLP, ConstrainedBNN, marginal
from equipoise.training.evidence import Measurements, PriorPrecisions
from equipoise.training.mode_search import held_head, nearest_mode
from equipoise.training.variance_fit import VarianceHead

N, N_X, N_Y = 30, 2, 2


def normal(*shape, seed=3):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Problem:
    """A network in float64, with measured outputs (one is missing) whose errors have known variances."""

    def __init__(self, hidden):
        self.network = BayesianMLP(N_X, N_Y, hidden, "tanh", generator=torch.Generator().manual_seed(0)).double()
        self.x, self.y, self.var = normal(N, N_X), normal(N, N_Y, seed=4), normal(N, N_Y, seed=5).exp()
        self.y[2, 1] = torch.nan
        self.start = self.network.posterior.loc.detach()
        self.precisions = PriorPrecisions.scaled_by_fan_in(self.network.sizes, N_Y)

    def mean(self, weights):
        return self.network.at(weights[None], self.x).mean[0]

    def mode(self):
        def gaussian(mean):
            return DiagonalGaussian(mean, self.var)

        measurements = Measurements.of(marginal, gaussian, self.mean(self.start), self.y, 0.0)
        return nearest_mode(self.network, self.start, self.x, self.precisions, measurements)

    def loss(self, weights):
        """The negative log posterior density up to a constant."""
        squares = (self.y.nan_to_num(0.0) - self.mean(weights)).square() / self.var
        data = torch.where(self.y.isnan(), 0.0, squares).sum()
        return 0.5 * data + 0.5 * (self.precisions.of_each * weights.square()).sum()


def test_the_mode_of_a_network_without_hidden_layers_is_that_of_ridge_regression():
    p = Problem(hidden=())
    (W, bias), *_ = p.network.layers(p.mode())
    features = torch.cat([p.x, torch.ones(N, 1, dtype=torch.float64)], 1)
    prior = torch.tensor([float(N_X), float(N_X), 1.0], dtype=torch.float64).diag()  # 1 / fan_in, and 1 for biases
    for j in range(N_Y):
        weight = torch.where(p.y[:, j].isnan(), 0.0, 1 / p.var[:, j])
        right = features.mT @ (weight * p.y[:, j].nan_to_num(0.0))
        exact = torch.linalg.solve(features.mT @ (weight[:, None] * features) + prior, right)
        torch.testing.assert_close(torch.cat([W[:, j], bias[j : j + 1]]), exact, rtol=1e-4, atol=1e-5)


def test_at_the_mode_autograd_has_no_slope_and_weights_without_a_prior_have_not_moved():
    p = Problem(hidden=(5, 4))
    mode = p.mode().requires_grad_()
    (slope,) = torch.autograd.grad(p.loss(mode), mode)
    (before,) = torch.autograd.grad(p.loss(start := p.start.clone().requires_grad_()), start)
    assert float(slope.norm()) < 1e-3 * float(before.norm())
    assert float(p.loss(mode.detach())) < float(p.loss(p.start)) - 1.0
    other = p.precisions.group < 0
    torch.testing.assert_close(mode.detach()[other], p.start[other], rtol=0, atol=0)


def test_a_held_head_has_the_variances_of_before_where_its_units_allow_it():
    p = Problem(hidden=(6,))
    old = VarianceHead.of(ConstrainedBNN(p.network), p.start, p.x)
    other = VarianceHead(old.units, old.centre, old.scale, 0.0 * old.level, normal(6, N_Y, seed=8))
    weak, strong = (held_head(other, old.var(), torch.full((N_Y,), value).double()) for value in (1e-9, 1e9))
    torch.testing.assert_close(weak.var(), old.var(), rtol=1e-5, atol=0)
    geometric_mean = old.var().log().mean(0).exp()  # log v is nearly linear in the raw units
    torch.testing.assert_close(strong.var(), geometric_mean.expand(N, -1), rtol=1e-2, atol=0)
