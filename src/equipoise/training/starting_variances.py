"""Starting values of variances: residuals of fitted means, split between network, sensors and tolerances.

The likelihood hardly distinguishes true values that scatter about a loose balance from sensor noise about a strict one,
so training ends near its starting values. These come from the residuals of the balances: noise of independent sensors
gives them the variance `Σ_j B_kj² w_j`, while errors of the fit that the true values share cancel in them.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import AnyRows, Array, ColumnMoments, Rows, mean_sensor_var
from equipoise.gaussian import ConditioningLayer
from equipoise.network import ConstrainedBNN

REST = 0.05  # share of a variance that its likely cause does not get, so that nothing starts at zero
SENSOR_LOG_STD = -2.0  # learned sensors start narrower than their prior, whose draws differ by orders of magnitude


@torch.no_grad()
def split_residuals(
    model: ConstrainedBNN, rows: AnyRows, validation: Rows | None = None, weights: Float[Tensor, " P"] | None = None
) -> None:
    """Set variance head, learned sensors and learned tolerances of a model from the residuals of its means.

    With residual variances `s²` of the outputs and `z` of the balances in the data::

        f_j = min_k z_k / Σ_i B_ki² s_i²  over balances of j,  at most 0.95
        w_j = f_j s_j²,   v = s² − w,   r_k = max(z_k − Σ_j B_kj² w_j, 0.05 z_k)        (Z5)

    Tolerances start at their prior's median where that is smaller; known sensor variances are kept.

    Args:
        model: The model, whose means are fitted; changed in place.
        rows: Training rows, read piece by piece.
        validation: Held-out rows; the larger of both residual variances counts. None without any.
        weights: The weight vector whose variance head is set; the posterior means by default.
    """
    if weights is None:
        return split_residuals(model, rows, validation, model.network.posterior.loc)
    tables = [rows] if validation is None or len(validation) == 0 else [rows, validation]
    split_variances(
        model, rows, torch.stack([_var_of_means(model, table, weights) for table in tables]).amax(0), weights
    )


@torch.no_grad()
def split_variances(
    model: ConstrainedBNN, rows: AnyRows, var: Float[Tensor, " n_y"], weights: Float[Tensor, " P"]
) -> None:
    """Set variance head, learned sensors and learned tolerances from residual variances of the outputs (Z5).

    Args:
        model: The model; changed in place.
        rows: Training rows, read piece by piece.
        var: Residual variances `s²`.
        weights: The weight vector whose variance head is set.
    """
    var = var.clamp_min(1e-8)
    if model.conditioning is not None:
        var = var - _start_balances(model, rows, var)
    model.network.set_variance_head(var.to(weights.dtype), weights)


def _start_balances(model: ConstrainedBNN, rows: AnyRows, var: Float[Tensor, " n_y"]) -> Float[Tensor, " n_y"]:
    """Set learned sensors and tolerances, and return the part of `var` that belongs to learned sensors."""
    layer: ConditioningLayer = model.conditioning  # type: ignore[assignment]
    tolerance, squares = layer.tolerance, mean_squares(layer, rows).to(var.dtype)
    z = balance_var(layer, rows).to(var.dtype)
    per_row = mean_sensor_var(rows)
    w = torch.zeros_like(var) if per_row is None else per_row.to(var.dtype)
    learned_var = torch.zeros_like(var)
    if (sensor := model.sensor) is not None:
        share = (z / (squares @ var)).nan_to_num(1.0).clamp(max=1.0 - REST)
        share = torch.where(layer.pattern.to(var.device), share[:, None], 1.0 - REST).amin(0)
        learned_var = torch.where(sensor.learned, share * var, 0.0)
        w = torch.where(sensor.learned, learned_var, sensor.fixed)
        sensor.start_at(learned_var, log_std=SENSOR_LOG_STD)
    tolerance.start_at(torch.maximum(z - squares @ w, REST * z), below_prior=True)
    return learned_var


def mean_squares(layer: ConditioningLayer, rows: AnyRows) -> Float[Tensor, "m n_y"]:
    """Compute the squares `B²` of the coefficients, averaged over rows where they differ from row to row.

    Args:
        layer: The balances.
        rows: Rows, with their coefficients where these differ.
    """
    if layer.B is not None:
        return layer.B.square()
    sums = [part.B.square().sum(0) for part in rows.pieces() if part.B is not None]
    return torch.stack(sums).sum(0) / len(rows)


def balance_var(layer: ConditioningLayer, rows: AnyRows) -> Float[Tensor, " m"]:
    """Compute the variance of each balance's residual `t − B y` over rows that have all of its outputs; NaN without.

    Args:
        layer: The balances.
        rows: Measured rows.
    """
    moments = ColumnMoments.over(_residuals(layer, part) for part in rows.pieces())
    return torch.as_tensor(np.where(moments.count > 0, moments.var, np.nan)).to(layer.row_scale)


def _residuals(layer: ConditioningLayer, rows: Rows) -> Array:
    """Compute `t − B y`, NaN where it is not known, shape `(n, m)`."""
    operator, y = layer.operator(rows.y.dtype, rows.B), rows.y.nan_to_num(0.0)
    incomplete = rows.y.isnan().to(y.dtype) @ layer.pattern.to(y).mT > 0
    z = rows.target - operator.apply(y)  # type: ignore[operator]
    return torch.where(incomplete, torch.nan, z).double().cpu().numpy()


def _var_of_means(model: ConstrainedBNN, rows: AnyRows, weights: Float[Tensor, " P"]) -> Tensor:
    """Compute `output_residual_var` of the network at a weight vector."""
    sums = [_squares(model.network.at_vector(weights, part.x).mean, part.y) for part in rows.pieces()]
    squares, counts = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
    return squares / counts.clamp_min(1)


def output_residual_var(mean: Tensor, y: Tensor) -> Tensor:
    """Compute the mean squared residual of each output over its measured values, shape `(n_y,)`.

    Args:
        mean: Predicted means, shape `(n, n_y)`.
        y: Measured outputs, shape `(n, n_y)`; NaN where missing.
    """
    squares, counts = _squares(mean, y)
    return squares / counts.clamp_min(1)


def _squares(mean: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    measured = ~y.isnan()
    return torch.where(measured, mean - y, 0.0).square().sum(0), measured.sum(0)
