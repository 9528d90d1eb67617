"""Numbers over seeds: against numpy, and the table of Student's t."""

import math

import numpy as np
import pytest
from handmade_results import example

from studies.battery.seeds import is_below, over_seeds, seeds_in_words, text


def test_a_number_over_seeds_has_mean_and_standard_error():
    estimate = over_seeds([1.0, 2.0, 6.0], lambda value: value)
    assert estimate.mean == 3.0
    assert estimate.standard_error == pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3))


def test_beyond_noise_means_outside_students_confidence_interval():
    """The t-value of a mean over 4 seeds must exceed 3.182, the 97.5 % point with 3 degrees of freedom."""
    pattern = np.array([1.0, -1.0, 1.0, -1.0])
    error = pattern.std(ddof=1) / 2
    for t_value, expected in ((3.17, False), (3.19, True)):
        values = iter(pattern - t_value * error)
        assert is_below([example(seed) for seed in range(4)], lambda run, values=values: next(values)) is expected


def test_a_single_seed_has_no_error_and_decides_by_itself():
    runs = [example()]
    assert text(over_seeds(runs, lambda run: 0.25)) == "0.250"
    assert seeds_in_words(runs) == "1 seed"
    assert is_below(runs, lambda run: -1e-9)
    assert not is_below(runs, lambda run: 0.0)
