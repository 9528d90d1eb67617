"""Joint (L2) and marginal (L1) log likelihood of a batch with all gradients, for balances that share outputs.

The twin of the same definitions as `disjoint_likelihoods`, of which it takes what concerns single outputs, but `S` of
each connected block is a small matrix; what serving all balances in this way would cost is measured there. Eight rows
are treated at a time; at the end of the batch the last row is repeated to make eight. Matrices of a block are `(K, K,
8)` and vectors `(K, 8)`, where K is the size of the largest block. The coefficients are flat arrays, as of
`BalanceOperator.entries`::

    rows[row_start[b] : row_start[b + 1]]               balances of block b
    columns[column_start[b] : column_start[b + 1]]      outputs of block b
    local[entry_start[c] : entry_start[c + 1]]          balances of output columns[c], counted within the block
    coefficient[entry_start[c] : entry_start[c + 1]]    its coefficients in them
"""

import numpy as np

from equipoise.fast.block_inverse import LANES, invert
from equipoise.fast.compilation import compiled, inlined
from equipoise.fast.disjoint_likelihoods import evaluate_marginals, pull_joint, standardise_errors, sum_values


@compiled
def joint(blocks, mean, var, target, tol_var, y, w, upstream, grad_mean, grad_var, grad_target, grad_tol, grad_w):
    """Compute `Σ log p(y)` over all rows by the joint density (L2), and its gradients.

    Args:
        blocks: `row_start, rows, column_start, columns, entry_start, local, coefficient`, as above.
        mean, var, target, tol_var, y, w, upstream: As in `disjoint_likelihoods.joint`.
        grad_mean, grad_var, grad_target, grad_tol, grad_w: Filled with gradients, as in `disjoint_likelihoods.joint`.
    Returns:
        `Σ log p(y)`, and the largest element of an inverse, the factor by which rounding errors grow.
    """
    row_start, rows, column_start, columns, entry_start, local, coefficient = blocks
    shape, K = y.shape, _largest_size(row_start)
    h, share, precision, terms = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    standardise_errors(mean, var, y, w, h, share, precision, terms)
    # Bᵀ a, Bᵀ c, diag(Bᵀ Q⁻¹ B) and diag(Bᵀ S⁻¹ B), 0 for outputs without balance
    aB, cB, BQB, BSB = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    S, Q, scale, log_det = _matrix(K), _matrix(K), np.empty((K, LANES)), np.empty((2, LANES))
    innovation, residual, a, c = np.empty((4, K, LANES))
    quadratic, largest = 0.0, 0.0
    smoothed_mean, smoothed_var = mean + var * h, var * share
    for start in range(0, shape[0], LANES):
        filled = min(LANES, shape[0] - start)
        for block in range(row_start.size - 1):
            balances = rows[row_start[block] : row_start[block + 1]]
            k = balances.size
            _initialise(balances, start, filled, target, tol_var, S, innovation)
            _initialise(balances, start, filled, target, tol_var, Q, residual)
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _add_output(local[entries], coefficient[entries], mean, var, start, filled, j, innovation, S)
                _add_output(
                    local[entries], coefficient[entries], smoothed_mean, smoothed_var, start, filled, j, residual, Q
                )
            largest = _larger(largest, invert(S, k, scale, log_det[0]))
            largest = _larger(largest, invert(Q, k, scale, log_det[1]))
            _multiply(S, innovation, k, c)
            _multiply(Q, residual, k, a)
            for e in range(filled):
                quadratic += log_det[1, e] - log_det[0, e]
                for p in range(k):
                    i, g = start + e, balances[p]
                    quadratic += a[p, e] * residual[p, e] - c[p, e] * innovation[p, e]
                    grad_target[i, g] = (c[p, e] - a[p, e]) * upstream
                    grad_tol[i, g] = 0.5 * upstream * (S[p, p, e] - Q[p, p, e] + a[p, e] * a[p, e] - c[p, e] * c[p, e])
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _project(local[entries], coefficient[entries], S, c, start, filled, j, BSB, cB)
                _project(local[entries], coefficient[entries], Q, a, start, filled, j, BQB, aB)
    pull_joint(var, h, share, precision, aB, cB, BQB, BSB, upstream, grad_mean, grad_var, grad_w)
    return -0.5 * (quadratic + sum_values(terms)), largest


@compiled
def marginal(blocks, mean, var, target, tol_var, y, w, upstream, grad_mean, grad_var, grad_target, grad_tol, grad_w):
    """Compute `Σ log p(y)` over all rows by the paper's marginal density (L1), and its gradients.

    Arguments and results are those of `joint`.
    """
    row_start, rows, column_start, columns, entry_start, local, coefficient = blocks
    (n, n_y), K, n_blocks = y.shape, _largest_size(row_start), row_start.size - 1
    inverses, cs = np.empty((n_blocks, K, K, LANES)), np.empty((n_blocks, K, LANES))
    G, W, memory, scale, log_det = _matrix(K), _matrix(K), _matrix(K), np.empty((K, LANES)), np.empty(LANES)
    residual, z = np.empty((2, K, LANES))
    # Bᵀ c, diag(Bᵀ S⁻¹ B), Bᵀ z and diag(Bᵀ W B), 0 for outputs without balance
    step, BSB, zB, BWB = np.zeros((n, n_y)), np.zeros((n, n_y)), np.zeros((n, n_y)), np.zeros((n, n_y))
    terms, largest = np.empty((n, n_y)), 0.0
    for start in range(0, n, LANES):
        filled = min(LANES, n - start)
        for block in range(n_blocks):
            balances, X = rows[row_start[block] : row_start[block + 1]], inverses[block]
            _initialise(balances, start, filled, target, tol_var, X, residual)
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _add_output(local[entries], coefficient[entries], mean, var, start, filled, j, residual, X)
            largest = _larger(largest, invert(X, balances.size, scale, log_det))
            _multiply(X, residual, balances.size, cs[block])
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _project(local[entries], coefficient[entries], X, cs[block], start, filled, j, BSB, step)
        span = slice(start, start + filled)
        evaluate_marginals(
            mean[span], var[span], y[span], w[span], step[span], BSB[span], upstream,
            terms[span], grad_mean[span], grad_w[span],
        )  # fmt: skip
        # so that the residual becomes B (v ⊙ μ̄_C), and the matrix B diag(v² ⊙ v̄_C) Bᵀ
        minus_vg, v2g = -var[span] * grad_mean[span], var[span] * var[span] * grad_w[span]
        for block in range(n_blocks):
            balances, X, c = rows[row_start[block] : row_start[block + 1]], inverses[block], cs[block]
            G[:], residual[:] = 0.0, 0.0
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _add_output(local[entries], coefficient[entries], minus_vg, v2g, 0, filled, j, residual, G)
            _multiply(X, residual, balances.size, z)
            _sandwich(X, G, balances.size, memory, W)
            for e in range(filled):
                for p in range(balances.size):
                    i, g = start + e, balances[p]
                    grad_target[i, g], grad_tol[i, g] = z[p, e], W[p, p, e] - z[p, e] * c[p, e]
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _project(local[entries], coefficient[entries], W, z, start, filled, j, BWB, zB)
    for i in range(n):
        for j in range(n_y):
            grad_mean[i, j] -= zB[i, j]
            grad_var[i, j] = grad_w[i, j] * (1.0 - 2.0 * BSB[i, j] * var[i, j])
            grad_var[i, j] += grad_mean[i, j] * step[i, j] + BWB[i, j]
    return -0.5 * sum_values(terms), largest


@inlined
def _matrix(k):
    """Allocate eight matrices of size k."""
    return np.empty((k, k, LANES))


@inlined
def _largest_size(row_start):
    """Return the number of balances of the largest block."""
    K = 0
    for block in range(row_start.size - 1):
        K = max(K, row_start[block + 1] - row_start[block])
    return K


@inlined
def _larger(a, b):
    """Return the larger of two numbers, NaN if one of them is NaN."""
    return a if b <= a or a != a else b


@inlined
def _initialise(balances, start, filled, target, tol_var, S, residual):
    """Fill the lower triangle of `S` with `diag(r)` and `residual` with `t`, for one block and eight rows.

    Args:
        balances: Indices of the block's balances.
        start, filled: First row, and number of rows, at most 8.
        target, tol_var: As in `joint`, shape `(n, m)`.
        S, residual: Filled, shapes `(K, K, 8)` and `(K, 8)`.
    """
    for p in range(balances.size):
        for q in range(p):
            for e in range(LANES):
                S[p, q, e] = 0.0
        for e in range(LANES):
            i = start + min(e, filled - 1)
            S[p, p, e], residual[p, e] = tol_var[i, balances[p]], target[i, balances[p]]


@inlined
def _add_output(local, coefficient, mean, var, start, filled, j, residual, S):
    """Subtract one output's part of `B μ` from `residual`, and add its part of `B diag(v) Bᵀ` to the lower half of `S`.

    Args:
        local, coefficient: The output's balances, counted within the block, and its coefficients in them.
        mean, var: `μ` and `v`, shape `(n, n_y)`.
        start, filled: First row, and number of rows, at most 8.
        j: Index of the output.
        residual, S: Changed, shapes `(K, 8)` and `(K, K, 8)`.
    """
    for s in range(local.size):
        p, b = local[s], coefficient[s]
        for e in range(LANES):
            residual[p, e] -= b * mean[start + min(e, filled - 1), j]
        for t in range(s + 1):
            for e in range(LANES):
                S[p, local[t], e] += b * coefficient[t] * var[start + min(e, filled - 1), j]


@inlined
def _multiply(X, vector, k, product):
    """Fill `product` with `X vector`, for the first k rows and columns; shapes `(K, K, 8)` and `(K, 8)`."""
    for p in range(k):
        for e in range(LANES):
            product[p, e] = 0.0
        for q in range(k):
            for e in range(LANES):
                product[p, e] += X[p, q, e] * vector[q, e]


@inlined
def _sandwich(X, G, k, memory, W):
    """Fill `W` with `X G X`, for the first k rows and columns of symmetric matrices of shape `(K, K, 8)`.

    Args:
        X, G: Both halves of X are read, and the lower half of G.
        k: Number of rows and columns.
        memory: Overwritten.
        W: Filled.
    """
    for p in range(k):
        for q in range(k):
            for e in range(LANES):
                memory[p, q, e] = 0.0
            for t in range(k):
                for e in range(LANES):
                    memory[p, q, e] += X[p, t, e] * (G[t, q, e] if t >= q else G[q, t, e])
    for p in range(k):
        for q in range(k):
            for e in range(LANES):
                W[p, q, e] = 0.0
            for t in range(k):
                for e in range(LANES):
                    W[p, q, e] += memory[p, t, e] * X[t, q, e]


@inlined
def _project(local, coefficient, X, vector, start, filled, j, diagonal, product):
    """Fill one output's column of `diag(Bᵀ X B)` and of `Bᵀ vector`, for up to eight rows.

    Args:
        local, coefficient, start, filled, j: As in `_add_output`.
        X, vector: Of the block, shapes `(K, K, 8)` and `(K, 8)`.
        diagonal, product: Filled in column j, shape `(n, n_y)`.
    """
    for e in range(filled):
        square, first = 0.0, 0.0
        for s in range(local.size):
            first += coefficient[s] * vector[local[s], e]
            for t in range(local.size):
                square += coefficient[s] * coefficient[t] * X[local[s], local[t], e]
        diagonal[start + e, j], product[start + e, j] = square, first
