"""The compiled step's own parts; that its gradient is that of the ELBO is tested in tests/test_objective.py."""

import numpy as np
import pytest
import torch

from equipoise.fast.training_step import fill_noise
from equipoise.gaussian.randomness import flat_antithetic_normals, random_keys


@pytest.mark.parametrize(("total", "first", "n"), [(9, 0, 9), (9, 3, 4), (1, 0, 1), (8, 6, 2)])
def test_rows_have_the_noise_that_they_have_in_operators_of_torch(total, first, n):
    widths = (5, 1, 4)
    whole = flat_antithetic_normals(total, widths, torch.Generator().manual_seed(3))
    parts = whole.split([total * width for width in widths])
    expected = [part.view(total, -1)[first : first + n].flatten() for part in parts]
    (key,) = random_keys(1, torch.Generator().manual_seed(3))
    noise = np.empty(n * sum(widths), np.float32)
    fill_noise(key, (total, first), n, np.array(widths), noise)
    np.testing.assert_array_equal(noise, torch.cat(expected))
