"""Eight inverses at a time, against 50-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from numba import njit

from equipoise.fast import block_inverse


@njit
def inverted(S):
    k, log_det = S.shape[0], np.empty(8)
    largest = block_inverse.invert(S, k, np.empty((k, 8)), log_det)
    return largest, log_det


def matrices(k, spread=0.5, seed=0):
    """Positive definite, with diagonals over several orders of size."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(8, k, k + 3)) * np.exp(spread * rng.normal(size=(8, k, 1)))
    return np.ascontiguousarray(np.moveaxis(A @ A.transpose(0, 2, 1), 0, -1))


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_inverses_and_determinants_keep_eleven_digits(k):
    S = matrices(k, spread=2.0)
    lower = S * np.tril(np.ones((k, k)))[:, :, None]  # the upper half is not looked at
    lower += np.nan_to_num(np.triu(np.full((k, k), np.inf), 1), posinf=7.0)[:, :, None]
    inverses = lower.copy()
    largest, log_det = inverted(inverses)
    with mpmath.workdps(50):
        for e in range(8):
            exact = mpmath.matrix(S[:, :, e].tolist())
            inverse = np.array((exact**-1).tolist(), dtype=float)
            size = np.sqrt(np.outer(np.diag(inverse), np.diag(inverse)))
            assert (abs(inverses[:, :, e] - inverse) <= 1e-11 * size).all()
            assert log_det[e] == pytest.approx(float(mpmath.log(mpmath.det(exact))), rel=1e-11, abs=1e-11)
    scaled = np.einsum("iie,iie->ie", S, inverses)
    assert largest == pytest.approx(scaled.max(), rel=1e-9)


@pytest.mark.parametrize("spoiled", [0.0, -1.0, np.nan])
def test_a_matrix_that_is_not_positive_definite_is_told(spoiled):
    S = matrices(3)
    S[1, 1, 4] = spoiled
    assert not inverted(S)[0] <= 1e300
