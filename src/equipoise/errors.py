"""Errors that the library raises on purpose, and checks of single parameters that raise them.

In: the name and the value of a parameter. Out: an `EquipoiseError`, or nothing.

Calls: no other room.
"""

import math
import numbers
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class EquipoiseError(Exception):
    """Base of every error that the library raises on purpose; its message says what is wrong and what to do."""


class InputError(EquipoiseError, ValueError):
    """An argument or a table has a value that cannot be used."""


class InputTypeError(EquipoiseError, TypeError):
    """An argument is of a type that cannot be used."""


class MissingPackageError(EquipoiseError, ImportError):
    """An optional package is needed and not installed; the message says how to install it."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise errors in values and types that other libraries find in a user's arguments as errors of this one.

    A ValueError becomes an InputError and a TypeError an InputTypeError, both with the same message.

    Example:
        >>> with own_errors():
        ...     float("three")
        Traceback (most recent call last):
        equipoise.errors.InputError: could not convert string to float: 'three'
    """
    try:
        yield
    except EquipoiseError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error
    except TypeError as error:
        raise InputTypeError(str(error)) from error


def check_choice(name: str, value: Any, choices: Collection) -> None:
    """Raise unless a value is one of the choices.

    Args:
        name: Name of the parameter, for the message.
        value: Its value.
        choices: The values that it may have.
    Raises: InputError.
    Example:
        >>> check_choice("activation", "sin", ["silu", "tanh"])
        Traceback (most recent call last):
        equipoise.errors.InputError: activation must be one of 'silu', 'tanh', but got 'sin'.
    """
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, but got {value!r}.")


def check_count(name: str, value: Any) -> None:
    """Raise an InputError with the parameter's name unless its value is a whole number of at least 1.

    Args:
        name: Name of the parameter, for the message.
        value: Its value.
    """
    if not is_count(value):
        raise InputError(f"{name} must be a whole number of at least 1, but got {value!r}.")


def check_counts(name: str, values: Any) -> None:
    """Raise an InputError with the parameter's name unless all its values are whole numbers of at least 1.

    An empty collection is accepted.

    Args:
        name: Name of the parameter, for the message.
        values: Its value, a collection.
    """
    if not (isinstance(values, Iterable) and all(map(is_count, values))):
        raise InputError(f"{name} must hold positive whole numbers, but got {values!r}.")


def check_positive(name: str, value: Any) -> None:
    """Raise an InputError with the parameter's name unless its value is a finite number above 0.

    Args:
        name: Name of the parameter, for the message.
        value: Its value.
    """
    if not (isinstance(value, numbers.Real) and 0 < float(value) < math.inf):
        raise InputError(f"{name} must be a positive number, but got {value!r}.")


def check_fraction(name: str, value: Any) -> None:
    """Raise an InputError with the parameter's name unless its value is a number in [0, 1).

    Args:
        name: Name of the parameter, for the message.
        value: Its value.
    """
    if not (isinstance(value, numbers.Real) and 0 <= float(value) < 1):
        raise InputError(f"{name} must be in [0, 1), but got {value!r}.")


def check_device(name: Any) -> None:
    """Raise an InputError unless torch can compute on a device.

    Args:
        name: The device, or its name as torch spells it; None is the processor.
    Example:
        >>> check_device("cpu")
    """
    import torch

    try:
        torch.empty(0, device="cpu" if name is None else name)
    except (AssertionError, RuntimeError, TypeError) as error:  # the first where torch was built without that device
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"device must be one that torch can use here, but got '{name}' ({reason}).") from error


def is_count(value: Any) -> bool:
    """Tell whether a value is a whole number of at least 1, of any integral type."""
    return isinstance(value, numbers.Integral) and int(value) >= 1
