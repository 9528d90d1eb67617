"""Standard normal numbers from a counter-based generator, the same for one key in whatever order they are drawn.

The twin of `equipoise.gaussian.counted_normals`. There is no state, so that numbers are computed in parallel lanes,
several times faster than by a generator that updates a state.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, inlined
from equipoise.fast.elementary import log

_F4, _I4, _U4 = np.float32, np.int32, np.uint32
_PARITY = _U4(0x1BD11BDA)
_TURN = _F4(2.0 * math.pi)


@inlined
def _mix(x, y, rotation):
    """Compute one round of threefry on two 32-bit words."""
    x = _U4(x + y)
    return x, _U4(_U4(_U4(y << _U4(rotation)) | _U4(y >> _U4(32 - rotation))) ^ x)


@inlined
def _four_even(x, y):
    """Compute the first four of every eight rounds, which have their own rotations."""
    x, y = _mix(x, y, 13)
    x, y = _mix(x, y, 15)
    x, y = _mix(x, y, 26)
    return _mix(x, y, 6)


@inlined
def _four_odd(x, y):
    """Compute the last four of every eight rounds."""
    x, y = _mix(x, y, 17)
    x, y = _mix(x, y, 29)
    x, y = _mix(x, y, 16)
    return _mix(x, y, 24)


@inlined
def threefry(key0, key1, counter0, counter1):
    """Compute 64 random bits from a key and a counter of 64 bits each, by Threefry-2x32 with 20 rounds.

    All are pairs of unsigned 32-bit words.

    Args:
        key0, key1: The key.
        counter0, counter1: The counter.
    """
    key2 = _U4(_U4(key0 ^ key1) ^ _PARITY)
    x, y = _four_even(_U4(counter0 + key0), _U4(counter1 + key1))
    x, y = _four_odd(_U4(x + key1), _U4(_U4(y + key2) + _U4(1)))
    x, y = _four_even(_U4(x + key2), _U4(_U4(y + key0) + _U4(2)))
    x, y = _four_odd(_U4(x + key0), _U4(_U4(y + key1) + _U4(3)))
    x, y = _four_even(_U4(x + key1), _U4(_U4(y + key2) + _U4(4)))
    return _U4(x + key2), _U4(_U4(y + key0) + _U4(5))


@inlined
def normal_pair(x, y):
    """Compute two independent standard normal numbers from 64 random bits (Box & Muller 1958).

    Args:
        x, y: 32 random bits each.
    """
    radius = math.sqrt(_F4(-2.0) * log((_F4(x) + _F4(0.5)) * _F4(2.0**-32)))
    turns = _F4(_I4(y)) * _F4(2.0**-32)
    quarters = np.rint(turns * _F4(4.0))
    angle = (turns - quarters * _F4(0.25)) * _TURN  # within an eighth of a turn; symmetry gives the others
    z = angle * angle
    sine = angle + angle * z * (_F4(-1.0 / 6.0) + z * (_F4(1.0 / 120.0) - z * _F4(1.0 / 5040.0)))
    cosine = z * z * (_F4(1.0 / 24.0) - z * (_F4(1.0 / 720.0) - z * _F4(1.0 / 40320.0)))
    cosine = _F4(1.0) - _F4(0.5) * z + cosine
    quarter = _I4(_I4(quarters) & _I4(3))
    odd = _I4(quarter & _I4(1)) != 0
    first, second = sine if odd else cosine, cosine if odd else sine
    first = -first if quarter == 1 or quarter == 2 else first
    second = -second if quarter >= 2 else second
    return radius * first, radius * second


@compiled
def fill_antithetic(key, stream, out, n_half):
    """Fill an array with `n_half` standard normal numbers, followed by their negatives.

    Args:
        key: 63 random bits.
        stream: Number of the sequence; a key has many.
        out: Filled, float32, flat, of length `2 n_half` or less.
        n_half: Number of independent numbers.
    """
    key0, key1 = _U4(key & 0xFFFFFFFF), _U4(key >> 32)
    n_pairs = (n_half + 1) // 2
    first, second = out[:n_pairs], out[n_pairs:]
    for i in range(n_half - n_pairs):
        x, y = threefry(key0, key1, _U4(i), _U4(stream))
        first[i], second[i] = normal_pair(x, y)
    if n_half % 2:
        x, y = threefry(key0, key1, _U4(n_pairs - 1), _U4(stream))
        out[n_pairs - 1] = normal_pair(x, y)[0]
    for i in range(n_half, out.size):
        out[i] = -out[i - n_half]


@compiled
def fill_noise(key, batch, n, widths, noise):
    """Fill arrays with antithetic standard normal numbers for consecutive rows of a batch.

    The twin of `equipoise.gaussian.counted_normals.counted_normals`.

    Args:
        key: 63 random bits.
        batch: Number of rows of the whole batch, and index in it of the first row here.
        n: Number of rows here.
        widths: Numbers per row of each array, shape `(n_arrays,)`, int64.
        noise: Filled, float32, flat: the arrays `(n, width)`, row by row, one array after the other.
    """
    total, first = batch
    end = 0
    for stream in range(widths.size):
        width = widths[stream]
        array, n_half = noise[end : end + n * width], (total + 1) // 2 * width
        if n == total:
            fill_antithetic(key, stream, array, n_half)
        else:
            _fill_part(key, stream, array, first * width, n_half)
        end += n * width


@inlined
def _fill_part(key, stream, out, first, n_half):
    """Fill an array with the numbers from index `first` on of the array that `fill_antithetic` fills."""
    key0, key1 = _U4(key & 0xFFFFFFFF), _U4(key >> 32)
    n_pairs, done = (n_half + 1) // 2, 0
    while done < out.size:  # each part holds the same member of all its pairs, with the same sign
        opposite, place = divmod(first + done, n_half)
        second = place >= n_pairs
        pair = place - n_pairs if second else place
        n = min(out.size - done, (n_half if second else n_pairs) - place)
        part = out[done : done + n]
        for i in range(n):
            x, y = threefry(key0, key1, _U4(pair + i), _U4(stream))
            first_normal, second_normal = normal_pair(x, y)
            value = second_normal if second else first_normal
            part[i] = -value if opposite else value
        done += n
