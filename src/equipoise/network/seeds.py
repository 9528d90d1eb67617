"""Seeds derived from seeds, so that every stream of random numbers has its own."""

import numpy as np


def derived_seed(*key: int) -> int:
    """Mix several integers into one seed of 63 bits.

    Example:
        >>> derived_seed(0, 1) != derived_seed(1, 0)
        True
    """
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
