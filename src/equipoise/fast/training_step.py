"""A whole training step without the optimizer in one call; `training.gradient` does it operator by operator."""

import numpy as np
from numba import types
from numba.extending import overload

from equipoise.fast import coupled, layers, likelihoods as densities, log_normal as spreads
from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.normals import fill_noise


@compiled
def negative_elbo(
    keys, batch, network, tolerance, sensor, balances, paper, rows, weights, of_network, of_tol, of_sensor
):
    """The batch's `−log p(y)` per row, and the gradient of the negative ELBO per row (E1, E2).

    Args:
        keys: Random bits for the noise of the network, the tolerances and the sensors.
        batch: How many rows the whole batch has, and which of them the first one here is.
        network: Widths of all layers; number of the activation; largest logarithms of variances and of sensor factors;
            `loc` and `log_std`; precision of the prior.
        tolerance, sensor: Posteriors as `spreads.draw_log_normal` takes them, of nothing where there is none.
        balances: Of each output its balance and its coefficient there, as `densities` takes them; or, where balances
            share outputs, their blocks as `coupled` does.
        paper: Anything but None for the paper's density (L1) instead of the joint one (L2).
        rows: Inputs, flat; outputs; targets; sensor variances, of no rows where none are given.
        weights: Of the divergences in the loss: the network's, and those of tolerances and sensors.
        of_network, of_tol, of_sensor: Gradients of `loc` and `log_std`, filled.
    Returns:
        It, and the largest element of an inverse of coupled balances, by which roundings grow.
    """
    sizes, activation, bounds, loc, log_std, precision = network
    x, y, target, given = rows
    n, n_y = y.shape

    noise = np.empty(n * sizes[1:].sum(), np.float32)
    fill_noise(keys[0], batch, n, sizes[1:], noise)
    var, units, squares = np.empty_like(loc), np.empty(noise.size, loc.dtype), np.empty(noise.size, loc.dtype)
    slopes, ratios = np.empty_like(units), np.empty_like(units)
    layers.forward(sizes, activation, loc, log_std, x, noise, var, units, squares, slopes, ratios)
    said = np.empty((sizes[-1] // n_y, n, n_y))
    said_slopes = np.empty_like(said[1:])
    spreads.heads(units[units.size - n * sizes[-1] :].reshape(n, sizes[-1]), bounds, said, said_slopes)

    tol_noise, tol_growth, tol_var = _draw(keys[1], batch, n, tolerance)
    omega_noise, omega_growth, omega = _draw(keys[2], batch, n, sensor)
    w = _sensor_var(omega, sensor, said, given, n_y)
    of_said, of_tol_var, of_w = np.empty_like(said), np.empty_like(tol_var), np.empty((n, n_y))
    mean, spread, of_mean, of_spread = said[0], said[1], of_said[0], of_said[1]
    found = _density(balances, paper, mean, spread, target, tol_var, y, w, of_mean, of_spread, of_tol_var, of_w)

    _pull_sensor_var(omega, sensor, said, given, of_w, of_said)
    spreads.pull_log_normal(of_tol_var, tol_growth, tol_noise, tolerance, weights[1], of_tol)
    spreads.pull_log_normal(of_w, omega_growth, omega_noise, sensor, weights[1], of_sensor)
    of_units = np.empty(n * sizes[-1], loc.dtype)
    spreads.pull_heads(of_said, said_slopes, of_units.reshape(n, sizes[-1]))
    of_loc, of_log_std = of_network
    layers.backward(sizes, loc, var, x, units, squares, slopes, ratios, of_units, of_loc, of_log_std)
    layers.add_divergence(of_loc, of_log_std, loc, log_std, weights[0], precision)
    return found


@spliced
def _draw(key, batch, n, posterior):
    """Noise, derivatives and values of tolerances or sensors, a draw for each row."""
    k = posterior[0].size
    noise, growth, value = np.empty((n, k), np.float32), np.empty((n, k)), np.empty((n, k))
    fill_noise(key, batch, n, np.array([k]), noise.reshape(-1))
    spreads.draw_log_normal(posterior, noise, growth, value)
    return noise, growth, value


@spliced
def _sensor_var(omega, sensor, said, given, n_y):
    """`w`: given with the rows, or `ω κ(x)` where it is learned and `ω` elsewhere (V4), or 0 without sensors."""
    n, learned = omega.shape[0], sensor[3]
    if given.shape[0]:
        return given
    w = np.zeros((n, n_y))
    for i in range(n):
        for j in range(omega.shape[1]):
            w[i, j] = omega[i, j] * said[2, i, j] if learned[j] and said.shape[0] > 2 else omega[i, j]
    return w


@spliced
def _pull_sensor_var(omega, sensor, said, given, of_w, of_said):
    """Gradients of `κ` and, in place of that of `w`, of `ω`."""
    learned = sensor[3]
    if said.shape[0] > 2:
        of_said[2] = 0.0
    for i in range(of_w.shape[0]):
        for j in range(omega.shape[1]):
            if given.shape[0]:
                of_w[i, j] = 0.0
            elif learned[j] and said.shape[0] > 2:
                of_said[2, i, j] = of_w[i, j] * omega[i, j]
                of_w[i, j] *= said[2, i, j]


def _density(balances, paper, mean, var, target, tol_var, y, w, of_mean, of_var, of_tol, of_w):
    """`−log p(y)` per row with its gradients, and the largest element of an inverse; in compiled code only."""
    raise TypeError("_density is for compiled code.")


@overload(_density)
def _choose_density(balances, paper, mean, var, target, tol_var, y, w, of_mean, of_var, of_tol, of_w):
    """By the kinds of the first two arguments, so that nothing is compiled that is not needed."""
    apart = len(balances) == 2
    module = densities if apart else coupled
    function = module.joint if isinstance(paper, types.NoneType) else module.marginal

    def of_balances_apart(balances, paper, mean, var, target, tol_var, y, w, of_mean, of_var, of_tol, of_w):
        (owner, coefficient), grad, of_target = balances, -1.0 / len(y), np.empty_like(target)
        total = function(
            owner, coefficient, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w
        )
        return grad * total, 0.0

    def of_coupled_balances(balances, paper, mean, var, target, tol_var, y, w, of_mean, of_var, of_tol, of_w):
        grad, of_target = -1.0 / len(y), np.empty_like(target)
        total, largest = function(
            balances, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w
        )
        return grad * total, largest

    return of_balances_apart if apart else of_coupled_balances
