"""Normal numbers from a counter: published answers of threefry, Box and Muller by hand, parts of a batch, moments."""

import math

import numpy as np
import pytest

from equipoise.gaussian.counted_normals import counted_normals, threefry

# Known answers of Threefry-2x32 with 20 rounds, from the distribution of Random123: counter, key, result.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_random_bits_are_those_that_the_authors_publish(counter, key, expected):
    x, y = threefry(key[0] | key[1] << 32, np.array([counter[0]], np.uint32), counter[1])
    assert (int(x[0]), int(y[0])) == expected


@pytest.mark.parametrize(("total", "width"), [(1, 1), (2, 3), (5, 2), (8, 1)])
def test_numbers_are_those_of_box_and_muller_one_by_one(total, width):
    key, stream_widths = 0x123456789ABCDEF, [4, width]
    n_half = (total + 1) // 2 * width
    n_pairs = (n_half + 1) // 2
    half = np.empty(2 * n_pairs)
    for i in range(n_pairs):
        x, y = (int(word[0]) for word in threefry(key, np.array([i], np.uint32), 1))
        radius, angle = math.sqrt(-2.0 * math.log((x + 0.5) / 2**32)), 2.0 * math.pi * y / 2**32
        half[i], half[n_pairs + i] = radius * math.cos(angle), radius * math.sin(angle)
    expected = np.concatenate([half[:n_half], -half[:n_half]])[: total * width]
    drawn = counted_normals(key, (total, 0), total, stream_widths)
    np.testing.assert_allclose(drawn[total * 4 :], expected, rtol=1e-6, atol=1e-7)  # single precision


@pytest.mark.parametrize(("first", "n"), [(0, 0), (0, 3), (2, 4), (5, 2), (6, 1)])
def test_a_part_of_a_batch_has_the_numbers_of_the_whole(first, n):
    widths = [3, 1]
    whole, part = counted_normals(9, (7, 0), 7, widths), counted_normals(9, (7, first), n, widths)
    for rows, of_part in ((whole[:21].reshape(7, 3), part[: 3 * n]), (whole[21:].reshape(7, 1), part[3 * n :])):
        np.testing.assert_array_equal(of_part, rows[first : first + n].reshape(-1))


def test_moments_are_those_of_independent_normals():
    """Each statistic within five standard errors."""
    z = counted_normals(11, (40_000, 0), 20_000, [10]).astype(float)
    n = z.size
    assert abs(z.mean()) < 5 / n**0.5
    assert abs(z.var() - 1) < 5 * (2 / n) ** 0.5
    assert abs((z**4).mean() - 3) < 5 * (96 / n) ** 0.5
    assert abs((z[:-1] * z[1:]).mean()) < 5 / n**0.5
