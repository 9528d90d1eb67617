"""The description of a fitted model in the header of its file, as JSON text; reading it needs no torch.

A safetensors file may have texts in its header. A model file has one, called `equipoise`: a `Description` in strict
JSON, where a number that JSON lacks is written `{"$float": "nan"}`. Fields that this version does not know are ignored;
a missing field that it needs is named in the error.

| format | what is new |
|---|---|
| 1 | |
| 2 | `network`: sizes and parts of the network; `upgrades` infers it for files of format 1 |
| 3 | `estimator`: which class it is; `network.imposition`; `network.posterior` may name other draws, such as members |
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
FORMAT_VERSION = 3
LARGEST_HEADER = 100_000_000  # bytes: safetensors' own limit


class ArtifactError(EquipoiseError, ValueError):
    """A model file that cannot be read or written; the message has the reason."""


class MissingModelError(ArtifactError, FileNotFoundError):
    """A model file that does not exist."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Labels(_Part):
    """Column labels of a pandas frame, which need not be text."""

    values: tuple[bool | int | float | str, ...]
    name: str | None


class Columns(_Part):
    """Columns of the tables that a model was fitted to.

    Attributes:
        inputs, known, outputs: Names; arrays have inputs first, then known columns.
        units: Unit of each column, from its name; None where it has none.
        features: Column names as scikit-learn keeps them, where X was a frame.
        labels: Labels of the outputs, where Y was a pandas frame.
        named_outputs: Whether Y had column names.
        single_output: Whether Y was one-dimensional.
    """

    inputs: tuple[str, ...]
    known: tuple[str, ...]
    outputs: tuple[str, ...]
    units: dict[str, str | None]
    features: tuple[str, ...] | None
    labels: Labels | None
    named_outputs: bool
    single_output: bool


class Balance(_Part):
    """Name, text and unit of a balance; its coefficients are tensors."""

    name: str
    text: str
    unit: str | None


class Prior(_Part):
    """The fields of a `TolerancePrior`."""

    mean: float
    std: float
    relative: bool


class NamedPrior(_Part):
    """Name of a prior of another class, and the arguments with which that class makes it again."""

    prior: str
    settings: dict[str, Any]


class ByName(_Part):
    """Settings of single balances or outputs, by name."""

    by_name: dict[str, float | str | Prior | NamedPrior | None]


Setting = float | str | Prior | NamedPrior | ByName | tuple[float, ...] | None


class Configuration(_Part):
    """Parameters of the estimator; `random_state` is None unless it was a number."""

    likelihood: str
    sensor_std: Setting
    tolerance: Setting
    offset: bool
    hidden: tuple[int, ...]
    activation: str
    prior_std: float
    posterior: str = "mean-field"
    start: str = "residuals"
    max_epochs: int | None
    n_draws: int
    validation_fraction: float
    training: dict[str, Any] | None
    random_state: int | None


class Estimator(_Part):
    """The class of the estimator.

    Attributes:
        name: Its `file_name`.
        parameters: Its parameters beside those of `Configuration`.
        attributes: What its recipe adds to the attributes of a fitted estimator.
    """

    name: str
    parameters: dict[str, Any]
    attributes: dict[str, Any]


class Training(_Part):
    """The training plan that was used, the record of every epoch without wall-clock times, and how training ended."""

    plan: dict[str, Any]
    epochs: tuple[dict[str, Any], ...]
    best_epoch: int
    stopped: str


class Network(_Part):
    """Sizes and parts of the network; its numbers are the tensors `model.…`.

    Attributes:
        n_inputs, n_outputs: Widths of x and y.
        hidden: Widths of the hidden layers.
        activation: Activation function of the hidden layers.
        sensor_head: Whether the network has outputs for how sensor noise depends on x (V4).
        prior_std: Prior standard deviation of each weight.
        likelihood: Name of the likelihood: "joint" (L2), "marginal" (L1) or that of a class given to `load`.
        likelihood_settings: Arguments with which that class makes it again.
        posterior, posterior_settings: Name of what draws the weights, "mean-field", "members" or that of a class given
            to `load`, and the arguments with which that class makes it again.
        imposition, imposition_settings: Likewise, how balances are imposed; "conditioning" by the definition (C1–C4).
        tolerances: Of each balance, whether its tolerance is learned, fixed above 0, or exactly 0.
        tolerance_priors: Of each balance, the prior of its tolerance; None where it is log-normal or there is none.
            Empty if that is so for all.
        offsets: Of each balance, whether it has a learned offset.
        sensors: Of each output, whether its sensor variance is learned, given, or 0; None if all sensors are
            noise-free, or their variances differ per row.
    """

    n_inputs: int
    n_outputs: int
    hidden: tuple[int, ...]
    activation: str
    sensor_head: bool
    prior_std: float
    likelihood: str
    likelihood_settings: dict[str, Any] = {}
    posterior: str = "mean-field"
    posterior_settings: dict[str, Any] = {}
    imposition: str = "conditioning"
    imposition_settings: dict[str, Any] = {}
    tolerances: tuple[Literal["learned", "fixed", "exact"], ...]
    tolerance_priors: tuple[NamedPrior | None, ...] = ()
    offsets: tuple[bool, ...]
    sensors: tuple[Literal["learned", "given", "none"], ...] | None


class Description(_Part):
    """Description of a fitted model, the content of its file's header.

    Attributes:
        format, format_version, checksum: Name and version of the file's format, and its SHA-256.
        versions: Versions of the software that wrote it.
        columns, balances, configuration: Columns of the tables, balances, and parameters of the estimator.
        estimator: The class of the estimator.
        equality, equality_settings: Name of the kind of balances, "linear" or that of a class given to `load`, and the
            arguments with which that class makes them again; arrays among them are tensors.
        seed: Seed of all random numbers of the fit.
        n_rows: Number of rows trained on; None from old files without it.
        sensors_per_row: Whether sensor noise was given per training row.
        tolerances, sensors: The rows of `tolerances_` and `sensor_std_`.
        training: The training plan and the history of the fit.
        network: Sizes and parts of the network.
        job: Text of the job file, if there was one.
        notes: Other texts and numbers to keep, such as the name of the data file.
    """

    format: str
    format_version: int
    checksum: str
    versions: dict[str, str]
    columns: Columns
    balances: tuple[Balance, ...]
    equality: str = "linear"
    equality_settings: dict[str, Any] = {}
    configuration: Configuration
    estimator: Estimator
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
        """Write the description as strict JSON, fields in the order above."""
        return json.dumps(_to_strict_json(self.model_dump()), allow_nan=False, separators=(",", ":"))


def describe(path: str | os.PathLike) -> Description:
    """Read the description of the model in a file; tensors are neither read nor checked.

    Args:
        path: A file written by `save`.
    Raises: ArtifactError, if the file is missing, damaged, or of a newer format.
    """
    return parse_description(read_header(path), path)


def read_header(path: str | os.PathLike) -> dict[str, Any]:
    """Read the entry in a file's header, before it is validated.

    Args:
        path: A file written by `save`.
    Raises: ArtifactError, if the file is missing, damaged, or of a newer format.
    """
    text = _read_entry(Path(path))
    try:
        content = json.loads(text, object_hook=_parse_float)
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
    """Validate the entry in a file's header, upgrading older formats.

    Args:
        content: The entry, from `read_header`.
        path: The file, for the message.
    Returns: The description of the model.
    Raises: ArtifactError, with the first field that is missing or wrong.
    """
    try:
        return Description.model_validate(upgrade(content))
    except ValidationError as error:
        raise ArtifactError(f"The header of '{path}' must be complete, but {first_problem(error)}.") from error


def first_problem(error: ValidationError) -> str:
    """Describe the first field that is missing or wrong, for a message."""
    first = error.errors()[0]
    problem = "is missing" if first["type"] == "missing" else f"is {first['input']!r} ({first['msg']})"
    return f"its field '{'.'.join(map(str, first['loc']))}' {problem}"


def _read_entry(path: Path) -> str:
    rule = f"A model file is needed, but '{path}'"
    if path.is_dir():
        raise ArtifactError(f"{rule} is a folder. Check its name.")
    if not path.is_file():
        raise MissingModelError(f"{rule} does not exist. Check its name.")
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
    """Raise unless a file starts as safetensors files do: with the header's length in eight bytes, and a brace."""
    with open(path, "rb") as file:
        start = file.read(9)
    if not start:
        raise ArtifactError(f"'{path}' is empty. Give a model file that equipoise wrote.")
    if int.from_bytes(start[:8], "little") > LARGEST_HEADER or start[8:] != b"{":
        raise ArtifactError(f"'{path}' is not a safetensors file. Give a model file that equipoise wrote.")


def _damaged(path: str | os.PathLike, problem: object) -> str:
    return f"'{path}' is cut short or damaged ({problem}). Copy it again, or fit again."


def _to_strict_json(value: Any) -> Any:
    """Replace NaN and infinities, which JSON lacks, by mappings with their names, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        return {key: _to_strict_json(part) for key, part in value.items()}
    return [_to_strict_json(part) for part in value] if isinstance(value, list | tuple) else value


def _parse_float(content: dict[str, Any]) -> Any:
    is_number = content.keys() == {"$float"} and content["$float"] in ("nan", "inf", "-inf")
    return float(content["$float"]) if is_number else content
