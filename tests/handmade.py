"""Models put together by hand, without training, and all they say of one draw in slow and obvious algebra.

The naive side works in the *user's* units throughout, so that it also checks every change of units.
"""

from dataclasses import dataclass

import numpy as np
import torch

import references
from equipoise.balances.linear import LinearConstraint
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.tolerance import LogNormalVariance
from equipoise.network.likelihood import joint
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.prediction.predictive import Predictive

NAN = float("nan")

DISJOINT = np.array([[1.0, -1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0, -1.0, 0.0]])
COUPLED = np.array([[1.0, -1.0, -1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, -1.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0, 2.0]])


def variances(fixed, loc=None, std=None, prior=(-6.0, 3.0)):
    """Variances, learned where `fixed` is NaN, with the posterior put where it is wanted."""
    fixed = torch.as_tensor(np.asarray(fixed, dtype=float))
    q = LogNormalVariance(torch.full_like(fixed, prior[0]), torch.full_like(fixed, prior[1]), fixed)
    with torch.no_grad():
        if loc is not None:
            q.loc.copy_(torch.as_tensor(np.asarray(loc, dtype=float)))
        if std is not None:
            q.log_std.copy_(torch.as_tensor(np.asarray(std, dtype=float)).log())
    return q


def standardizer(B, *, A=None, known=(), y_mean=None, y_std=None, units=None, x_mean=(1.0, -2.0), x_std=(0.5, 3.0)):
    """Balances that the means of inputs and outputs obey, and the change of units that goes with them."""
    B = np.asarray(B, dtype=float)
    x_mean, x_std = np.asarray(x_mean), np.asarray(x_std)
    y_mean = np.linspace(-1.0, 2.0, B.shape[1]) if y_mean is None else np.asarray(y_mean, dtype=float)
    y_std = np.linspace(0.5, 2.0, B.shape[1]) if y_std is None else np.asarray(y_std, dtype=float)
    A = np.zeros((len(B), len(x_mean) + len(known))) if A is None else np.asarray(A, dtype=float)
    b = A[:, : len(x_mean)] @ x_mean + B @ y_mean
    inputs = [f"in{j}" for j in range(len(x_mean))]
    constraint = LinearConstraint(B, A, b, inputs=inputs, known=known, units=units)
    return Standardizer(x_mean, x_std, y_mean, y_std, constraint)


def network(n_inputs, n_outputs, *, hidden=(6,), weight_std=0.3, log_var=-1.0, seed=0, double=True):
    """Random means of the weights, one spread for all, variances about `exp(log_var)`."""
    generator = torch.Generator().manual_seed(seed)
    net = BayesianMLP(n_inputs, n_outputs, hidden, "tanh", init_std=weight_std, generator=generator)
    with torch.no_grad():
        net.posterior.loc[-n_outputs:] += log_var
    return net.double() if double else net


def predictive(
    s, *, tolerance, sensor=None, offset=None, likelihood=joint, rows=4, n_draws=40, seed=11, n_outputs=6, **settings
):
    """A `Predictive` at random rows of inputs.

    Args:
        s: Standardizer.
        tolerance: `LogNormalVariance` of the relative tolerances; None for no balances.
        offset: `(loc, std)` of the offsets in units of the balances' scales.
        settings: Of the network.
    """
    rng = np.random.default_rng(seed)
    n_known = 0 if s.constraint is None else len(s.constraint.known)
    X = s.x_mean + s.x_std * rng.normal(size=(rows, len(s.x_mean)))
    X = np.hstack([X, rng.normal(size=(rows, n_known))])
    layer, n_outputs = None, len(s.y_mean)
    if tolerance is not None:
        unitless = LinearConstraint(s.B, names=s.constraint.names)
        layer = ConditioningLayer(unitless, tolerance, offset=offset is not None)
        if offset is not None:
            with torch.no_grad():
                layer.offset.loc.copy_(torch.as_tensor(offset[0]))
                layer.offset.log_std.copy_(torch.as_tensor(offset[1]).log())
    model = ConstrainedBNN(network(len(s.x_mean), n_outputs, **settings), layer, likelihood, sensor)
    names = tuple(f"y{j}" for j in range(n_outputs))
    return Predictive(model.eval(), s, X, names, n_draws, seed=5)


@dataclass(frozen=True)
class Component:
    """One draw at one row, in the user's units."""

    mu: np.ndarray  # before conditioning
    v: np.ndarray
    mean: np.ndarray  # after
    cov: np.ndarray
    w: np.ndarray  # sensor variances of the model
    r: np.ndarray
    target: np.ndarray  # with the draw's offset

    @property
    def var(self):
        return np.diag(self.cov)


def numbers(tensor):
    return None if tensor is None else tensor.detach().numpy()


def components(p, *, again=False, n_draws=None):
    """Every draw at every row, `[draw][row]`, one at a time with dense matrices.

    Args:
        again: Take the second draw of the tolerances.
        n_draws: Other than that of `p`.
    """
    s, model, c, result = p.standardizer, p.model, p.standardizer.constraint, []
    x = ((p.X[:, : len(s.x_mean)] - s.x_mean) / s.x_std).tolist()
    for d in range(p.n_draws if n_draws is None else n_draws):
        if d % 32 == 0:
            block = {name: numbers(part) for name, part in vars(model.draw(p.seed, d // 32)).items()}
        draw = {name: None if part is None else part[d % 32] for name, part in block.items()}
        heads = model.network.sizes[-1] // len(s.y_std)
        output = references.network_with_sensors(
            draw["weights"][None], model.network.sizes, model.network.activation, x, heads
        )
        mu, v = s.y_mean + s.y_std * output[0][0], s.y_std**2 * output[1][0]
        w = np.zeros_like(v)
        if draw["sensor_var"] is not None:
            factor = np.where(numbers(model.sensor.learned), output[2][0], 1.0) if heads == 3 else 1.0  # V4
            w = draw["sensor_var"][0] * s.y_std**2 * np.broadcast_to(factor, v.shape)
        if model.conditioning is None:
            none = np.zeros(0)
            result.append([Component(mu[i], v[i], mu[i], np.diag(v[i]), w[i], none, none) for i in range(len(x))])
            continue
        scale = np.sqrt((c.B**2) @ s.y_std**2)  # Z2
        r = draw["tol_var_again" if again else "tol_var"][0] * scale**2
        offset = 0.0 if draw["offset"] is None else draw["offset"][0] * scale
        line = []
        for i in range(len(x)):
            target = c.b - c.A @ p.X[i] + offset
            mean, cov = references.conditioned(mu[i], v[i], c.B, target, r)
            line.append(Component(mu[i], v[i], mean, cov, w[i], r, target))
        result.append(line)
    return result


def stacked(parts, name):
    """One field of all components, draws on axis 0, then rows."""
    return np.array([[getattr(component, name) for component in line] for line in parts])
