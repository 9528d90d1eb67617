"""The training loop: phases, minibatches, stopping, checkpoints, history.

There are three phases. *Means*: the network at its posterior means is fitted to the mean of the outputs' root mean
squared errors, since a heteroscedastic network that is trained from scratch on a likelihood takes for noise what it has
not learned yet, and since squared errors would let noisy outputs outweigh those that are measured well. *ELBO*:
variances start from the residuals of the first phase (`starting_variances.py`), standard deviations of the weights
start small, and everything is trained on the negative evidence lower bound. *Noise*: while the rate falls, the means
still improve, and variances lag behind them and stay too large; so at last the means are fixed, and standard deviations
of the weights, variance head, tolerances and sensors alone are trained on the same objective.

All randomness of an epoch comes from (seed, phase, epoch), so that a run that was killed continues from its last
checkpoint to the same bits as one that was never killed. Processes that train together (`distributed.py`) share every
batch and follow the run of a single process to rounding.
"""

import hashlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor
from tqdm.auto import tqdm

from equipoise import compiled
from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator, random_scheme
from equipoise.network import LIKELIHOODS, ConstrainedBNN, derived_seed, parameters_of
from equipoise.training.checkpoint import Checkpoint, TrainingError
from equipoise.training.distributed import ALONE, Group, current
from equipoise.training.objective import Objective
from equipoise.training.optimizer import Adam, clip_norm
from equipoise.training.plan import PHASES, TrainingPlan, cosine, one_cycle
from equipoise.training.starting_variances import split_residuals


@dataclass
class History:
    """The history of a training run.

    Args:
        epochs: A record for each epoch: number, phase, losses in nats or standardized units, seconds, tolerances.
        best_epoch: Number of the epoch whose state was kept; −1 without held-out rows.
        stopped: Why the second phase ended.

    Example:
        >>> History([{"rmse": 0.5}, {"rmse": 0.4}, {"nll": 1.0}]).column("rmse")
        [0.5, 0.4]
    """

    epochs: list[dict] = field(default_factory=list)
    best_epoch: int = -1
    stopped: str = ""

    def column(self, name: str) -> list:
        """Return the values of one quantity over the epochs that have it."""
        return [record[name] for record in self.epochs if name in record]


@dataclass
class _Progress:
    """The state of a run besides the model and the optimizer."""

    phase: str = "means"
    epoch: int = 0  # within the phase
    best_value: float = math.inf
    best_state: dict[str, Tensor] | None = None
    since_best: int = 0
    history: History = field(default_factory=History)


def train(
    model: ConstrainedBNN,
    rows: AnyRows,
    validation: Rows | None = None,
    plan: TrainingPlan | None = None,
    *,
    seed: int = 0,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 10.0,
    verbose: bool = False,
    callback: Callable[[dict], object] | None = None,
) -> History:
    """Fit `model` in place by minimising its negative evidence lower bound (E2), together with the `current` group.

    Args:
        model: The model, in standardized units.
        rows: Training rows, in memory or read batch by batch.
        validation: Held-out rows that decide when to stop and which state is kept; None keeps the last.
        plan: Settings; defaults if None.
        seed: Determines all randomness.
        checkpoint: A file from which training continues if it exists, and which is kept up to date (atomically).
        checkpoint_seconds: Least time between two writes of it.
        verbose: Show a progress bar.
        callback: Called with the record of each epoch; an exception of its own ends training (the checkpoint stays).
    Returns:
        A record of every epoch.
    Raises:
        TrainingError: If the loss is not finite, or if the checkpoint is damaged or belongs to another run.
    """
    group = current()
    run = _Run(model, rows, validation, plan or TrainingPlan(), seed, group)
    fingerprint = run.fingerprint() if checkpoint or group.size > 1 else ""
    group.check_same(fingerprint)
    keeper = Checkpoint(checkpoint if group.rank == 0 else None, fingerprint, checkpoint_seconds)
    run.resume(group.from_first(keeper.load()))
    with _bar(run, verbose and group.rank == 0) as bar:
        run.compile(lambda: bar.set_postfix_str("compiling, once on this machine"))
        bar.set_postfix_str("")
        for record in run.epochs():
            keeper.save_if_due(run.state)
            bar.update()
            bar.set_postfix({k: f"{v:.3g}" for k, v in record.items() if k in ("nll", "rmse", "validation")})
            if callback is not None:
                callback(record)
    keeper.save(run.state())
    return run.progress.history


class _Run:
    """One training run: the model, its optimizer, and their state."""

    def __init__(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        plan: TrainingPlan,
        seed: int,
        group: Group = ALONE,
    ):
        self.model, self.rows, self.validation, self.plan, self.seed = model, rows, validation, plan, seed
        self.group = group
        self.progress = _Progress()
        self.optimizer = self._new_optimizer()
        self.objective = Objective(model)

    def compile(self, announce: Callable[[], object]) -> None:
        """Compile the training step before the first epoch; `announce` is called if that takes a while."""
        if torch.device(self.rows.device).type == "cpu" and compiled.is_available():
            from equipoise.fast import notify_on_compilation

            with notify_on_compilation(announce):
                self.objective.compile()

    def state(self) -> dict:
        """Return all that is needed to continue the run."""
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        return {"progress": asdict(self.progress), "model": model, "optimizer": optimizer}

    def resume(self, state: dict | None) -> None:
        """Continue from an earlier `state`."""
        if state is None:
            return
        progress: dict = state["progress"]
        parts: dict = progress | {"history": History(**progress["history"])}
        self.progress = _Progress(**parts)
        self.model.load_state_dict(state["model"])
        self.optimizer = self._new_optimizer()
        self.optimizer.load_state_dict(state["optimizer"])

    def fingerprint(self) -> str:
        """Return a digest of all that must be the same for a run to be continued.

        That is the rows, the plan, the seed, the model at the start, torch's version, and how random numbers are made.
        """
        network, scheme = self.model.network, random_scheme(torch.device(self.rows.device))
        likelihood = self.model.likelihood
        settings = (self.plan, self.seed, likelihood.name, torch.__version__, *sorted(likelihood.settings().items()))
        posterior = network.posterior
        settings = (*settings, network.sizes, network.activation, posterior.prior_std, scheme)
        if posterior.name != "mean-field":  # earlier checkpoints name no posterior
            settings = (*settings, posterior.name, *sorted(posterior.settings().items()))
        digest = hashlib.sha256(repr(settings).encode())
        tables = [rows for rows in (self.rows, self.validation) if rows is not None]
        data = (part for rows in tables for piece in rows.pieces() for part in piece.parts())
        for values in itertools.chain(data, self.model.state_dict().values()):
            digest.update(b"-" if values is None else values.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def epochs(self) -> Iterator[dict]:
        """Run the rest of the plan, yielding the record of each epoch."""
        if self.progress.phase == "means":
            yield from self._phase_epochs()
            self._start_elbo_phase()
        if self.progress.phase == "elbo":
            yield from self._phase_epochs()
            self._start_noise_phase()
        yield from self._phase_epochs()
        self._finish()

    def _phase_epochs(self) -> Iterator[dict]:
        progress, total = self.progress, self.plan.epochs_of(self.progress.phase)
        while progress.epoch < total and not self._exhausted():
            yield self._epoch(progress.epoch / total, total)

    def _epoch(self, start: float, total: int) -> dict:
        clock, progress = time.perf_counter(), self.progress
        generator = self._generator(PHASES.index(progress.phase), progress.epoch)
        shuffle = torch.Generator().manual_seed(derived_seed(generator.initial_seed(), 1))
        batches = shuffled(len(self.rows), self.plan.passes(len(self.rows)), shuffle)
        batches = batches.split(self.plan.rows_per_step(len(self.rows)))
        self.model.train()
        # Numbers, not tensors: thousands of small tensors would prevent reuse of the batches' memory between them.
        parts = [
            float(self._step(index, start + i / (len(batches) * total), generator)) for i, index in enumerate(batches)
        ]
        sizes = torch.tensor([len(index) for index in batches], dtype=torch.float64)
        record: dict = {"epoch": len(progress.history.epochs), "phase": progress.phase}
        self.group.follow_first(self._trained)
        record |= self._summary(torch.tensor(parts, dtype=torch.float64), sizes)
        if self.validation is not None:
            record["validation"] = self._validate(self.validation)
        record["seconds"] = time.perf_counter() - clock
        progress.epoch += 1
        self._keep_best(record)
        progress.history.epochs.append(record)
        return record

    def _step(self, index: Tensor, fraction: float, generator: BatchGenerator) -> Tensor:
        """Make one optimizer step at `fraction` of the phase, and return the batch's loss before the step."""
        means = self.progress.phase == "means"
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * (one_cycle(fraction) if means else cosine(fraction))
        batch = self._share(index, generator)
        loss = self._backward_rmse(batch) if means else self._backward_elbo(batch, fraction, generator)
        if not bool(torch.isfinite(loss)):
            raise TrainingError(self._not_finite(float(loss)))
        if self.progress.phase == "noise":
            self.model.network.hold_means()
        clip_norm(self.model.network.parameters(), self.plan.max_grad_norm)
        self.optimizer.step()
        return loss

    def _share(self, index: Tensor, generator: BatchGenerator) -> Rows:
        """Return this process's rows of a batch, and set `generator` to the random numbers of these rows."""
        generator.rows, generator.total = self.group.share_of(len(index)), len(index)
        return self.rows.take(index[generator.rows])

    def _backward_rmse(self, batch: Rows) -> Tensor:
        """Compute `mean_rmse` of the batch over all processes, and set the gradient of the posterior's means."""
        loc = self.model.network.posterior.loc
        loss = mean_rmse(self.model.network.mean_at_means(batch.x), batch.y, self.group)
        (loc.grad,) = torch.autograd.grad(loss, [loc])
        return self.group.sum_gradients(self._trained, loss.detach() / self.group.size)

    def _backward_elbo(self, batch: Rows, fraction: float, generator: BatchGenerator) -> Tensor:
        """Compute the batch's negative log likelihood, and set gradients of the negative evidence lower bound.

        All rows have the same weight, and the divergences, which every process adds, count once.
        """
        loss, weight = batch.y.new_zeros(()), len(batch) / generator.total
        if len(batch):
            weights = self._kl_weight(fraction), self.plan.temperature
            loss = self.objective.backward(batch, len(self.rows), generator, *weights)
        return self.group.sum_gradients(self._trained, loss, weight)

    def _kl_weight(self, fraction: float) -> float:
        return 1.0 if self.progress.phase == "noise" else min(1.0, fraction / max(self.plan.kl_warmup, 1e-9))

    @torch.no_grad()
    def _summary(self, values: Tensor, sizes: Tensor) -> dict:
        """Return the epoch's mean loss and, after the first phase, divergences and posteriors of the tolerances."""
        mean = float((values * sizes).sum() / sizes.sum())
        if self.progress.phase == "means":
            return {"rmse": mean}
        model = self.model
        record: dict = {"nll": mean, "kl_weights": float(model.network.posterior.kl())}
        if model.conditioning is not None:
            q = model.conditioning.tolerance
            record |= {"kl_tolerance": q.kl_terms().tolist(), "rho_mean": q.loc.tolist(), "rho_std": q.std.tolist()}
            if model.conditioning.offset is not None:
                record["kl_offset"] = model.conditioning.offset.kl_terms().tolist()
        if model.sensor is not None:
            record["kl_sensor"] = model.sensor.kl_terms().tolist()
        return record

    @torch.no_grad()
    def _validate(self, rows: Rows) -> float:
        """Compute the error on held-out rows, or their predictive NLL per row, with the same noise in every epoch."""
        if self.progress.phase == "means":
            rows = rows.take(self.group.share_of(len(rows)))
            means = [self.model.network.mean_at_means(part.x) for part in rows.pieces()]
            return float(mean_rmse(torch.cat(means), rows.y, self.group))
        generator, total = self._generator(len(PHASES)), torch.zeros(1, dtype=torch.float64)
        for start in range(0, len(rows), 8192):
            part = rows.take(slice(start, start + 8192))
            generator.rows, generator.total = self.group.share_of(len(part)), len(part)
            if len(share := part.take(generator.rows)):
                total += self._predictive_nll(share, generator, self.plan.draws_per_row(len(rows)))
        return float(self.group.sum(total)) / len(rows)

    def _predictive_nll(self, rows: Rows, generator: BatchGenerator, n_draws: int) -> Tensor:
        """Compute `−Σ_i log mean_d p(y_i | θ_d, ρ_d)`, the negative log likelihood of the predicted mixture.

        It can be nats better than the mean of its components'; that would favour states with little weight uncertainty.
        """
        model = self.model
        draws = (model.log_likelihood(model.network(rows.x, generator), rows, generator) for _ in range(n_draws))
        return (math.log(n_draws) - torch.stack(list(draws)).logsumexp(0)).sum().to("cpu", torch.float64)

    def _keep_best(self, record: dict) -> None:
        progress = self.progress
        if self.validation is None:
            return
        if not math.isfinite(record["validation"]):
            raise TrainingError(self._not_finite(record["validation"]))
        if self._warming_up():
            return
        if record["validation"] < progress.best_value:
            progress.best_value, progress.since_best = record["validation"], 0
            progress.best_state = {name: value.clone() for name, value in self.model.state_dict().items()}
            progress.history.best_epoch = record["epoch"]
        else:
            progress.since_best += 1

    def _warming_up(self) -> bool:
        """Return whether `kl_weight` is still below 1: such epochs are neither kept nor counted for `patience`."""
        progress = self.progress
        return progress.phase == "elbo" and progress.epoch <= self.plan.kl_warmup * self.plan.epochs_of("elbo")

    def _exhausted(self) -> bool:
        return self.progress.phase == "elbo" and self.progress.since_best >= self.plan.patience

    @torch.no_grad()
    def _start_elbo_phase(self) -> None:
        """Restore the best means; set all variances from their residuals, and small ones for the weights."""
        self._restore_best()
        split_residuals(self.model, self.rows, self.validation)
        self.model.network.posterior.set_std(self.plan.init_std)
        self.progress = _Progress(phase="elbo", history=self.progress.history)
        self.optimizer = self._new_optimizer()

    def _start_noise_phase(self) -> None:
        history = self.progress.history
        history.stopped = "no improvement on held-out rows" if self._exhausted() else "all epochs run"
        self._restore_best()
        progress = self.progress
        kept = {
            "best_value": progress.best_value,
            "best_state": progress.best_state,
        }  # it may still be improved on
        self.progress = _Progress(phase="noise", history=history, **kept)
        self.optimizer = self._new_optimizer()

    def _finish(self) -> None:
        self._restore_best()
        self.model.eval()

    def _restore_best(self) -> None:
        if self.progress.best_state is not None:
            self.model.load_state_dict(self.progress.best_state)

    def _new_optimizer(self) -> Adam:
        plan, model = self.plan, self.model
        if self.progress.phase == "means":
            return Adam([{"params": [model.network.posterior.loc], "peak": plan.mean_learning_rate}], self._fused)
        layer = model.conditioning
        fast = parameters_of([model.sensor, layer])
        groups = [
            {"params": [model.network.posterior.loc], "peak": plan.learning_rate},
            {"params": model.network.posterior.spreads(), "peak": plan.learning_rate * plan.std_rate},
            {"params": fast, "peak": plan.learning_rate * plan.tolerance_rate},
        ]
        return Adam([group for group in groups if group["params"]], self._fused)

    @property
    def _fused(self) -> bool:
        return torch.device(self.rows.device).type in ("cpu", "cuda")  # elsewhere torch may have no fused Adam

    @property
    def _trained(self) -> list[torch.nn.Parameter]:
        """Parameters in the order of the optimizer."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _generator(self, *key: int) -> BatchGenerator:
        generator = BatchGenerator(self.rows.device)
        generator.manual_seed(derived_seed(self.seed, *map(int, key)))
        return generator

    def _not_finite(self, loss: float) -> str:
        progress, likelihood = self.progress, self.model.likelihood
        own = "" if likelihood.name in LIKELIHOODS else f" equipoise.testing.check_likelihood tells whether {likelihood!r} may be why."
        return (
            f"The training loss must stay finite, but got {loss} in epoch {progress.epoch} of the "
            f"'{progress.phase}' phase. Lower the learning rate, or look for extreme values in the "
            "data and for balances declared exact that the data contradict." + own
        )


def shuffled(n_rows: int, passes: int, generator: torch.Generator) -> Tensor:
    """Return the numbers of all rows in random order, once for each pass.

    Args:
        n_rows: Number of rows.
        passes: Number of passes, each in an order of its own.
        generator: Randomness of the orders.
    Returns:
        Row numbers, shape `(passes · n_rows,)`.
    """
    return torch.cat([torch.randperm(n_rows, generator=generator) for _ in range(passes)])


def mean_rmse(mean: Tensor, y: Tensor, group: Group = ALONE) -> Tensor:
    """Compute the root mean squared error of each output over its measured values, averaged over outputs.

    Args:
        mean: Predicted means of this process's rows, `(n, n_y)`.
        y: Measured outputs, NaN where not measured.
        group: Processes over whose rows errors are computed; the gradient is that with respect to `mean`.
    """
    measured = ~y.isnan()
    squares, counts = torch.where(measured, mean - y, 0.0).square().sum(0), measured.sum(0)
    if group.size > 1:
        sums, counts = group.sum(torch.stack([squares.detach(), counts.to(squares.dtype)])).unbind()
        squares = squares + (sums - squares.detach())
    return (squares / counts.clamp_min(1)).clamp_min(torch.finfo(mean.dtype).tiny).sqrt().mean()


def _bar(run: _Run, verbose: bool) -> tqdm:
    done = len(run.progress.history.epochs)
    return tqdm(total=run.plan.max_epochs, initial=done, desc="fit", unit="epoch", disable=not verbose, leave=True)
