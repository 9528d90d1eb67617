"""The two densities of a batch of rows with all gradients, where no two balances share an output.

Then `S` is diagonal, every output has one balance at most, and a row is a handful of sums. The equations are those of
`equipoise.training.closed_form`, which has them for any balances. An output whose measurement is NaN was not measured.
What belongs to single outputs is done for all rows at once, so that it is vectorised; sums over outputs go row by row.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, inlined, spliced
from equipoise.fast.elementary import log

_LOG_2PI = math.log(2.0 * math.pi)
_EPS = float(np.finfo(np.float64).eps)


@inlined
def _reciprocal(s):
    """`1 / s`, and 0 where `s = 0`: the pseudo-inverse."""
    inverse = 1.0 / s
    return 0.0 if inverse == np.inf else inverse


@compiled
def joint(owner, coefficient, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w):
    """`Σ log p(y)` of all rows (L2), and `grad` times its gradients.

    Args:
        owner, coefficient: The balance that each output is in, −1 for none, and its coefficient there, shape `(n_y,)`.
        mean, var, y, w: Shape `(n, n_y)`.
        target, tol_var: Shape `(n, m)`.
        grad: What the gradients are multiplied by.
        of_mean, of_var, of_target, of_tol, of_w: Filled with the gradients.
    """
    shape = y.shape
    h, share, precision, terms = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    measure(mean, var, y, w, h, share, precision, terms)
    # What balances say of each output, 0 where there is none: Bᵀ a, Bᵀ c, diag(Bᵀ Q⁻¹ B), diag(Bᵀ S⁻¹ B).
    a, c, after, before = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    ratios = np.empty(target.shape)
    quadratic = _weigh_joint(
        owner, coefficient, mean, var, target, tol_var, h, share, grad, a, c, after, before, ratios, of_target, of_tol
    )
    pull_joint(var, h, share, precision, a, c, after, before, grad, of_mean, of_var, of_w)
    return -0.5 * (quadratic + total(terms) + _sum_of_logs(ratios))


@spliced
def measure(mean, var, y, w, h, share, precision, terms):
    """`1/d`, `w/d`, `e/d` and `e²/d + log 2πd` for `d = v + w`, `e = y − μ`; without a measurement 0, 1, 0 and 0."""
    mean, var, y, w = mean.reshape(-1), var.reshape(-1), y.reshape(-1), w.reshape(-1)
    h, share, precision, terms = h.reshape(-1), share.reshape(-1), precision.reshape(-1), terms.reshape(-1)
    for i in range(y.size):
        measured = y[i] == y[i]
        d = var[i] + w[i]
        inverse = 1.0 / d if measured else 0.0
        e = y[i] - mean[i] if measured else 0.0
        precision[i] = inverse
        share[i] = w[i] * inverse if measured else 1.0
        h[i] = e * inverse
        terms[i] = e * e * inverse + (log(d) + _LOG_2PI) if measured else 0.0


@spliced
def _weigh_joint(
    owner, coefficient, mean, var, target, tol_var, h, share, grad, a, c, after, before, ratios, of_target, of_tol
):
    """Sums of each row over the outputs of its balances; the quadratic forms of `a` and `c`, of all rows together."""
    m, quadratic = target.shape[1], 0.0
    S, Q, innovation, left = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for i in range(target.shape[0]):
        for k in range(m):
            S[k], Q[k], innovation[k], left[k] = tol_var[i, k], tol_var[i, k], target[i, k], target[i, k]
        for j in range(owner.size):
            k, b, v = owner[j], coefficient[j], var[i, j]
            if k >= 0:
                S[k] += b * b * v
                Q[k] += b * b * v * share[i, j]
                innovation[k] -= b * mean[i, j]
                left[k] -= b * (mean[i, j] + v * h[i, j])
        for k in range(m):
            ratios[i, k] = Q[k] / S[k]
            S[k], Q[k] = _reciprocal(S[k]), _reciprocal(Q[k])
            quadratic += Q[k] * left[k] * left[k] - S[k] * innovation[k] * innovation[k]
            left[k], innovation[k] = Q[k] * left[k], S[k] * innovation[k]  # a and c
            of_target[i, k] = (innovation[k] - left[k]) * grad
            of_tol[i, k] = 0.5 * grad * (S[k] - Q[k] + left[k] * left[k] - innovation[k] * innovation[k])
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            if k >= 0:
                a[i, j], c[i, j], after[i, j], before[i, j] = b * left[k], b * innovation[k], b * b * Q[k], b * b * S[k]
    return quadratic


@spliced
def pull_joint(var, h, share, precision, a, c, after, before, grad, of_mean, of_var, of_w):
    half, var, h, share, precision = (
        0.5 * grad,
        var.reshape(-1),
        h.reshape(-1),
        share.reshape(-1),
        precision.reshape(-1),
    )
    a, c, after, before = a.reshape(-1), c.reshape(-1), after.reshape(-1), before.reshape(-1)
    of_mean, of_var, of_w = of_mean.reshape(-1), of_var.reshape(-1), of_w.reshape(-1)
    for i in range(var.size):
        of_d = half * (h[i] * h[i] - precision[i])
        of_smoothed = half * (a[i] * a[i] - after[i])
        along, g = a[i] * h[i] * grad, var[i] * precision[i]
        of_mean[i] = (h[i] - c[i] + a[i] * share[i]) * grad
        of_var[i] = of_d + (along + of_smoothed * share[i]) * share[i] + half * (before[i] - c[i] * c[i])
        of_w[i] = of_d - (along - of_smoothed * g) * g


@inlined
def total(values):
    """In eight parts, which are added up in one vector."""
    values, parts, whole = values.reshape(-1), np.zeros(8), values.size - values.size % 8
    for i in range(0, whole, 8):
        for lane in range(8):
            parts[lane] += values[i + lane]
    found = 0.0
    for lane in range(8):
        found += parts[lane]
    for i in range(whole, values.size):
        found += values[i]
    return found


@spliced
def _sum_of_logs(values):
    values = values.reshape(-1)
    for i in range(values.size):
        values[i] = log(values[i])
    return total(values)


@compiled
def marginal(owner, coefficient, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w):
    """The same of the paper's density (L1)."""
    # What balances say of each output, 0 where there is none: Bᵀ c, and diag(Bᵀ S⁻¹ B).
    step, precision, terms = np.zeros(y.shape), np.zeros(y.shape), np.empty(y.shape)
    c, inverse = np.empty(target.shape), np.empty(target.shape)
    _weigh_marginal(owner, coefficient, mean, var, target, tol_var, c, inverse, step, precision)
    move(mean, var, y, w, step, precision, grad, terms, of_mean, of_w)
    _pull_marginal(owner, coefficient, var, c, inverse, step, precision, of_mean, of_var, of_target, of_tol, of_w)
    return -0.5 * total(terms)


@spliced
def _weigh_marginal(owner, coefficient, mean, var, target, tol_var, c, inverse, step, precision):
    for i in range(target.shape[0]):
        for k in range(target.shape[1]):
            inverse[i, k], c[i, k] = tol_var[i, k], target[i, k]
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            if k >= 0:
                inverse[i, k] += b * b * var[i, j]
                c[i, k] -= b * mean[i, j]
        for k in range(target.shape[1]):
            inverse[i, k] = _reciprocal(inverse[i, k])
            c[i, k] *= inverse[i, k]
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            if k >= 0:
                step[i, j], precision[i, j] = b * c[i, k], b * b * inverse[i, k]


@spliced
def move(mean, var, y, w, step, precision, grad, terms, of_mean, of_total):
    """Density of each output at its conditioned mean and variance, with the gradients of these two."""
    mean, var, y, w, terms = mean.reshape(-1), var.reshape(-1), y.reshape(-1), w.reshape(-1), terms.reshape(-1)
    step, precision = step.reshape(-1), precision.reshape(-1)
    of_mean, of_total = of_mean.reshape(-1), of_total.reshape(-1)
    for i in range(y.size):
        measured = y[i] == y[i]
        left = 1.0 - precision[i] * var[i]
        total = var[i] * (left if left > _EPS else _EPS) + w[i]  # kept above rounding of v
        inverse = 1.0 / total if measured else 0.0
        u = y[i] - mean[i] - var[i] * step[i] if measured else 0.0
        z = u * inverse
        terms[i] = u * z + (log(total) + _LOG_2PI) if measured else 0.0
        of_mean[i] = z * grad
        of_total[i] = 0.5 * grad * (z * z - inverse)


@spliced
def _pull_marginal(owner, coefficient, var, c, inverse, step, precision, of_mean, of_var, of_target, of_tol, of_w):
    """From gradients of conditioned means and variances, in `of_mean` and `of_w`, to those of what they came from."""
    m = c.shape[1]
    z, spread = np.empty(m), np.empty(m)
    for i in range(c.shape[0]):
        z[:], spread[:] = 0.0, 0.0
        for j in range(owner.size):
            k, b, v = owner[j], coefficient[j], var[i, j]
            if k >= 0:
                z[k] += b * v * of_mean[i, j]
                spread[k] += b * b * of_w[i, j] * v * v
        for k in range(m):
            z[k] *= inverse[i, k]
            spread[k] *= inverse[i, k] * inverse[i, k]
            of_target[i, k], of_tol[i, k] = z[k], spread[k] - z[k] * c[i, k]
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            of_var[i, j] = of_w[i, j]
            if k >= 0:
                of_mean[i, j] -= b * z[k]
                of_var[i, j] += of_mean[i, j] * step[i, j] + b * b * spread[k]
                of_var[i, j] -= 2.0 * precision[i, j] * var[i, j] * of_w[i, j]
