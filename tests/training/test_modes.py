"""Members on their way to the mode: losses against autograd, and when what is updated."""

import json
import math

import numpy as np
import pytest
import torch

from benchmarks import linearised
from equipoise.data import Rows
from equipoise.network import BayesianMLP, ConstrainedBNN, joint
from equipoise.training import modes
from equipoise.training.modes import MisfitPhase, Modes, ModesLearner, member_shares
from equipoise.training.plan import TrainingPlan

M, N, N_X, N_Y, N_ROWS = 2, 10, 3, 2, 40


@pytest.fixture
def learner():
    generator = torch.Generator().manual_seed(2)
    network = BayesianMLP(N_X, N_Y, (4,), "tanh", generator=generator)
    weights = torch.randn(M, len(network.posterior.loc), generator=generator)
    modes = Modes(weights, network.sizes, N_Y)
    modes.precisions.mul_(torch.linspace(0.5, 3.0, modes.precisions.shape[1]))
    modes.misfit_var.copy_(torch.tensor([0.3, 0.7]))
    return ModesLearner(ConstrainedBNN(network.with_posterior(modes), None, joint), seed=4, n_rows=N_ROWS)


def _rows(n=M * N):
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(n, N_Y, dtype=torch.float64, generator=generator)
    y[1, 0] = torch.nan
    return Rows(torch.randn(n, N_X, generator=generator), y)


def _expected_gradient(learner, losses):
    """The gradient of each member's loss per row and of its prior, spread over all rows of the table."""
    weights = learner.modes.weights.detach().requires_grad_()
    group = learner.modes.group
    total = 0.0
    for m in range(M):
        own = weights[m][group >= 0]
        total = total + losses(weights[m], m)
        total = total + 0.5 * (learner.modes.precisions[m][group[group >= 0]].float() * own.square()).sum() / N_ROWS
    (gradient,) = torch.autograd.grad(total, weights)
    return gradient


def _normal_nll(y, mean, var):
    terms = 0.5 * ((y - mean).square() / var + var.log())
    return torch.where(y.isnan(), 0.0, terms).nan_to_num(0.0).sum(-1).mean()


def test_the_misfit_is_that_of_constant_variances_with_the_prior_of_each_member(learner):
    rows, network = _rows(), learner.model.network

    def loss(weights, m):
        part = rows.take(slice(m * N, (m + 1) * N))
        y = part.y.nan_to_num(0.0)
        mean = network.at(weights[None], part.x).mean[0]
        terms = 0.5 * ((y - mean).square() / learner.modes.misfit_var + learner.modes.misfit_var.log())
        return torch.where(part.y.isnan(), 0.0, terms).sum(-1).mean()

    losses = learner.backward_misfit(rows)
    expected = torch.stack([loss(learner.modes.weights[m], m) for m in range(M)])
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(learner.modes.weights.grad, _expected_gradient(learner, loss), rtol=1e-4, atol=1e-5)


def test_the_second_loss_is_the_joint_density_at_variances_that_do_not_move(learner):
    rows, network = _rows(), learner.model.network

    def loss(weights, m):
        part = rows.take(slice(m * N, (m + 1) * N))
        gaussian = network.at(weights[None], part.x)
        y, mean, var = part.y.nan_to_num(0.0), gaussian.mean[0].double(), gaussian.var[0].double().detach()
        terms = 0.5 * ((y - mean).square() / var + var.log() + math.log(2 * math.pi))
        return torch.where(part.y.isnan(), 0.0, terms).sum(-1).mean()

    losses = learner.backward_mode(rows)
    expected = torch.stack([loss(learner.modes.weights[m], m) for m in range(M)])
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(learner.modes.weights.grad, _expected_gradient(learner, loss), rtol=1e-4, atol=1e-5)


def test_some_rows_are_all_of_a_small_table_and_a_choice_of_a_large_one(learner):
    rows = _rows(30)
    part, weight = learner.some_rows(rows, 1000, key=0)
    assert (len(part), weight) == (30, 1.0)
    torch.testing.assert_close(part.x, rows.x, rtol=0, atol=0)
    choices = [learner.some_rows(rows, 20, key) for key in (0, 0, 1)]
    assert [(len(part), weight) for part, weight in choices] == 3 * [(10, 3.0)]
    assert torch.equal(choices[0][0].x, choices[1][0].x)
    assert not torch.equal(choices[0][0].x, choices[2][0].x)


def test_a_member_that_is_clearly_worse_loses_its_weight():
    shares = member_shares(torch.tensor([3.0, 0.0, -8.0, -400.0], dtype=torch.float64))
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] == shares[1]
    assert float(shares[2] / shares[0]) == pytest.approx(math.exp(-1.0))  # beyond ten nats
    assert float(shares[3]) < 1e-100


@pytest.mark.parametrize(("n_rows", "n_epochs"), [(40, 50), (100_000, 30)])
def test_a_phase_takes_half_of_the_epochs_but_not_more_than_some_thousand_steps(learner, n_rows, n_epochs):
    learner.n_rows = n_rows
    phase = MisfitPhase(learner, TrainingPlan(max_epochs=100, batch_size=512))
    assert phase.n_epochs == n_epochs
    steps = phase.orders(40, 0).shape[1] / 40
    assert steps == 4  # passes over a small table in an epoch


def test_priors_move_towards_the_evidence_after_the_first_quarter_of_a_phase(learner):
    phase, rows, before = MisfitPhase(learner, TrainingPlan(max_epochs=40)), _rows(20), learner.modes.precisions.clone()
    phase.finish_epoch(rows, 0)
    torch.testing.assert_close(learner.modes.precisions, before, rtol=0, atol=0)
    evidence = [learner.evidence(m, rows, joint=False).log_evidence for m in range(M)]
    phase.finish_epoch(rows, phase.n_epochs - 1)
    assert not torch.equal(learner.modes.precisions, before)
    learner.modes.misfit_var.copy_(torch.tensor([0.3, 0.7]))
    later = [learner.evidence(m, rows, joint=False).log_evidence for m in range(M)]
    assert all(after > first for after, first in zip(later, evidence, strict=True))


# ---------------------------------------------------------------- at the mode, and against NUTS

REFERENCES = json.loads(linearised.FILE.read_text())
NATS = 3.0  # variances are held only nearly when a mode is looked for
# Beyond the bands, as docs/defaults.md says: at the mode of the first, hidden units coincide that NUTS distinguishes.
WIDER = {("reference", "data"): (0.8, 1.2), ("reference", "gap"): (0.72, 1.35), ("missing", "gap"): (0.8, 1.6)}
APART = {"reference": 0.35, "r known": 0.37, "ten inputs": 0.35}
N_DRAWS = 1024


def _nats_to_the_mode(learner, rows):
    """How much the log posterior density would rise by a Newton step: half the product of the step and the slope.

    The slope is autograd's, the step that of the linearised network.
    """
    learner.modes.weights.grad = None
    learner.backward_mode(rows)
    slope = -learner.n_rows * learner.modes.weights.grad[0].double()
    evidence = learner.evidence(0, rows)
    noise, errors = (torch.zeros(1, n, dtype=torch.float64) for n in (len(slope), len(evidence.factor)))
    own = learner.modes.group >= 0
    return 0.5 * float((slope * evidence.changes(noise, errors)[0])[own].sum())


@pytest.mark.parametrize("problem", REFERENCES.values(), ids=REFERENCES)
def test_a_stored_network_is_at_a_mode(problem):
    learner, rows = linearised.learner_of(problem)
    assert abs(_nats_to_the_mode(learner, rows)) < NATS


@pytest.mark.usefixtures("long_training")
def test_a_small_network_is_brought_to_a_mode_and_one_with_more_weights_than_numbers_is_left(monkeypatch):
    monkeypatch.setattr(modes, "SEARCHES", 1)  # with updates in between the mode is another one
    learner, rows = linearised.learner_of(REFERENCES["reference"])
    weights = learner.modes.weights.data
    change = 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    weights += torch.where(learner.modes.group >= 0, change, 0.0)
    assert _nats_to_the_mode(learner, rows) > 3 * NATS
    before = weights.clone()
    learner.reach_modes(rows.take(slice(0, 12)), key=0)  # 36 numbers for 43 weights
    torch.testing.assert_close(weights, before, rtol=0, atol=0)
    learner.reach_modes(rows, key=0)
    assert abs(_nats_to_the_mode(learner, rows)) < 0.1


@pytest.mark.parametrize("name", REFERENCES)
def test_conditioned_means_have_the_moments_of_nuts(name):
    problem = REFERENCES[name]
    assert problem["nuts"]["after"]["largest_rhat"] < 1.05
    ours, nuts = linearised.linearised(problem, N_DRAWS)["after"], linearised.nuts_moments(problem, "after")
    error = 3 / math.sqrt(2 * N_DRAWS)  # three standard errors of a standard deviation over draws
    for place, band in linearised.BANDS.items():
        result = linearised.compared(ours, nuts, np.array(problem["region"]) == place)
        least, most = WIDER.get((name, place), band)
        assert least * (1 - error) < result.ratio.min() <= result.ratio.max() < most * (1 + error)
        if place == "data":
            assert result.off < APART.get(name, linearised.MEAN_BAND)
