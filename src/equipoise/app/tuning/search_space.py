"""The search space: which values each parameter may have, and which values are tried first."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from equipoise.balances import did_you_mean
from equipoise.errors import InputError, InputTypeError

Trial = Any  # Optuna is imported when it is needed


@dataclass(frozen=True)
class Choice:
    """A parameter with one of several values, without an order.

    Args:
        options: The values, all different.
    Example:
        >>> Choice([(64, 64), (32, 32, 32)]).labels
        ('(64, 64)', '(32, 32, 32)')
    """

    options: Sequence[Any]

    def __post_init__(self):
        object.__setattr__(self, "options", tuple(self.options))
        if not self.options or len(set(self.labels)) < len(self.options):
            raise InputError(f"Choice must have options that all differ, but got {list(self.options)!r}.")

    @property
    def labels(self) -> tuple:
        """The options as a journal can hold them: plain values as they are, others as text."""
        return tuple(o if o is None or isinstance(o, str | bool | int | float) else repr(o) for o in self.options)

    def suggest(self, trial: Trial, name: str) -> None:
        """Let Optuna suggest the parameter's label for a trial.

        Args:
            trial: A trial of Optuna, which keeps the label.
            name: Name of the parameter.
        """
        trial.suggest_categorical(name, self.labels)

    def encode(self, value: Any) -> Any:
        """Return the label of a value."""
        return self.labels[self.options.index(value)]

    def decode(self, label: Any) -> Any:
        """Return the value of a label."""
        return self.options[self.labels.index(label)]

    def __contains__(self, value: Any) -> bool:
        return value in self.options


@dataclass(frozen=True)
class _Range(ABC):
    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self):
        if not (self._number(self.low) and self._number(self.high) and self.low < self.high):
            raise InputError(f"{type(self).__name__} must have low < high, both finite, but got {self!r}.")
        if self.log and self.low <= 0:
            raise InputError(f"{type(self).__name__} with log=True must have low > 0, but got {self!r}.")

    @abstractmethod
    def _number(self, value: Any) -> bool: ...

    @abstractmethod
    def suggest(self, trial: Trial, name: str) -> None:
        """Let Optuna suggest the parameter's value for a trial.

        Args:
            trial: Optuna's trial.
            name: Name of the parameter.
        """

    def encode(self, value: Any) -> Any:
        """Return the value as a journal holds it: unchanged."""
        return value

    def decode(self, value: Any) -> Any:
        """Return the value that a journal holds: unchanged."""
        return value

    def __contains__(self, value: Any) -> bool:
        return self._number(value) and self.low <= value <= self.high


@dataclass(frozen=True)
class Uniform(_Range):
    """A parameter that is a number, distributed uniformly.

    Args:
        low, high: Its smallest and largest value.
        log: Whether its logarithm is distributed uniformly instead.
    """

    def _number(self, value: Any) -> bool:
        return isinstance(value, Real) and math.isfinite(value)

    def suggest(self, trial: Trial, name: str) -> None:
        """Let Optuna suggest the parameter's value for a trial.

        Args:
            trial: A trial of Optuna, which keeps the value.
            name: Name of the parameter.
        """
        trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Whole(_Range):
    """A parameter that is a whole number, distributed uniformly.

    Args:
        low, high: Its smallest and largest value.
        log: Whether its logarithm is distributed uniformly instead.
    """

    def _number(self, value: Any) -> bool:
        return isinstance(value, Integral)

    def suggest(self, trial: Trial, name: str) -> None:
        """Let Optuna suggest the parameter's value for a trial.

        Args:
            trial: A trial of Optuna, which keeps the value.
            name: Name of the parameter.
        """
        trial.suggest_int(name, int(self.low), int(self.high), log=self.log)


Space = Mapping[str, Choice | Uniform | Whole]


def check_space(space: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise an error unless a space names known parameters and gives each of them a range or choice.

    Args:
        space: The search space.
        known: Names of the parameters that can be tuned.
    """
    if not space:
        raise InputError("space must name one parameter at least, but got none.")
    for name, values in space.items():
        if name not in known:
            message = "space must name parameters of the estimator or of TrainingPlan"
            raise InputError(f"{message}, but got {name!r}. {did_you_mean(name, sorted(known))}")
        if not isinstance(values, Choice | Uniform | Whole):
            raise InputTypeError(f"space[{name!r}] must be a Choice, Uniform or Whole, but got {values!r}.")


def check_first(first: Sequence[Mapping[str, Any]], space: Space) -> None:
    """Raise InputError unless all values that are tried first lie in the space.

    Args:
        first: Values by name of the parameter, for each of the first trials.
        space: The search space.
    """
    for name, value in (item for parameters in first for item in parameters.items()):
        if name not in space:
            raise InputError(
                f"first must name parameters of the space, but got {name!r}. {did_you_mean(name, list(space))}"
            )
        if value not in space[name]:
            raise InputError(f"first must have values in the space, but got {value!r} for {name!r}: {space[name]!r}.")
