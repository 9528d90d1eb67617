"""What is known of the instruments behind the outputs: standard deviations as given, or to be learned."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.data import frames
from equipoise.data.scaling import Standardizer
from equipoise.errors import InputError
from equipoise.gaussian import LogNormalVariance, TolerancePrior

Array = NDArray[np.float64]


def parse_sensor_std(said: Any, outputs: tuple[str, ...], n_rows: int) -> Array:
    """Standard deviations as the user gave them, NaN where they are to be learned.

    Args:
        said: None (noise-free), "learn" or one number for all, a mapping or pandas Series from outputs to numbers or
            "learn" (unnamed ones are learned), or an array `(n_y,)` or `(n_rows, n_y)`.
        outputs: Names of the outputs.
        n_rows: Rows of the training data.

    Example:
        >>> parse_sensor_std({"V": 0.002}, ("V", "I"), n_rows=10)
        array([0.002,   nan])
    """
    if said is None:
        return np.zeros(len(outputs))
    if isinstance(said, str | numbers.Real):
        said = dict.fromkeys(outputs, said)
    if hasattr(said, "index") and hasattr(said, "items") and np.ndim(said) == 1:  # a pandas Series by output
        said = dict(said.items())
    said = frames.select(said, outputs, "sensor_std")
    return _from_mapping(said, outputs) if isinstance(said, Mapping) else _from_array(said, outputs, n_rows)


def _from_mapping(said: Mapping, outputs: tuple[str, ...]) -> Array:
    unknown = [name for name in said if name not in outputs]
    if unknown:
        raise InputError(
            f"sensor_std names outputs, but got {', '.join(map(repr, unknown))}. "
            f"The outputs are {', '.join(map(repr, outputs))}."
        )
    return np.array([_number(said.get(name, "learn"), name) for name in outputs])


def _number(value: Any, output: str) -> float:
    if isinstance(value, str) and value == "learn":
        return math.nan
    if isinstance(value, numbers.Real) and math.isfinite(float(value)) and float(value) >= 0:
        return float(value)
    raise InputError(f"sensor_std of {output!r} must be a number ≥ 0 or 'learn', but got {value!r}.")


def _from_array(said: Any, outputs: tuple[str, ...], n_rows: int) -> Array:
    std, n_y = np.asarray(said, dtype=float), len(outputs)
    if std.shape not in ((n_y,), (n_rows, n_y)):
        shapes = f"({n_y},), one per output, or ({n_rows}, {n_y}), one per row and output"
        raise InputError(f"sensor_std must have shape {shapes}, but got {std.shape}.")
    good = np.isfinite(std) & (std >= 0)
    if not good.all():
        raise InputError(f"sensor_std must hold finite standard deviations ≥ 0, but got {std[~good][0]}.")
    return std


def sensor_posterior(std: Array, Y: Array, standardizer: Standardizer, precision: float) -> LogNormalVariance:
    """Prior and posterior of the sensor variances in standardized units, learned ones starting at the prior.

    Args:
        std: Standard deviations in the user's units, NaN where learned, shape `(n_y,)`.
        Y: Outputs; no sensor is better than the rounding of its largest value.
        standardizer: Fitted.
        precision: Relative rounding of the outputs.
    """
    prior, fixed = TolerancePrior(), torch.as_tensor((std / standardizer.y_std) ** 2)
    floor = torch.as_tensor((4 * precision * np.nanmax(np.abs(Y), axis=0) / standardizer.y_std) ** 2)
    return LogNormalVariance(torch.full_like(fixed, prior.mean), torch.full_like(fixed, prior.std), fixed, floor)
