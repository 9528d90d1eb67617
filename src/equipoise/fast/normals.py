"""Standard normal numbers from a counter: the same ones for the same key, wherever and in whatever order they are made.

`threefry` (Salmon et al. 2011) makes random bits of a counter and a key, so that numbers need no state and are made in
parallel lanes. It is several times faster than a generator that goes from state to state.
"""

import math

import numpy as np

from equipoise.fast.compilation import compiled, inlined
from equipoise.fast.elementary import log

_F4, _I4, _U4 = np.float32, np.int32, np.uint32
_PARITY = _U4(0x1BD11BDA)
_TURN = _F4(2.0 * math.pi)


@inlined
def _mixed(x, y, rotation):
    """One round."""
    x = _U4(x + y)
    return x, _U4(_U4(_U4(y << _U4(rotation)) | _U4(y >> _U4(32 - rotation))) ^ x)


@inlined
def _four_even(x, y):
    x, y = _mixed(x, y, 13)
    x, y = _mixed(x, y, 15)
    x, y = _mixed(x, y, 26)
    return _mixed(x, y, 6)


@inlined
def _four_odd(x, y):
    x, y = _mixed(x, y, 17)
    x, y = _mixed(x, y, 29)
    x, y = _mixed(x, y, 16)
    return _mixed(x, y, 24)


@inlined
def threefry(key0, key1, counter0, counter1):
    """Threefry-2x32 with its 20 rounds: 64 random bits for a key of 64 and a counter of 64."""
    key2 = _U4(_U4(key0 ^ key1) ^ _PARITY)
    x, y = _four_even(_U4(counter0 + key0), _U4(counter1 + key1))
    x, y = _four_odd(_U4(x + key1), _U4(_U4(y + key2) + _U4(1)))
    x, y = _four_even(_U4(x + key2), _U4(_U4(y + key0) + _U4(2)))
    x, y = _four_odd(_U4(x + key0), _U4(_U4(y + key1) + _U4(3)))
    x, y = _four_even(_U4(x + key1), _U4(_U4(y + key2) + _U4(4)))
    return _U4(x + key2), _U4(_U4(y + key0) + _U4(5))


@inlined
def normal_pair(x, y):
    """Two independent standard normal numbers of 64 random bits (Box & Muller 1958)."""
    radius = math.sqrt(_F4(-2.0) * log((_F4(x) + _F4(0.5)) * _F4(2.0**-32)))
    turns = _F4(_I4(y)) * _F4(2.0**-32)
    quarters = np.rint(turns * _F4(4.0))
    angle = (turns - quarters * _F4(0.25)) * _TURN  # within an eighth of a turn; the rest is symmetry
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
def fill_paired(key, stream, out, n_half):
    """Fill a flat array with `n_half` standard normal numbers, and then with their negatives.

    Args:
        key: 63 random bits.
        stream: Which of the sequences of this key.
        out: Where to, float32, `2 n_half` long or shorter.
        n_half: How many are independent.
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
    """Standard normal numbers for some rows of a batch, the batch's second half the negatives of its first.

    Args:
        key: 63 random bits.
        batch: How many rows the whole batch has, and which of them is the first one here.
        n: How many are here.
        widths: How many numbers each row has, in each of several arrays `(n, width)`.
        noise: Filled, float32, one array after the other.
    """
    total, first = batch
    end = 0
    for stream in range(widths.size):
        width = widths[stream]
        here, n_half = noise[end : end + n * width], (total + 1) // 2 * width
        if n == total:
            fill_paired(key, stream, here, n_half)
        else:
            _fill_some(key, stream, here, first * width, n_half)
        end += n * width


@inlined
def _fill_some(key, stream, out, first, n_half):
    """The numbers from `first` on that `fill_paired` fills an array with."""
    key0, key1 = _U4(key & 0xFFFFFFFF), _U4(key >> 32)
    n_pairs, done = (n_half + 1) // 2, 0
    while done < out.size:  # parts that are all one half of their pairs, and of one sign
        opposite, place = divmod(first + done, n_half)
        second = place >= n_pairs
        pair = place - n_pairs if second else place
        n = min(out.size - done, (n_half if second else n_pairs) - place)
        part = out[done : done + n]
        for i in range(n):
            x, y = threefry(key0, key1, _U4(pair + i), _U4(stream))
            one, other = normal_pair(x, y)
            value = other if second else one
            part[i] = -value if opposite else value
        done += n
