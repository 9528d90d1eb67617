"""What a model file says of itself: the JSON text in its header, and how to read it. Needs no torch.

A safetensors file has room for texts in its header. Ours has one, called `equipoise`: a `Description` in strict JSON,
where a number that JSON lacks is written `{"$float": "nan"}`. A field that this version does not know is ignored; one
that it needs and does not find is named.

| format | what is new |
|---|---|
| 1 | the first |
| 2 | `network`: what the network is; of files of format 1, `upgrades` infers it |
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open

from equipoise.artifact.upgrades import upgrade
from equipoise.errors import EquipoiseError

ENTRY = "equipoise"
FORMAT = "equipoise model"
FORMAT_VERSION = 2
LARGEST_HEADER = 100_000_000  # bytes: safetensors' own limit


class ArtifactError(EquipoiseError, ValueError):
    """A model file that cannot be read or written, and why."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Labels(_Part):
    """The columns of a pandas frame, which may be other than text."""

    values: tuple[bool | int | float | str, ...]
    name: str | None


class Columns(_Part):
    """Names of the columns, in the order that arrays have them: inputs, then known ones; and outputs."""

    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]
    units: dict[str, str | None]
    features: tuple[str, ...] | None  # as scikit-learn saw them, where X was a frame
    labels: Labels | None  # of the outputs, where Y was a pandas frame
    named_outputs: bool
    single_output: bool


class Balance(_Part):
    """A balance's name, text and unit; its coefficients are tensors."""

    name: str
    text: str
    unit: str | None


class Prior(_Part):
    """The fields of a `TolerancePrior`."""

    mean: float
    std: float
    relative: bool


class ByName(_Part):
    """What was said of single balances or outputs."""

    by_name: dict[str, float | str | Prior | None]


Said = float | str | Prior | ByName | tuple[float, ...] | None


class Configuration(_Part):
    """Parameters of the estimator; `random_state` only where it was a number."""

    likelihood: str
    sensor_std: Said
    tolerance: Said
    offset: bool
    hidden: tuple[int, ...]
    activation: str
    prior_std: float
    max_epochs: int | None
    n_draws: int
    validation_fraction: float
    training: dict[str, Any] | None
    random_state: int | None


class Training(_Part):
    """The plan that was followed, the record of every epoch, without wall-clock times, and how training ended."""

    plan: dict[str, Any]
    epochs: tuple[dict[str, Any], ...]
    best_epoch: int
    stopped: str


class Network(_Part):
    """What the network is; its numbers are the tensors `model.…`.

    Attributes:
        n_inputs, n_outputs: Widths of x and y.
        hidden: Widths of the hidden layers.
        activation: Between the layers.
        sensor_head: Whether the network has outputs for how sensor noise depends on x (V4).
        prior_std: Prior standard deviation of each weight.
        likelihood: "joint" (L2) or "marginal" (L1).
        tolerances: Of each balance, whether its tolerance is learned, fixed above 0, or exactly 0.
        offsets: Of each balance, whether it has a learned offset.
        sensors: Of each output, whether its sensor is learned, given, or noise-free; None if there are no sensor
            variances, or other ones in each row.
    """

    n_inputs: int
    n_outputs: int
    hidden: tuple[int, ...]
    activation: str
    sensor_head: bool
    prior_std: float
    likelihood: Literal["joint", "marginal"]
    tolerances: tuple[Literal["learned", "fixed", "exact"], ...]
    offsets: tuple[bool, ...]
    sensors: tuple[Literal["learned", "given", "none"], ...] | None


class Description(_Part):
    """All that a model file says of itself.

    Attributes:
        format, format_version, checksum: Of the file.
        versions: Of the software that wrote it.
        columns, balances, configuration: What was fitted.
        seed: All randomness of the fit follows from it.
        n_rows: Rows trained on, where known.
        sensors_per_row: Whether sensor noise was given per training row.
        tolerances, sensors: The rows of `tolerances_` and `sensor_std_`.
        training: The history of the fit.
        network: What the network is.
        job: Text of the job file, if there was one.
        notes: What else was to be kept, such as the name of the data file.
    """

    format: str
    format_version: int
    checksum: str
    versions: dict[str, str]
    columns: Columns
    balances: tuple[Balance, ...]
    configuration: Configuration
    seed: int
    n_rows: int | None
    sensors_per_row: bool
    tolerances: tuple[dict[str, Any], ...]
    sensors: tuple[dict[str, Any], ...]
    training: Training
    network: Network
    job: str | None
    notes: dict[str, bool | int | float | str | None]

    def to_json(self) -> str:
        """Strict JSON, fields in the order above."""
        return json.dumps(_strict(self.model_dump()), allow_nan=False, separators=(",", ":"))


def describe(path: str | os.PathLike) -> Description:
    """What a model file says of itself. Its tensors are neither read nor checked."""
    return parse_description(read_header(path), path)


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """The entry in a file's header, of a format that this version reads."""
    text = _entry(Path(path))
    try:
        content = json.loads(text, object_hook=_number)
        name, number = content["format"], content["format_version"]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ArtifactError(_damaged(path, repr(error))) from error
    if name != FORMAT or not isinstance(number, int):
        raise ArtifactError(_damaged(path, f"format {name!r}, version {number!r}"))
    if number > FORMAT_VERSION:
        raise ArtifactError(
            f"'{path}' was written by a newer equipoise (format {number}); this one reads up to {FORMAT_VERSION}: "
            "upgrade."
        )
    return content


def parse_description(content: Mapping[str, Any], path: str | os.PathLike) -> Description:
    """The description in an entry of a file's header."""
    try:
        return Description.model_validate(upgrade(content))
    except ValidationError as error:
        raise ArtifactError(f"The header of '{path}' must be complete, but {first_problem(error)}.") from error


def first_problem(error: ValidationError) -> str:
    """The first field that is wrong, in words."""
    first = error.errors()[0]
    found = "is missing" if first["type"] == "missing" else f"is {first['input']!r} ({first['msg']})"
    return f"its field '{'.'.join(map(str, first['loc']))}' {found}"


def _entry(path: Path) -> str:
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise ArtifactError(f"A model file is needed, but '{path}' {found}. Check its name.")
    try:
        _check_start(path)
        with safe_open(path, framework="np") as file:
            texts = file.metadata() or {}
    except SafetensorError as error:
        raise ArtifactError(_damaged(path, error)) from error
    except OSError as error:
        raise ArtifactError(f"'{path}' cannot be read: {error.strerror or error}.") from error
    if ENTRY not in texts:
        raise ArtifactError(f"'{path}' is a safetensors file, but no model of equipoise. Give a file that it wrote.")
    return texts[ENTRY]


def _check_start(path: Path) -> None:
    """A safetensors file starts with the length of its header, eight bytes, and a brace."""
    with open(path, "rb") as file:
        start = file.read(9)
    if not start:
        raise ArtifactError(f"'{path}' is empty. Give a model file that equipoise wrote.")
    if int.from_bytes(start[:8], "little") > LARGEST_HEADER or start[8:] != b"{":
        raise ArtifactError(f"'{path}' is not a safetensors file. Give a model file that equipoise wrote.")


def _damaged(path: str | os.PathLike, problem: object) -> str:
    return f"'{path}' is cut short or damaged ({problem}). Copy it again, or fit again."


def _strict(value: Any) -> Any:
    """The same in terms of JSON, which has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        return {key: _strict(part) for key, part in value.items()}
    return [_strict(part) for part in value] if isinstance(value, list | tuple) else value


def _number(content: dict[str, Any]) -> Any:
    is_number = content.keys() == {"$float"} and content["$float"] in ("nan", "inf", "-inf")
    return float(content["$float"]) if is_number else content
