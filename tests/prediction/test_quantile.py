"""Quantiles of mixtures: against a root finder, and by what a quantile is."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, strategies as st

import references
from equipoise.prediction.quantile import mixture_quantile


def assert_quantile(mean, std, probability, x):
    """`F(x − δ) ≤ p ≤ F(x + δ)`, with δ a billionth of the mixture's own standard deviation, and rounding."""
    delta = 2e-9 * math.sqrt(np.mean(std**2) + np.var(mean)) + 1e-14 * np.abs(x) + 1e-200
    std = np.maximum(std, 1e-300)
    below, above = (scipy.stats.norm.cdf(x + step, mean, std).mean() for step in (-delta, delta))
    assert below <= probability + 1e-13, (below, probability)
    assert above >= probability - 1e-13, (above, probability)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    decades=st.sampled_from([0.0, 3.0, 12.0]),
    probability=st.sampled_from([1e-6, 0.025, 0.3, 0.5, 0.9, 0.975, 1 - 1e-6]),
)
def test_a_quantile_splits_the_mixture_whatever_its_components(seed, n, decades, probability):
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), 10.0 ** rng.uniform(-decades, decades / 4, n)
    x = mixture_quantile(torch.as_tensor(mean), torch.as_tensor(std), probability).item()
    assert_quantile(mean, std, probability, x)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), probability=st.sampled_from([0.025, 0.3, 0.5, 0.9]))
def test_a_quantile_of_point_masses_is_one_of_them_or_between_two(seed, n, probability):
    """Small whole numbers, so that masses coincide with each other and with their mean."""
    mean = np.random.default_rng(seed).integers(-3, 4, n).astype(float)
    x = mixture_quantile(torch.as_tensor(mean), torch.zeros(n, dtype=torch.float64), probability).item()
    assert_quantile(mean, np.zeros(n), probability, x)


def test_a_mass_at_the_mean_does_not_hold_the_median_back():
    """Masses at −4, 0, 1, 1, 2: their mean is 0, their median 1."""
    mean = torch.tensor([-4.0, 0.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    np.testing.assert_allclose(mixture_quantile(mean, torch.zeros_like(mean), 0.5).item(), 1.0)
    np.testing.assert_allclose(mixture_quantile(mean, torch.full_like(mean, 1e-12), 0.5).item(), 1.0, atol=1e-9)


def test_a_quantile_of_one_component_is_that_of_a_normal():
    for probability in (1e-8, 0.1, 0.5, 0.99):
        x = mixture_quantile(torch.tensor([[2.0]]).double(), torch.tensor([[3.0]]).double(), probability)
        np.testing.assert_allclose(x, 2.0 + 3.0 * scipy.stats.norm.ppf(probability), rtol=1e-8)


def test_quantiles_of_a_table_are_those_of_its_entries():
    rng = np.random.default_rng(0)
    mean, std = torch.as_tensor(rng.normal(size=(9, 3, 2))), torch.as_tensor(rng.uniform(0.01, 2.0, (9, 3, 2)))
    x = mixture_quantile(mean, std, 0.2)
    for i, j in np.ndindex(3, 2):
        np.testing.assert_allclose(
            x[i, j], references.root_quantile(mean[:, i, j].numpy(), std[:, i, j].numpy(), 0.2), rtol=1e-7
        )


@pytest.mark.parametrize("probability", [1e-4, 0.025, 0.5])
def test_rows_that_take_long_and_rows_that_do_not_reach_their_quantile_together(probability):
    """Half of the rows are mixtures of spikes a thousandth as wide as their distance."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(64, 40)), np.exp(0.2 * rng.normal(size=(64, 40)))
    std[:, ::2] *= 1e-3
    x = mixture_quantile(torch.as_tensor(mean), torch.as_tensor(std), probability).numpy()
    reached = scipy.stats.norm.cdf(x, mean, std).mean(0)
    np.testing.assert_allclose(reached, probability, rtol=1e-8)
