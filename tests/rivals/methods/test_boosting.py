"""Boosted trees against scikit-learn's own predictions, and their variance where the truth is known."""

import numpy as np
import pytest
import torch

from equipoise.data.rows import Rows
from equipoise.network.mlp import BayesianMLP
from equipoise.rivals.methods import boosting
from equipoise.rivals.methods.boosting import BoostedTrees


def table(n=400, seed=0):
    """Two outputs; the noise of the first grows from 0.1 to 0.74 with the first input, that of the second is 0.3."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    std = np.stack([np.exp(x[:, 0] - 1.3), np.full(n, 0.3)], 1)
    mean = np.stack([np.sin(3 * x[:, 0]), x[:, 0] * x[:, 1]], 1)
    return x, mean, std, mean + std * rng.normal(size=mean.shape)


def rows(x, Y):
    return Rows(torch.as_tensor(x), torch.as_tensor(Y))


def evaluated(q, x):
    return (
        BayesianMLP(x.shape[1], 2, (4,), generator=torch.Generator())
        .with_posterior(q)
        .at_draws(q.draw_block(0, 0)[:1], torch.as_tensor(x))
    )


def test_the_trees_as_arrays_predict_what_scikit_learns_predict(monkeypatch):
    grown = []
    build = boosting._grow_output

    def watched(*arguments):
        grown.append(build(*arguments))
        return grown[-1]

    monkeypatch.setattr(boosting, "_grow_output", watched)
    x, _, _, Y = table()
    held_x, _, _, held_Y = table(60, seed=1)
    new, *_ = table(300, seed=2)
    q = BoostedTrees.fit(rows(x, Y), rows(held_x, held_Y), seed=0)
    p = evaluated(q, new)
    for j, (mean, log_var) in enumerate(grown):
        np.testing.assert_allclose(p.mean[0, :, j], mean.predict(new), rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(p.var[0, :, j], log_var.predict(new), rtol=1e-9)
    leaves = sum(tree.get_n_leaf_nodes() for pair in grown for each in pair for (tree,) in each._predictors)
    assert q.n_leaves == leaves


def test_the_noise_that_depends_on_the_inputs_is_found():
    x, _, _, Y = table(3000)
    held_x, _, _, held_Y = table(500, seed=1)
    new, mean, std, _ = table(500, seed=2)
    p = evaluated(BoostedTrees.fit(rows(x, Y), rows(held_x, held_Y), seed=0), new)
    ratio = np.log(p.var[0].sqrt().numpy() / std)
    assert np.abs(ratio.mean(0)).max() < 0.1
    assert ratio.std(0).max() < 0.25  # with one variance for all rows it would be 0.58 for the first output
    assert np.abs(p.mean[0].numpy() - mean).mean() < 0.1


def test_rows_without_an_output_are_as_if_they_were_not_there():
    x, _, _, Y = table(200)
    missing = Y.copy()
    missing[:50, 1] = np.nan
    q = BoostedTrees.fit(rows(x, missing), None, seed=0)
    fewer = BoostedTrees.fit(rows(x[50:], Y[50:]), None, seed=0)
    new, *_ = table(50, seed=2)
    np.testing.assert_array_equal(evaluated(q, new).mean[0, :, 1], evaluated(fewer, new).mean[0, :, 1])
    assert not np.array_equal(evaluated(q, new).mean[0, :, 0], evaluated(fewer, new).mean[0, :, 0])


def test_without_held_out_rows_there_is_a_fixed_number_of_trees():
    x, _, _, Y = table(200)
    assert BoostedTrees.fit(rows(x, Y), None, seed=0).n_trees == [boosting.WITHOUT_HELD_OUT] * 4


@pytest.mark.parametrize("n", [1, 5])
def test_any_number_of_rows_is_predicted(n):
    x, _, _, Y = table(100)
    assert evaluated(BoostedTrees.fit(rows(x, Y), None, seed=0), x[:n]).mean.shape == (1, n, 2)
