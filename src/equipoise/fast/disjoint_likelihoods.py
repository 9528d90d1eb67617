"""Joint (L2) and marginal (L1) log likelihood of a batch with all gradients, where no two balances share an output.

The twin of `ConditionedGaussian.log_prob` and of `equipoise.network.marginal`. The joint density and its gradients,
with `d = v + w`, `g = v / d`, `e = y − μ`, `h = e / d`, `Q = B diag(g w) Bᵀ + R` and `S = B diag(v) Bᵀ + R`::

    a = Q⁻¹ (t − B(μ + g e)),  c = S⁻¹ (t − B μ)
    log p = −½ (h·e + a·Q a − c·S c + Σ log d + log det Q − log det S + n_y log 2π)           (L2)
    μ̄ = h − Bᵀ c + (1 − g) ⊙ Bᵀ a        t̄ = c − a        r̄ = ½ (a² − c² + diag(S⁻¹ − Q⁻¹))

Here `S` and `Q` are diagonal and every output is in one balance at most. Arrays are `(n, n_y)` or `(n, m)`, row by row;
functions that treat outputs one by one go through all rows at once, so that the compiler vectorises them; sums over
outputs go row by row. A measurement that is NaN was not made: `1 / d = 0` and `w / d = 1`.

Balances of this kind are connected blocks of one balance each, and `coupled_likelihoods`, which shares everything here
that concerns single outputs, could serve them. A whole training step would then take 1.12 (L2) and 1.18 (L1) times as
long (512 rows, eight outputs in two balances, one core of an AMD EPYC), so that the solution of `S` stands here apart.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, inlined, spliced
from equipoise.fast.elementary import log

_LOG_2PI = math.log(2.0 * math.pi)
_EPS = float(np.finfo(np.float64).eps)


@inlined
def _reciprocal(s):
    """Compute the pseudo-inverse of a number: `1 / s`, and 0 where `s = 0`."""
    inverse = 1.0 / s
    return 0.0 if inverse == np.inf else inverse


@compiled
def joint(
    owner, coefficient, mean, var, target, tol_var, y, w, upstream, grad_mean, grad_var, grad_target, grad_tol, grad_w
):
    """Compute `Σ log p(y)` over all rows by the joint density (L2), and its gradients.

    Args:
        owner, coefficient: The balance that each output is in, −1 for none, and its coefficient there, shape `(n_y,)`,
            as of `BalanceOperator.owners`.
        mean, var, y, w: `μ`, `v`, measurements and sensor variances, shape `(n, n_y)`.
        target, tol_var: `t` and `r`, shape `(n, m)`.
        upstream: Gradient of the loss with respect to the result, by which all gradients are multiplied.
        grad_mean, grad_var, grad_w: Filled with gradients of the loss, shape `(n, n_y)`.
        grad_target, grad_tol: Filled with gradients of the loss, shape `(n, m)`.
    Returns:
        `Σ log p(y)`.
    """
    shape = y.shape
    h, share, precision, terms = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    standardise_errors(mean, var, y, w, h, share, precision, terms)
    # Bᵀ a, Bᵀ c, diag(Bᵀ Q⁻¹ B) and diag(Bᵀ S⁻¹ B), 0 for outputs without balance
    aB, cB, BQB, BSB = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    ratios = np.empty(target.shape)
    quadratic = _solve_joint(
        owner, coefficient, mean, var, target, tol_var, h, share, upstream,
        aB, cB, BQB, BSB, ratios, grad_target, grad_tol,
    )  # fmt: skip
    pull_joint(var, h, share, precision, aB, cB, BQB, BSB, upstream, grad_mean, grad_var, grad_w)
    return -0.5 * (quadratic + sum_values(terms) + _sum_logs(ratios))


@spliced
def standardise_errors(mean, var, y, w, h, share, precision, terms):
    """Compute the terms of the joint density (L2) that belong to single outputs, with `d = v + w` and `e = y − μ`.

    Args:
        mean, var, y, w: As in `joint`, shape `(n, n_y)`, as all arrays.
        h: Filled with `e/d`; 0 without a measurement.
        share: Filled with `w/d`; 1 without a measurement.
        precision: Filled with `1/d`; 0 without a measurement.
        terms: Filled with `e²/d + log 2πd`; 0 without a measurement.
    """
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
def _solve_joint(
    owner, coefficient, mean, var, target, tol_var, h, share, upstream,
    aB, cB, BQB, BSB, ratios, grad_target, grad_tol,
):  # fmt: skip
    """Solve with `S` and `Q` in every row, and compute the gradients with respect to targets and tolerances.

    With `Q = B diag(v w/d) Bᵀ + R`, `S = B diag(v) Bᵀ + R`, `a = Q⁻¹ (t − B(μ + v h))` and `c = S⁻¹ (t − B μ)`.

    Args:
        owner, coefficient, mean, var, target, tol_var, upstream: As in `joint`.
        h, share: As filled by `standardise_errors`.
        aB, cB, BQB, BSB: Filled with `Bᵀ a`, `Bᵀ c`, `diag(Bᵀ Q⁻¹ B)` and `diag(Bᵀ S⁻¹ B)`, shape `(n, n_y)`,
            but for outputs without balance.
        ratios: Filled with `Q / S`, shape `(n, m)`.
        grad_target, grad_tol: Filled with gradients, shape `(n, m)`.
    Returns:
        `Σ aᵀ Q a − cᵀ S c` over all rows.
    """
    m, quadratic = target.shape[1], 0.0
    S, Q, innovation, residual = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    for i in range(target.shape[0]):
        for k in range(m):
            S[k], Q[k], innovation[k], residual[k] = tol_var[i, k], tol_var[i, k], target[i, k], target[i, k]
        for j in range(owner.size):
            k, b, v = owner[j], coefficient[j], var[i, j]
            if k >= 0:
                S[k] += b * b * v
                Q[k] += b * b * v * share[i, j]
                innovation[k] -= b * mean[i, j]
                residual[k] -= b * (mean[i, j] + v * h[i, j])
        for k in range(m):
            ratios[i, k] = Q[k] / S[k]
            S[k], Q[k] = _reciprocal(S[k]), _reciprocal(Q[k])
            quadratic += Q[k] * residual[k] * residual[k] - S[k] * innovation[k] * innovation[k]
            residual[k], innovation[k] = Q[k] * residual[k], S[k] * innovation[k]  # a and c
            grad_target[i, k] = (innovation[k] - residual[k]) * upstream
            grad_tol[i, k] = 0.5 * upstream * (S[k] - Q[k] + residual[k] * residual[k] - innovation[k] * innovation[k])
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            if k >= 0:
                aB[i, j], cB[i, j] = b * residual[k], b * innovation[k]
                BQB[i, j], BSB[i, j] = b * b * Q[k], b * b * S[k]
    return quadratic


@spliced
def pull_joint(var, h, share, precision, aB, cB, BQB, BSB, upstream, grad_mean, grad_var, grad_w):
    """Compute the gradients of the joint density (L2) with respect to mean, variance and sensor variance.

    Args:
        var, upstream: As in `joint`.
        h, share, precision: As filled by `standardise_errors`, shape `(n, n_y)`.
        aB, cB, BQB, BSB: `Bᵀ a`, `Bᵀ c`, `diag(Bᵀ Q⁻¹ B)` and `diag(Bᵀ S⁻¹ B)`, 0 for outputs without balance,
            shape `(n, n_y)`.
        grad_mean, grad_var, grad_w: Filled with gradients, shape `(n, n_y)`.
    """
    half, var, h, share = 0.5 * upstream, var.reshape(-1), h.reshape(-1), share.reshape(-1)
    precision = precision.reshape(-1)
    aB, cB, BQB, BSB = aB.reshape(-1), cB.reshape(-1), BQB.reshape(-1), BSB.reshape(-1)
    grad_mean, grad_var, grad_w = grad_mean.reshape(-1), grad_var.reshape(-1), grad_w.reshape(-1)
    for i in range(var.size):
        grad_d = half * (h[i] * h[i] - precision[i])
        grad_smoothed = half * (aB[i] * aB[i] - BQB[i])
        product, g = aB[i] * h[i] * upstream, var[i] * precision[i]
        grad_mean[i] = (h[i] - cB[i] + aB[i] * share[i]) * upstream
        grad_var[i] = grad_d + (product + grad_smoothed * share[i]) * share[i] + half * (BSB[i] - cB[i] * cB[i])
        grad_w[i] = grad_d - (product - grad_smoothed * g) * g


@inlined
def sum_values(values):
    """Add up all elements of an array, in eight partial sums that are kept in one vector."""
    values, parts, whole = values.reshape(-1), np.zeros(8), values.size - values.size % 8
    for i in range(0, whole, 8):
        for lane in range(8):
            parts[lane] += values[i + lane]
    result = 0.0
    for lane in range(8):
        result += parts[lane]
    for i in range(whole, values.size):
        result += values[i]
    return result


@spliced
def _sum_logs(values):
    """Replace all elements of an array by their logarithms, and add these up."""
    values = values.reshape(-1)
    for i in range(values.size):
        values[i] = log(values[i])
    return sum_values(values)


@compiled
def marginal(
    owner, coefficient, mean, var, target, tol_var, y, w, upstream, grad_mean, grad_var, grad_target, grad_tol, grad_w
):
    """Compute `Σ log p(y)` over all rows by the paper's marginal density (L1), and its gradients.

    Arguments and result are those of `joint`.
    """
    # Bᵀ c and diag(Bᵀ S⁻¹ B), 0 for outputs without balance
    step, BSB, terms = np.zeros(y.shape), np.zeros(y.shape), np.empty(y.shape)
    c, inverse = np.empty(target.shape), np.empty(target.shape)
    _solve_marginal(owner, coefficient, mean, var, target, tol_var, c, inverse, step, BSB)
    evaluate_marginals(mean, var, y, w, step, BSB, upstream, terms, grad_mean, grad_w)
    _pull_marginal(owner, coefficient, var, c, inverse, step, BSB, grad_mean, grad_var, grad_target, grad_tol, grad_w)
    return -0.5 * sum_values(terms)


@spliced
def _solve_marginal(owner, coefficient, mean, var, target, tol_var, c, inverse, step, BSB):
    """Solve with `S = B diag(v) Bᵀ + R` in every row.

    Args:
        owner, coefficient, mean, var, target, tol_var: As in `joint`.
        c, inverse: Filled with `S⁻¹ (t − B μ)` and `S⁻¹`, shape `(n, m)`.
        step, BSB: Filled with `Bᵀ c` and `diag(Bᵀ S⁻¹ B)`, shape `(n, n_y)`, but for outputs without balance.
    """
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
                step[i, j], BSB[i, j] = b * c[i, k], b * b * inverse[i, k]


@spliced
def evaluate_marginals(mean, var, y, w, step, BSB, upstream, terms, grad_mean, grad_total):
    """Evaluate the density of each output at its conditioned mean and variance (C3, C4), and the gradients (L1).

    Args:
        mean, var, y, w, upstream: As in `joint`; all arrays have shape `(n, n_y)`.
        step, BSB: `Bᵀ c` and `diag(Bᵀ S⁻¹ B)`, 0 for outputs without balance.
        terms: Filled with −2 times the log densities, 0 without a measurement.
        grad_mean, grad_total: Filled with gradients with respect to `μ_C` and `v_C + w`.
    """
    mean, var, y, w, terms = mean.reshape(-1), var.reshape(-1), y.reshape(-1), w.reshape(-1), terms.reshape(-1)
    step, BSB = step.reshape(-1), BSB.reshape(-1)
    grad_mean, grad_total = grad_mean.reshape(-1), grad_total.reshape(-1)
    for i in range(y.size):
        measured = y[i] == y[i]
        rest = 1.0 - BSB[i] * var[i]
        total = var[i] * (rest if rest > _EPS else _EPS) + w[i]  # kept above rounding of v
        inverse = 1.0 / total if measured else 0.0
        u = y[i] - mean[i] - var[i] * step[i] if measured else 0.0
        z = u * inverse
        terms[i] = u * z + (log(total) + _LOG_2PI) if measured else 0.0
        grad_mean[i] = z * upstream
        grad_total[i] = 0.5 * upstream * (z * z - inverse)


@spliced
def _pull_marginal(owner, coefficient, var, c, inverse, step, BSB, grad_mean, grad_var, grad_target, grad_tol, grad_w):
    """Compute gradients with respect to `μ`, `v`, `t` and `r` from those with respect to `μ_C` and `v_C`.

    Args:
        owner, coefficient, var: As in `joint`.
        c, inverse, step, BSB: As filled by `_solve_marginal`.
        grad_mean: Gradient with respect to `μ_C`, replaced by that with respect to `μ`, shape `(n, n_y)`.
        grad_w: Gradient with respect to `v_C`, which is also that with respect to `w`, shape `(n, n_y)`.
        grad_var: Filled with the gradient with respect to `v`, shape `(n, n_y)`.
        grad_target, grad_tol: Filled with gradients with respect to `t` and `r`, shape `(n, m)`.
    """
    m = c.shape[1]
    z, W_diag = np.empty(m), np.empty(m)
    for i in range(c.shape[0]):
        z[:], W_diag[:] = 0.0, 0.0
        for j in range(owner.size):
            k, b, v = owner[j], coefficient[j], var[i, j]
            if k >= 0:
                z[k] += b * v * grad_mean[i, j]
                W_diag[k] += b * b * grad_w[i, j] * v * v
        for k in range(m):
            z[k] *= inverse[i, k]
            W_diag[k] *= inverse[i, k] * inverse[i, k]
            grad_target[i, k], grad_tol[i, k] = z[k], W_diag[k] - z[k] * c[i, k]
        for j in range(owner.size):
            k, b = owner[j], coefficient[j]
            grad_var[i, j] = grad_w[i, j]
            if k >= 0:
                grad_mean[i, j] -= b * z[k]
                grad_var[i, j] += grad_mean[i, j] * step[i, j] + b * b * W_diag[k]
                grad_var[i, j] -= 2.0 * BSB[i, j] * var[i, j] * grad_w[i, j]
