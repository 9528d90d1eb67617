"""`Job`: a job file, read and checked, and the model that it describes."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, ValidationError, model_validator

from equipoise.app.job.job_errors import JobError, MissingJobError, misplaced_columns, validation_message
from equipoise.app.job.options import Flag, LearnedTolerance, ModelOptions, Sensor, Tolerance
from equipoise.balances import EquationError, column_symbol, did_you_mean, parse_equation, quoted_list

if TYPE_CHECKING:
    from equipoise.balances import LinearConstraint
    from equipoise.estimator import ConstrainedBNNRegressor

Name = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
AnyJob = TypeVar("AnyJob", bound="Job")
# Endings of file names that tables have and job files do not.
TABLE_NAME = re.compile(r"\.(csv|tsv|parquet|xlsx?)(\.(gz|bz2|xz|zst|zip))?$", re.IGNORECASE)
PLACES = {"inputs": "an input", "known": "a known column", "outputs": "an output"}


class Job(BaseModel):
    """The description of a model in a job file: table, columns, balances, sensors, tolerances and options.

    Attributes:
        data: Path of the table; `load` and `parse` resolve it relative to the job file.
        inputs: Columns that the network takes as inputs.
        outputs: Columns that the network predicts.
        known: Columns that enter balances but not the network.
        skip_incomplete: Whether rows with a missing input or known column are left out.
        balances: Linear equations between columns, by name (see `parse_equation`).
        sensors: Standard deviations of the sensors of outputs, in the outputs' units, or "learn", which is also the
            default for outputs that are not named. As in balances, the unit may be left out of an output's name.
        tolerances: How far balances may be missed: 0 (exact), a standard deviation in the balance's unit, "learn",
            which is also the default for balances that are not named, "paper" (learned from the paper's prior), or a
            `LearnedTolerance`.
        model: Options of the model.

    Example:
        >>> job = Job.parse('''
        ... data = "flows.csv"
        ... inputs = ["feed [kg/h]"]
        ... outputs = ["top [kg/h]", "bottom [kg/h]"]
        ... [balances]
        ... mass = "feed = top + bottom"
        ... [sensors]
        ... top = 0.1
        ... ''')
        >>> job.constraint()
        LinearConstraint(1 balance, 1 inputs, 0 known, 2 outputs)
          'mass' [kg/h]: feed = top + bottom
        >>> job.sensor_std
        {'top [kg/h]': 0.1}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path
    inputs: Annotated[tuple[Name, ...], Field(min_length=1)]
    outputs: Annotated[tuple[Name, ...], Field(min_length=1)]
    known: tuple[Name, ...] = ()
    skip_incomplete: Flag = False
    balances: dict[Name, Name] = {}
    sensors: dict[Name, Sensor] = {}
    tolerances: dict[Name, Tolerance] = {}
    model: ModelOptions = ModelOptions()
    _text: str = PrivateAttr("")
    _file: str = PrivateAttr("job")

    @classmethod
    def load(cls: type[AnyJob], path: str | os.PathLike[str]) -> AnyJob:
        """Read and check a job file.

        Args:
            path: The job file, in TOML.
        Raises: JobError, if there is no such file or it is not a valid job.
        """
        path = Path(path)
        return cls.parse(_text_of(path), path)

    @classmethod
    def parse(cls: type[AnyJob], text: str, path: str | os.PathLike[str] = "job") -> AnyJob:
        """Read and check the text of a job file.

        Args:
            text: The job, in TOML.
            path: Path of the job file: `data` is relative to its folder, and messages name the file.
        Returns: The job.
        Raises: JobError, if the text is not a valid job.
        """
        path = Path(path)
        try:
            job = cls.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            advice = "Put text, and names that hold blanks or brackets, in quotes. Write 0.5, not 0,5. Use a name once."
            raise JobError(f"{path.name}: a job file must be TOML, but got: {error}. {advice}") from None
        except ValidationError as error:
            raise JobError(f"{path.name}: {validation_message(error, cls)}") from None
        job = job.model_copy(update={"data": path.parent / job.data})
        job._text, job._file = text, path.name
        return job

    @property
    def text(self) -> str:
        """The text of the job file."""
        return self._text

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns: inputs, known columns, outputs."""
        return self.inputs + self.known + self.outputs

    @property
    def x_columns(self) -> tuple[str, ...]:
        """Names of the columns of X in the estimator's order: inputs, then the known columns if there are balances."""
        return self.inputs + (self.known if self.balances else ())

    @property
    def sensor_std(self) -> dict[str, Any] | str:
        """The estimator's argument `sensor_std`: standard deviations or "learn", by full name of the output."""
        return {self.sensed(name): value for name, value in self.sensors.items()} or "learn"

    @property
    def file(self) -> str:
        """The name of the job file."""
        return self._file

    @property
    def with_sensors(self) -> tuple[str, ...]:
        """Columns that may have a sensor: the outputs."""
        return self.outputs

    def sensed(self, name: str) -> str:
        """Return the column to which a name in `[sensors]` refers, by the rules of `parse_equation`.

        Args:
            name: A column's name, with or without its unit.
        Raises: JobError, if no column or several columns fit, or the column may have no sensor.
        """
        columns = self.with_sensors
        try:
            (column,) = parse_equation("`" + name.replace("`", "``") + "` = 0", columns).coefficients
        except EquationError:
            fitting = [column for column in columns if column_symbol(column) == name]
            other = [PLACES[place] for place in PLACES if name in getattr(self, place)]
            advice = f"It fits {quoted_list(fitting)}: write the full name." if fitting else did_you_mean(name, columns)
            got = f"{name!r}, {other[0]}" if other else repr(name)
            rule = (
                "[sensors] must name outputs" if columns == self.outputs else "[sensors] must name columns of the job"
            )
            raise JobError(f"{rule}, but got {got}. {advice}") from None
        return column

    def check_header(self, header: Sequence[str]) -> None:
        """Raise JobError unless a table has all columns of the job.

        Args:
            header: Names of the table's columns.
        """
        for place in PLACES:
            for name in getattr(self, place):
                if name not in header:
                    rule = f"{place!r} must name columns of '{self.data.name}'"
                    raise JobError(f"{self._file}: {rule}, but got {name!r}. {did_you_mean(name, header)}")

    def constraint(self) -> LinearConstraint | None:
        """Build the constraint from the balances; return None if there are no balances.

        Raises: JobError, if balances are linearly dependent or contradict each other.
        """
        from equipoise.balances import ConstraintError, LinearConstraint

        if not self.balances:
            return None
        columns: dict[str, Any] = {place: getattr(self, place) for place in PLACES}
        try:
            return LinearConstraint.from_equations(self.balances, **columns)
        except (ConstraintError, EquationError) as error:
            raise JobError(f"{self._file}: {error}") from error

    def estimator(self, **overrides: Any) -> ConstrainedBNNRegressor:
        """Create the model that the job describes, not fitted yet.

        Args:
            overrides: Arguments of `ConstrainedBNNRegressor` that take precedence over the job.
        Raises: JobError, as for `constraint`.
        """
        from equipoise.estimator import ConstrainedBNNRegressor
        from equipoise.training import TrainingPlan

        options = dict(self.model)
        plan = TrainingPlan(**{name: options.pop(name) for name in TrainingPlan.__dataclass_fields__})
        options |= {"random_state": options.pop("seed"), "training": plan}
        options |= {"sensor_std": self.sensor_std, "tolerance": self._tolerance()}
        return ConstrainedBNNRegressor(self.constraint(), **options | overrides)

    def _tolerance(self) -> dict[str, Any] | None:
        from equipoise.gaussian import TolerancePrior

        named: dict[Any, Any] = {"learn": None, "paper": TolerancePrior.paper()}
        tolerances = {}
        for name, value in self.tolerances.items():
            if isinstance(value, LearnedTolerance):
                tolerances[name] = TolerancePrior(*value.log_variance, relative=value.relative)
            else:
                tolerances[name] = named.get(value, value)
        return tolerances or None

    @model_validator(mode="after")
    def _check(self) -> Job:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(job: Job) -> Iterator[str]:
    """Iterate over contradictions between the keys of a job, as sentences."""
    yield from misplaced_columns({place: getattr(job, place) for place in PLACES})
    for name, text in job.balances.items():
        try:
            parse_equation(text, job.columns)
        except EquationError as error:
            yield f"{name!r} in [balances]: {error}"
    for name in job.tolerances:
        if name not in job.balances:
            yield f"[tolerances] must name balances, but got {name!r}. {did_you_mean(name, list(job.balances))}"
    yield from _wrong_sensors(job)


def _wrong_sensors(job: Job) -> Iterator[str]:
    names: dict[str, str] = {}  # in [sensors], by column
    for name, value in job.sensors.items():
        try:
            column = job.sensed(name)
        except JobError as error:
            yield str(error)
            continue
        if column in names:
            kind = "output" if column in job.outputs else "column"
            yield f"[sensors] must name each {kind} once, but got {names[column]!r} and {name!r}. Remove one of them."
        names[column] = name
        if job.model.likelihood == "marginal" and job.balances and value not in (0, "learn"):
            rule = f"{name!r} in [sensors] must be 0 or 'learn' with likelihood = \"marginal\""
            yield f'{rule}, which takes what was measured for the truth, but got {value}. Use "joint", or leave it out.'


def _text_of(path: Path) -> str:
    if path.is_dir():
        raise JobError(f"A job must be a file, but got the folder '{path}'. Name a .toml file in it.")
    if not path.exists():
        jobs = sorted(file.name for file in path.parent.glob("*.toml"))
        advice = did_you_mean(path.name, jobs) if jobs else "Write one with 'equipoise init'."
        raise MissingJobError(f"A job file must exist, but got '{path}', which does not. {advice}")
    if path.suffix == ".safetensors":
        raise JobError(f"A job must be a text file, but got the model '{path}'. Look at it with 'equipoise info'.")
    if TABLE_NAME.search(path.name):
        raise JobError(f"A job must be a .toml file, but got the table '{path}'. Describe it with 'equipoise init'.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(
            f"A job file must be readable UTF-8 text, but got '{path}': {error}. Save it as such."
        ) from error
