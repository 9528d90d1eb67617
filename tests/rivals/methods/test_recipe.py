"""What a method trains and what it predicts with are two models that share their parts."""

import numpy as np
import pytest

import equipoise as eq
from equipoise.network.likelihood import joint, marginal
from equipoise.rivals.methods.gains import Projection
from equipoise.rivals.methods.recipe import MethodRecipe

BALANCE = eq.LinearConstraint.from_equations("c = a + b", inputs=["x"], outputs=["a", "b", "c"])


def fitted(inference, imposition):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 1))
    Y = np.hstack([x, x**2, x + x**2]) + 0.05 * rng.normal(size=(40, 3))
    options = {"hidden": (4,), "max_epochs": 4, "penalties": (2.0,), "dropout": 0.1, "n_members": 2, "random_state": 0}
    return eq.MethodRegressor(BALANCE, inference=inference, imposition=imposition, **options).fit(x, Y)


@pytest.mark.parametrize(
    ("pair", "likelihood", "has_balances", "imposition"),
    [
        (("vi", "none"), marginal, False, None),
        (("vi", "penalty"), marginal, False, None),
        (("ensemble", "projection"), joint, True, Projection),
        (("deterministic", "posthoc"), joint, True, None),
        (("dropout", "paper"), marginal, True, None),
        (("vi", "learned"), joint, True, None),
    ],
)
def test_the_model_that_predicts_has_the_parts_of_its_imposition(pair, likelihood, has_balances, imposition):
    model = fitted(*pair).model_
    assert model.likelihood is likelihood
    assert (model.conditioning is not None) == has_balances
    assert (None if model.imposition is None else type(model.imposition)) is imposition
    assert not model.training


@pytest.mark.parametrize(
    ("inference", "draws"),
    [
        ("vi", "mean-field"),
        ("deterministic", "members"),
        ("ensemble", "members"),
        ("dropout", "dropout"),
        ("laplace", "last-layer Laplace"),
        ("gp", "Gaussian processes"),
        ("boosting", "boosted trees"),
    ],
)
def test_weights_are_drawn_as_the_inference_says(inference, draws):
    assert fitted(inference, "none").model_.network.posterior.name == draws


def test_rows_are_not_streamed():
    assert not MethodRecipe.can_stream
