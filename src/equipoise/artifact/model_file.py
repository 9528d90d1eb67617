"""One safetensors file per fitted model: tensors, and a `Description` in the header. Opening it runs no code.

Tensors are called `model.…` (the network and all posteriors, in standardized units), `standardizer.…`, and
`constraint.…` (the arrays of the balances: `A`, `B` and `b` of a `LinearConstraint`). The checksum is the SHA-256 of
the whole file with the checksum's own digits set to 0. The same fit gives the same bytes: the file contains no date and
no wall-clock times of epochs.

Only `save` and `load` import torch, so that reading a header takes no time.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from pydantic import ValidationError

from equipoise.artifact.configuration import (
    describe_configuration,
    describe_estimator,
    implementation_named,
    parse_configuration,
    parse_parameters,
    parse_plan,
    settings_of,
)
from equipoise.artifact.header import (
    ENTRY,
    FORMAT,
    FORMAT_VERSION,
    ArtifactError,
    Balance,
    Columns,
    Description,
    Labels,
    Training,
    describe,
    first_problem,
    parse_description,
    read_header,
)
from equipoise.artifact.network_description import (
    describe_network,
    estimator_class,
    likelihood_of,
    posterior_of,
    rebuild_network,
)
from equipoise.balances import column_unit
from equipoise.errors import InputTypeError, check_device

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from equipoise.balances import Equality, LinearConstraint
    from equipoise.estimator import ConstrainedBNNRegressor

__all__ = [
    "ArtifactError",
    "Description",
    "check_fitted",
    "describe",
    "describe_model",
    "load",
    "read_checked",
    "save",
    "write",
]
NO_CHECKSUM = 64 * "0"


def save(
    model: ConstrainedBNNRegressor,
    path: str | os.PathLike,
    *,
    job: str | None = None,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted model to one file.

    Args:
        model: A fitted `ConstrainedBNNRegressor`, or one of a class that derives from it and has a `file_name`. Its
            `device`, `checkpoint` and `verbose` are not kept, and of a `sensor_std` per training row only the shape.
        path: The file, usually called `….safetensors`; replaced whole if it is there.
        job: Text of the job file to keep with it.
        notes: Texts and numbers to keep with it.
    Example:
        >>> import tempfile, equipoise as eq
        >>> x = np.linspace(-1, 1, 32)[:, None]
        >>> model = eq.ConstrainedBNNRegressor(hidden=(4,), max_epochs=5, random_state=0).fit(x, x**2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, f"{folder}/parabola.safetensors", notes={"data": "parabola.csv"})
        ...     notes, again = describe(f"{folder}/parabola.safetensors").notes, load(f"{folder}/parabola.safetensors")
        >>> notes, bool((again.predict(x) == model.predict(x)).all())
        ({'data': 'parabola.csv'}, True)
    """
    check_fitted(model)
    import safetensors.torch

    try:
        text = describe_model(model, job, notes).to_json()
    except ValidationError as error:
        raise ArtifactError(f"A model file holds texts and numbers, but {first_problem(error)}.") from error
    raw = safetensors.torch.save(_tensors(model), {ENTRY: text})
    checksum = hashlib.sha256(raw).hexdigest()
    write(path, lambda file: file.write(_replace_checksum(raw, NO_CHECKSUM, checksum)))


def load(
    path: str | os.PathLike, device: Any = None, implementations: type | Sequence[type] = ()
) -> ConstrainedBNNRegressor:
    """Read a fitted model from a file; with the same software on the same machine it predicts the same bits.

    Args:
        path: A file written by `save`.
        device: Device on which torch computes, for instance "cuda".
        implementations: One or more classes of your own that the model was fitted with, such as a `Likelihood`, a
            `WeightPosterior`, a `VariancePrior`, an `Equality` or that of the estimator. A file names its
            implementations; it never imports one.
    Returns: The fitted estimator, without the parameters that `save` does not keep.
    Raises: ArtifactError, if the file is missing (then also a FileNotFoundError), damaged, or of a newer format.
    """
    import safetensors.torch

    classes = [implementations] if isinstance(implementations, type) else list(implementations)
    if strays := [each for each in classes if not isinstance(each, type)]:
        raise InputTypeError(f"implementations must hold classes, but got {strays[0]!r}. Pass the class itself.")
    check_device(device)
    content, raw = read_checked(path)
    try:
        description = parse_description(content, path)
        model = _rebuild_model(description, safetensors.torch.load(raw), classes)
    except ArtifactError:  # it says in one sentence what is wrong
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise ArtifactError(f"'{path}' must hold the model that its header describes, but got {error!r}.") from error
    model.device = device
    model.model_.to(model._device)
    return model


def read_checked(path: str | os.PathLike) -> tuple[dict[str, Any], bytes]:
    """Read a whole model file and check its checksum.

    Args:
        path: The file.
    Returns: The entry in its header, and all bytes of the file.
    Raises: ArtifactError, if the file is missing, damaged, or of a newer format.
    """
    content = read_header(path)
    raw = Path(path).read_bytes()
    checksum = str(content.get("checksum"))
    if hashlib.sha256(_replace_checksum(raw, checksum, NO_CHECKSUM)).hexdigest() != checksum:
        raise ArtifactError(f"'{path}' is damaged: its checksum does not match. Copy it again, or fit again.")
    return content, raw


def check_fitted(model: Any) -> None:
    """Raise an ArtifactError unless a model is fitted and of a class that has a name in model files."""
    if "file_name" not in vars(type(model)):  # a file would silently lose what a class without one adds
        advice = "A class that derives from it needs a file_name of its own."
        raise ArtifactError(f"model must be a ConstrainedBNNRegressor, but got {type(model).__name__}. {advice}")
    if not hasattr(model, "tolerances_"):
        raise ArtifactError("model must be fitted, but got one that is not. Call fit(X, y) first.")


def write(path: str | os.PathLike, writer: Callable[[BinaryIO], object]) -> None:
    """Write a file whole or not at all.

    Args:
        path: The file; replaced if it exists.
        writer: Called with the open binary file.
    Raises: ArtifactError, with the reason in one sentence.
    """
    from equipoise.data import write_atomically

    path = Path(path)
    if not path.parent.is_dir():
        raise ArtifactError(f"The folder of '{path.name}' must exist, but got '{path.parent}'. Make it first.")
    if path.is_dir():
        raise ArtifactError(f"The file to write must not be a folder, but got '{path}'. Give a file name.")
    try:
        write_atomically(path, writer)
    except OSError as error:
        raise ArtifactError(f"'{path}' cannot be written: {error.strerror or error}.") from error


def _replace_checksum(raw: bytes, old: str, new: str) -> bytes:
    """Replace the checksum in the header of a model file, so that the file's length stays as it is.

    Only the first occurrence in the file is replaced. That is the header's own: texts of users, which might hold the
    same words, come after it, and their quotation marks are escaped once more.

    Args:
        raw: All bytes of the file.
        old, new: The checksum in the file and its replacement, 64 hexadecimal digits each.
    Returns: The bytes with the new checksum; unchanged where the old one does not occur.
    """
    before, after = (rf"\"checksum\":\"{digits}\"".encode() for digits in (old, new))
    return raw.replace(before, after, 1)


# ---------------------------------------------------------------------- from a model


def _tensors(model: ConstrainedBNNRegressor) -> dict[str, Tensor]:
    import torch

    tensors = {f"model.{name}": values.detach().cpu() for name, values in model.model_.state_dict().items()}
    arrays = {f"standardizer.{name}": values for name, values in _arrays(model.standardizer_).items()}
    if model.constraint is not None:
        arrays |= {f"constraint.{name}": values for name, values in model.constraint.arrays().items()}
    arrays["held_out"] = np.asarray(model.held_out_, dtype=np.int64)
    tensors |= {name: torch.tensor(values) for name, values in arrays.items()}
    return {name: values.clone(memory_format=torch.contiguous_format) for name, values in tensors.items()}


def _arrays(standardizer: Any) -> dict[str, np.ndarray]:
    values = {field.name: getattr(standardizer, field.name) for field in fields(standardizer)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def describe_model(
    model: ConstrainedBNNRegressor, job: str | None = None, notes: Mapping[str, Any] | None = None
) -> Description:
    """Describe a fitted model as the header of its file does, without a checksum.

    Args:
        model: A fitted `ConstrainedBNNRegressor`.
        job: Text of the job file to keep.
        notes: Texts and numbers to keep.
    Returns: The description, with `NO_CHECKSUM` for the file's checksum.
    """
    constraint = model.constraint
    rows = () if constraint is None else zip(constraint.names, constraint.equations, constraint.units, strict=True)
    return Description(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        checksum=NO_CHECKSUM,
        versions={"python": platform.python_version()}
        | {name: _version(name) for name in ("equipoise", "torch", "numpy")},
        columns=_describe_columns(model),
        balances=tuple(Balance(name=name, text=text, unit=unit) for name, text, unit in rows),
        **_describe_equality(constraint),
        configuration=describe_configuration(model),
        estimator=describe_estimator(model),
        seed=model.seed_,
        n_rows=getattr(model, "n_rows_", None),
        sensors_per_row=model._sensors_per_row,
        tolerances=_records(model.tolerances_),
        sensors=_records(model.sensor_std_),
        training=_describe_training(model),
        network=describe_network(model.model_),
        job=job,
        notes={name: value.item() if isinstance(value, np.generic) else value for name, value in (notes or {}).items()},
    )


def _describe_equality(constraint: Equality | None) -> dict[str, Any]:
    """Return name and settings of the kind of balances; those of the library's own are in other fields."""
    from equipoise.balances import EQUALITIES

    if constraint is None or constraint.name in EQUALITIES:
        return {}
    return {"equality": constraint.name, "equality_settings": settings_of(constraint)}


def _describe_training(model: ConstrainedBNNRegressor) -> Training:
    history = model.history_
    epochs = ({name: value for name, value in record.items() if name != "seconds"} for record in history.epochs)
    plan = asdict(model.plan_)
    return Training(plan=plan, epochs=tuple(epochs), best_epoch=history.best_epoch, stopped=history.stopped)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"


def _describe_columns(model: ConstrainedBNNRegressor) -> Columns:
    constraint, features = model.constraint_, getattr(model, "feature_names_in_", None)
    generated = (f"x{j}" for j in range(len(model.standardizer_.x_mean)))
    inputs = tuple(generated if features is None else features) if constraint is None else constraint.inputs
    known = () if constraint is None else constraint.known
    return Columns(
        inputs=inputs,
        known=known,
        outputs=model.output_names_,
        units={name: column_unit(name) for name in (*inputs, *known, *model.output_names_)},
        features=None if features is None else tuple(features),
        labels=_labels(model._output_labels),
        named_outputs=model._seen_names,
        single_output=model._single,
    )


def _labels(labels: pd.Index | None) -> Labels | None:
    """Describe column labels that are texts or numbers; others, such as dates, are lost: names replace them."""
    if labels is None or not all(isinstance(value, str | int | float) for value in labels.tolist()):
        return None
    return Labels(values=tuple(labels.tolist()), name=labels.name if isinstance(labels.name, str) else None)


def _records(table: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    """Convert a table to one mapping per row; missing texts become None."""
    table = table.reset_index()
    texts = {name for name in table.columns if table[name].dtype.kind not in "biuf"}
    rows = table.to_dict("records")
    return tuple({k: None if k in texts and not isinstance(v, str) else v for k, v in row.items()} for row in rows)


# ---------------------------------------------------------------------- to a model


def _rebuild_model(
    description: Description, tensors: dict[str, Tensor], implementations: Sequence[type]
) -> ConstrainedBNNRegressor:
    """Build the fitted estimator that a header describes, with its tensors."""
    from equipoise.data import Standardizer
    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.network import LIKELIHOODS, POSTERIORS, Laplace

    network = description.network
    parameters = parse_configuration(description.configuration, implementations)
    if parameters["likelihood"] not in LIKELIHOODS:
        parameters["likelihood"] = likelihood_of(network, implementations)
    if parameters["posterior"] == Laplace.name:
        parameters["posterior"] = Laplace(network.posterior_settings["n_members"])
    elif parameters["posterior"] not in POSTERIORS:
        parameters["posterior"] = posterior_of(network, implementations)
    kind = estimator_class(description.estimator.name, [ConstrainedBNNRegressor, *implementations])
    accepted = inspect.signature(kind).parameters.keys()
    parameters |= parse_parameters(description.estimator.parameters)
    parameters = {name: value for name, value in parameters.items() if name in accepted}
    model = kind(_rebuild_constraint(description, tensors, implementations), **parameters)
    added = description.estimator.attributes
    for name, value in (_parse_attributes(description) | {"_added": added} | added).items():
        setattr(model, name, value)
    columns = description.columns
    X, Y = np.zeros((1, len(columns.inputs + columns.known))), np.zeros((1, len(columns.outputs)))
    model.constraint_ = model._constraint(X, Y)
    arrays = {name: values.numpy() for name, values in _with_prefix("standardizer.", tensors).items()}
    model.standardizer_ = Standardizer(**arrays, constraint=model.constraint_)
    model.held_out_ = tensors["held_out"].numpy()
    state = _with_prefix("model.", tensors)
    model.model_ = rebuild_network(network, model.standardizer_, state, implementations)
    return model


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): values for name, values in tensors.items() if name.startswith(prefix)}


def _rebuild_constraint(
    description: Description, tensors: dict[str, Tensor], implementations: Sequence[type]
) -> Equality | None:
    from equipoise.balances import EQUALITIES, Equality

    if not description.balances:
        return None
    if description.equality in EQUALITIES:
        return _rebuild_linear(description, tensors)
    arrays = {name: values.numpy() for name, values in _with_prefix("constraint.", tensors).items()}
    made = implementation_named("balances", description.equality, implementations, Equality)
    return made(**description.equality_settings, **arrays)


def _rebuild_linear(description: Description, tensors: dict[str, Tensor]) -> LinearConstraint:
    from equipoise.balances import LinearConstraint

    columns, balances = description.columns, description.balances
    A, B, b = (tensors[f"constraint.{name}"].numpy() for name in ("A", "B", "b"))
    roles = {"inputs": columns.inputs, "known": columns.known} if A.shape[1] else {}
    labels = {"names": [balance.name for balance in balances], "units": [balance.unit for balance in balances]}
    texts = [balance.text for balance in balances]
    return LinearConstraint(B, A, b, outputs=columns.outputs, equations=texts, **labels, **roles)


def _parse_attributes(description: Description) -> dict[str, Any]:
    """Return the attributes of a fitted estimator, by name, except balances, standardizer and network."""
    import pandas as pd

    from equipoise.training import History

    columns, training = description.columns, description.training
    labels, features, n_rows = columns.labels, columns.features, description.n_rows
    tables = [pd.DataFrame(list(rows)) for rows in (description.tolerances, description.sensors)]
    tolerances, sensors = (table.set_index(table.columns[0]) if len(table) else table for table in tables)
    return {
        "n_features_in_": len(columns.inputs + columns.known),
        "output_names_": columns.outputs,
        "seed_": description.seed,
        "plan_": parse_plan(training.plan),
        "history_": History(list(training.epochs), training.best_epoch, training.stopped),
        "tolerances_": tolerances,
        "sensor_std_": sensors,
        "_single": columns.single_output,
        "_seen_names": columns.named_outputs,
        "_sensors_per_row": description.sensors_per_row,
        "_output_labels": None if labels is None else pd.Index(list(labels.values), name=labels.name),
        **({} if features is None else {"feature_names_in_": np.array(features, dtype=object)}),
        **({} if n_rows is None else {"n_rows_": n_rows}),
    }
