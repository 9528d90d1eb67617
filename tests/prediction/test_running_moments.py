"""Running moments against those of all draws at once, and against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.prediction.running_moments import (
    MixtureMoments,
    MomentTable,
    RunningMoments,
    RunningWeights,
)

NAMES, PAIRS = ("c", "a", "b"), (("a", "a"), ("a", "b"))


def fields_of(*values):
    """The fields of a block of draws, which are on axis 0."""
    return dict(zip(NAMES, map(torch.as_tensor, values), strict=True))


def moments_of(sizes, *values):
    """Of draws that come in blocks of given sizes."""
    moments = RunningMoments(PAIRS)
    for rows in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]):
        moments.add(fields_of(*(value[rows] for value in values)))
    return moments


@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, 1e8, -1e8]),
)
def test_running_moments_are_those_of_all_draws_at_once(seed, sizes, offset):
    """Blocks of uneven sizes; with a common offset of 1e8 the data themselves are rounded to 1e-8."""
    rng = np.random.default_rng(seed)
    a = offset + rng.normal(size=(sum(sizes), 3)) * [1.0, 1e-2, 10.0]
    b = -2 * offset + rng.normal(size=(sum(sizes), 3)) + 0.5 * (a - offset)
    running = moments_of(sizes, a - offset, a, b)
    assert running.count == sum(sizes)
    np.testing.assert_allclose(running.mean("a"), a.mean(0), rtol=1e-13, atol=1e-13 * abs(offset) + 1e-14)
    np.testing.assert_allclose(running.mean("b"), b.mean(0), rtol=1e-13, atol=1e-13 * abs(offset) + 1e-14)
    np.testing.assert_allclose(running.mean("c"), (a - offset).mean(0), atol=1e-13)
    spread, other = a - a.mean(0), b - b.mean(0)
    close = {"rtol": 1e-6 if offset else 1e-12, "atol": 1e-7 if offset else 1e-13}
    np.testing.assert_allclose(running.cov("a", "a"), (spread**2).mean(0), **close)
    np.testing.assert_allclose(running.cov("a", "b"), (spread * other).mean(0), **close)


def exact_cov(a, b):
    """In rational arithmetic, rounded once."""
    a, b = [Fraction(float(x)) for x in a], [Fraction(float(x)) for x in b]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    return float(sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / len(a))


def test_a_small_spread_beside_a_large_mean_keeps_its_digits():
    """Spreads from 1 down to 1e-10 of the mean, 320 draws: the deviations are exact, so nothing is lost."""
    rng = np.random.default_rng(0)
    for spread in 10.0 ** -np.arange(0, 11, 2):
        a, b = 1.0 + spread * rng.normal(size=320), -3.0 + spread * rng.normal(size=320)
        running = moments_of([32] * 10, a, a, b)
        var, cov = exact_cov(a, a), exact_cov(a, b)
        np.testing.assert_allclose(running.cov("a", "a"), var, rtol=1e-13)
        np.testing.assert_allclose(running.cov("a", "b"), cov, atol=1e-13 * var)


def test_a_first_block_unlike_all_others_costs_no_more_digits_than_it_is_shorter():
    """32 draws that agree, then draws elsewhere: their mean is off by `√(n/32 − 1)` standard deviations, the most.

    Squares are up to `n/32` times the variance that is left of them, and their sum has some tens of roundings.
    """
    rng = np.random.default_rng(0)
    for n_blocks in (2, 10, 100):
        a = np.concatenate([np.full(32, 5.0), 6.0 + 1e-3 * rng.normal(size=32 * (n_blocks - 1))])
        running = moments_of([32] * n_blocks, a, a, a)
        exact = exact_cov(a, a)
        assert abs(a[0] - a.mean()) > 0.99 * np.sqrt((n_blocks - 1) * exact)
        np.testing.assert_allclose(running.cov("a", "a"), exact, rtol=64 * n_blocks * np.finfo(float).eps)


def test_running_moments_of_the_same_value_have_no_spread():
    values = np.full((45, 2), 1e8 / 3)
    running = moments_of([1, 7, 32, 5], values, values, values)
    np.testing.assert_array_equal(running.cov("a", "a"), 0.0)
    np.testing.assert_allclose(running.mean("a"), 1e8 / 3, rtol=1e-13)


def test_a_table_accepts_the_chunks_of_its_division_once_and_no_others():
    def moments_of(value):
        moments = RunningMoments((("mean", "mean"),))
        mean = torch.tensor([value - 2.0, value + 2.0]).reshape(2, 1, 1).expand(2, 3, 1)
        moments.add({"mean": mean, "var": torch.full((2, 3, 1), 0.5)})
        return moments

    table = MomentTable([slice(0, 3), slice(3, 6)], (6, 1))
    table.mean[:] = np.nan
    assert not table.lack(slice(0, 2))
    table.put(slice(1, 4), moments_of(7.0))
    assert np.isnan(table.mean).all()
    assert table.lack(slice(3, 6))
    table.put(slice(3, 6), moments_of(7.0))
    table.put(slice(3, 6), moments_of(8.0))
    assert not table.lack(slice(3, 6))
    assert table.lack(slice(0, 3))
    assert table.mean[3:].ravel().tolist() == [7.0] * 3
    assert table.var[3:].ravel().tolist() == [4.5] * 3


def test_weighted_running_moments_are_those_of_all_draws_with_their_weights():
    """Weights differ by row and grow by a factor of e⁴⁰ from block to block, so that all but the last are rescaled."""
    rng = np.random.default_rng(0)
    a, b, log_weight = rng.normal(size=(70, 3, 2)), rng.normal(size=(70, 3, 2)), rng.normal(size=(70, 3))
    log_weight += 0.5 * np.arange(70)[:, None] * [[0.0, 1.0, -1.0]]
    running = RunningMoments(PAIRS)
    for rows in np.split(np.arange(70), [32, 64]):
        running.add(fields_of(a[rows], a[rows], b[rows]), torch.as_tensor(log_weight[rows]))
    for i in range(3):
        weight = np.exp(log_weight[:, i] - log_weight[:, i].max())
        cov = np.cov(np.hstack([a[:, i], b[:, i]]).T, aweights=weight, ddof=0)
        np.testing.assert_allclose(running.mean("c")[i], np.average(a[:, i], axis=0, weights=weight), rtol=1e-12)
        np.testing.assert_allclose(running.mean("b")[i], np.average(b[:, i], axis=0, weights=weight), rtol=1e-12)
        np.testing.assert_allclose(running.cov("a", "a")[i], cov.diagonal()[:2], rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(running.cov("a", "b")[i], cov[:2, 2:].diagonal(), rtol=1e-11, atol=1e-13)


def test_weights_shared_by_all_rows_count_as_repeated_components():
    mean, var = (torch.as_tensor(np.random.default_rng(i).uniform(1, 2, (3, 4, 2))) for i in range(2))
    repeated, weighted, equal = [0, 1, 1, 2, 2, 2], MixtureMoments(), MixtureMoments()
    weighted.add(torch.tensor([[1.0], [2.0], [3.0]]).double().log(), DiagonalGaussian(mean, var))
    equal.add(None, DiagonalGaussian(mean[repeated], var[repeated]))
    torch.testing.assert_close(weighted.mean, equal.mean)
    torch.testing.assert_close(weighted.second, equal.second)
    torch.testing.assert_close(weighted.second, var[repeated].mean(0) + mean[repeated].var(0, correction=0))


def test_weights_of_blocks_are_those_of_all_draws_at_once_however_small():
    log_weight = torch.as_tensor(np.random.default_rng(0).normal(size=(50, 3)) * 2.0 - 1e5)
    running, shares, weights = RunningWeights(), [], []
    for block in log_weight.split(16):
        weight, share = running.add(block)
        weights.append(weight)
        shares.append(share)
    all_at_once = torch.softmax(log_weight, 0)
    np.testing.assert_allclose(running.effective, 1.0 / all_at_once.square().sum(0), rtol=1e-9)
    np.testing.assert_allclose(weights[-1] * shares[-1], all_at_once[48:], rtol=1e-9)


def test_equal_draws_all_count_and_a_single_good_one_counts_alone():
    running = RunningWeights()
    running.add(torch.as_tensor([[0.0, 800.0]] + [[0.0, 0.0]] * 39))
    np.testing.assert_allclose(running.effective, [40.0, 1.0])


@pytest.mark.parametrize("dense", [False, True])
def test_moments_over_blocks_are_those_of_the_weighted_mixture(dense):
    rng = np.random.default_rng(1)
    mean, var, log_weight = 1e4 + rng.normal(size=(70, 2, 3)), rng.uniform(0.1, 1, (70, 2, 3)), rng.normal(size=(70, 2))
    running = MixtureMoments(dense=dense)
    for start in range(0, 70, 32):
        part = slice(start, start + 32)
        running.add(
            torch.as_tensor(log_weight[part]), DiagonalGaussian(torch.as_tensor(mean[part]), torch.as_tensor(var[part]))
        )
    for i in range(2):
        weight = np.exp(log_weight[:, i]) / np.exp(log_weight[:, i]).sum()
        cov = np.cov(mean[:, i].T, aweights=weight, ddof=0) + np.diag(weight @ var[:, i])
        np.testing.assert_allclose(running.mean[i], weight @ mean[:, i], rtol=1e-13)
        np.testing.assert_allclose(running.second[i], cov if dense else np.diag(cov), rtol=1e-8, atol=1e-9)
