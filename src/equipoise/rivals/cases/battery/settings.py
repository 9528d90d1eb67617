"""Settings of fits to the battery's table, read from `settings.toml`."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import Field

from equipoise.errors import check_choice
from equipoise.rivals.cases.battery.cell import CellConfig, Config
from equipoise.rivals.cases.battery.data import DataConfig
from equipoise.training import TrainingPlan

Positive = Annotated[int, Field(ge=1)]

OURS = TrainingPlan().temperature  # of the posterior, in our model; the paper's is 1


class Settings(Config):
    """One configuration of the study.

    Attributes:
        data: Simulation, noise and split; its seed is replaced by that of the run.
        hidden: Widths of the hidden layers.
        activation: Activation of the hidden layers.
        training: Fields of `TrainingPlan`.
        n_draws: Number of posterior draws for scores.
        violation_draws: Number of posterior draws for violations of the balances.
    Raises: ConfigError, if a value is out of its range.
    """

    data: DataConfig = DataConfig()
    hidden: Annotated[tuple[Positive, ...], Field(min_length=1)]
    activation: str = "silu"
    training: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    n_draws: Positive
    violation_draws: Positive

    @classmethod
    def named(cls, name: Literal["full", "small"] | str = "full") -> Settings:
        """Read a configuration from `settings.toml`.

        Args:
            name: "full", or "small" for a run of a minute whose numbers mean nothing.
        Raises: InputError, for another name.
        """
        text = resources.files("equipoise.rivals.cases.battery").joinpath("settings.toml").read_text("utf-8")
        named = tomllib.loads(text)
        check_choice("name", name, tuple(named))
        return cls(**named[name])

    def with_cell(self, **fields: Any) -> Settings:
        """Return the settings with other fields of the cell.

        Args:
            fields: Fields of `CellConfig` and their values.
        Raises: ConfigError, if a field is unknown or a value out of its range.
        """
        cell = CellConfig(**self.data.cell.model_dump() | fields)
        return self.model_copy(update={"data": self.data.model_copy(update={"cell": cell})})

    def data_of(self, seed: int) -> DataConfig:
        """Return the configuration of the data with the noise and split of a seed."""
        return self.data.model_copy(update={"seed": seed})

    def plan(self, temperature: float = 1.0) -> TrainingPlan:
        """Return the training plan.

        Args:
            temperature: Temperature of the posterior; the paper's is 1.
        """
        return TrainingPlan(**self.training, temperature=temperature)
