"""Upgrades of the headers of older model files to the present format."""

from collections.abc import Mapping
from typing import Any

CORE_ESTIMATOR: Mapping[str, Any] = {"name": "ConstrainedBNNRegressor", "parameters": {}, "attributes": {}}
"""The only estimator whose models files of formats 1 and 2 hold."""


def upgrade(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the entry of a file's header to the present format; its version number stays that of the file.

    An entry that lacks a field which the upgrade needs is returned unchanged: its validation names the missing field.

    Args:
        content: The entry, with its `format_version`.
    """
    version = content.get("format_version", 1)
    if version >= 3:
        return content
    if version < 2:
        try:
            content = {**content, "network": _network_of_format_1(content)}
        except (AttributeError, KeyError, TypeError):
            return content
    return {**content, "estimator": dict(CORE_ESTIMATOR)}


def _network_of_format_1(content: Mapping[str, Any]) -> dict[str, Any]:
    """Infer the network's description from the configuration and from the tables of tolerances and sensors.

    Balances "exact to rounding" have no offset; sensors "given per row" have no variances in the network.
    """
    columns, configuration = content["columns"], content["configuration"]
    tolerances = [row["kind"] for row in content["tolerances"]]
    sensors = [row["kind"] for row in content["sensors"]]
    return {
        "n_inputs": len(columns["inputs"]),
        "n_outputs": len(columns["outputs"]),
        "hidden": configuration["hidden"],
        "activation": configuration["activation"],
        "sensor_head": "learned" in sensors,
        "prior_std": configuration["prior_std"],
        "likelihood": configuration["likelihood"] if content["balances"] else "marginal",
        "tolerances": ["exact" if kind == "exact to rounding" else kind for kind in tolerances],
        "offsets": [configuration["offset"] and kind != "exact to rounding" for kind in tolerances],
        "sensors": None if {"learned", "given"}.isdisjoint(sensors) else sensors,
    }
