"""Upgrades of old headers, against headers of the present format and against the tensors of files that were kept."""

import itertools
from pathlib import Path

import pytest
from safetensors.numpy import load_file

import equipoise as eq
from equipoise.artifact.header import describe, read_header
from equipoise.artifact.upgrades import upgrade

MODELS = Path(__file__).parents[1] / "models"


@pytest.mark.parametrize("name", ["format_1", "cell"])
def test_the_network_of_a_file_of_format_1_is_that_of_its_tensors(name):
    described, tensors = describe(MODELS / f"{name}.safetensors"), load_file(MODELS / f"{name}.safetensors")
    network = described.network
    assert described.format_version == 1
    sizes = (network.n_inputs, *network.hidden, (2 + network.sensor_head) * network.n_outputs)
    n_weights = sum((m + 1) * n for m, n in itertools.pairwise(sizes))
    assert tensors["model.network.posterior.loc"].shape == (n_weights,)
    learned, fixed = (tensors[f"model.conditioning.tolerance.{field}"] for field in ("learned", "fixed"))
    kinds = ["learned" if q else "fixed" if r > 0 else "exact" for q, r in zip(learned, fixed, strict=True)]
    assert list(network.tolerances) == kinds
    assert any(network.offsets) == ("model.conditioning.offset.loc" in tensors)
    learned, fixed = (tensors[f"model.sensor.{field}"] for field in ("learned", "fixed"))
    kinds = ["learned" if q else "given" if w > 0 else "none" for q, w in zip(learned, fixed, strict=True)]
    assert list(network.sensors or ()) == kinds


def row(kind: str) -> dict:
    return {"kind": kind}


def of_format_1(tolerances: list, sensors: list, **configuration) -> dict:
    configuration = {
        "hidden": [5],
        "activation": "tanh",
        "prior_std": 0.5,
        "likelihood": "joint",
        "offset": False,
    } | configuration
    return {
        "format_version": 1,
        "columns": {"inputs": ["x", "z"], "known": ["k"], "outputs": ["a", "b"]},
        "balances": [{"name": f"{k}"} for k in range(len(tolerances))],
        "configuration": configuration,
        "tolerances": list(map(row, tolerances)),
        "sensors": list(map(row, sensors)),
    }


def test_a_balance_that_is_obeyed_to_rounding_is_exact_and_has_no_offset():
    network = upgrade(of_format_1(["exact to rounding", "exact", "learned"], ["none", "none"], offset=True))["network"]
    assert network["tolerances"] == ["exact", "exact", "learned"]
    assert network["offsets"] == [False, True, True]
    assert network["sensors"] is None


def test_sensors_that_differ_per_row_have_no_variances_in_the_network():
    for kinds in (["given per row", "none"], ["none", "none"]):
        network = upgrade(of_format_1(["fixed"], kinds))["network"]
        assert (network["sensors"], network["sensor_head"]) == (None, False)
    network = upgrade(of_format_1(["fixed"], ["given", "none"]))["network"]
    assert (network["sensors"], network["sensor_head"]) == (["given", "none"], False)
    assert upgrade(of_format_1(["fixed"], ["learned", "none"]))["network"]["sensor_head"]


def test_a_network_without_balances_takes_its_outputs_one_by_one():
    assert upgrade(of_format_1([], ["none", "none"], likelihood="joint"))["network"]["likelihood"] == "marginal"


def test_a_header_of_the_present_format_stays_as_it_is():
    content = read_header(MODELS / "format_3.safetensors")
    assert upgrade(content) is content


def test_files_of_earlier_formats_are_of_the_core_estimator():
    for version in (1, 2):
        estimator = describe(MODELS / f"format_{version}.safetensors").estimator
        assert estimator == describe(MODELS / "format_3.safetensors").estimator
        assert (estimator.name, estimator.parameters, estimator.attributes) == ("ConstrainedBNNRegressor", {}, {})


def test_an_entry_that_lacks_what_the_upgrade_needs_stays_as_it_is():
    content = of_format_1(["fixed"], ["none", "none"])
    del content["configuration"]["activation"]
    assert upgrade(content) == content
    assert upgrade(content | {"columns": 5}) == content | {"columns": 5}


def test_an_old_file_that_is_saved_again_is_of_the_present_format_with_the_same_network(tmp_path):
    eq.load(MODELS / "format_1.safetensors").save(tmp_path / "again.safetensors")
    again = read_header(tmp_path / "again.safetensors")
    assert again["format_version"] == 3
    assert describe(tmp_path / "again.safetensors").network == describe(MODELS / "format_1.safetensors").network
