"""The gradient of the training objective in closed form: one step's work with as few operations as it takes.

`ConstrainedBNN.negative_elbo` is the definition (E1), which the tests differentiate by autograd. Here every part hands
its gradient back itself. Only densities without a short form, those of balances that measured values must obey exactly
and of nearly dependent ones, still go through autograd, from the network's Gaussian on.
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
    """Leave the gradient of `model.negative_elbo(rows, n_rows, generator).per_row(kl_weight, temperature)` in every
    `.grad` (E1, E2).

    Returns:
        The estimate's `nll`, of the same random numbers.
    """
    layer, sensor, n = model.conditioning, model.sensor, len(rows)
    said, pull_network = model.network.propagate(rows.x, generator)
    tolerance = _Drawn(None if layer is None else layer.tolerance, n, generator)
    offset = _Drawn(None if layer is None else layer.offset, n, generator)
    omega = _Drawn(sensor, n, generator)

    target = rows.target if rows.target is None or offset.value is None else rows.target + offset.value
    w = rows.sensor_var
    if w is None:
        w = 0.0 if omega.value is None else model.sensor_var(omega.value, said)
    log_prob, pull = _density(model, said, target, tolerance.value, rows, w)

    of = pull(-1.0 / n)
    of_omega, of_factor = (None, None) if rows.sensor_var is not None else _of_sensor(model, of, omega.value, said)
    for drawn, of_drawn in ((tolerance, of.tol_var), (offset, of.target), (omega, of_omega)):
        drawn.set_grad(of_drawn, kl_weight / n_rows)
    pulled = pull_network(of.mean, of.var, of_factor)
    model.network.posterior.set_grad(*pulled, temperature * kl_weight / n_rows)  # E2
    return -log_prob.mean()


class _Drawn:
    """A draw per row of tolerances, offsets or sensor variances; of nothing at all if there are none."""

    def __init__(self, source: LogNormalVariance | GaussianOffset | None, n: int, generator: torch.Generator | None):
        self.value, self.pull = (None, None) if source is None else source.draw_and_pull(n, generator)

    def set_grad(self, of_value: Tensor | None, kl_weight: float) -> None:
        if self.pull is not None and self.value is not None:
            self.pull(torch.zeros_like(self.value) if of_value is None else of_value, kl_weight)


def _of_sensor(
    model: ConstrainedBNN, of: Gradients, omega: Tensor | None, said: NetworkGaussian
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of `ω` and of the factor `κ` from that of `w = ω κ` (V4)."""
    if of.sensor_var is None or omega is None or said.sensor_factor is None or model.sensor is None:
        return of.sensor_var, None
    of_w = torch.where(model.sensor.learned, of.sensor_var, 0.0)
    return of_w * said.sensor_factor, of_w * omega


def _density(
    model: ConstrainedBNN, said: NetworkGaussian, target: Tensor | None, r: Tensor | None, rows: Rows, w: Tensor | float
) -> tuple[Tensor, Pull]:
    """`log p(y)` per row, and the function that gives its gradients."""
    y = rows.y
    mean, var = said.mean.to(y.dtype), said.var.to(y.dtype)
    closed = {joint: closed_form.joint, marginal: closed_form.marginal}.get(model.likelihood)
    closed = closed if model.conditions_by_definition else None
    found = None
    if model.conditioning is None or target is None or r is None:
        none = y.new_zeros(len(y), 0)
        if closed is not None:
            found = closed(BalanceOperator(y.new_zeros(0, y.shape[-1]), []), mean, var, none, none, y, w, rows.measured)
    elif closed is not None and (bool((r > 0).all()) or (isinstance(w, Tensor) and bool((w > 0).all()))):
        found = closed(model.conditioning.operator(y.dtype), mean, var, target, r, y, w, rows.measured)
    return found or _general(model, mean, var, target, r, y, w)


def _general(
    model: ConstrainedBNN,
    mean: Tensor,
    var: Tensor,
    target: Tensor | None,
    r: Tensor | None,
    y: Tensor,
    w: Tensor | float,
) -> tuple[Tensor, Pull]:
    """The same by autograd, for whatever has no short form."""
    given: list = [
        part.detach().requires_grad_() if isinstance(part, Tensor) else part for part in (mean, var, target, r, w)
    ]
    with torch.enable_grad():
        gaussian = model.condition(DiagonalGaussian(given[0], given[1]), given[2], given[3])
        value = model.likelihood(gaussian, y, given[4])
    return value.detach(), partial(_pull_general, value, given)


def _pull_general(value: Tensor, given: list, grad: float) -> Gradients:
    leaves = [part for part in given if isinstance(part, Tensor)]
    found = iter(torch.autograd.grad(value, leaves, torch.full_like(value, grad), allow_unused=True))
    return Gradients(*(next(found) if isinstance(part, Tensor) else None for part in given))  # type: ignore[arg-type]
