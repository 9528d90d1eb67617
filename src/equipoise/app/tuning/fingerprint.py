"""Fingerprint of a study: a hash of the data, the search space and the parameters that are not tuned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from equipoise.app.tuning.search_space import Space
from equipoise.balances import Equality, LinearConstraint
from equipoise.data import frames
from equipoise.estimator import ConstrainedBNNRegressor

OBJECTIVE = "negative log density of held-out rows under the mixture"  # studies with another one are not comparable


def fingerprint(estimator: ConstrainedBNNRegressor, X: Any, Y: Any, space: Space, held_out: ArrayLike) -> str:
    """Compute a hash of everything that must be the same for a study to be continued.

    Args:
        estimator: The estimator; its parameters count, except those in the space and the device.
        X, Y: The rows, as for `fit`.
        space: The search space.
        held_out: Positions of the rows by which trials are judged, in any order.
    Returns: A hexadecimal SHA-256.
    """
    others = {name: value for name, value in estimator.get_params(deep=False).items() if name not in {*space, "device"}}
    data = [np.asarray(X, dtype=float), np.asarray(Y, dtype=float), np.unique(np.asarray(held_out))]
    columns = (frames.columns_of(X), frames.columns_of(Y))
    # The training plan with its defaults, whether it is given or not.
    others |= {"training": {name: value for name, value in asdict(estimator._plan()).items() if name not in space}}
    text = "\n".join(map(_described, (OBJECTIVE, sorted(space.items()), sorted(others.items()), *columns, *data)))
    return hashlib.sha256(text.encode()).hexdigest()


def _described(value: Any) -> str:
    """Convert a value to a text that differs for different values; arrays are hashed in full."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, LinearConstraint):
        return " ".join(map(_described, (repr(value), value.A, value.B, value.b)))
    if isinstance(value, Equality):
        return " ".join(map(_described, (value.name, value.names, value.columns, value.settings(), value.arrays())))
    if isinstance(value, Mapping):
        return _described(list(value.items()))
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_described, value))}]"
    return repr(value)
