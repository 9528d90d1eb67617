"""The two densities of a batch of rows with all gradients, for balances that share outputs.

As `densities`, but `S` of each connected block is a small matrix. Eight rows are taken at a time, the last one again
where there are fewer. The blocks come as flat arrays::

    rows[row_start[b] : row_start[b + 1]]         balances of block b
    columns[column_start[b] : column_start[b + 1]]  its outputs
    entry_start[c] : entry_start[c + 1]           where the coefficients of the c-th of all these outputs stand
    local, coefficient                            of each its balance, counted within the block, and itself
"""

import numpy as np

from equipoise.fast.block_inverse import LANES, invert
from equipoise.fast.compilation import compiled, inlined
from equipoise.fast.likelihoods import measure, move, pull_joint, total


@compiled
def joint(blocks, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w):
    """As `densities.joint`; also the largest element of an inverse, by which roundings grow."""
    row_start, rows, column_start, columns, entry_start, local, coefficient = blocks
    shape, K = y.shape, _largest(row_start)
    h, share, precision, terms = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    measure(mean, var, y, w, h, share, precision, terms)
    # What balances say of each output, 0 where there is none: Bᵀ a, Bᵀ c, diag(Bᵀ Q⁻¹ B), diag(Bᵀ S⁻¹ B).
    aB, cB, after, before = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    S, Q, scale, log_det = _matrix(K), _matrix(K), np.empty((K, LANES)), np.empty((2, LANES))
    innovation, left, a, c = np.empty((4, K, LANES))
    quadratic, largest = 0.0, 0.0
    smoothed_mean, smoothed_var = mean + var * h, var * share
    for start in range(0, shape[0], LANES):
        filled = min(LANES, shape[0] - start)
        for block in range(row_start.size - 1):
            balances = rows[row_start[block] : row_start[block + 1]]
            k = balances.size
            _begin(balances, start, filled, target, tol_var, S, innovation)
            _begin(balances, start, filled, target, tol_var, Q, left)
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _weigh(local[entries], coefficient[entries], mean, var, start, filled, j, innovation, S)
                _weigh(local[entries], coefficient[entries], smoothed_mean, smoothed_var, start, filled, j, left, Q)
            largest = _larger(largest, invert(S, k, scale, log_det[0]))
            largest = _larger(largest, invert(Q, k, scale, log_det[1]))
            _apply(S, innovation, k, c)
            _apply(Q, left, k, a)
            for e in range(filled):
                quadratic += log_det[1, e] - log_det[0, e]
                for p in range(k):
                    i, g = start + e, balances[p]
                    quadratic += a[p, e] * left[p, e] - c[p, e] * innovation[p, e]
                    of_target[i, g] = (c[p, e] - a[p, e]) * grad
                    of_tol[i, g] = 0.5 * grad * (S[p, p, e] - Q[p, p, e] + a[p, e] * a[p, e] - c[p, e] * c[p, e])
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _pull(local[entries], coefficient[entries], S, c, start, filled, j, before, cB)
                _pull(local[entries], coefficient[entries], Q, a, start, filled, j, after, aB)
    pull_joint(var, h, share, precision, aB, cB, after, before, grad, of_mean, of_var, of_w)
    return -0.5 * (quadratic + total(terms)), largest


@compiled
def marginal(blocks, mean, var, target, tol_var, y, w, grad, of_mean, of_var, of_target, of_tol, of_w):
    """As `densities.marginal`; also the largest element of an inverse, by which roundings grow."""
    row_start, rows, column_start, columns, entry_start, local, coefficient = blocks
    (n, n_y), K, n_blocks = y.shape, _largest(row_start), row_start.size - 1
    inverses, cs = np.empty((n_blocks, K, K, LANES)), np.empty((n_blocks, K, LANES))
    G, W, memory, scale, log_det = _matrix(K), _matrix(K), _matrix(K), np.empty((K, LANES)), np.empty(LANES)
    wanted, z = np.empty((2, K, LANES))
    # What balances say of each output, 0 where there is none: Bᵀ c, diag(Bᵀ S⁻¹ B), Bᵀ z, diag(Bᵀ W B).
    step, precision, zB, spread = np.zeros((n, n_y)), np.zeros((n, n_y)), np.zeros((n, n_y)), np.zeros((n, n_y))
    terms, largest = np.empty((n, n_y)), 0.0
    for start in range(0, n, LANES):
        filled = min(LANES, n - start)
        for block in range(n_blocks):
            balances, X = rows[row_start[block] : row_start[block + 1]], inverses[block]
            _begin(balances, start, filled, target, tol_var, X, wanted)
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _weigh(local[entries], coefficient[entries], mean, var, start, filled, j, wanted, X)
            largest = _larger(largest, invert(X, balances.size, scale, log_det))
            _apply(X, wanted, balances.size, cs[block])
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _pull(local[entries], coefficient[entries], X, cs[block], start, filled, j, precision, step)
        here = slice(start, start + filled)
        move(
            mean[here], var[here], y[here], w[here], step[here], precision[here], grad,
            terms[here], of_mean[here], of_w[here],
        )  # fmt: skip
        moved, squared = -var[here] * of_mean[here], var[here] * var[here] * of_w[here]
        for block in range(n_blocks):
            balances, X, c = rows[row_start[block] : row_start[block + 1]], inverses[block], cs[block]
            G[:], wanted[:] = 0.0, 0.0
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _weigh(local[entries], coefficient[entries], moved, squared, 0, filled, j, wanted, G)
            _apply(X, wanted, balances.size, z)
            _sandwich(X, G, balances.size, memory, W)
            for e in range(filled):
                for p in range(balances.size):
                    i, g = start + e, balances[p]
                    of_target[i, g], of_tol[i, g] = z[p, e], W[p, p, e] - z[p, e] * c[p, e]
            for column in range(column_start[block], column_start[block + 1]):
                j, entries = columns[column], slice(entry_start[column], entry_start[column + 1])
                _pull(local[entries], coefficient[entries], W, z, start, filled, j, spread, zB)
    for i in range(n):
        for j in range(n_y):
            of_mean[i, j] -= zB[i, j]
            of_var[i, j] = of_w[i, j] * (1.0 - 2.0 * precision[i, j] * var[i, j])
            of_var[i, j] += of_mean[i, j] * step[i, j] + spread[i, j]
    return -0.5 * total(terms), largest


@inlined
def _matrix(k):
    return np.empty((k, k, LANES))


@inlined
def _largest(row_start):
    """Balances of the largest block."""
    K = 0
    for block in range(row_start.size - 1):
        K = max(K, row_start[block + 1] - row_start[block])
    return K


@inlined
def _larger(a, b):
    """The larger one; NaN if one of them is."""
    return a if b <= a or a != a else b


@inlined
def _begin(balances, start, filled, target, tol_var, S, wanted):
    """`diag(r)` and `t` of a block."""
    for p in range(balances.size):
        for q in range(p):
            for e in range(LANES):
                S[p, q, e] = 0.0
        for e in range(LANES):
            i = start + min(e, filled - 1)
            S[p, p, e], wanted[p, e] = tol_var[i, balances[p]], target[i, balances[p]]


@inlined
def _weigh(local, coefficient, mean, var, start, filled, j, wanted, S):
    """Take an output's part of `B μ` away, and add its part of `B diag(v) Bᵀ`, the lower half."""
    for s in range(local.size):
        p, b = local[s], coefficient[s]
        for e in range(LANES):
            wanted[p, e] -= b * mean[start + min(e, filled - 1), j]
        for t in range(s + 1):
            for e in range(LANES):
                S[p, local[t], e] += b * coefficient[t] * var[start + min(e, filled - 1), j]


@inlined
def _apply(X, vector, k, into):
    """`X vector`."""
    for p in range(k):
        for e in range(LANES):
            into[p, e] = 0.0
        for q in range(k):
            for e in range(LANES):
                into[p, e] += X[p, q, e] * vector[q, e]


@inlined
def _sandwich(X, G, k, memory, W):
    """`X G X` for symmetric X and G, of which the lower half is given."""
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
def _pull(local, coefficient, X, vector, start, filled, j, diagonal, along):
    """An output's element of `diag(Bᵀ X B)` and of `Bᵀ vector`."""
    for e in range(filled):
        square, first = 0.0, 0.0
        for s in range(local.size):
            first += coefficient[s] * vector[local[s], e]
            for t in range(local.size):
                square += coefficient[s] * coefficient[t] * X[local[s], local[t], e]
        diagonal[start + e, j], along[start + e, j] = square, first
