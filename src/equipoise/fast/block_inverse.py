"""Inverses of small symmetric positive definite matrices, eight at a time.

The twin of `equipoise.gaussian.factorised_blocks.invert_blocks`. Corresponding elements of the eight matrices are
neighbours in memory, shape `(k, k, 8)`, so that the compiler turns each operation into one vector instruction.
"""

import math

from equipoise.fast.compilation import inlined
from equipoise.fast.elementary import log

LANES = 8


@inlined
def invert(S, k, scale, log_det):
    """Replace the first `k` rows and columns of eight matrices `S` by `S⁻¹`, and compute their log determinants.

    S is scaled to diagonal 1; then its Cholesky factor L, the inverse `M = L⁻¹` and `Mᵀ M` are computed in place.

    Args:
        S: Positive definite matrices, of which the lower triangle is read, shape `(K, K, 8)`.
        k: Number of rows and columns, at most K.
        scale: Memory for the scales, shape `(K, 8)`.
        log_det: Filled with `log det S`, shape `(8,)`.
    Returns:
        The largest element of the scaled inverses, the factor by which rounding errors grow; NaN if a matrix is not
        positive definite.
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
    """Scale the lower triangle of `S` to diagonal 1 and start `log_det` with the logarithms of the scales."""
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
    """Replace the lower triangle of `S` by its Cholesky factor `L`, with `1 / L_jj` on the diagonal."""
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
    """Replace `L` by `M = L⁻¹`, both with `1 / L_jj` on the diagonal."""
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
    """Replace `M` by the lower triangle of `Mᵀ M`, and return its largest element, which is on the diagonal."""
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
            element = S[i, i, e]
            largest = element if element > largest or element != element else largest  # NaN stays
    return largest
