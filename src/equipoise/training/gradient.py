"""The gradient of the training objective in closed form, with few operations.

`ConstrainedBNN.negative_elbo` is the definition (E1), which the tests differentiate by autograd. Here each part has a
function that propagates its gradient back. Only densities without a closed form go through autograd, from the network's
Gaussian on: those of balances that measured values must obey exactly, and of nearly dependent ones.
"""

from functools import partial

import torch
from torch import Tensor

from equipoise.data import Rows
from equipoise.gaussian import BalanceOperator, DiagonalGaussian, GaussianOffset, LogNormalVariance
from equipoise.network import ConstrainedBNN, NetworkGaussian, joint, marginal
from equipoise.training import closed_form
from equipoise.training.closed_form import Gradients, Pull


@torch.no_grad()
def backward(
    model: ConstrainedBNN,
    rows: Rows,
    n_rows: int,
    generator: torch.Generator | None = None,
    kl_weight: float = 1.0,
    temperature: float = 1.0,
) -> Tensor:
    """Set every `.grad` to the gradient of the negative evidence lower bound per row (E1, E2).

    It is that of `model.negative_elbo(rows, n_rows, generator).per_row(kl_weight, temperature)`.

    Args:
        model: The model whose parameters get gradients.
        rows: The batch.
        n_rows: Number of rows in the data set.
        generator: Randomness of the weights, tolerances, offsets and sensor variances.
        kl_weight: Weight of all divergences.
        temperature: Additional weight of the divergence of the network's weights.
    Returns:
        The batch's negative log likelihood per row, for the same random numbers.
    """
    layer, sensor, n = model.conditioning, model.sensor, len(rows)
    prior, pull_network = model.network.propagate(rows.x, generator)
    tolerance = _RowDraws(None if layer is None else layer.tolerance, n, generator)
    offset = _RowDraws(None if layer is None else layer.offset, n, generator)
    omega = _RowDraws(sensor, n, generator)

    target = rows.target if rows.target is None or offset.value is None else rows.target + offset.value
    w = rows.sensor_var
    if w is None:
        w = 0.0 if omega.value is None else model.sensor_var(omega.value, prior)
    log_prob, pull = _density(model, prior, target, tolerance.value, rows, w)

    gradients, of_omega, of_factor = pull(-1.0 / n), None, None
    if rows.sensor_var is None:
        of_omega, of_factor = _sensor_gradients(model, gradients, omega.value, prior)
    for draws, of_draws in ((tolerance, gradients.tol_var), (offset, gradients.target), (omega, of_omega)):
        draws.set_grad(of_draws, kl_weight / n_rows)
    of_weights = pull_network(gradients.mean, gradients.var, of_factor)
    model.network.posterior.set_grad(*of_weights, temperature * kl_weight / n_rows)  # E2
    return -log_prob.mean()


class _RowDraws:
    """A draw for each row of tolerances, offsets or sensor variances; None if there are none."""

    def __init__(self, source: LogNormalVariance | GaussianOffset | None, n: int, generator: torch.Generator | None):
        self.value, self.pull = (None, None) if source is None else source.draw_and_pull(n, generator)

    def set_grad(self, of_value: Tensor | None, kl_weight: float) -> None:
        """Set `.grad` of the posterior from the gradient of the draws and the weight of the divergence."""
        if self.pull is not None and self.value is not None:
            self.pull(torch.zeros_like(self.value) if of_value is None else of_value, kl_weight)


def _sensor_gradients(
    model: ConstrainedBNN, gradients: Gradients, omega: Tensor | None, prior: NetworkGaussian
) -> tuple[Tensor | None, Tensor | None]:
    """Compute the gradients of `ω` and of the factor `κ` from that of `w = ω κ` (V4)."""
    if gradients.sensor_var is None or omega is None or prior.sensor_factor is None or model.sensor is None:
        return gradients.sensor_var, None
    of_w = torch.where(model.sensor.learned, gradients.sensor_var, 0.0)
    return of_w * prior.sensor_factor, of_w * omega


def _density(
    model: ConstrainedBNN,
    prior: NetworkGaussian,
    target: Tensor | None,
    r: Tensor | None,
    rows: Rows,
    w: Tensor | float,
) -> tuple[Tensor, Pull]:
    """Compute `log p(y)` of each row, and the function from a gradient shared by all rows to those of the arguments."""
    y = rows.y
    mean, var = prior.mean.to(y.dtype), prior.var.to(y.dtype)
    closed = {joint: closed_form.joint, marginal: closed_form.marginal}.get(model.likelihood)
    closed = closed if model.conditions_by_definition else None
    density = None
    if model.conditioning is None or target is None or r is None:
        none = y.new_zeros(len(y), 0)
        if closed is not None:
            density = closed(
                BalanceOperator(y.new_zeros(0, y.shape[-1]), []), mean, var, none, none, y, w, rows.measured
            )
    elif closed is not None and (bool((r > 0).all()) or (isinstance(w, Tensor) and bool((w > 0).all()))):
        density = closed(model.conditioning.operator(y.dtype), mean, var, target, r, y, w, rows.measured)
    return density or _density_by_autograd(model, mean, var, target, r, y, w)


def _density_by_autograd(
    model: ConstrainedBNN,
    mean: Tensor,
    var: Tensor,
    target: Tensor | None,
    r: Tensor | None,
    y: Tensor,
    w: Tensor | float,
) -> tuple[Tensor, Pull]:
    """Compute the density, and the function for its gradients, by autograd if it has no closed form."""
    arguments: list = [
        part.detach().requires_grad_() if isinstance(part, Tensor) else part for part in (mean, var, target, r, w)
    ]
    with torch.enable_grad():
        gaussian = model.condition(DiagonalGaussian(arguments[0], arguments[1]), arguments[2], arguments[3])
        value = model.likelihood(gaussian, y, arguments[4])
    return value.detach(), partial(_pull_by_autograd, value, arguments)


def _pull_by_autograd(value: Tensor, arguments: list, grad: float) -> Gradients:
    leaves = [part for part in arguments if isinstance(part, Tensor)]
    gradients = iter(torch.autograd.grad(value, leaves, torch.full_like(value, grad), allow_unused=True))
    return Gradients(*(next(gradients) if isinstance(part, Tensor) else None for part in arguments))  # type: ignore[arg-type]
