"""The compiled step's own parts; that its gradient is that of the ELBO is tested in tests/test_objective.py."""

import numpy as np
import pytest
import torch
from numba import njit

from equipoise.kernels import objective
from equipoise.randomness import paired_normals, random_keys


@njit
def noise(key, batch, n, widths, like):
    return objective._noise(key, batch, n, widths, like)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("total", "first", "n"), [(9, 0, 9), (9, 3, 4), (1, 0, 1), (8, 6, 2)])
def test_rows_have_the_noise_that_they_have_in_operators_of_torch(total, first, n, dtype):
    widths = (5, 1, 4)
    whole = paired_normals(total, widths, torch.Generator().manual_seed(3), dtype)
    parts = whole.split([total * width for width in widths])
    expected = [part.view(total, -1)[first : first + n].flatten() for part in parts]
    (key,) = random_keys(1, torch.Generator().manual_seed(3))
    found = noise(key, (total, first), n, np.array(widths), np.empty(0, torch.empty(0, dtype=dtype).numpy().dtype))
    np.testing.assert_array_equal(found, torch.cat(expected))
