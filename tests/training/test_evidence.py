"""The evidence of a linearised network against dense matrices, exact Bayesian linear regression and scipy."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from equipoise.gaussian import DiagonalGaussian
from equipoise.network import BayesianMLP, marginal
from equipoise.training import evidence
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel, narrowed

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


def test_the_kernel_is_the_product_of_derivatives():
    p = Problem(hidden=(5, 4))
    kernel, var = TangentKernel(p.network, p.point, p.x), 1.0 / p.precisions.of_each[p.own]
    assert_close(kernel.covariance(p.precisions), (p.J * var) @ p.J.mT)
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


def test_weights_that_the_data_determine_are_counted_with_random_signs_too(monkeypatch):
    p = Problem()
    exact = torch.trace(p.covariance @ p.J.mT @ (p.F[:, None] * p.J))
    assert p.evidence().update_precisions(torch.Generator()) == pytest.approx(float(exact), rel=1e-9)
    monkeypatch.setattr(evidence, "PROBES", 8)  # fewer than measurements
    p = Problem()
    generator = torch.Generator().manual_seed(1)
    counts = [p.evidence().update_precisions(generator, damping=0.0) for _ in range(400)]
    assert np.mean(counts) == pytest.approx(float(exact), abs=5 * np.std(counts) / 20)
    assert np.std(counts) / 20 < 0.02 * float(exact)


def test_norms_of_other_weights_than_those_of_the_mode_can_count():
    p = Problem()
    before, own = p.evidence(), p.precisions.of_group.clone()
    weights = torch.linspace(-1.0, 1.0, len(p.point), dtype=torch.float64)
    part = p.J.mT @ (p.F[:, None] * p.J)  # what the data determine of each weight, group by group
    group, zeros = p.precisions.group[p.own], torch.zeros_like(own)
    determined = zeros.index_add(0, group, (p.covariance @ part).diagonal())
    squares = zeros.index_add(0, group, weights[p.own].square())
    before.update_precisions(torch.Generator(), damping=1.0, weights=weights)
    assert_close(p.precisions.of_group, (determined + 1e-2) / (squares + 1e-4))


def test_the_loss_of_measurements_is_the_likelihood_and_its_gradient():
    p = Problem(weight=2.0)
    kernel = TangentKernel(p.network, p.point, p.x)
    change = 0.3 * torch.randn(N, N_Y, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    value, gradient = p.evidence().measurements.loss(change)
    moved = (kernel.head.mean + change).requires_grad_()
    terms = 0.5 * ((p.y - moved).square() / p.var + p.var.log() + np.log(2 * np.pi))
    expected = 2.0 * torch.where(p.y.isnan(), 0.0, terms.nan_to_num(0.0)).sum()
    (exact,) = torch.autograd.grad(expected, moved)
    assert value == pytest.approx(expected.item(), rel=1e-12)
    assert_close(gradient, exact.nan_to_num(0.0))


def test_a_root_with_many_columns_is_narrowed_to_one_of_the_same_curvature():
    wide = torch.randn(5, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    narrow = narrowed(wide)
    assert narrow.shape == (5, 3, 3)
    assert_close(narrow @ narrow.mT, wide @ wide.mT)
    assert narrowed(narrow) is narrow


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
        p.evidence().update_precisions(torch.Generator())  # so few measurements need no random signs
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
