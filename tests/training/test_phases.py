"""Phases: the order of rows, and a training of phases of somebody else's."""

import math

import torch
from small_runs import constrained_model, data, plain_model

from equipoise.training.learners import learner_of
from equipoise.training.loop import TrainingRun, train
from equipoise.training.phases import STARTS, BoundPhase, MeansPhase, NoisePhase, PriorStartPhase, shuffled
from equipoise.training.plan import TrainingPlan


def test_an_epoch_shows_every_row_as_often_as_it_has_passes():
    order = shuffled(50, 3, torch.Generator().manual_seed(0))
    assert order.bincount().tolist() == [3] * 50
    parts = order.split(50)
    assert all(sorted(part.tolist()) == list(range(50)) for part in parts)
    assert not torch.equal(parts[0], parts[1])


class SlowMeans(MeansPhase):
    """Means at a constant rate, for as many epochs as it says."""

    n_epochs = 5

    def rate(self, fraction):
        return 1.0


class Squares(SlowMeans):
    """Mean squared errors, of outputs together."""

    name, loss, n_epochs = "squares", "mse", 300

    @staticmethod
    def error(mean, y, group):
        return (mean - y).square().mean()


def test_a_training_may_have_other_phases():
    plan = TrainingPlan(max_epochs=20, noise_epochs=2)
    history = train(plain_model(), data(), data(32, 1), plan, phases=[SlowMeans, NoisePhase])
    assert [record["phase"] for record in history.epochs] == 5 * ["means"] + 2 * ["noise"]
    assert history.stopped == "all epochs run"


def test_a_phase_with_an_error_of_its_own_minimises_it():
    """A linear network of one input: its optimum is that of least squares."""
    model, rows = plain_model(3, hidden=()), data()
    history = train(model, rows, None, TrainingPlan(mean_learning_rate=0.05), phases=[Squares])
    X = torch.cat([rows.x, torch.ones_like(rows.x)], 1).double()
    left = rows.y - X @ torch.linalg.lstsq(X, rows.y).solution
    assert abs(history.epochs[-1]["mse"] / float(left.square().mean()) - 1.0) < 1e-2


def test_a_start_at_the_prior_leaves_all_but_the_spreads_of_the_weights():
    """By hand: tolerance and sensors at their priors, N(−6, 3²) each; the variance head as drawn; whole divergence."""
    model, plan = constrained_model(), TrainingPlan(init_std=0.002).of_paper()
    drawn = model.network.posterior.loc.detach().clone()
    phase = PriorStartPhase(learner_of(model), plan)
    phase.start(data(), data(32, 1))
    assert torch.equal(model.network.posterior.loc, drawn)
    assert torch.allclose(model.network.posterior.std, torch.tensor(0.002))
    for q in (model.conditioning.tolerance, model.sensor):
        mean, std = q.log_moments()
        assert torch.allclose(mean, torch.full_like(mean, -6.0))
        assert torch.allclose(std, torch.full_like(std, 3.0))
    assert (phase.kl_weight(0.0), phase.n_epochs) == (1.0, plan.max_epochs)


def test_starts_from_residuals_and_from_the_prior_are_different_runs():
    """With the same plan: a checkpoint of one must not be continued as the other."""
    plan = TrainingPlan(max_epochs=4).of_paper()
    runs = [TrainingRun(constrained_model(), data(), None, plan, 0, phases) for phases in STARTS.values()]
    assert runs[0].fingerprint() != runs[1].fingerprint()


def test_a_phase_that_may_stop_stops_after_its_patience():
    class Impatient(BoundPhase):
        def rate(self, fraction):
            return 0.0

    plan = TrainingPlan(max_epochs=60, mean_epochs=0, noise_epochs=0, kl_warmup=0.0, patience=4)
    history = train(plain_model(), data(), data(32, 1), plan, phases=[Impatient])
    assert len(history.epochs) == 1 + 4
    assert all(math.isfinite(record["nll"]) for record in history.epochs)


def test_divergences_gain_weight_until_the_warm_up_ends_and_count_in_full_in_the_last_phase():
    plan = TrainingPlan(max_epochs=50, mean_epochs=5, noise_epochs=5, kl_warmup=0.25)
    bound, noise = (phase(learner_of(plain_model()), plan) for phase in (BoundPhase, NoisePhase))
    assert [bound.kl_weight(fraction) for fraction in (0.0, 0.125, 0.25, 0.9)] == [0.0, 0.5, 1.0, 1.0]
    assert [bound.is_warming_up(epoch) for epoch in (1, 10, 11)] == [True, True, False]  # a quarter of 40
    assert (noise.kl_weight(0.0), noise.is_warming_up(1)) == (1.0, False)
    at_once = BoundPhase(learner_of(plain_model()), TrainingPlan(kl_warmup=0.0))
    assert at_once.kl_weight(1e-3) == 1.0
