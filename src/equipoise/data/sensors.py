"""Sensors behind the outputs: standard deviations that the user gives, and the posterior of those to be learned.

Learned variances are one number ω per output here. How they depend on the inputs, `w(x) = ω κ(x)` (V4), is the business
of `network/mlp.py`, whose sensor head is κ, and of `ConstrainedBNN.sensor_var`.
"""

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


def parse_sensor_std(sensor_std: Any, outputs: tuple[str, ...], n_rows: int) -> Array:
    """Convert the user's setting of sensor noise to one standard deviation per output, NaN where it is to be learned.

    Args:
        sensor_std: None (noise-free), "learn" or one number for all, a mapping or pandas Series from outputs to numbers
            or "learn" (unnamed ones are learned), or an array `(n_y,)` or `(n_rows, n_y)`; in the outputs' units.
        outputs: Names of the outputs.
        n_rows: Number of rows of the data.
    Returns: Standard deviations, shape `(n_y,)`, or `(n_rows, n_y)` where they differ per row.
    Raises: InputError, if an output is unknown, a value is not a number ≥ 0 or "learn", or the shape does not fit.
    Example:
        >>> parse_sensor_std({"V": 0.002}, ("V", "I"), n_rows=10)
        array([0.002,   nan])
    """
    if sensor_std is None:
        return np.zeros(len(outputs))
    if isinstance(sensor_std, str | numbers.Real):
        sensor_std = dict.fromkeys(outputs, sensor_std)
    if hasattr(sensor_std, "index") and hasattr(sensor_std, "items") and np.ndim(sensor_std) == 1:  # a pandas Series
        sensor_std = dict(sensor_std.items())
    sensor_std = frames.select(sensor_std, outputs, "sensor_std")
    if isinstance(sensor_std, Mapping):
        return _from_mapping(sensor_std, outputs)
    return _from_array(sensor_std, outputs, n_rows)


def _from_mapping(sensor_std: Mapping, outputs: tuple[str, ...]) -> Array:
    unknown = [name for name in sensor_std if name not in outputs]
    if unknown:
        raise InputError(
            f"sensor_std names outputs, but got {', '.join(map(repr, unknown))}. "
            f"The outputs are {', '.join(map(repr, outputs))}."
        )
    return np.array([_number(sensor_std.get(name, "learn"), name) for name in outputs])


def _number(value: Any, output: str) -> float:
    if isinstance(value, str) and value == "learn":
        return math.nan
    if isinstance(value, numbers.Real) and math.isfinite(float(value)) and float(value) >= 0:
        return float(value)
    raise InputError(f"sensor_std of {output!r} must be a number ≥ 0 or 'learn', but got {value!r}.")


def _from_array(sensor_std: Any, outputs: tuple[str, ...], n_rows: int) -> Array:
    std, n_y = np.asarray(sensor_std, dtype=float), len(outputs)
    if std.shape not in ((n_y,), (n_rows, n_y)):
        shapes = f"({n_y},), one per output, or ({n_rows}, {n_y}), one per row and output"
        raise InputError(f"sensor_std must have shape {shapes}, but got {std.shape}.")
    good = np.isfinite(std) & (std >= 0)
    if not good.all():
        raise InputError(f"sensor_std must hold finite standard deviations ≥ 0, but got {std[~good][0]}.")
    return std


def sensor_posterior(std: Array, Y: Array, standardizer: Standardizer, precision: float) -> LogNormalVariance:
    """Make the posterior of the sensor variances in standardized units; learned ones start at the prior.

    Args:
        std: Standard deviations in the user's units, NaN where learned, shape `(n_y,)`.
        Y: Outputs, shape `(n, n_y)`; no learned variance is below the rounding of the largest of them.
        standardizer: The fitted standardizer.
        precision: Relative rounding of the outputs.
    """
    prior, fixed = TolerancePrior(), torch.as_tensor((std / standardizer.y_std) ** 2)
    floor = torch.as_tensor((4 * precision * np.nanmax(np.abs(Y), axis=0) / standardizer.y_std) ** 2)
    return LogNormalVariance(torch.full_like(fixed, prior.mean), torch.full_like(fixed, prior.std), fixed, floor)
