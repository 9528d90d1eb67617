"""The models that the study compares: from the paper's to ours, one step at a time."""

from __future__ import annotations

from typing import Any

from equipoise import ConstrainedBNNRegressor, TolerancePrior
from equipoise.rivals.cases.battery import OURS, Settings, balances

# The last one says that laws are exact. The weights' prior is N(0, 1) in all of them; its temperature is 1, as in the
# paper, but for ours.
MODELS: dict[str, dict[str, Any]] = {
    "bnn": {"balances": False},
    "paper": {"likelihood": "marginal", "tolerance": TolerancePrior.paper(), "sensor_std": None},
    "relative": {"likelihood": "marginal", "tolerance": TolerancePrior(), "sensor_std": None},
    "joint": {"likelihood": "joint", "tolerance": TolerancePrior.paper(), "sensor_std": None},
    "sensors": {"likelihood": "joint", "tolerance": TolerancePrior.paper(), "sensor_std": "learn"},
    "warm": {"likelihood": "joint", "tolerance": TolerancePrior(), "sensor_std": "learn"},
    "equipoise": {"likelihood": "joint", "tolerance": TolerancePrior(), "sensor_std": "learn", "temperature": OURS},
    "exact": {"likelihood": "joint", "tolerance": 0, "sensor_std": "learn", "temperature": OURS},
}
LABELS = {
    "bnn": "BNN",
    "paper": "paper (L1, prior in the balance's unit)",
    "relative": "L1, relative prior",
    "joint": "joint, prior in the balance's unit",
    "sensors": "joint, sensor noise, prior in the balance's unit",
    "warm": "joint, sensor noise, relative prior",
    "equipoise": f"Equipoise (joint, sensor noise, relative prior, temperature {OURS:g})",
    "exact": f"joint, sensor noise, both laws exact, temperature {OURS:g}",
}


def estimator(settings: Settings, model: str, seed: int, **options: Any) -> ConstrainedBNNRegressor:
    """Return an unfitted estimator of one of `MODELS`.

    Args:
        settings: Network, training plan and number of draws that all models share.
        model: A key of `MODELS`.
        seed: Of all randomness of the fit.
        options: Further parameters of the estimator.
    """
    chosen = dict(MODELS[model])
    constraint = balances() if chosen.pop("balances", True) else None
    if constraint is None:
        chosen["sensor_std"] = None
    plan = settings.plan(chosen.pop("temperature", 1.0))
    shared = {"hidden": settings.hidden, "activation": settings.activation, "prior_std": 1.0, "training": plan}
    return ConstrainedBNNRegressor(constraint, **chosen, **shared, random_state=seed, **options)
