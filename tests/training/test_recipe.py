"""Recipes, and an estimator with one of its own."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import equipoise as eq
from equipoise.network.members import Members, starting_members
from equipoise.training.loop import train
from equipoise.training.recipe import Fit, Recipe

SUM = eq.LinearConstraint.from_equations("c = a + b", inputs=["x"], outputs=["a", "b", "c"])


def table(n=60):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, 1))
    Y = np.hstack([np.sin(2 * x), x**2, np.sin(2 * x) + x**2])
    return x, Y + 0.05 * rng.normal(size=Y.shape)


@dataclass(frozen=True, kw_only=True)
class Pair(Recipe):
    """Two networks with one weight vector each."""

    def fit(self, model, rows, validation, *, checkpoint=None, verbose=False, callback=None):
        members = Members(starting_members(model.network, [1, 2]), self.prior_std)
        model = model.variant(network=model.network.with_posterior(members))
        return Fit(model, train(model, rows, validation, self.plan, seed=self.seed, callback=callback), {"pairs_": 1})


class PairRegressor(eq.ConstrainedBNNRegressor):
    """The library's estimator with that recipe."""

    file_name = "pair"

    def recipe(self, seed):
        return Pair(**vars(super().recipe(seed)))


def test_an_estimator_may_have_another_recipe(tmp_path):
    X, Y = table()
    model = PairRegressor(SUM, tolerance=0.1, sensor_std=0.05, hidden=(5,), max_epochs=6, random_state=0).fit(X, Y)
    p = model.predict_distribution(X)
    assert (p.n_draws, model.pairs_, len(model.history_.epochs)) == (2, 1, 6)
    weights = model.model_.network.posterior.weights
    s, network = model.standardizer_, model.model_.network
    means = network.at(weights, torch.as_tensor(s.inputs(X), dtype=torch.float32)).mean.detach()
    assert float((means[0] - means[1]).abs().max()) > 1e-2
    model.save(tmp_path / "pair.safetensors")
    again = eq.load(tmp_path / "pair.safetensors", implementations=PairRegressor)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.pairs_ == 1


@pytest.mark.parametrize("constraint", [None, SUM])
def test_a_network_starts_from_the_seed_of_its_recipe(constraint):
    recipes = [eq.ConstrainedBNNRegressor(constraint, hidden=(5,)).recipe(seed) for seed in (3, 3, 4)]
    assert [recipe.seed for recipe in recipes] == [3, 3, 4]
    assert recipes[0] == recipes[1] != recipes[2]
