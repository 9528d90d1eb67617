"""Training: the same bits again, after a kill too; stopping; schedules; the remedy for heteroscedastic collapse."""

import hashlib
import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import KILL_PLAN, constrained_model, data, plain_model, same_bits

from equipoise.data.rows import Rows
from equipoise.training import loop
from equipoise.training.checkpoint import TrainingError
from equipoise.training.loop import train
from equipoise.training.objective import Objective
from equipoise.training.optimizer import Adam
from equipoise.training.plan import TrainingPlan, cosine, one_cycle
from equipoise.training.starting_variances import output_residual_var

pytestmark = pytest.mark.usefixtures("long_training")
SHORT = TrainingPlan(max_epochs=24, mean_epochs=8, batch_size=16)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    models = [constrained_model() for _ in range(3)]
    for model, seed in zip(models, (5, 5, 6), strict=True):
        train(model, data(), data(32, 1), SHORT, seed=seed)
    assert same_bits(models[0], models[1])
    assert not same_bits(models[0], models[2])


@pytest.mark.parametrize("stop_after", [3, 8, 9, 17])
def test_a_run_cut_short_continues_to_the_same_bits(tmp_path, monkeypatch, stop_after):
    """Cut in the first phase, exactly between the phases, right after, and in the second phase."""
    whole, cut = constrained_model(), constrained_model()
    history = train(whole, data(), data(32, 1), SHORT, seed=5)
    file = tmp_path / "run.ckpt"
    from equipoise.training import loop as training

    epochs = training.TrainingRun.epochs
    with monkeypatch.context() as patch:

        def interrupted(self):
            for i, record in enumerate(epochs(self)):
                yield record
                if i + 1 == stop_after:
                    raise KeyboardInterrupt

        patch.setattr(training.TrainingRun, "epochs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(cut, data(), data(32, 1), SHORT, seed=5, checkpoint=file, checkpoint_seconds=0.0)
    resumed = constrained_model()
    again = train(resumed, data(), data(32, 1), SHORT, seed=5, checkpoint=file, checkpoint_seconds=0.0)
    assert same_bits(whole, resumed)
    assert [e["validation"] for e in again.epochs] == [e["validation"] for e in history.epochs]
    assert again.best_epoch == history.best_epoch


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from small_runs import KILL_PLAN, constrained_model, data
from equipoise.training.loop import train
from equipoise.training.optimizer import Adam

steps, step = [], Adam.step

def counted(self):
    steps.append(1)
    if len(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self)

Adam.step = counted
model = constrained_model()
train(model, data(), data(32, 1), KILL_PLAN, seed=5, checkpoint=sys.argv[2], checkpoint_seconds=0.0)
"""


def test_a_process_killed_in_the_middle_of_an_epoch_resumes_to_identical_weights(tmp_path):
    """Each epoch has four steps; the means take 10 epochs, and what follows 30."""
    whole = constrained_model()
    train(whole, data(), data(32, 1), KILL_PLAN, seed=5)
    folder = str(Path(__file__).parents[1])
    runs = {step: tmp_path / f"{step}.ckpt" for step in (7, 90)}
    processes = [subprocess.Popen([sys.executable, "-c", KILLED, folder, str(f), str(k)]) for k, f in runs.items()]
    assert [process.wait() for process in processes] == [-signal.SIGKILL] * 2
    for file in runs.values():
        resumed = constrained_model()
        train(resumed, data(), data(32, 1), KILL_PLAN, seed=5, checkpoint=file)
        assert same_bits(whole, resumed)


def test_a_finished_run_is_not_trained_again(tmp_path):
    file = tmp_path / "run.ckpt"
    first, second = constrained_model(), constrained_model()
    history = train(first, data(), data(32, 1), SHORT, checkpoint=file)
    again = train(second, data(), data(32, 1), SHORT, checkpoint=file)
    assert same_bits(first, second)
    assert len(again.epochs) == len(history.epochs) == 24


@pytest.mark.parametrize("change", ["data", "seed", "plan"])
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, change):
    file = tmp_path / "run.ckpt"
    train(constrained_model(), data(), None, SHORT, seed=1, checkpoint=file)
    before = file.read_bytes()
    rows = data(seed=9) if change == "data" else data()
    plan = TrainingPlan(max_epochs=25, mean_epochs=8, batch_size=16) if change == "plan" else SHORT
    with pytest.raises(TrainingError, match="belongs to another run"):
        train(constrained_model(), rows, None, plan, seed=2 if change == "seed" else 1, checkpoint=file)
    assert file.read_bytes() == before


def test_a_checkpoint_of_other_random_numbers_is_refused(tmp_path, monkeypatch):
    """On a GPU torch's generator makes other numbers of a seed: the run would not be that of either."""
    file = tmp_path / "run.ckpt"
    train(constrained_model(), data(), None, SHORT, checkpoint=file)
    scheme = loop.random_scheme(torch.device("cuda"))
    monkeypatch.setattr(loop, "random_scheme", lambda _: scheme)
    with pytest.raises(TrainingError, match="belongs to another run"):
        train(constrained_model(), data(), None, SHORT, checkpoint=file)


def test_a_run_goes_on_without_compiled_code_which_makes_the_same_numbers(tmp_path, monkeypatch):
    file, cut = tmp_path / "run.ckpt", constrained_model()

    def stop(record):
        if record["epoch"] == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, data(), None, SHORT, seed=5, checkpoint=file, checkpoint_seconds=0.0, callback=stop)
    whole, resumed = constrained_model(), constrained_model()
    train(whole, data(), None, SHORT, seed=5)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    train(resumed, data(), None, SHORT, seed=5, checkpoint=file)
    for ours, theirs in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-4)  # single precision, some epochs later


def test_a_run_with_another_posterior_is_another_run():
    model, rows = constrained_model(), data()
    before = loop.TrainingRun(model, rows, None, SHORT, seed=3).fingerprint()
    q = model.network.posterior

    class Other(type(q)):
        name = "other"

        def settings(self):
            return {"rank": 2}

    q.__class__ = Other
    other = loop.TrainingRun(model, rows, None, SHORT, seed=3).fingerprint()
    Other.settings = lambda _: {"rank": 3}
    assert len({before, other, loop.TrainingRun(model, rows, None, SHORT, seed=3).fingerprint()}) == 3


def test_a_run_on_a_processor_keeps_the_fingerprint_that_it_always_had():
    """Written out by hand, so that checkpoints of earlier versions are still continued."""
    model, rows = constrained_model(), data()
    digest = hashlib.sha256(
        repr((SHORT, 3, "joint", torch.__version__, (1, 8, 6), "tanh", 1.0, "threefry-2x32")).encode()
    )
    for values in (rows.x, rows.y, rows.target, None, *model.state_dict().values()):
        digest.update(b"-" if values is None else values.numpy().tobytes())
    assert loop.TrainingRun(model, rows, None, SHORT, seed=3).fingerprint() == digest.hexdigest()


def test_the_best_state_on_held_out_rows_is_the_one_kept():
    model, rows, held_out = plain_model(), data(), data(32, 1)
    plan = TrainingPlan(max_epochs=40, mean_epochs=4, noise_epochs=0, batch_size=16, learning_rate=0.1, kl_warmup=0.1)
    history = train(model, rows, held_out, plan, seed=0)
    elbo_epochs = [e for e in history.epochs if e["phase"] == "elbo"]
    counted = elbo_epochs[math.floor(0.1 * len(elbo_epochs)) :]
    assert history.best_epoch == min(counted, key=lambda e: e["validation"])["epoch"]
    from equipoise.training.loop import TrainingRun

    run = TrainingRun(model, rows, held_out, plan, seed=0)
    run.phase = run.phases[-1]
    assert float(run.validate(held_out)) == min(e["validation"] for e in counted)


def test_stopping_is_counted_only_after_the_kl_warm_up():
    """A rate of zero never improves: training must still run through the warm-up, stop after `patience`, and finish."""
    plan = TrainingPlan(max_epochs=50, mean_epochs=0, noise_epochs=3, learning_rate=0.0, kl_warmup=0.4, patience=7)
    history = train(plain_model(), data(), data(32, 1), plan, seed=0)
    assert history.stopped == "no improvement on held-out rows"
    assert [e["phase"] for e in history.epochs].count("elbo") == math.floor(0.4 * 47) + 1 + 7
    assert [e["phase"] for e in history.epochs].count("noise") == 3


def test_the_last_phase_moves_spreads_and_variances_but_no_mean():
    model, rows = constrained_model(), data()
    train(model, rows, None, TrainingPlan(max_epochs=20, mean_epochs=4, noise_epochs=0, batch_size=16), seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    from equipoise.training.loop import TrainingRun

    run = TrainingRun(model, rows, None, TrainingPlan(max_epochs=20, mean_epochs=4, batch_size=16), seed=0)
    run.phase, run.epoch = run.phases[1], run.phases[1].n_epochs
    assert {record["phase"] for record in run.epochs()} == {"noise"}
    network = model.network
    for i, (old, new) in enumerate(
        zip(network.layers(before["network.posterior.loc"]), network.layers(network.posterior.loc), strict=True)
    ):
        last = i == len(network.sizes) - 2
        for a, b in zip(old, new, strict=True):
            kept = network.n_outputs if last else a.shape[-1]
            assert torch.equal(a[..., :kept], b[..., :kept])
            assert not last or not torch.equal(a[..., kept:], b[..., kept:])
    assert not torch.equal(before["network.posterior.log_std"], network.posterior.log_std)
    assert not torch.equal(before["conditioning.tolerance.loc"], model.conditioning.tolerance.loc)


def test_validation_uses_the_same_noise_every_time():
    plan = TrainingPlan(max_epochs=5, mean_epochs=0, learning_rate=0.0, batch_size=64)
    history = train(plain_model(), data(), data(32, 1), plan, seed=0)
    assert len(set(history.column("validation"))) == 1


def test_held_out_rows_are_scored_by_the_mixture_that_is_predicted():
    """For a linear network it is a Gaussian: `y_j ~ N(xᵀM_j + m_j, v_j + (x²)ᵀV_j + u_j)`, outputs apart."""
    from equipoise.training.loop import TrainingRun

    model, rows = plain_model(2, hidden=()), data(24, 1)
    rows = Rows(rows.x, rows.y[:, :2], None)
    q, n_y, v = model.network.posterior, 2, torch.tensor([0.3, 0.1])
    model.network.set_variance_head(v)
    with torch.no_grad():
        W, bias = model.network.layers(q.log_std)[0]
        W[:, :n_y], bias[:n_y], W[:, n_y:], bias[n_y:] = math.log(0.7), math.log(0.4), -30.0, -30.0
    run = TrainingRun(model, rows, None, TrainingPlan(validation_draws=4000), seed=0)
    run.phase = run.phases[1]
    W, bias = (part[..., :n_y].double() for part in model.network.layers(q.loc.detach())[0])
    x = rows.x.double()
    predicted = torch.distributions.Normal(x @ W + bias, (v.double() + 0.49 * x**2 + 0.16).sqrt())
    expected = -predicted.log_prob(rows.y).sum(1).mean()
    assert float(run.validate(rows)) == pytest.approx(float(expected), abs=0.05)  # a mean of NLLs is half a nat more


def divergences(q, prior_mean, prior_std):
    normal = torch.distributions.Normal
    return torch.distributions.kl_divergence(normal(q.loc, q.log_std.exp()), normal(prior_mean, prior_std)).tolist()


def test_the_history_has_the_parts_of_the_elbo_for_each_balance():
    """Those of the last epoch are those of the model that it leaves, since no rows are held out."""
    model = constrained_model()
    history = train(model, data(), None, SHORT, seed=0)
    assert [history.epochs[i]["phase"] for i in (7, 8)] == ["means", "elbo"]
    last, tolerance = history.epochs[-1], model.conditioning.tolerance
    assert last["rho_mean"] == tolerance.loc.tolist()
    assert last["rho_std"] == tolerance.log_std.exp().tolist()
    assert last["kl_tolerance"] == pytest.approx(divergences(tolerance, -6.0, 3.0), rel=1e-9)
    assert last["kl_sensor"] == pytest.approx(divergences(model.sensor, -6.0, 3.0), rel=1e-9)
    assert last["kl_offset"] == pytest.approx(divergences(model.conditioning.offset, 0.0, 1.0), rel=1e-9)
    assert last["kl_weights"] == pytest.approx(sum(divergences(model.network.posterior, 0.0, 1.0)), rel=1e-5)
    assert [len(last[name]) for name in ("kl_tolerance", "kl_offset", "kl_sensor")] == [1, 1, 3]


@pytest.fixture
def steps(monkeypatch):
    """All steps that a training takes: arguments of the objective and its loss; rates of the optimizer's groups."""
    asked, rates, backward, step = [], [], Objective.backward, Adam.step

    def watched(self, batch, n_rows, generator, *weights):
        loss = backward(self, batch, n_rows, generator, *weights)
        asked.append((len(batch), n_rows, *weights, float(loss)))
        return loss

    monkeypatch.setattr(Objective, "backward", watched)
    monkeypatch.setattr(Adam, "step", lambda self: rates.append([g["lr"] for g in self.param_groups]) or step(self))
    return asked, rates


def test_a_step_has_the_divergence_of_the_whole_table_at_its_place_in_the_warm_up(steps):
    """64 rows in batches of 16: 144 steps, of which the first 36 are warm-up, and 16 of the last phase."""
    plan = TrainingPlan(max_epochs=40, mean_epochs=0, noise_epochs=4, batch_size=16, kl_warmup=0.25, temperature=0.3)
    train(constrained_model(), data(), None, plan, seed=0)
    rows, n_rows, kl_weights, temperatures, _ = zip(*steps[0], strict=True)
    assert (set(rows), set(n_rows), set(temperatures)) == ({16}, {64}, {0.3})
    assert kl_weights == pytest.approx([min(1.0, s / 36) for s in range(144)] + [1.0] * 16)


def test_rates_follow_their_schedules_through_each_phase(steps):
    """With 4 steps per epoch: weights' means, their spreads, and all that is learned of tolerances and sensors."""
    peaks = {"mean_learning_rate": 0.03, "learning_rate": 1e-3, "std_rate": 7.0, "tolerance_rate": 25.0}
    plan = TrainingPlan(max_epochs=30, mean_epochs=8, noise_epochs=3, batch_size=16, **peaks)
    train(constrained_model(), data(), None, plan, seed=0)
    expected = [[0.03 * one_cycle(s / 32)] for s in range(32)]
    for n in (76, 12):
        expected += [[peak * cosine(s / n) for peak in (1e-3, 7e-3, 25e-3)] for s in range(n)]
    assert len(steps[1]) == len(expected) == 120
    for rates, others in zip(steps[1], expected, strict=True):
        assert rates == pytest.approx(others, rel=1e-9)


def test_the_loss_of_an_epoch_is_the_mean_over_its_rows(steps):
    """Batches of 24, 24 and 16 rows."""
    plan = TrainingPlan(max_epochs=3, mean_epochs=0, noise_epochs=0, batch_size=24)
    history = train(plain_model(), data(), None, plan, seed=0)
    for epoch, three in zip(history.epochs, (steps[0][i : i + 3] for i in (0, 3, 6)), strict=True):
        assert [size for size, *_ in three] == [24, 24, 16]
        assert epoch["nll"] == pytest.approx(sum(size * loss for size, *_, loss in three) / 64, rel=1e-6)


def test_weights_start_the_second_phase_with_the_spread_of_the_plan():
    model = plain_model()
    run = loop.TrainingRun(model, data(), None, TrainingPlan(mean_epochs=0, init_std=0.003), seed=0)
    run.start(run.phases[1])
    np.testing.assert_allclose(model.network.posterior.std.detach(), 0.003, rtol=1e-6)


def test_a_loss_that_is_not_finite_stops_with_the_epoch_and_the_phase():
    rows = data()
    bad = Rows(torch.full_like(rows.x, math.inf), rows.y, rows.target)
    with pytest.raises(TrainingError, match=r"must stay finite, but got nan in epoch 0 of the 'means' phase"):
        train(constrained_model(), bad, None, SHORT)


def test_gradients_of_the_weights_are_clipped():
    model = plain_model()
    plan = TrainingPlan(max_epochs=1, mean_epochs=0, max_grad_norm=1e-3, batch_size=64)
    train(model, data(), None, plan)
    norms = [p.grad.norm() for p in model.network.parameters()]
    assert float(torch.stack(norms).norm()) == pytest.approx(1e-3, rel=1e-4)


def test_tolerances_learn_at_their_own_rate():
    model = constrained_model()
    from equipoise.training.loop import TrainingRun

    plan = TrainingPlan(mean_epochs=0, learning_rate=1e-3, std_rate=7.0, tolerance_rate=25.0)
    run = TrainingRun(model, data(), None, plan, seed=0)
    run.start(run.phases[1])
    peaks = {id(p): group["peak"] for group in run.optimizer.param_groups for p in group["params"]}
    assert peaks[id(model.network.posterior.loc)] == 1e-3
    assert peaks[id(model.network.posterior.log_std)] == pytest.approx(7e-3)
    for parameter in (model.conditioning.tolerance.loc, model.conditioning.offset.loc, model.sensor.log_std):
        assert peaks[id(parameter)] == pytest.approx(25e-3)


def test_unmeasured_outputs_do_not_enter_residual_variances():
    y = torch.tensor([[1.0, math.nan], [3.0, 4.0]])
    mean = torch.tensor([[0.0, 100.0], [1.0, 1.0]])
    assert output_residual_var(mean, y).tolist() == [2.5, 9.0]


def test_fitting_the_means_first_keeps_a_sharp_peak_from_being_called_noise():
    """One narrow peak in a flat curve: without the first phase the variance head explains it away (design 2.6)."""
    x = torch.linspace(-1, 1, 400).reshape(-1, 1)
    truth = torch.exp(-((x / 0.07) ** 2)).double()
    generator = torch.Generator().manual_seed(0)
    y = (truth + 0.02 * torch.randn(truth.shape, generator=generator, dtype=torch.float64)) / truth.std()
    errors = {}
    for mean_epochs in (0, 40):
        plan = TrainingPlan(max_epochs=100, mean_epochs=mean_epochs, batch_size=100)
        model = plain_model(1, hidden=(16, 16))
        train(model, Rows(x, y), None, plan, seed=1)
        with torch.no_grad():
            fitted = model.network.at_means(x).mean
        errors[mean_epochs] = float((fitted - truth / truth.std()).square().mean())
    assert errors[40] < 5e-3  # of the output's variance
    assert errors[0] > 20 * errors[40]
