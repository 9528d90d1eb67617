"""Matrix products of compiled code, against numpy's in double precision."""

import numpy as np
import pytest
from numba.core.errors import TypingError

from equipoise.fast.matrix_products import multiply

SHAPES = [(1, 1, 1), (3, 5, 7), (8, 8, 8), (9, 300, 33), (17, 2, 47), (64, 512, 64), (515, 64, 50), (512, 3, 24)]


def matrices(shape, dtype, seed=0):
    n, k, m = shape
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, k)).astype(dtype), rng.normal(size=(k, m)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_any_shape_are_exact_to_rounding(shape, dtype, transposed):
    """Off by less than the roundings of as many sums: `k ε Σ |a| |b|`."""
    A, B = matrices(shape, dtype)
    n, k, m = shape
    C = np.full(n * m, np.nan, dtype)
    multiply(C, np.ascontiguousarray(A.T if transposed else A).ravel(), transposed, B.ravel(), n, k, m)
    exact = A.astype(np.longdouble) @ B.astype(np.longdouble)
    bound = (k + 1) * np.finfo(dtype).eps * (abs(A).astype(float) @ abs(B).astype(float))
    assert (abs(C.reshape(n, m) - exact) <= bound).all()


def test_nothing_is_written_beside_the_result():
    A, B = matrices((9, 11, 13), np.float32)
    memory = np.full(3 * 9 * 13, 7.0, np.float32)
    multiply(memory[117:234], A.ravel(), False, B.ravel(), 9, 11, 13)
    assert (memory[:117] == 7.0).all()
    assert (memory[234:] == 7.0).all()


def test_long_sums_lose_no_more_digits_than_those_of_a_library():
    """A hundred thousand rows: blocks are added up, so that the error does not grow with all of them."""
    A, B = matrices((4, 100_000, 16), np.float32)
    C = np.empty(4 * 16, np.float32)
    multiply(C, A.ravel(), False, B.ravel(), 4, 100_000, 16)
    exact = A.astype(float) @ B.astype(float)
    assert abs(C.reshape(4, 16) - exact).max() < 3 * abs(A @ B - exact).max() + 1e-3


def test_nan_stays_nan():
    A, B = matrices((9, 5, 3), np.float32)
    A[2, 1] = np.nan
    C = np.empty(27, np.float32)
    multiply(C, A.ravel(), False, B.ravel(), 9, 5, 3)
    assert np.isnan(C.reshape(9, 3)).tolist() == np.isnan(A @ B).tolist()


def test_arrays_of_other_numbers_or_with_gaps_are_refused():
    A, B = matrices((9, 5, 3), np.float32)
    C, wide = np.empty(27, np.float32), np.empty(30, np.float32)
    for arrays in (
        (C, A.ravel(), B.ravel().astype(float)),
        (C.astype(float), A.ravel(), B.ravel()),
        (C, A.ravel(), wide[::2]),
    ):
        with pytest.raises(TypingError, match="contiguous arrays of one kind"):
            multiply(arrays[0], arrays[1], False, arrays[2], 9, 5, 3)
