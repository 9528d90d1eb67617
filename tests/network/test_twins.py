"""Compiled code serves the classes that it copies and no others."""

import torch

from equipoise.network.likelihood import Joint, joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.network.posterior import MeanFieldGaussian
from equipoise.network.twins import twin_of
from equipoise.training.objective import Objective


class Heavier(Joint):
    name, twin = "heavier", "joint"


class Wider(MeanFieldGaussian):
    """Four times the variance in every layer."""

    name, twin = "wider", "mean-field"

    def layer_moments(self, layer, h):
        mean, var = super().layer_moments(layer, h)
        return mean, 4.0 * var


def test_a_class_that_derives_from_one_with_a_twin_has_none_even_if_it_says_so():
    q = MeanFieldGaussian(torch.zeros(3), (2, 1))
    assert [twin_of(part) for part in (joint, marginal, q)] == ["joint", "marginal", "mean-field"]
    assert twin_of(Heavier()) is twin_of(Wider(torch.zeros(3), (2, 1))) is None


def test_the_layer_moments_of_a_derived_posterior_are_used():
    """In a linear network units are `mean + std · noise`, so that they are twice as far from their means."""
    networks = [
        BayesianMLP(2, 3, (), init_std=0.3, generator=torch.Generator().manual_seed(0), posterior=posterior)
        for posterior in (MeanFieldGaussian, Wider)
    ]
    x, far = torch.randn(5, 2, generator=torch.Generator().manual_seed(1)), []
    for network in networks:
        drawn = network(x, torch.Generator().manual_seed(2)).mean
        far.append((drawn - network.mean_at_means(x)).detach())
    assert float(far[0].abs().min()) > 0
    torch.testing.assert_close(far[1], 2.0 * far[0], rtol=1e-4, atol=1e-6)


def test_a_training_step_of_a_derived_likelihood_or_posterior_is_not_compiled():
    plain, wider = (
        BayesianMLP(2, 3, (4,), posterior=posterior, generator=torch.Generator().manual_seed(0))
        for posterior in (MeanFieldGaussian, Wider)
    )
    models = [ConstrainedBNN(plain, None, Heavier()), ConstrainedBNN(wider, None, marginal)]
    assert all(Objective(model)._compiled is None for model in models)
