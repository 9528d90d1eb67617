"""A network described and built again: the same modules and numbers, from the header and the tensors alone."""

import numpy as np
import pytest
import torch

import equipoise as eq
from equipoise.artifact.network_description import describe_network, rebuild_network
from equipoise.artifact.upgrades import upgrade

SUM = eq.LinearConstraint.from_equations(
    {"sum": "c = a + b", "double": "d = 2 * a"}, inputs=["x"], outputs=["a", "b", "c", "d"]
)


def fitted(constraint=SUM, **options) -> eq.ConstrainedBNNRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 1))
    a, b = np.sin(2 * x) + 0.05 * rng.normal(size=x.shape), x**2
    Y = np.hstack([a, b, a + b, 2 * a])
    Y[:, :3] += options.pop("scatter", 0.05) * rng.normal(size=(40, 3))
    options = {"hidden": (5, 4), "max_epochs": 3, "random_state": 0} | options
    return eq.ConstrainedBNNRegressor(constraint, **options).fit(x, Y)


MODELS = {
    "learned": {},
    "plain": {"constraint": None},
    "linear": {"constraint": None, "hidden": (), "sensor_std": 0.05},
    "marginal": {"likelihood": "marginal", "activation": "relu", "prior_std": 2.0},
    "exact to rounding": {"scatter": 0.0, "offset": True},
    "mixed": {"tolerance": {"sum": 0.1, "double": 0}, "sensor_std": {"a": 0.05, "d": 0.0}, "offset": True},
    "sensors per row": {"sensor_std": np.full((40, 4), 0.05)},
}


@pytest.fixture(params=MODELS, scope="module")
def model(request):
    return fitted(**MODELS[request.param])


def test_a_network_that_is_built_again_is_the_same(model):
    before = model.model_
    after = rebuild_network(describe_network(before), model.standardizer_, before.state_dict())
    assert str(after) == str(before)
    assert after.state_dict().keys() == before.state_dict().keys()
    for name, values in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], values), name
    assert after.likelihood is before.likelihood
    assert after.network.posterior.prior_std == before.network.posterior.prior_std
    assert not after.training


def test_a_description_is_what_was_inferred_from_tables_before(model):
    described = describe_network(model.model_)
    content = {
        "columns": {"inputs": ["x"], "outputs": list("abcd")},
        "balances": [] if model.constraint is None else list(SUM.names),
        "configuration": model.get_params() | {"hidden": list(model.hidden)},
        "tolerances": model.tolerances_.to_dict("records"),
        "sensors": model.sensor_std_.to_dict("records"),
    }
    assert type(described).model_validate(upgrade(content)["network"]) == described


def test_what_is_exact_given_and_learned_is_named():
    described = describe_network(fitted(**MODELS["mixed"]).model_)
    assert described.tolerances == ("fixed", "exact")
    assert described.offsets == (True, True)
    assert described.sensors == ("given", "learned", "learned", "none")
    described = describe_network(fitted(**MODELS["exact to rounding"]).model_)
    assert (described.tolerances, described.offsets, described.sensors) == (("exact", "exact"), (False, False), None)


def test_building_a_network_again_draws_no_random_number_of_the_process():
    model = fitted()
    state = torch.get_rng_state()
    rebuild_network(describe_network(model.model_), model.standardizer_, model.model_.state_dict())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("part", ["tolerances", "sensors"])
def test_a_description_that_the_tensors_contradict_is_refused(part):
    model = fitted()
    described = describe_network(model.model_)
    wrong = described.model_copy(update={part: ("fixed",) * len(getattr(described, part))})
    with pytest.raises(ValueError, match=r"are \[False, False.*\] in the header, but \[True, True.*\] in the tensors"):
        rebuild_network(wrong, model.standardizer_, model.model_.state_dict())
