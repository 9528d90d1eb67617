"""What the battery study runs: settings from one committed file, and the models that it compares."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from equipoise.battery.data import DataConfig, balances
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.plan import TrainingPlan
from equipoise.tolerance import TolerancePrior

Positive = Annotated[int, Field(ge=1)]

# From the paper's model to ours, one step at a time, and what it does to say that laws are exact. The weights' prior is
# N(0, 1) in all of them; its temperature is 1, as in the paper, but for ours.
OURS = TrainingPlan().temperature
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


class Settings(BaseModel):
    """One configuration of the study.

    Attributes:
        data: What is simulated, measured and split; its seed is that of the run.
        hidden: Widths of the hidden layers.
        activation: Of the hidden layers.
        training: Fields of `TrainingPlan`.
        n_draws: Posterior draws that scores average over.
        violation_draws: Posterior draws that violations are taken over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: DataConfig = DataConfig()
    hidden: Annotated[tuple[Positive, ...], Field(min_length=1)]
    activation: str = "silu"
    training: dict[str, Any] = {}
    n_draws: Positive
    violation_draws: Positive

    @classmethod
    def named(cls, name: Literal["full", "small"] | str = "full") -> Settings:
        """One of the committed configurations."""
        text = resources.files("equipoise.battery").joinpath("settings.toml").read_text("utf-8")
        return cls(**tomllib.loads(text)[name])

    def data_of(self, seed: int) -> DataConfig:
        """The data's configuration with the noise and split of a seed."""
        return self.data.model_copy(update={"seed": seed})

    def plan(self, temperature: float = 1.0) -> TrainingPlan:
        return TrainingPlan(**self.training, temperature=temperature)

    def estimator(self, model: str, seed: int, **options: Any) -> ConstrainedBNNRegressor:
        """An estimator of one of `MODELS`, not fitted yet."""
        chosen = dict(MODELS[model])
        constraint = balances() if chosen.pop("balances", True) else None
        if constraint is None:
            chosen["sensor_std"] = None
        plan = self.plan(chosen.pop("temperature", 1.0))
        shared = {"hidden": self.hidden, "activation": self.activation, "prior_std": 1.0, "training": plan}
        return ConstrainedBNNRegressor(constraint, **chosen, **shared, random_state=seed, **options)
