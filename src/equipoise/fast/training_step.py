"""The gradient of the training objective in one compiled call, the optimizer's update excepted (E1, E2).

The twin of autograd over `equipoise.network.ConstrainedBNN.negative_elbo`.
"""

import numpy as np
from numba import types
from numba.extending import overload

from equipoise.fast import coupled_likelihoods, disjoint_likelihoods, layers
from equipoise.fast.compilation import compiled, spliced
from equipoise.fast.heads import evaluate_heads, pull_heads
from equipoise.fast.log_normal import draw_log_normal, pull_log_normal
from equipoise.fast.normals import fill_noise

LIKELIHOODS = {"joint": None, "marginal": True}  # by their types the one that is needed is compiled, and no other


@compiled
def negative_elbo(
    keys, batch, network, tolerance, sensor, balances, paper, rows, weights, grad_network, grad_tol, grad_sensor
):
    """Compute the mean of `−log p(y)` over a batch, and the gradient of the negative ELBO per row (E1, E2).

    Args:
        keys: Keys of 63 random bits for the noise of the network, the tolerances and the sensors, shape `(3,)`.
        batch: Number of rows of the whole batch, and index in it of the first row here.
        network: Widths of all layers, inputs first; a value of `layers.ACTIVATIONS`; bounds of the logarithms of
            variances and sensor factors; `loc` and `log_std`, over weights as in `layers`; precision of the prior.
        tolerance, sensor: Posteriors in the form of `log_normal`, with arrays of length 0 where there is none.
        balances: `owner, coefficient` in the form of `disjoint_likelihoods.joint`; or, where balances share outputs,
            the blocks in the form of `coupled_likelihoods`.
        paper: A value of `LIKELIHOODS`: None for the joint density (L2), True for the paper's (L1).
        rows: Inputs, `(n, n_x)`, flat; outputs, `(n, n_y)`; targets, `(n, m)`; known sensor variances, `(n, n_y)`, or
            `(0, n_y)` if there are none.
        weights: Weights of the KL divergences in the loss: of the network, and of tolerances and sensors.
        grad_network, grad_tol, grad_sensor: Pairs of arrays, filled with gradients with respect to `loc` and `log_std`.
    Returns:
        The mean of `−log p(y)`, and the largest element of an inverse of coupled balances, the factor by which rounding
        errors grow; 0 where no balances share outputs.
    """
    sizes, activation, bounds, loc, log_std, precision = network
    x, y, target, known_w = rows
    n, n_y = y.shape

    noise = np.empty(n * sizes[1:].sum(), np.float32)
    fill_noise(keys[0], batch, n, sizes[1:], noise)
    var, units, squares = np.empty_like(loc), np.empty(noise.size, loc.dtype), np.empty(noise.size, loc.dtype)
    slopes, ratios = np.empty_like(units), np.empty_like(units)
    layers.forward(sizes, activation, loc, x, units, slopes, (log_std, noise, var, squares, ratios))
    heads = np.empty((sizes[-1] // n_y, n, n_y))
    head_slopes = np.empty_like(heads[1:])
    evaluate_heads(units[units.size - n * sizes[-1] :].reshape(n, sizes[-1]), bounds, heads, head_slopes)

    tol_noise, tol_derivative, tol_var = _draw_variances(keys[1], batch, n, tolerance)
    omega_noise, omega_derivative, omega = _draw_variances(keys[2], batch, n, sensor)
    w = _sensor_var(omega, sensor, heads, known_w, n_y)
    grad_heads, grad_tol_var, grad_w = np.empty_like(heads), np.empty_like(tol_var), np.empty((n, n_y))
    mean, y_var, grad_mean, grad_y_var = heads[0], heads[1], grad_heads[0], grad_heads[1]
    nll, largest = _density(
        balances, paper, mean, y_var, target, tol_var, y, w, grad_mean, grad_y_var, grad_tol_var, grad_w
    )

    _pull_sensor_var(omega, sensor, heads, known_w, grad_w, grad_heads)
    pull_log_normal(grad_tol_var, tol_derivative, tol_noise, tolerance, weights[1], grad_tol)
    pull_log_normal(grad_w, omega_derivative, omega_noise, sensor, weights[1], grad_sensor)
    grad_units = np.empty(n * sizes[-1], loc.dtype)
    pull_heads(grad_heads, head_slopes, grad_units.reshape(n, sizes[-1]))
    grad_loc, grad_log_std = grad_network
    layers.backward(sizes, loc, x, units, slopes, grad_units, grad_loc, (var, squares, ratios, grad_log_std))
    layers.add_divergence(grad_loc, grad_log_std, loc, log_std, weights[0], precision)
    return nll, largest


@spliced
def _draw_variances(key, batch, n, posterior):
    """Draw tolerances or sensor variances for each row; return noise, derivatives and draws, shape `(n, k)`."""
    k = posterior[0].size
    noise, derivative, value = np.empty((n, k), np.float32), np.empty((n, k)), np.empty((n, k))
    fill_noise(key, batch, n, np.array([k]), noise.reshape(-1))
    draw_log_normal(posterior, noise, derivative, value)
    return noise, derivative, value


@spliced
def _sensor_var(omega, sensor, heads, known_w, n_y):
    """Compute sensor variances: those known with the rows, else `ω κ(x)` if learned and `ω` if fixed (V4), else 0.

    Args:
        omega: Draws of `ω`, shape `(n, n_y)`, or `(n, 0)` without sensors.
        sensor: Posterior in the form of `log_normal`.
        heads: Heads of the network, shape `(n_heads, n, n_y)`, of which the third, if there is one, is `κ`.
        known_w: As in `negative_elbo`.
        n_y: Number of outputs.
    """
    n, learned = omega.shape[0], sensor[3]
    if known_w.shape[0]:
        return known_w
    w = np.zeros((n, n_y))
    for i in range(n):
        for j in range(omega.shape[1]):
            w[i, j] = omega[i, j] * heads[2, i, j] if learned[j] and heads.shape[0] > 2 else omega[i, j]
    return w


@spliced
def _pull_sensor_var(omega, sensor, heads, known_w, grad_w, grad_heads):
    """Compute the gradients with respect to `κ` and `ω` from the gradient with respect to `w` (V4).

    Args:
        omega, sensor, heads, known_w: As in `_sensor_var`.
        grad_w: Gradient with respect to `w`, replaced by that with respect to `ω`, shape `(n, n_y)`.
        grad_heads: The third head, if there is one, is filled with the gradient with respect to `κ`.
    """
    learned = sensor[3]
    if heads.shape[0] > 2:
        grad_heads[2] = 0.0
    for i in range(grad_w.shape[0]):
        for j in range(omega.shape[1]):
            if known_w.shape[0]:
                grad_w[i, j] = 0.0
            elif learned[j] and heads.shape[0] > 2:
                grad_heads[2, i, j] = grad_w[i, j] * omega[i, j]
                grad_w[i, j] *= heads[2, i, j]


def _density(
    balances, paper, mean, var, target, tol_var, y, w, grad_mean, grad_var, grad_tol, grad_w
) -> tuple[float, float]:
    """Compute the mean of `−log p(y)` over a batch and its gradients; a stub that Python never runs.

    Where compiled code calls it, numba puts the function in its place that `_choose_density` chooses.

    Args:
        balances, paper, target, y, w: As in `negative_elbo`; arrays have shape `(n, n_y)` or `(n, m)`.
        mean, var, tol_var: The network's mean and variance, shape `(n, n_y)`, and tolerances, shape `(n, m)`.
        grad_mean, grad_var, grad_tol, grad_w: Filled with gradients.
    Returns:
        The mean of `−log p(y)`, and the largest element of an inverse, 0 where no balances share outputs.
    Raises: TypeError, if Python calls it.
    """
    raise TypeError("_density is for compiled code.")


@overload(_density)
def _choose_density(balances, paper, mean, var, target, tol_var, y, w, grad_mean, grad_var, grad_tol, grad_w):
    """Choose the implementation of `_density` by the types of its arguments, so that only the one needed is compiled.

    Arguments are numba's types of those of `_density`: a pair of arrays as `balances` means that no two balances share
    an output, None as `paper` the joint density (L2).
    Returns: A function with the arguments of `_density`, for numba to compile.
    """
    disjoint = len(balances) == 2
    module = disjoint_likelihoods if disjoint else coupled_likelihoods
    function = module.joint if isinstance(paper, types.NoneType) else module.marginal

    def disjoint_density(balances, paper, mean, var, target, tol_var, y, w, grad_mean, grad_var, grad_tol, grad_w):
        (owner, coefficient), upstream, grad_target = balances, -1.0 / len(y), np.empty_like(target)
        log_prob = function(
            owner,
            coefficient,
            mean,
            var,
            target,
            tol_var,
            y,
            w,
            upstream,
            grad_mean,
            grad_var,
            grad_target,
            grad_tol,
            grad_w,
        )
        return upstream * log_prob, 0.0

    def coupled_density(balances, paper, mean, var, target, tol_var, y, w, grad_mean, grad_var, grad_tol, grad_w):
        upstream, grad_target = -1.0 / len(y), np.empty_like(target)
        log_prob, largest = function(
            balances, mean, var, target, tol_var, y, w, upstream, grad_mean, grad_var, grad_target, grad_tol, grad_w
        )
        return upstream * log_prob, largest

    return disjoint_density if disjoint else coupled_density
