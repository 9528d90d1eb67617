"""Training of members: together as alone, down to the optimum of a model that has one."""

import numpy as np
import pytest
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.network.likelihood import joint, marginal
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.imposed_network import ImposedBNN
from equipoise.rivals.methods.member_training import MemberTraining, _Best, fit_members
from equipoise.rivals.methods.members import dropout_masks
from equipoise.training.plan import TrainingPlan

PLAN = TrainingPlan(max_epochs=20, batch_size=16, patience=4, max_grad_norm=0.5)


def model(hidden=(6,), prior_std=1.0):
    network = BayesianMLP(1, 2, hidden, prior_std=prior_std, generator=torch.Generator().manual_seed(0))
    return ImposedBNN(ConstrainedBNN(network, None, marginal))


def rows(n=48, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    y = np.hstack([np.sin(3 * x), x**2]) + 0.1 * rng.standard_normal((n, 2))
    return Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), None)


@pytest.mark.usefixtures("long_training")
def test_an_ensemble_trained_in_one_pass_is_its_members_trained_one_by_one():
    data, held_out, seeds = rows(), rows(16, 1), [3, 14, 15]
    together, history = fit_members(model(), data, held_out, PLAN, seeds)
    each, histories = zip(*(fit_members(model(), data, held_out, PLAN, [seed]) for seed in seeds), strict=True)
    np.testing.assert_allclose(together, torch.cat(each), atol=2e-5)
    for name in ("rmse", "validation"):
        expected = np.mean([other.epochs[0][name] for other in histories])
        assert history.epochs[0][name] == pytest.approx(expected, rel=1e-5), name
    assert float((together[0] - together[1]).abs().max()) > 0.1


@pytest.mark.usefixtures("long_training")
def test_a_linear_model_ends_at_the_ridge_solution():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 1))
    y = np.hstack([1.5 * x + 0.3, -0.7 * x]) + 0.3 * rng.standard_normal((64, 2))
    data = Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), None)
    plan = TrainingPlan(max_epochs=600, batch_size=64, learning_rate=2e-2, kl_warmup=0.0, temperature=1.0)
    weights, _ = fit_members(model((), prior_std=0.4), data, None, plan, [1])
    W, bias = weights[0, :4].reshape(1, 4), weights[0, 4:]
    var = np.exp(20 * np.tanh((bias[2:] + torch.as_tensor(x, dtype=torch.float32) * W[0, 2:]).numpy() / 20))
    phi = np.hstack([x, np.ones_like(x)])
    for j in range(2):  # given its variances, the mean head is a ridge regression with prior precision 1 / 0.4²
        precision = phi.T @ (phi / var[:, [j]]) + np.eye(2) / 0.4**2
        ridge = np.linalg.solve(precision, phi.T @ (y[:, j] / var[:, j]))
        np.testing.assert_allclose([W[0, j], bias[j]], ridge, atol=5e-3)


@pytest.mark.usefixtures("long_training")
def test_the_best_state_on_held_out_rows_is_kept():
    data, held_out = rows(), rows(16, 1)
    kept, history = fit_members(model(), data, held_out, PLAN, [3])
    run = MemberTraining(model(), data, held_out, PLAN, [3])
    run.phase = "elbo"
    value = float(run.losses(kept, held_out, torch.Generator().manual_seed(0)).mean())
    after_means = [r["validation"] for r in history.epochs if r["phase"] != "means"]
    np.testing.assert_allclose(value, min(after_means), rtol=1e-5)


@pytest.mark.usefixtures("long_training")
def test_states_from_before_the_prior_has_its_weight_are_kept_where_they_are_the_best():
    """Eight rows are soon learned by heart, long before the prior counts in full."""
    plan = TrainingPlan(max_epochs=120, mean_epochs=20, noise_epochs=0, batch_size=8, learning_rate=0.05, kl_warmup=1.0)
    kept, history = fit_members(model(), rows(8), rows(64, 1), plan, [3])
    after_means = [r["validation"] for r in history.epochs if r["phase"] != "means"]
    assert int(np.argmin(after_means)) < 50
    run = MemberTraining(model(), rows(8), rows(64, 1), plan, [3])
    run.phase = "elbo"
    value = float(run.losses(kept, rows(64, 1), torch.Generator().manual_seed(0)).mean())
    np.testing.assert_allclose(value, min(after_means), rtol=1e-5)


def test_a_step_with_dropout_is_that_of_a_loop_over_rows_with_their_masks():
    data, plan = rows(8), TrainingPlan(max_epochs=1, batch_size=8)
    run = MemberTraining(model((6, 5)), data, None, plan, [3], dropout=0.4)
    run.phase = "elbo"
    found = run.losses(run.weights, data, torch.Generator().manual_seed(1))
    keep = dropout_masks(run.model.network, (1, 8), 0.4, torch.Generator().manual_seed(1))
    assert any(float(part.min()) == 0.0 for part in keep)
    expected = []
    for i in range(8):
        h = data.x[i]
        layers = run.model.network.layers(run.weights[0])
        for j, (W, bias) in enumerate(layers):
            h = h @ W + bias
            if j < len(layers) - 1:
                h = torch.nn.functional.silu(h) * keep[j][0, i]
        mean, std = h[:2].double(), (20 * torch.tanh(h[2:4] / 20) / 2).exp().double()
        expected.append(-torch.distributions.Normal(mean, std).log_prob(data.y[i]).sum())
    torch.testing.assert_close(found[0], torch.stack(expected).mean(), rtol=1e-5, atol=1e-6)


def test_held_out_rows_are_judged_by_the_mixture_over_masks():
    data, held_out = rows(8), rows(4, 1)
    run = MemberTraining(model(), data, held_out, TrainingPlan(max_epochs=1, validation_draws=3), [3], dropout=0.4)
    run.phase = "elbo"
    with torch.no_grad():
        found = run._held_out_losses(held_out, torch.Generator().manual_seed(1))
        generator = torch.Generator().manual_seed(1)
        each = np.stack([run._log_prob(run.weights, held_out, generator).numpy() for _ in range(3)])
    assert float(np.abs(each[0] - each[1]).max()) > 1e-3
    np.testing.assert_allclose(found, -np.log(np.exp(each).mean(0)).mean(1), rtol=1e-6)


@pytest.mark.usefixtures("long_training")
def test_tolerances_are_shared_and_learned():
    data, noise = rows(), torch.randn(48, 1, generator=torch.Generator().manual_seed(2)).double()
    data = Rows(data.x, data.y, data.y.sum(1, keepdim=True) + 0.01 * noise)
    network = BayesianMLP(1, 2, (6,), generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0]]), None)
    imposed = ImposedBNN(ConstrainedBNN(network, layer, joint))
    fit_members(imposed, data, None, TrainingPlan(max_epochs=60, batch_size=16), [3, 4])
    assert float(layer.tolerance.kl_terms()[0].detach()) > 0.1
    assert float(layer.tolerance.median()[0].detach().sqrt()) < 0.1


def two_members_with_a_tolerance(**plan):
    """Their training in the second phase, a batch of the same eight rows for each, and the learned tolerance."""
    data = rows(8)
    data = Rows(data.x, data.y, data.y.sum(1, keepdim=True) + 0.1)
    network = BayesianMLP(1, 2, (6,), prior_std=0.4, generator=torch.Generator().manual_seed(0))
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0]]), None)
    plan = TrainingPlan(max_epochs=1, batch_size=8, max_grad_norm=1e9, **plan)
    run = MemberTraining(ImposedBNN(ConstrainedBNN(network, layer, joint)), data, None, plan, [3, 4])
    run.start("elbo")
    with torch.no_grad():  # away from the prior, where its divergence has no slope
        layer.tolerance.loc += 1.0
        layer.tolerance.log_std -= 0.5
    return run, data.take(torch.arange(8).repeat(2)), layer.tolerance


@pytest.mark.parametrize(("phase", "weight"), [("elbo", 0.2 / 0.5), ("noise", 1.0)])
def test_a_step_descends_likelihood_and_priors_of_all_members_at_its_place_in_the_warm_up(phase, weight):
    """By autograd over the sum of both members' objectives; in the last phase means are left where they are."""
    run, batch, q = two_members_with_a_tolerance(kl_warmup=0.5, temperature=0.3)
    run.start(phase)
    normal = torch.distributions.Normal
    of_tolerance = torch.distributions.kl_divergence(normal(q.loc, q.log_std.exp()), normal(-6.0, 3.0)).sum()
    of_weights = (run.weights.double() / 0.4).square().sum() / 2
    likelihood = run.losses(run.weights, batch, torch.Generator().manual_seed(1)).sum()
    objective = likelihood + weight * (0.3 * of_weights + 2 * of_tolerance) / 8
    wanted = torch.autograd.grad(objective, [run.weights, q.loc, q.log_std])
    run.step(batch, 0.2, torch.Generator().manual_seed(1))
    heads = torch.zeros_like(run.weights)
    W, bias = run.model.network.layers(heads)[-1]
    W[..., 2:], bias[..., 2:] = 1.0, 1.0
    moved = heads if phase == "noise" else torch.ones_like(heads)
    torch.testing.assert_close(run.weights.grad, wanted[0] * moved, rtol=1e-4, atol=1e-5)
    for parameter, gradient in zip((q.loc, q.log_std), wanted[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows():
    run = MemberTraining(model(), rows(40), None, PLAN, [1, 2])  # batches of 16, 16 and 8 rows of each member
    run.step = lambda batch, fraction, generator: float(len(batch))
    assert run._epoch(0, 10) == pytest.approx((32 * 32 + 32 * 32 + 16 * 16) / 80)


def test_each_member_keeps_its_own_best_state_until_its_patience_ends_and_all_share_one_tolerance():
    best, shared = _Best(2), torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    for epoch, values in enumerate([(5.0, 1.0), (4.0, 2.0), (3.0, 3.0), (2.0, 0.5), (9.0, 0.1)]):
        shared.fill_(epoch)
        best.keep(torch.tensor(values), torch.full((2, 3), float(epoch)), [shared], patience=2)
    weights = torch.full((2, 3), -1.0)
    best.restore(weights, [shared])
    assert weights.tolist() == [[3.0] * 3, [0.0] * 3]  # the second had been worse in two epochs, and was left out
    assert shared.tolist() == [3.0]  # of the epoch with the least mean over members, 1.25


def test_gradients_of_each_member_are_clipped_on_their_own():
    run = MemberTraining(model(), rows(), None, PLAN, [1, 2])
    run.weights.grad = torch.stack([torch.full_like(run.weights[0], 10.0), torch.full_like(run.weights[0], 1e-3)])
    run._limit_gradients()
    norms = torch.linalg.vector_norm(run.weights.grad, dim=1)
    np.testing.assert_allclose(norms[0], 0.5, rtol=1e-5)
    np.testing.assert_allclose(run.weights.grad[1], 1e-3, rtol=1e-6)
