"""Means on squared errors against plain torch, written line by line."""

import itertools
import math

import numpy as np
import pytest
import torch

import equipoise as eq
from equipoise.network.seeds import derived_seed
from equipoise.training.means_fit import fit_means


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2)) * [1.0, 50.0]
    return X, np.stack([np.sin(3 * X[:, 0]), 1000 + X[:, 1] * X[:, 0]], 1)


def one_cycle(fraction):
    if fraction < 0.3:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * fraction / 0.3))
    return 0.5 * (1 + math.cos(math.pi * (fraction - 0.3) / 0.7))


def in_plain_torch(X, Y, sizes, plan, seed):
    """The weights of a network whose last layer has unused units for variances, and its predictions."""
    x, y = (torch.as_tensor((v - v.mean(0)) / v.std(0), dtype=torch.float32) for v in (X, Y))
    generator, n_outputs = torch.Generator().manual_seed(derived_seed(seed, 5)), Y.shape[1]
    shapes, parts = list(itertools.pairwise((*sizes, 2 * n_outputs))), []
    for fan_in, fan_out in shapes:
        W = torch.randn(fan_in * fan_out, generator=generator).view(fan_in, fan_out) / math.sqrt(fan_in)
        parts.append((W.requires_grad_(), torch.zeros(fan_out, requires_grad=True)))

    def network(h):
        for i, (W, bias) in enumerate(parts):
            h = h @ W + bias
            h = torch.nn.functional.silu(h) if i < len(parts) - 1 else h
        return h[:, :n_outputs]

    optimizer = torch.optim.Adam(list(itertools.chain.from_iterable(parts)))
    for epoch in range(plan.max_epochs):
        batches = torch.randperm(len(x), generator=generator).split(plan.batch_size)
        for i, index in enumerate(batches):
            rate = one_cycle((epoch + i / len(batches)) / plan.max_epochs)
            optimizer.param_groups[0]["lr"] = plan.mean_learning_rate * rate
            optimizer.zero_grad()
            (network(x[index]) - y[index]).square().mean().backward()
            optimizer.step()
    return Y.mean(0) + Y.std(0) * network(x).detach().double().numpy()


def test_it_is_what_plain_torch_computes():
    (X, Y), plan = table(), eq.TrainingPlan(max_epochs=8, batch_size=64)
    expected = in_plain_torch(X, Y, (2, 6, 5), plan, seed=4)
    fitted = fit_means(X, Y, hidden=(6, 5), training=plan, random_state=4)
    np.testing.assert_allclose((fitted.predict(X) - expected) / Y.std(0), 0.0, atol=1e-4)  # single precision, 40 steps
    assert np.abs((expected - Y.mean(0)) / Y.std(0)).max() > 0.1


def test_it_starts_with_the_weights_of_the_estimator_of_the_same_seed():
    X, Y = table(40)
    nothing = eq.TrainingPlan(max_epochs=1, mean_learning_rate=0.0)
    means = fit_means(X, Y, hidden=(6,), training=nothing, random_state=9).network.posterior.loc
    generator = torch.Generator().manual_seed(derived_seed(9, 5))
    W = torch.randn(2 * 6, generator=generator) / math.sqrt(2)
    assert torch.equal(means[:12].detach(), W)


def test_the_callback_gets_every_epoch():
    records = []
    fit_means(*table(40), hidden=(3,), training=eq.TrainingPlan(max_epochs=3), callback=records.append)
    assert [(record["epoch"], "mse" in record) for record in records] == [(0, True), (1, True), (2, True)]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(4), r"X must be a table of numbers, but got shape \(4,\)"),
        (np.zeros((3, 2)), r"a finite row for each of the 4 rows of Y, but got shape \(3, 2\)"),
        (np.full((4, 1), np.nan), "X must have a finite row"),
    ],
)
def test_what_is_no_table_is_refused(X, message):
    with pytest.raises(eq.EquipoiseError, match=message):
        fit_means(X, np.zeros((4, 1)))
