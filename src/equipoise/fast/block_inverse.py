"""Inverses of small symmetric matrices, eight at a time.

Their elements stand side by side, `(k, k, 8)`, so that each operation of the algorithm is one of a whole vector.
"""

import math

from equipoise.fast.compilation import inlined
from equipoise.fast.elementary import log

LANES = 8


@inlined
def invert(S, k, scale, log_det):
    """`S⁻¹` in place of the first `k` rows and columns of S, of which the lower half is given.

    Scaled to diagonal 1, then in place: the Cholesky factor L, its inverse M, and `Mᵀ M`.

    Args:
        S: Positive definite matrices, shape `(K, K, 8)`.
        k: Their size.
        scale: Memory, shape `(K, 8)`.
        log_det: Filled, shape `(8,)`.
    Returns:
        The largest element of the scaled inverses, by which roundings grow; NaN if one is not positive definite.
    """
    _scale(S, k, scale, log_det)
    _factorise(S, k, log_det)
    _invert_factor(S, k)
    largest = _multiply_factor(S, k)
    for i in range(k):
        for j in range(i + 1):
            for e in range(LANES):
                S[i, j, e] *= scale[i, e] * scale[j, e]
                S[j, i, e] = S[i, j, e]
    return largest


@inlined
def _scale(S, k, scale, log_det):
    for e in range(LANES):
        log_det[e] = 0.0
    for i in range(k):
        for e in range(LANES):
            log_det[e] += log(S[i, i, e])
            scale[i, e] = 1.0 / math.sqrt(S[i, i, e])
        for j in range(i + 1):
            for e in range(LANES):
                S[i, j, e] *= scale[i, e] * scale[j, e]


@inlined
def _factorise(S, k, log_det):
    """`S = L Lᵀ`, with `1 / L_jj` on the diagonal."""
    for j in range(k):
        for p in range(j):
            for e in range(LANES):
                S[j, j, e] -= S[j, p, e] * S[j, p, e]
        for e in range(LANES):
            log_det[e] += log(S[j, j, e])
            S[j, j, e] = 1.0 / math.sqrt(S[j, j, e])
        for i in range(j + 1, k):
            for p in range(j):
                for e in range(LANES):
                    S[i, j, e] -= S[i, p, e] * S[j, p, e]
            for e in range(LANES):
                S[i, j, e] *= S[j, j, e]


@inlined
def _invert_factor(S, k):
    """`M = L⁻¹`."""
    for j in range(k):
        for i in range(j + 1, k):
            for e in range(LANES):
                S[i, j, e] *= S[j, j, e]
            for p in range(j + 1, i):
                for e in range(LANES):
                    S[i, j, e] += S[i, p, e] * S[p, j, e]
            for e in range(LANES):
                S[i, j, e] *= -S[i, i, e]


@inlined
def _multiply_factor(S, k):
    """`Mᵀ M`, and its largest element, which is on the diagonal."""
    largest = 0.0
    for i in range(k):
        for j in range(i):
            for e in range(LANES):
                S[i, j, e] *= S[i, i, e]
            for p in range(i + 1, k):
                for e in range(LANES):
                    S[i, j, e] += S[p, i, e] * S[p, j, e]
        for e in range(LANES):
            S[i, i, e] *= S[i, i, e]
        for p in range(i + 1, k):
            for e in range(LANES):
                S[i, i, e] += S[p, i, e] * S[p, i, e]
        for e in range(LANES):
            found = S[i, i, e]
            largest = found if found > largest or found != found else largest  # NaN stays
    return largest
