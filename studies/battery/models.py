"""The models that the study compares: from the paper's to ours, one step at a time."""

from __future__ import annotations

from typing import Any

from equipoise import ConstrainedBNNRegressor, TolerancePrior, battery

OURS = battery.OURS
PAPER = {"likelihood": "marginal", "tolerance": TolerancePrior.paper(), "sensor_std": None}
# In all models the prior of the weights is N(0, 1). "bnn" and "paper" are the paper's to the letter, trained on the
# bound alone from the priors; all others have our training, which starts from residuals. The temperature of the
# posterior is 1, as in the paper, except in "equipoise" and "exact"; in "exact" both balances are exact.
MODELS: dict[str, dict[str, Any]] = {
    "bnn": {"balances": False, "start": "prior"},
    "paper": PAPER | {"start": "prior"},
    "bnn_residuals": {"balances": False},
    "paper_residuals": PAPER,
    "relative": {"likelihood": "marginal", "tolerance": TolerancePrior(), "sensor_std": None},
    "joint": {"likelihood": "joint", "tolerance": TolerancePrior.paper(), "sensor_std": None},
    "sensors": {"likelihood": "joint", "tolerance": TolerancePrior.paper(), "sensor_std": "learn"},
    "warm": {"likelihood": "joint", "tolerance": TolerancePrior(), "sensor_std": "learn"},
    "equipoise": {
        "likelihood": "joint",
        "tolerance": TolerancePrior(),
        "sensor_std": "learn",
        "temperature": OURS,
    },
    "exact": {"likelihood": "joint", "tolerance": 0, "sensor_std": "learn", "temperature": OURS},
}
LABELS = {
    "bnn": "BNN, as in the paper",
    "paper": "paper's method (L1, prior in the balance's unit), as in the paper",
    "bnn_residuals": "BNN, from residuals",
    "paper_residuals": "paper's method, from residuals",
    "relative": "L1, relative prior",
    "joint": "joint, prior in the balance's unit",
    "sensors": "joint, sensor noise, prior in the balance's unit",
    "warm": "joint, sensor noise, relative prior",
    "equipoise": f"Equipoise (joint, sensor noise, relative prior, temperature {OURS:g})",
    "exact": f"joint, sensor noise, both laws exact, temperature {OURS:g}",
}


def estimator(settings: battery.Settings, model: str, seed: int, **options: Any) -> ConstrainedBNNRegressor:
    """Return an unfitted estimator of one of `MODELS`.

    Args:
        settings: Network, training plan and number of draws that all models share.
        model: A key of `MODELS`.
        seed: Seed of all randomness of the fit.
        options: Further parameters of the estimator.
    """
    parameters = dict(MODELS[model])
    constraint = battery.balances() if parameters.pop("balances", True) else None
    if constraint is None:
        parameters["sensor_std"] = None
    plan = settings.plan(parameters.pop("temperature", 1.0))
    shared = {"hidden": settings.hidden, "activation": settings.activation, "prior_std": 1.0, "training": plan}
    return ConstrainedBNNRegressor(constraint, **parameters, **shared, random_state=seed, **options)
