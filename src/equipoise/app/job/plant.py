"""The job file as a plant: which columns are measured, how well, and which balances hold between them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from equipoise.app.job.job_errors import JobError
from equipoise.app.job.job_file import Job, Name
from equipoise.balances import EquationError, parse_equation

if TYPE_CHECKING:
    from equipoise.balances import LinearConstraint

_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?"
_SHARE = re.compile(rf"\s*({_NUMBER})\s*%\s*(?:\+\s*({_NUMBER})\s*)?")


class Accuracy(NamedTuple):
    """Standard deviation of what an instrument shows: `absolute + share × |reading|`."""

    absolute: float
    share: float

    @classmethod
    def of(cls, said: float | str) -> Accuracy | None:
        """What a value in `[sensors]` says; None for "learn".

        Example:
            >>> Accuracy.of(0.5), Accuracy.of("2 %"), Accuracy.of("2 % + 0.1")
            (Accuracy(absolute=0.5, share=0.0), Accuracy(absolute=0.0, share=0.02), Accuracy(absolute=0.1, share=0.02))
        """
        if not isinstance(said, str):
            return cls(said, 0.0)
        found = _SHARE.fullmatch(said)
        return cls(float(found[2] or 0.0), float(found[1]) / 100) if found else None


def _spoken_accuracy(value: Any) -> float | str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 <= value < math.inf:
        return float(value)
    if value == "learn":
        return value
    if isinstance(value, str) and _SHARE.fullmatch(value):
        if not all(map(math.isfinite, Accuracy.of(value) or ())):
            raise ValueError("must be finite")
        return value
    rule = "must be a standard deviation ≥ 0, a share of the reading ('1 %' or '1 % + 0.05')"
    raise ValueError(f"{rule} or, with a model, 'learn'")


class Plant(Job):
    """A job file that is read to reconcile what was measured, not to learn.

    Other than for learning, there may be no inputs at all; inputs and known columns may have sensors, too, and are
    exact without one; and standard deviations may be shares of what is read.

    Example:
        >>> plant = Plant.parse('''
        ... data = "flows.csv"
        ... outputs = ["feed [kg/h]", "top [kg/h]", "bottom [kg/h]"]
        ... [balances]
        ... mass = "feed = top + bottom"
        ... [sensors]
        ... feed = "1 %"
        ... top = 0.2
        ... ''')
        >>> plant.accuracies
        {'feed [kg/h]': Accuracy(absolute=0.0, share=0.01), 'top [kg/h]': Accuracy(absolute=0.2, share=0.0)}
    """

    inputs: tuple[Name, ...] = ()
    sensors: dict[Name, Annotated[float | str, BeforeValidator(_spoken_accuracy)]] = Field(default_factory=dict)

    @property
    def with_sensors(self) -> tuple[str, ...]:
        """Columns that may have a sensor: all."""
        return self.columns

    @property
    def accuracies(self) -> dict[str, Accuracy]:
        """How well columns are measured, by full name, as far as it is said."""
        said = {self.sensed(name): Accuracy.of(value) for name, value in self.sensors.items()}
        return {name: accuracy for name, accuracy in said.items() if accuracy is not None}

    @property
    def tolerance_std(self) -> dict[str, float]:
        """How far balances may be missed; 0 for those left out. Raises JobError if one is to be learned."""
        for name, value in self.tolerances.items():
            if not isinstance(value, float):
                rule = f"{name!r} in [tolerances] must be a standard deviation to reconcile"
                said = repr(value) if isinstance(value, str) else "one to be learned"
                raise JobError(f"{self.file}: {rule}, but got {said}. Write 0 if the balance holds exactly.")
        return {name: float(value) for name, value in self.tolerances.items() if isinstance(value, float)}

    def constraint(self) -> LinearConstraint:
        """The balances, with everything uncertain as outputs, and with what balances use of the rest as known."""
        from equipoise.balances import ConstraintError, LinearConstraint

        if not self.balances:
            raise JobError(f"{self.file}: [balances] must hold at least one to reconcile, but got none. Add it.")
        used = {name for text in self.balances.values() for name in parse_equation(text, self.columns).coefficients}
        accuracies = self.accuracies
        uncertain = [name for name in self.inputs + self.known if name in accuracies]
        exact = [name for name in self.inputs + self.known if name in used and name not in accuracies]
        try:
            return LinearConstraint.from_equations(self.balances, known=exact, outputs=[*self.outputs, *uncertain])
        except (ConstraintError, EquationError) as error:
            raise JobError(f"{self.file}: {error}") from error
