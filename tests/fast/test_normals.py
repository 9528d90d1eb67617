"""Normal numbers from a counter: the published answers of threefry, Box and Muller in double precision, moments."""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from equipoise.fast import normals

# Known answers of Threefry-2x32 with 20 rounds, from the distribution of Random123: counter, key, result.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@njit
def bits(key0, key1, counter0, counter1):
    return normals.threefry(np.uint32(key0), np.uint32(key1), np.uint32(counter0), np.uint32(counter1))


def filled(key: int, n_half: int, stream: int = 0, n: int | None = None) -> np.ndarray:
    out = np.full(2 * n_half if n is None else n, np.nan, np.float32)
    normals.fill_antithetic(key, stream, out, n_half)
    return out


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_random_bits_are_those_that_the_authors_publish(counter, key, expected):
    assert bits(*key, *counter) == expected


@pytest.mark.parametrize("n_half", [1, 2, 7, 64, 101])
@pytest.mark.parametrize("stream", [0, 3])
def test_numbers_are_those_of_box_and_muller_in_double_precision(n_half, stream):
    key, n_pairs = 0x123456789ABCDEF, (n_half + 1) // 2
    expected = np.empty(2 * n_pairs)
    for i in range(n_pairs):
        x, y = bits(key & 0xFFFFFFFF, key >> 32, i, stream)
        radius = math.sqrt(-2.0 * math.log((x + 0.5) * 2.0**-32))
        expected[i] = radius * math.cos(2.0 * math.pi * y * 2.0**-32)
        expected[n_pairs + i] = radius * math.sin(2.0 * math.pi * y * 2.0**-32)
    np.testing.assert_allclose(filled(key, n_half, stream)[:n_half], expected[:n_half], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("n_half", "n"), [(3, 6), (3, 5), (4, 8), (1, 1)])
def test_the_second_half_has_the_negatives_of_the_first(n_half, n):
    out = filled(5, n_half, n=n)
    np.testing.assert_array_equal(out[n_half:], -out[: n - n_half])


def test_moments_tails_and_correlations_are_those_of_independent_normals():
    """A million numbers; each statistic within five standard errors."""
    n = 1_000_000
    z = filled(11, n).astype(float)[:n]
    assert abs(z.mean()) < 5 / n**0.5
    assert abs(z.var() - 1) < 5 * (2 / n) ** 0.5
    assert abs((z**3).mean()) < 5 * (15 / n) ** 0.5
    assert abs((z**4).mean() - 3) < 5 * (96 / n) ** 0.5
    for other in (z[1:] * z[:-1], z[: n // 2] * z[n // 2 :], (z[: n // 2] ** 2 - 1) * (z[n // 2 :] ** 2 - 1) / 2):
        assert abs(other.mean()) < 5 / len(other) ** 0.5
    for far in (2.0, 3.0, 4.0):
        p = 2 * stats.norm.sf(far)
        assert abs((abs(z) > far).mean() - p) < 5 * (p / n) ** 0.5
    assert stats.kstest(z, "norm").pvalue > 1e-6


def test_other_keys_and_streams_have_other_numbers():
    first = filled(1, 1_000)[:1_000]
    for other in (filled(2, 1_000)[:1_000], filled(1 + 2**32, 1_000)[:1_000], filled(1, 1_000, stream=1)[:1_000]):
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / 1_000**0.5
