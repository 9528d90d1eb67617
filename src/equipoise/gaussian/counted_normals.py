"""Standard normal numbers that follow from a key and a counter, whatever the order in which they are computed.

`threefry` (Salmon et al. 2011) computes random bits without any state, so that a part of a batch gets the numbers that
it has in the whole batch, on one process or several. This module is the definition; `equipoise.fast.normals` has the
compiled twin.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, UInt32

Words = UInt32[np.ndarray, " n"]
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry(key: int, counter: Words, stream: int) -> tuple[Words, Words]:
    """Compute 64 random bits for each counter, by Threefry-2x32 with 20 rounds.

    Args:
        key: 64 bits.
        counter: Lower words of the counters.
        stream: Their common upper word.
    Returns:
        The lower and the upper words, each of the counters' shape.

    Example:
        >>> x, y = threefry(0, np.zeros(1, np.uint32), 0)            # a known answer of the authors
        >>> hex(x[0]), hex(y[0])
        ('0x6b200159', '0x99ba4efe')
    """
    keys = [np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)]
    keys.append(keys[0] ^ keys[1] ^ _PARITY)
    with np.errstate(over="ignore"):  # sums are modulo 2³²
        x, y = counter + keys[0], np.full_like(counter, stream) + keys[1]
        for turn in range(5):
            for rotation in _ROTATIONS[turn % 2]:
                x = x + y
                y = ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))) ^ x
            x = x + keys[(turn + 1) % 3]
            y = y + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return x, y


def normal_pairs(x: Words, y: Words) -> tuple[np.ndarray, np.ndarray]:
    """Compute two independent standard normal numbers from each 64 random bits, in double precision.

    ::

        √(−2 log u) cos(2π t),  √(−2 log u) sin(2π t)                 (Box & Muller 1958)

    Args:
        x, y: 32 random bits each, arrays of one shape.
    """
    radius, turn = np.sqrt(-2.0 * np.log((x + 0.5) * 2.0**-32)), y * 2.0**-32
    return radius * np.cos(2.0 * np.pi * turn), radius * np.sin(2.0 * np.pi * turn)


def counted_normals(key: int, batch: tuple[int, int], n: int, widths: Sequence[int]) -> Float32[np.ndarray, " numbers"]:
    """Compute antithetic standard normal numbers for consecutive rows of a batch.

    Numbers of the batch's second half are the negatives of its first half. Of the independent numbers of an array, the
    first half are the first ones of all pairs, and the others the second ones.

    Args:
        key: 63 random bits.
        batch: Number of rows of the whole batch, and index in it of the first row here.
        n: Number of rows here.
        widths: Numbers per row of each array.
    Returns:
        The arrays of shape `(n, width)`, flattened and concatenated, in single precision.

    Example:
        >>> whole, part = counted_normals(5, (4, 0), 4, [1]), counted_normals(5, (4, 1), 2, [1])
        >>> bool((part == whole[1:3]).all() and (whole[2:] == -whole[:2]).all())
        True
    """
    total, first = batch
    arrays = []
    for stream, width in enumerate(widths):
        n_half = (total + 1) // 2 * width
        n_pairs = (n_half + 1) // 2
        index = np.arange(first * width, (first + n) * width)
        opposite, place = np.divmod(index, max(n_half, 1))
        is_second = place >= n_pairs
        bits = threefry(key, np.where(is_second, place - n_pairs, place).astype(np.uint32), stream)
        one, other = normal_pairs(*bits)
        arrays.append(np.where(is_second, other, one) * np.where(opposite == 1, -1.0, 1.0))
    return np.concatenate([*arrays, np.empty(0)]).astype(np.float32)
