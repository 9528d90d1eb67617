"""Opening the model file of a command, with classes from outside the package that the environment names."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.errors import InputError

if TYPE_CHECKING:
    from equipoise import ConstrainedBNNRegressor

VARIABLE = "EQUIPOISE_IMPLEMENTATIONS"


def open_model(path: Path, device: str | None = None) -> ConstrainedBNNRegressor:
    """Load a model file, with the classes named by the environment variable `EQUIPOISE_IMPLEMENTATIONS`.

    A model file names its implementations and never imports one. Whoever gives the command does, by a variable and not
    by an option, so that processes on this machine that share the work know the classes, too.

    Args:
        path: The model file.
        device: Where torch computes.
    Returns: The fitted estimator.
    Raises: InputError, if the variable does not name classes; ArtifactError, if the file cannot be read.
    """
    from equipoise.loading import load

    return load(path, device, named_classes(os.environ.get(VARIABLE, "")))


def named_classes(names: str) -> list[type]:
    """Return the classes that a text names, imported.

    Args:
        names: Names of the form `module:Class`, separated by commas.
    Returns: The classes.
    Raises: InputError, if one of them is no such name, or not to be found.
    Example:
        >>> named_classes("collections:OrderedDict, decimal:Decimal")
        [<class 'collections.OrderedDict'>, <class 'decimal.Decimal'>]
    """
    return [_import_class(name.strip()) for name in names.split(",") if name.strip()]


def _import_class(name: str) -> type:
    rule = f"{VARIABLE} must name classes as 'module:Class', separated by commas"
    module, _, attribute = name.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{rule}, but got {name!r} ({error}). Modules are looked for along PYTHONPATH.") from error
    if not isinstance(loaded, type):
        raise InputError(f"{rule}, but got {name!r}, which is no class. Name the class itself.")
    return loaded
