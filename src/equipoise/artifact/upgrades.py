"""Headers of older model files, brought to the present format before they are read."""

from collections.abc import Mapping
from typing import Any


def upgrade(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the header's entry in terms of the present format.

    The version number stays that of the file. An entry that lacks what the upgrade needs is returned as it is: its
    validation names what is missing.

    Args:
        content: The entry as it was read, with its `format_version`.
    """
    if content.get("format_version", 1) >= 2:
        return content
    try:
        return {**content, "network": _network_of_format_1(content)}
    except (AttributeError, KeyError, TypeError):
        return content


def _network_of_format_1(content: Mapping[str, Any]) -> dict[str, Any]:
    """Infer what the network is from the configuration and from the words in the tables of tolerances and sensors.

    Balances "exact to rounding" have no offset; sensors "given per row" have no variances of their own.
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
