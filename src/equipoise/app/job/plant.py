"""`Plant`: a job file for reconciliation: measured columns, the accuracy of their meters, and balances between them."""

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
    """Accuracy of an instrument: its standard deviation is `absolute + share × |reading|`.

    Attributes:
        absolute: Standard deviation at a reading of zero, in the column's unit.
        share: Increase of the standard deviation with the reading.
    """

    absolute: float
    share: float

    @classmethod
    def parse(cls, value: float | str) -> Accuracy | None:
        """Read a value of the section `[sensors]`; return None for "learn".

        Args:
            value: A standard deviation, or a text such as `"2 %"` or `"2 % + 0.1"`.
        Example:
            >>> Accuracy.parse(0.5), Accuracy.parse("2 %"), Accuracy.parse("2 % + 0.1")
            (Accuracy(absolute=0.5, share=0.0), Accuracy(absolute=0.0, share=0.02), Accuracy(absolute=0.1, share=0.02))
        """
        if not isinstance(value, str):
            return cls(value, 0.0)
        match = _SHARE.fullmatch(value)
        return cls(float(match[2] or 0.0), float(match[1]) / 100) if match else None


def _std_or_share(value: Any) -> float | str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 <= value < math.inf:
        return float(value)
    if value == "learn":
        return value
    if isinstance(value, str) and _SHARE.fullmatch(value):
        if not all(map(math.isfinite, Accuracy.parse(value) or ())):
            raise ValueError("must be finite")
        return value
    rule = "must be a standard deviation ≥ 0, a share of the reading ('1 %' or '1 % + 0.05')"
    raise ValueError(f"{rule} or, with a model, 'learn'")


class Plant(Job):
    """A job file that is read to reconcile measured values, not to train a model.

    It differs from a `Job` in three ways: there may be no inputs; inputs and known columns may have sensors, too, and
    are exact without one; a sensor's standard deviation may be a share of the reading.

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
    sensors: dict[Name, Annotated[float | str, BeforeValidator(_std_or_share)]] = Field(default_factory=dict)

    @property
    def with_sensors(self) -> tuple[str, ...]:
        """Columns that may have a sensor: all columns."""
        return self.columns

    @property
    def accuracies(self) -> dict[str, Accuracy]:
        """Accuracies by full name of the columns that have one in the section `[sensors]`."""
        values = {self.sensed(name): Accuracy.parse(value) for name, value in self.sensors.items()}
        return {name: accuracy for name, accuracy in values.items() if accuracy is not None}

    @property
    def tolerance_std(self) -> dict[str, float]:
        """Tolerances of balances by name, as standard deviations in the balances' units; those left out are exact.

        Raises: JobError, if a tolerance is to be learned.
        """
        for name, value in self.tolerances.items():
            if not isinstance(value, float):
                rule = f"{name!r} in [tolerances] must be a standard deviation to reconcile"
                got = repr(value) if isinstance(value, str) else "one to be learned"
                raise JobError(f"{self.file}: {rule}, but got {got}. Write 0 if the balance holds exactly.")
        return {name: float(value) for name, value in self.tolerances.items() if isinstance(value, float)}

    def constraint(self) -> LinearConstraint:
        """Build the constraint from the balances: outputs are all uncertain columns, known are exact columns they use.

        Raises: JobError, if there are no balances, or they are linearly dependent or contradict each other.
        """
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
