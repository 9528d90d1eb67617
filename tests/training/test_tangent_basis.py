"""The basis of what rows determine: the means' covariance against the kernel, changes of weights against J."""

import pytest
import torch
from linearised_members import normal

from equipoise.network import BayesianMLP, MeanHead
from equipoise.training.evidence import PriorPrecisions, TangentKernel
from equipoise.training.tangent_basis import TangentBasis

N, N_X, N_Y = 30, 2, 3


def _basis(rest, information=200.0, hidden=(6, 5)):
    network = BayesianMLP(N_X, N_Y, hidden, "silu", generator=torch.Generator().manual_seed(1))
    point, x = network.posterior.loc.detach().double(), normal(N, N_X, seed=2)
    precisions = PriorPrecisions.scaled_by_fan_in(network.sizes, N_Y)
    precisions.of_group = precisions.of_group * torch.linspace(0.5, 3.0, len(precisions.of_group))
    head = MeanHead.at(point, x, network.sizes, N_Y, "silu")
    weights = torch.full((N, N_Y), information, dtype=torch.float64)
    basis = TangentBasis.of(head, point, precisions, weights, rest)
    return basis, TangentKernel(network, point, x).covariance(precisions), precisions


@pytest.mark.parametrize("rest", [1e-1, 1e-3])
def test_what_is_left_out_of_the_covariance_is_as_small_as_asked_and_positive(rest):
    basis, K, _ = _basis(rest)
    left = K - basis.columns @ basis.columns.mT
    assert 200.0 * float(left.diagonal().mean()) <= rest
    assert float(torch.linalg.eigvalsh(left).min()) > -1e-10 * float(K.diagonal().max())
    largest = torch.linalg.eigvalsh(200.0 * K).flip(0)  # no factorisation can do with fewer columns than these
    needed = int((largest.sum() - largest.cumsum(0) > rest * len(K)).sum())
    assert needed <= basis.columns.shape[1] <= 1.7 * needed + 8


def test_changes_of_the_weights_have_their_coordinates_and_the_prior():
    basis, _, precisions = _basis(1e-8)
    c, k, P = normal(4, basis.columns.shape[1], seed=3), basis.columns.shape[1], len(basis.point)
    changes = basis.changes(c, normal(4, P, seed=4))
    means = basis.head.mean + basis.head.tangents(changes)
    torch.testing.assert_close(means, basis.means(c), rtol=0, atol=1e-3)  # of what was left out, a root of 1e-8 / 200
    zero = torch.zeros(1, dtype=torch.float64)
    start = basis.changes(zero.expand(1, k), zero.expand(1, P))
    of_c = basis.changes(torch.eye(k, dtype=torch.float64), zero.expand(k, P)) - start
    of_noise = basis.changes(zero.expand(P, k), torch.eye(P, dtype=torch.float64)) - start
    covariance = of_c.mT @ of_c + of_noise.mT @ of_noise
    torch.testing.assert_close(covariance, torch.diag(precisions.spread.square()), rtol=0, atol=1e-8)
    own = precisions.group >= 0
    torch.testing.assert_close(start[0], torch.where(own, -basis.point, 0.0), rtol=0, atol=1e-12)


def test_where_the_rows_say_nothing_some_directions_are_kept():
    basis, K, _ = _basis(0.5, information=1e-9)
    assert 1 <= basis.columns.shape[1] <= 32
    left = K - basis.columns @ basis.columns.mT
    assert float(torch.linalg.eigvalsh(left).min()) > -1e-10 * float(K.diagonal().max())
