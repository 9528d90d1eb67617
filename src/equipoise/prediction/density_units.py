"""Log densities in standardized units converted to the user's units (L4)."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from equipoise.data import PIECE, Standardizer
from equipoise.gaussian import exact_directions, log_volume
from equipoise.network import ConstrainedBNN

Array = NDArray[np.float64]


def log_density_units(
    model: ConstrainedBNN,
    standardizer: Standardizer,
    Y: Float[np.ndarray, "n n_y"],
    sensor_var: Tensor | float,
    X: Float[np.ndarray, "n n_columns"] | None = None,
) -> Float[np.ndarray, " n"]:
    """Compute the term that turns the log density of each row into one in the user's units (L4).

    Each measured output contributes `−log s_j`. Exact balances add the ratio of their subspace volumes (L3).

    Args:
        model: The model, in standardized units.
        standardizer: The change of units.
        Y: Outputs in the user's units, NaN where not measured.
        sensor_var: Typical sensor variances, broadcast against Y: where they are 0, an output is known exactly.
        X: Inputs, then known columns, in the user's units; needed where coefficients differ from row to row.
    Returns:
        The term to be added to the log density of each row.
    """
    measured = ~np.isnan(Y)
    units = -(measured * np.log(standardizer.y_std)).sum(-1)
    layer = model.conditioning
    if layer is None or not model.likelihood.is_joint or bool((layer.tolerance.median() > 0).all()):
        return units
    noisy = np.broadcast_to(torch.as_tensor(sensor_var).cpu().numpy() > 0, measured.shape)
    exact, std = layer.tolerance.median().cpu() == 0, torch.as_tensor(standardizer.y_std)
    if standardizer.B is None and X is not None:
        uncertain = torch.as_tensor(noisy | ~measured)
        parts = (slice(start, start + PIECE) for start in range(0, len(X), PIECE))
        each = ((torch.as_tensor(standardizer.linearise(X[part])[0]), uncertain[part]) for part in parts)
        return units + np.concatenate([_volume_ratio(B, std, exact, of_part) for B, of_part in each])
    patterns, which = np.unique(noisy | ~measured, axis=0, return_inverse=True)
    B = torch.as_tensor(standardizer.B)
    return units + _volume_ratio(B, std, exact, torch.as_tensor(patterns))[which.reshape(-1)]


def _volume_ratio(
    B: Float[Tensor, "... m n_y"],
    std: Float[Tensor, " n_y"],
    exact: Bool[Tensor, " m"],
    uncertain: Bool[Tensor, "k n_y"],
) -> Array:
    """Compute `log vol(B') − log vol(B' diag(1/s))` of exact balances over outputs that are known exactly."""
    V = exact_directions(B, exact, uncertain)
    known = B * (~uncertain).to(B.dtype).unsqueeze(-2)
    return (log_volume(V, known) - log_volume(V, known / std)).numpy()
