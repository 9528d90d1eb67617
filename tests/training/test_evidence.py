"""The evidence of a linearised network against dense matrices, exact Bayesian linear regression and scipy."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from equipoise.gaussian import DiagonalGaussian
from equipoise.network import BayesianMLP, marginal
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel

N, N_X, N_Y = 12, 3, 2


class Problem:
    """A small network with data and variances that differ by row and output, and everything about it as dense matrices.

    The likelihood is that of independent outputs, one of which was not measured; every row counts `weight` times.
    """

    def __init__(self, hidden=(5,), weight=1.0):
        generator = torch.Generator().manual_seed(7)

        def normal(*shape):
            return torch.randn(shape, dtype=torch.float64, generator=generator)

        self.network = BayesianMLP(N_X, N_Y, hidden, "tanh", generator=generator).double()
        self.x, self.y, self.var = normal(N, N_X), normal(N, N_Y), normal(N, N_Y).exp()
        self.y[0, 1] = torch.nan
        self.point = self.network.posterior.loc.detach() + 0.3 * normal(len(self.network.posterior.loc))
        self.weight, self.precisions = weight, PriorPrecisions.scaled_by_fan_in(self.network.sizes, N_Y)
        self.precisions.of_group = self.precisions.of_group * torch.linspace(0.5, 2.0, len(self.precisions.of_group))

    def evidence(self):
        kernel = TangentKernel(self.network, self.point, self.x)
        measurements = Measurements.of(
            marginal, lambda mean: DiagonalGaussian(mean, self.var), kernel.head.mean, self.y, 0.0, self.weight
        )
        return LinearEvidence(kernel, self.precisions, measurements)

    @property
    def own(self):
        """Which weights vary: all but those of the variance head."""
        return self.precisions.group >= 0

    @property
    def J(self):
        """Derivatives of all means with respect to the weights that vary, (n · n_y, P)."""
        J = torch.func.jacrev(lambda weights: self.network.at(weights[None], self.x).mean[0])(self.point)
        return J.reshape(N * N_Y, -1)[:, self.own]

    @property
    def F(self):
        """The curvature of the density, (n · n_y)."""
        return torch.where(self.y.isnan(), 0.0, self.weight / self.var).flatten()

    @property
    def eta(self):
        """The gradient of the density, (n · n_y)."""
        mean = self.network.at(self.point[None], self.x).mean[0]
        return torch.where(self.y.isnan(), 0.0, self.weight * (self.y - mean) / self.var).flatten()

    @property
    def covariance(self):
        """The posterior covariance of the weights that vary, `(Σ Jᵀ F J + Δ)⁻¹`."""
        H = self.J.mT @ (self.F[:, None] * self.J) + torch.diag(self.precisions.of_each[self.own])
        return torch.linalg.inv(H)

    @property
    def shift(self):
        """The change of the weights that leads to the mode."""
        right = self.J.mT @ self.eta - self.precisions.of_each[self.own] * self.point[self.own]
        return self.covariance @ right


def assert_close(actual, expected, atol=1e-9):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=atol * float(expected.abs().max()))


def test_the_kernel_is_the_product_of_derivatives_group_by_group():
    p = Problem(hidden=(5, 4))
    kernel, var = TangentKernel(p.network, p.point, p.x), 1.0 / p.precisions.of_each[p.own]
    assert_close(kernel.covariance(p.precisions), (p.J * var) @ p.J.mT)
    W = torch.randn(N * N_Y, N * N_Y, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    of_weights = (p.J * (W @ p.J)).sum(0) * var
    expected = torch.zeros_like(p.precisions.of_group).index_add(0, p.precisions.group[p.own], of_weights)
    assert_close(kernel.by_group(W, p.precisions), expected)
    assert_close(kernel.offset.flatten(), p.J @ p.point[p.own])


@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_mode_and_covariance_of_the_means_are_those_of_dense_algebra_in_the_weights(weight):
    p = Problem(weight=weight)
    found = p.evidence()
    assert_close(found.mode.flatten(), p.network.at(p.point[None], p.x).mean[0].flatten() + p.J @ p.shift)
    steps = found.spreads
    covariance = (p.J @ p.covariance @ p.J.mT).view(N, N_Y, N, N_Y).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    assert_close(torch.einsum("sni,snj->nij", steps, steps), covariance)


def test_degrees_of_freedom_add_up_to_those_that_the_weights_do_not_use():
    p = Problem()
    used = torch.trace(p.covariance @ p.J.mT @ (p.F[:, None] * p.J))
    assert float(p.evidence().freedom.sum()) == pytest.approx(N * N_Y - float(used), rel=1e-9)


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    p = Problem()
    found, n = p.evidence(), 40_000
    zeros = torch.zeros(1, len(p.point), dtype=torch.float64), torch.zeros(1, len(found.factor), dtype=torch.float64)
    shift = found.changes(*zeros)[0]
    assert_close(shift[p.own], p.shift)
    assert bool((shift[~p.own] == 0).all())
    generator = torch.Generator().manual_seed(3)
    noise, errors = (torch.randn(n, part.shape[1], dtype=torch.float64, generator=generator) for part in zeros)
    draws = found.changes(noise, errors)[:, p.own]
    std = p.covariance.diagonal().sqrt()
    assert bool(((draws.mean(0) - p.shift).abs() <= 5 * std / n**0.5).all())  # 5 standard errors
    error = torch.sqrt((p.covariance.square() + std.outer(std).square()) / n)
    assert bool(((draws.mT.cov() - p.covariance).abs() <= 5.5 * error).all())  # of 729 entries


def linear_regression():
    """A network without hidden layers, for which everything is exact; every output was measured."""
    p = Problem(hidden=())
    p.y = torch.randn(N, N_Y, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    return p


def exact_log_evidence(p):
    """The log density of y under N(0, J Δ⁻¹ Jᵀ + diag(v)), by scipy."""
    covariance = (p.J / p.precisions.of_each[p.own]) @ p.J.mT + torch.diag(p.var.flatten())
    return scipy.stats.multivariate_normal.logpdf(p.y.flatten().numpy(), np.zeros(p.y.numel()), covariance.numpy())


def test_the_log_evidence_of_a_linear_model_is_exact():
    p = linear_regression()
    assert p.evidence().log_evidence == pytest.approx(exact_log_evidence(p), abs=1e-9)


def test_updates_of_the_prior_end_where_the_exact_evidence_is_largest():
    p = linear_regression()
    for _ in range(400):
        p.evidence().update_precisions()
    reached = exact_log_evidence(p)

    def negative(log_precision):
        p.precisions.of_group = torch.as_tensor(log_precision).exp()
        return -exact_log_evidence(p)

    start = p.precisions.of_group.log().numpy()
    best = scipy.optimize.minimize(negative, start, method="Nelder-Mead", options={"maxiter": 4000})
    assert reached == pytest.approx(-best.fun, abs=0.02)


def test_each_input_has_a_precision_and_weights_of_other_heads_do_not_vary():
    precisions = PriorPrecisions.scaled_by_fan_in((3, 4, 6), n_outputs=2)  # two means, two variances, two sensors
    network = BayesianMLP(3, 2, (4,), sensor_head=True, generator=torch.Generator().manual_seed(0))
    (first, first_bias), (last, last_bias) = network.layers(precisions.of_each)
    assert first.unique().tolist() == [3.0]
    assert first_bias.unique().tolist() == [1.0]
    assert last[:, :2].unique().tolist() == [4.0]
    assert last[:, 2:].unique().tolist() == last_bias[2:].unique().tolist() == [0.0]
    groups, _ = network.layers(precisions.group.double())[0]
    assert groups[:, 0].tolist() == [0, 1, 2]
