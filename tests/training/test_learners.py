"""Training of members: together as alone, down to the optimum of a model that has one."""

import numpy as np
import pytest
import torch

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.randomness import BatchGenerator
from equipoise.network.likelihood import joint, marginal
from equipoise.network.members import Members, member_seeds, starting_members
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN
from equipoise.rivals.methods.dropout import MaskedMembers, dropout_masks
from equipoise.training.loop import TrainingRun, train
from equipoise.training.plan import TrainingPlan

PLAN = TrainingPlan(max_epochs=20, batch_size=16, patience=4, max_grad_norm=0.5)


def model(hidden=(6,), prior_std=1.0, seed=3, n_members=1, layer=None, likelihood=marginal, **dropout):
    network = BayesianMLP(1, 2, hidden, generator=torch.Generator().manual_seed(0))
    weights = starting_members(network, member_seeds(seed, n_members))
    members = MaskedMembers(weights, prior_std, **dropout) if dropout else Members(weights, prior_std)
    return ConstrainedBNN(network.with_posterior(members), layer, likelihood)


def trained(members, *arguments, seed=3):
    """Weights after training, and its history."""
    history = train(members, *arguments, seed=seed)
    return members.network.posterior.weights.detach(), history


def in_second_phase(*arguments):
    run = TrainingRun(*arguments, seed=3)
    run.phase = run.phases[1]
    return run


def randomness(seed):
    return BatchGenerator().manual_seed(seed)


def rows(n=48, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    y = np.hstack([np.sin(3 * x), x**2]) + 0.1 * rng.standard_normal((n, 2))
    return Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y), None)


@pytest.mark.usefixtures("long_training")
def test_an_ensemble_trained_in_one_pass_is_its_members_trained_one_by_one():
    data, held_out, seeds = rows(), rows(16, 1), member_seeds(3, 3)
    together, history = trained(model(n_members=3), data, held_out, PLAN)
    each, histories = zip(*(trained(model(seed=s), data, held_out, PLAN, seed=s) for s in seeds), strict=True)
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
    weights, _ = trained(model((), prior_std=0.4, seed=1), data, None, plan, seed=1)
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
    fitted = model()
    _, history = trained(fitted, data, held_out, PLAN)
    value = float(in_second_phase(fitted, data, held_out, PLAN).validate(held_out))
    after_means = [r["validation"] for r in history.epochs if r["phase"] != "means"]
    np.testing.assert_allclose(value, min(after_means), rtol=1e-5)


@pytest.mark.usefixtures("long_training")
def test_states_from_before_the_prior_has_its_weight_are_kept_where_they_are_the_best():
    """Eight rows are soon learned by heart, long before the prior counts in full."""
    plan = TrainingPlan(max_epochs=120, mean_epochs=20, noise_epochs=0, batch_size=8, learning_rate=0.05, kl_warmup=1.0)
    fitted = model()
    _, history = trained(fitted, rows(8), rows(64, 1), plan)
    after_means = [r["validation"] for r in history.epochs if r["phase"] != "means"]
    assert int(np.argmin(after_means)) < 50
    value = float(in_second_phase(fitted, rows(8), None, plan).validate(rows(64, 1)))
    np.testing.assert_allclose(value, min(after_means), rtol=1e-5)


def test_a_step_with_dropout_is_that_of_a_loop_over_rows_with_their_masks():
    data, plan = rows(8), TrainingPlan(max_epochs=1, batch_size=8)
    run = in_second_phase(model((6, 5), probability=0.4), data, None, plan)
    loss = run.phase.backward(data, 8, 1.0, randomness(1))
    keep = dropout_masks(run.model.network.sizes, (1, 8), 0.4, randomness(1))
    assert any(float(part.min()) == 0.0 for part in keep)
    expected = []
    for i in range(8):
        h = data.x[i]
        layers = run.model.network.layers(run.learner.members.weights[0])
        for j, (W, bias) in enumerate(layers):
            h = h @ W + bias
            if j < len(layers) - 1:
                h = torch.nn.functional.silu(h) * keep[j][0, i]
        mean, std = h[:2].double(), (20 * torch.tanh(h[2:4] / 20) / 2).exp().double()
        expected.append(-torch.distributions.Normal(mean, std).log_prob(data.y[i]).sum())
    torch.testing.assert_close(loss[0], torch.stack(expected).mean(), rtol=1e-5, atol=1e-6)


def test_held_out_rows_are_judged_by_the_mixture_over_masks():
    """The densities of single draws are those of a plan with one draw, from the same numbers one after the other."""
    data, held_out = rows(8), rows(4, 1)
    plan = TrainingPlan(max_epochs=1, validation_draws=3)
    run, generator = in_second_phase(model(probability=0.4), data, held_out, plan), randomness(1)
    with torch.no_grad():
        each = []
        for _ in range(3):
            keep = dropout_masks(run.model.network.sizes, (1, 4), 0.4, generator)
            output = run.model.network.at(run.learner.members.weights, held_out.x[None], keep)
            normal = torch.distributions.Normal(output.mean[0].double(), output.var[0].double().sqrt())
            each.append(normal.log_prob(held_out.y).sum(-1).numpy())
        value = run.phase.validate(held_out, randomness(1))
    assert float(np.abs(each[0] - each[1]).max()) > 1e-3
    np.testing.assert_allclose(value, -np.log(np.exp(each).mean(0)).mean(), rtol=1e-5)


@pytest.mark.usefixtures("long_training")
def test_tolerances_are_shared_and_learned():
    data, noise = rows(), torch.randn(48, 1, generator=torch.Generator().manual_seed(2)).double()
    data = Rows(data.x, data.y, data.y.sum(1, keepdim=True) + 0.01 * noise)
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0]]), None)
    fitted = model(n_members=2, layer=layer, likelihood=joint)
    history = train(fitted, data, None, TrainingPlan(max_epochs=60, batch_size=16), seed=3)
    assert history.epochs[-1]["rho_mean"] == layer.tolerance.loc.tolist()
    assert float(layer.tolerance.kl_terms()[0].detach()) > 0.1
    assert float(layer.tolerance.median()[0].detach().sqrt()) < 0.1


def two_members_with_a_tolerance(**plan):
    """Their training in the second phase, a batch of the same eight rows for each, and the learned tolerance."""
    data = rows(8)
    data = Rows(data.x, data.y, data.y.sum(1, keepdim=True) + 0.1)
    layer = ConditioningLayer(LinearConstraint([[1.0, 1.0]]), None)
    plan = TrainingPlan(max_epochs=1, batch_size=8, max_grad_norm=1e9, **plan)
    fitted = model(prior_std=0.4, n_members=2, layer=layer, likelihood=joint)
    run = TrainingRun(fitted, data, None, plan, 3)
    run.start(run.phases[1])
    with torch.no_grad():  # away from the prior, where its divergence has no slope
        layer.tolerance.loc += 1.0
        layer.tolerance.log_std -= 0.5
    return run, data.take(torch.arange(8).repeat(2)), layer.tolerance


@pytest.mark.parametrize(("phase", "weight"), [(1, 0.2 / 0.5), (2, 1.0)])
def test_a_step_descends_likelihood_and_priors_of_all_members_at_its_place_in_the_warm_up(phase, weight):
    """By autograd over the sum of both members' objectives; in the last phase means are left where they are."""
    run, batch, q = two_members_with_a_tolerance(kl_warmup=0.5, temperature=0.3)
    run.start(run.phases[phase])
    weights = run.learner.members.weights
    normal = torch.distributions.Normal
    of_tolerance = torch.distributions.kl_divergence(normal(q.loc, q.log_std.exp()), normal(-6.0, 3.0)).sum()
    of_weights = (weights.double() / 0.4).square().sum() / 2
    likelihood = -run.learner._log_prob(batch, randomness(1)).mean(1).sum()
    objective = likelihood + weight * (0.3 * of_weights + 2 * of_tolerance) / 8
    wanted = torch.autograd.grad(objective, [weights, q.loc, q.log_std])
    run.step(batch, 0.2, randomness(1))
    heads = torch.zeros_like(weights)
    W, bias = run.model.network.layers(heads)[-1]
    W[..., 2:], bias[..., 2:] = 1.0, 1.0
    moved = heads if phase == 2 else torch.ones_like(heads)
    torch.testing.assert_close(weights.grad, wanted[0] * moved, rtol=1e-4, atol=1e-5)
    for parameter, gradient in zip((q.loc, q.log_std), wanted[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows():
    run = TrainingRun(model(n_members=2), rows(40), None, PLAN, 3)  # batches of 16, 16 and 8 rows of each member
    run.step = lambda batch, fraction, generator: float(len(batch))
    run.start(run.phases[0])
    assert run._epoch(run.phase)["rmse"] == pytest.approx((32 * 32 + 32 * 32 + 16 * 16) / 80)


def test_gradients_of_each_member_are_clipped_on_their_own():
    run = TrainingRun(model(n_members=2), rows(), None, PLAN, 3)
    weights = run.learner.members.weights
    weights.grad = torch.stack([torch.full_like(weights[0], 10.0), torch.full_like(weights[0], 1e-3)])
    run.learner.clip(0.5)
    norms = torch.linalg.vector_norm(weights.grad, dim=1)
    np.testing.assert_allclose(norms[0], 0.5, rtol=1e-5)
    np.testing.assert_allclose(weights.grad[1], 1e-3, rtol=1e-6)


def test_members_that_were_cut_short_continue_to_the_same_bits(tmp_path):
    """Cut in the second phase, by an exception of the callback."""
    data, held_out, file = rows(), rows(16, 1), tmp_path / "run.ckpt"
    whole, cut, resumed = (model(n_members=2) for _ in range(3))
    train(whole, data, held_out, PLAN, seed=3)

    def stop(record):
        if record["epoch"] == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, data, held_out, PLAN, seed=3, checkpoint=file, checkpoint_seconds=0.0, callback=stop)
    train(resumed, data, held_out, PLAN, seed=3, checkpoint=file)
    assert torch.equal(resumed.network.posterior.weights, whole.network.posterior.weights)
    assert not torch.equal(cut.network.posterior.weights, whole.network.posterior.weights)
