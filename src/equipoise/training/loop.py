"""The training loop: minibatches, steps, the best state, stopping, checkpoints, history.

There is one loop for everything that is trained. What is minimised, and in which order, say its phases (`phases.py`);
which parameters move, its learner (`learners.py`): a posterior of the weights, or members side by side.

All randomness of an epoch comes from (seed, phase, epoch), so that a run that was killed continues from its last
checkpoint to the same bits as one that was never killed. Processes that train together (`distributed.py`) share every
batch and follow the run of a single process to rounding.
"""

import hashlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from tqdm.auto import tqdm

from equipoise import compiled
from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator, random_scheme
from equipoise.network import LIKELIHOODS, ConstrainedBNN, derived_seed
from equipoise.training.best_states import BestStates
from equipoise.training.checkpoint import Checkpoint, TrainingError
from equipoise.training.distributed import ALONE, Group, current
from equipoise.training.learners import LearnerFactory, learner_of
from equipoise.training.optimizer import Adam
from equipoise.training.phases import PHASES, Phase, PhaseFactory, SteppedPhase
from equipoise.training.plan import TrainingPlan

HELD_OUT_KEY = 3  # in the seed of the random numbers of held-out rows


@dataclass
class History:
    """The history of a training run.

    Args:
        epochs: A record for each epoch: number, phase, losses in nats or standardized units, seconds, tolerances.
        best_epoch: Number of the epoch whose state was kept; −1 without held-out rows.
        stopped: Why training ended, or the phase that can end early.

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


def train(
    model: ConstrainedBNN,
    rows: AnyRows,
    validation: Rows | None = None,
    plan: TrainingPlan | None = None,
    *,
    seed: int = 0,
    phases: Sequence[PhaseFactory] = PHASES,
    learner: LearnerFactory = learner_of,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_seconds: float = 10.0,
    verbose: bool = False,
    callback: Callable[[dict], object] | None = None,
) -> History:
    """Fit `model` in place, together with the `current` group.

    A posterior of the weights minimises its negative evidence lower bound (E2), members minimise their negative log
    likelihood with the weights' prior.

    Args:
        model: The model, in standardized units.
        rows: Training rows, in memory or read batch by batch.
        validation: Held-out rows that decide when to stop and which state is kept; None keeps the last.
        plan: Settings; defaults if None.
        seed: Determines all randomness.
        phases: What is minimised, in this order; by default means, bound and noise.
        learner: Makes the learner of the model; by default that of a posterior or of members.
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
    run = TrainingRun(model, rows, validation, plan or TrainingPlan(), seed, phases, group, learner)
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
    return run.history


class TrainingRun:
    """One training run: a model, the phase it is in, the optimizer, and their state.

    Args: Those of `train`; `group` has the processes that train together.
    """

    def __init__(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        plan: TrainingPlan,
        seed: int,
        phases: Sequence[PhaseFactory] = PHASES,
        group: Group = ALONE,
        learner: LearnerFactory = learner_of,
    ):
        self.model, self.rows, self.validation, self.plan, self.seed = model, rows, validation, plan, seed
        self.group, self.learner = group, learner(model, seed, group)
        self.phases = [phase(self.learner, plan) for phase in phases]
        self.history, self.best = History(stopped="all epochs run"), BestStates(self.learner.n_members)
        self.phase: Phase | None = None
        self.epoch = 0  # within the phase

    def compile(self, announce: Callable[[], object]) -> None:
        """Compile the training step before the first epoch; `announce` is called if that takes a while."""
        if torch.device(self.rows.device).type == "cpu" and compiled.is_available():
            from equipoise.fast import notify_on_compilation

            with notify_on_compilation(announce):
                self.learner.compile()

    def state(self) -> dict:
        """Return all that is needed to continue the run."""
        progress = {"phase": "" if self.phase is None else self.phase.name, "epoch": self.epoch}
        progress |= self.best.progress() | {"history": vars(self.history)}
        return {"progress": progress, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def resume(self, state: dict | None) -> None:
        """Continue from an earlier `state`."""
        if state is None:
            return
        progress: dict = state["progress"]
        self.phase = next(phase for phase in self.phases if phase.name == progress["phase"])
        self.epoch, self.history = progress["epoch"], History(**progress["history"] | {"stopped": self.history.stopped})
        self.best.restore_progress(progress)
        self.model.load_state_dict(state["model"])
        self.optimizer = self._new_optimizer(self.phase)
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
        if (layer := self.model.conditioning) is not None and any(priors := layer.tolerance.priors):
            settings = (*settings, repr([prior and (prior.name, sorted(prior.settings().items())) for prior in priors]))
        if (names := [phase.name for phase in self.phases]) != [phase.name for phase in PHASES]:  # type: ignore[attr-defined]
            settings = (*settings, *names)
        if (imposition := self.model.imposition) is not None:
            settings = (*settings, imposition.name, *sorted(imposition.settings().items()))
        digest = hashlib.sha256(repr(settings).encode())
        tables = [rows for rows in (self.rows, self.validation) if rows is not None]
        data = (part for rows in tables for piece in rows.pieces() for part in piece.parts())
        for values in itertools.chain(data, self.model.state_dict().values()):
            digest.update(b"-" if values is None else values.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def epochs(self) -> Iterator[dict]:
        """Run the rest of all phases, yielding the record of each epoch; the best state is left in the model."""
        first = 0 if self.phase is None else self.phases.index(self.phase)
        for phase in self.phases[first:]:
            if phase is not self.phase:
                self.start(phase)
            while self.epoch < phase.n_epochs and not self._is_exhausted(phase):
                yield self._epoch(phase)
            if phase.can_stop and self._is_exhausted(phase):
                self.history.stopped = "no improvement on held-out rows"
        self.best.restore(self.model)
        self.model.eval()

    def start(self, phase: Phase) -> None:
        """Start a phase from the best state of the one before."""
        self.best.restore(self.model)
        phase.start(self.rows, self.validation)
        self.best = self.best.again() if phase.keeps_best else BestStates(self.learner.n_members)
        self.phase, self.epoch, self.optimizer = phase, 0, self._new_optimizer(phase)

    def _epoch(self, phase: Phase) -> dict:
        clock = time.perf_counter()
        self.model.train()
        record: dict = {"epoch": len(self.history.epochs), "phase": phase.name}
        record[phase.loss] = phase.run_epoch(self.rows, self.epoch, self._steps)
        if not math.isfinite(record[phase.loss]):
            raise TrainingError(self._not_finite(record[phase.loss]))
        self.group.follow_first(self._trained)
        with torch.no_grad():
            record |= phase.summary()
        self.epoch += 1
        if self.validation is not None:
            values = self.validate(self.validation)
            record["validation"] = float(values.mean())
            self._keep_best(phase, values, record["epoch"])
        record["seconds"] = time.perf_counter() - clock
        self.history.epochs.append(record)
        return record

    def _steps(self) -> float:
        """Make the optimizer's steps of an epoch, and return their mean loss."""
        phase: SteppedPhase = self.phase  # type: ignore[assignment]
        batches = phase.orders(len(self.rows), self.epoch).split(self.plan.rows_per_step(len(self.rows)), dim=1)
        generator, total, parts = self._generator(phase.number, self.epoch), phase.n_epochs, []
        for i, index in enumerate(batches):
            batch = self._share(index.flatten(), generator)
            # Numbers, not tensors: thousands of small tensors would prevent reuse of the batches' memory between them.
            parts.append(self.step(batch, self.epoch / total + i / (len(batches) * total), generator))
        sizes = torch.tensor([index.numel() for index in batches], dtype=torch.float64)
        return float((torch.tensor(parts, dtype=torch.float64) * sizes).sum() / sizes.sum())

    def step(self, batch: Rows, fraction: float, generator: BatchGenerator) -> float:
        """Make one optimizer step at `fraction` of the phase.

        Args:
            batch: This process's rows of a batch; with members those of the first, then those of the second, ….
            fraction: Share of the phase that is done.
            generator: Randomness of the batch.
        Returns: The batch's loss before the step, averaged over members.
        Raises: TrainingError, if it is not finite.
        """
        phase: SteppedPhase = self.phase  # type: ignore[assignment]
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * phase.rate(fraction)
        losses = phase.backward(batch, len(self.rows), fraction, generator)
        if not math.isfinite(loss := float(losses if losses.ndim == 0 else losses.mean())):
            raise TrainingError(self._not_finite(loss))
        phase.limit_gradients()
        self.optimizer.step()
        return loss

    def _share(self, index: Tensor, generator: BatchGenerator) -> Rows:
        """Return this process's rows of a batch, and set `generator` to the random numbers of these rows."""
        generator.rows, generator.total = self.learner.group.share_of(len(index)), len(index)
        return self.rows.take(index[generator.rows])

    @torch.no_grad()
    def validate(self, rows: Rows) -> Tensor:
        """Return the present phase's loss on held-out rows for each member, with the same noise in every epoch.

        Args:
            rows: The held-out rows.
        """
        phase: Phase = self.phase  # type: ignore[assignment]
        return phase.validate(rows, self._generator(HELD_OUT_KEY)).to("cpu", torch.float64)

    def _keep_best(self, phase: Phase, values: Tensor, number: int) -> None:
        if not math.isfinite(value := float(values.mean())):
            raise TrainingError(self._not_finite(value))
        warming_up = phase.is_warming_up(self.epoch)
        if warming_up and not self.learner.judged_in_warm_up:
            return
        patience = self.plan.patience if phase.can_stop else None
        if self.best.keep(values, self.model, self.learner.own, patience, counts=not warming_up):
            self.history.best_epoch = number

    def _is_exhausted(self, phase: Phase) -> bool:
        return phase.can_stop and self.best.is_exhausted(self.plan.patience)

    def _new_optimizer(self, phase: Phase) -> Adam:
        fused = torch.device(self.rows.device).type in ("cpu", "cuda")  # elsewhere torch may have no fused Adam
        return Adam(phase.groups(), fused)

    @property
    def _trained(self) -> list[torch.nn.Parameter]:
        """Parameters in the order of the optimizer."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _generator(self, *key: int) -> BatchGenerator:
        generator = BatchGenerator(self.rows.device)
        generator.manual_seed(derived_seed(self.seed, *key))
        return generator

    def _not_finite(self, loss: float) -> str:
        likelihood = self.model.likelihood
        own = f" equipoise.testing.check_likelihood tells whether {likelihood!r} may be why."
        return (
            f"The training loss must stay finite, but got {loss} in epoch {self.epoch} of the "
            f"'{self.phase.name}' phase. Lower the learning rate, or look for extreme values in the "  # type: ignore[union-attr]
            "data and for balances declared exact that the data contradict."
            + ("" if likelihood.name in LIKELIHOODS else own)
        )


def _bar(run: TrainingRun, verbose: bool) -> tqdm:
    done = len(run.history.epochs)
    return tqdm(
        total=sum(phase.n_epochs for phase in run.phases),
        initial=done,
        desc="fit",
        unit="epoch",
        disable=not verbose,
        leave=True,
    )
