"""Settings of fits to the battery table, from one committed file."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from equipoise.rivals.cases.battery.data import DataConfig
from equipoise.training import TrainingPlan

Positive = Annotated[int, Field(ge=1)]

OURS = TrainingPlan().temperature  # the paper's is 1


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
        text = resources.files("equipoise.rivals.cases.battery").joinpath("settings.toml").read_text("utf-8")
        return cls(**tomllib.loads(text)[name])

    def data_of(self, seed: int) -> DataConfig:
        """The data's configuration with the noise and split of a seed."""
        return self.data.model_copy(update={"seed": seed})

    def plan(self, temperature: float = 1.0) -> TrainingPlan:
        return TrainingPlan(**self.training, temperature=temperature)
