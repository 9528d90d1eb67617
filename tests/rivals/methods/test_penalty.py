"""The soft penalty: a likelihood less a multiple of the squared residual."""

import numpy as np
import scipy.stats
import torch

from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.rivals.methods.penalty import Penalised, ResidualGaussian

MEAN, VAR = torch.tensor([1.0, 2.0, 4.0]).double(), torch.tensor([0.5, 1.0, 2.0]).double()
Y = torch.tensor([1.5, 2.0, 3.0]).double()


def with_residual():
    conditioned = condition(
        DiagonalGaussian(MEAN, VAR), torch.tensor([[1.0, 1.0, -1.0], [0.0, 2.0, 0.5]]), torch.tensor([0.25, 5.0])
    )
    return ResidualGaussian.before(conditioned)


def test_the_penalty_is_the_sum_of_the_squared_residuals_of_the_mean():
    density = scipy.stats.norm(MEAN.numpy(), VAR.sqrt().numpy()).logpdf(Y.numpy()).sum()
    np.testing.assert_allclose(
        Penalised(3.0)(with_residual(), Y),
        density - 3.0 * ((1.0 + 2.0 - 4.0 - 0.25) ** 2 + (2 * 2.0 + 0.5 * 4.0 - 5.0) ** 2),
    )


def test_without_strength_or_balance_it_is_the_plain_likelihood():
    density = scipy.stats.norm(MEAN.numpy(), VAR.sqrt().numpy()).logpdf(Y.numpy()).sum()
    np.testing.assert_allclose(Penalised(0.0)(with_residual(), Y), density)
    np.testing.assert_allclose(Penalised(3.0)(DiagonalGaussian(MEAN, VAR), Y), density)


def test_the_gaussian_itself_is_left_as_it_is():
    assert torch.equal(with_residual().mean, MEAN)
    assert torch.equal(with_residual().var, VAR)
