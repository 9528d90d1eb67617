"""Training: minibatches, stopping, checkpoints, history.

Three phases. *Means*: the network at its posterior means is fitted to the sum of the outputs' root mean squared errors:
a heteroscedastic network trained from scratch on a likelihood calls what it has not learned yet "noise", and plain
squared error leaves outputs that are measured well to the noise of those that are not. *ELBO*: variances start from the
residuals of the first phase (`splitting.py`), weight spreads small, and everything is trained on the negative ELBO.
*Noise*: as the rate falls the means still improve, and all spreads, which follow them, are left behind too large; so at
last the means are held, and weight spreads, variance head, tolerances and sensors alone go on with the same objective.

All randomness of an epoch comes from (seed, phase, epoch), so a run that was killed continues from its last
checkpoint to the same bits as one that was never killed. Processes that train together (`distributed.py`) share every
batch between them and follow the run of a single one to rounding.
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

from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator, random_scheme
from equipoise.network import ConstrainedBNN, derived_seed, parameters_of
from equipoise.training.checkpoint import Checkpoint, TrainingError
from equipoise.training.distributed import ALONE, Group, current
from equipoise.training.objective import Objective
from equipoise.training.optimizer import Adam, clip_norm
from equipoise.training.plan import PHASES, TrainingPlan, cosine, one_cycle
from equipoise.training.starting_variances import split_residuals


@dataclass
class History:
    """One record per epoch, and how training ended."""

    epochs: list[dict] = field(default_factory=list)
    best_epoch: int = -1
    stopped: str = ""

    def column(self, name: str) -> list:
        """One quantity over the epochs that have it."""
        return [record[name] for record in self.epochs if name in record]


@dataclass
class _Progress:
    """All that a run needs to continue, besides the model and the optimiser."""

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
    """Fit `model` in place by minimising its negative ELBO on `rows` (E2), together with the `current` group.

    Args:
        model: In standardized units.
        rows: Training rows, in memory or read batch by batch.
        validation: Held-out rows that decide when to stop and which state is kept; None keeps the last.
        plan: The numbers; defaults if None.
        seed: All randomness follows from it.
        checkpoint: A file that training continues from if it is there, and that is kept up to date (atomically).
        checkpoint_seconds: Least time between two writes of it.
        verbose: Show a progress bar.
        callback: Called with the record of each epoch; what it raises ends training (the checkpoint stays).
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
    """One training run: the model, its optimiser, and where it stands."""

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

    def compile(self, tell: Callable[[], object]) -> None:
        """Have what is compiled ready before the first epoch; `tell` is called if that takes a while."""
        if torch.device(self.rows.device).type == "cpu":
            from equipoise.fast import told

            with told(tell):
                self.objective.compile()

    def state(self) -> dict:
        """All that is needed to continue."""
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
        settings = (self.plan, self.seed, getattr(self.model.likelihood, "__name__", ""), torch.__version__)
        settings = (*settings, network.sizes, network.activation, network.posterior.prior_std, scheme)
        digest = hashlib.sha256(repr(settings).encode())
        tables = [rows for rows in (self.rows, self.validation) if rows is not None]
        data = (part for rows in tables for piece in rows.pieces() for part in piece.parts())
        for values in itertools.chain(data, self.model.state_dict().values()):
            digest.update(b"-" if values is None else values.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def epochs(self) -> Iterator[dict]:
        """Run what is left of the plan, yielding the record of each epoch."""
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
        # Numbers, not tensors: thousands of small ones would keep the memory of batches between them from being reused.
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
        """One optimiser step at `fraction` of the phase; the batch's loss before the step."""
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
        """This process's rows of a batch; from now on, `generator` gives them the numbers they have in all of it."""
        generator.rows, generator.total = self.group.share_of(len(index)), len(index)
        return self.rows.take(index[generator.rows])

    def _backward_rmse(self, batch: Rows) -> Tensor:
        """The `mean_rmse` of the batch in all processes, its gradient left in that of the posterior's means."""
        mean, pull = self.model.network.propagate_means(batch.x)
        mean = mean.requires_grad_()
        loss = mean_rmse(mean, batch.y, self.group)
        self.model.network.posterior.loc.grad = pull(*torch.autograd.grad(loss, mean))
        return self.group.sum_gradients(self._trained, loss.detach() / self.group.size)

    def _backward_elbo(self, batch: Rows, fraction: float, generator: BatchGenerator) -> Tensor:
        """The same of the negative ELBO: rows count alike, and the KL, which every process adds, counts once."""
        loss, weight = batch.y.new_zeros(()), len(batch) / generator.total
        if len(batch):
            weights = self._kl_weight(fraction), self.plan.temperature
            loss = self.objective.backward(batch, len(self.rows), generator, *weights)
        return self.group.sum_gradients(self._trained, loss, weight)

    def _kl_weight(self, fraction: float) -> float:
        return 1.0 if self.progress.phase == "noise" else min(1.0, fraction / max(self.plan.kl_warmup, 1e-9))

    @torch.no_grad()
    def _summary(self, values: Tensor, sizes: Tensor) -> dict:
        """The epoch's mean loss and, in the second phase, the divergences and where each tolerance stands."""
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
        """Held-out error, or predictive NLL per row, with the same noise every time."""
        if self.progress.phase == "means":
            rows = rows.take(self.group.share_of(len(rows)))
            means = [self.model.network.at_means(part.x).mean for part in rows.pieces()]
            return float(mean_rmse(torch.cat(means), rows.y, self.group))
        generator, total = self._generator(len(PHASES)), torch.zeros(1, dtype=torch.float64)
        for start in range(0, len(rows), 8192):
            part = rows.take(slice(start, start + 8192))
            generator.rows, generator.total = self.group.share_of(len(part)), len(part)
            if len(share := part.take(generator.rows)):
                total += self._predictive_nll(share, generator, self.plan.draws_per_row(len(rows)))
        return float(self.group.sum(total)) / len(rows)

    def _predictive_nll(self, rows: Rows, generator: BatchGenerator, n_draws: int) -> Tensor:
        """`−Σ_i log mean_d p(y_i | θ_d, ρ_d)`: of the mixture that is predicted, which can be nats better than the mean
        of its components' NLL; states chosen by the latter are those where weights hardly matter any more.
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
        """Whether the KL still counts for less than 1: such epochs are neither kept nor counted as without success."""
        progress = self.progress
        return progress.phase == "elbo" and progress.epoch <= self.plan.kl_warmup * self.plan.epochs_of("elbo")

    def _exhausted(self) -> bool:
        return self.progress.phase == "elbo" and self.progress.since_best >= self.plan.patience

    @torch.no_grad()
    def _start_elbo_phase(self) -> None:
        """Restore the best means; set all variances from their residuals, and a small spread for every weight."""
        self._restore_best()
        split_residuals(self.model, self.rows, self.validation)
        self.model.network.posterior.log_std.fill_(math.log(self.plan.init_std))
        self.progress = _Progress(phase="elbo", history=self.progress.history)
        self.optimizer = self._new_optimizer()

    def _start_noise_phase(self) -> None:
        history = self.progress.history
        history.stopped = "no improvement on held-out rows" if self._exhausted() else "all epochs run"
        self._restore_best()
        progress = self.progress
        kept = {"best_value": progress.best_value, "best_state": progress.best_state}  # to be improved on, or to stay
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
            {"params": [model.network.posterior.log_std], "peak": plan.learning_rate * plan.std_rate},
            {"params": fast, "peak": plan.learning_rate * plan.tolerance_rate},
        ]
        return Adam([group for group in groups if group["params"]], self._fused)

    @property
    def _fused(self) -> bool:
        return torch.device(self.rows.device).type in ("cpu", "cuda")  # elsewhere torch may have no fused Adam

    @property
    def _trained(self) -> list[torch.nn.Parameter]:
        """What the optimiser moves, in its order."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _generator(self, *key: int) -> BatchGenerator:
        generator = BatchGenerator(self.rows.device)
        generator.manual_seed(derived_seed(self.seed, *map(int, key)))
        return generator

    def _not_finite(self, loss: float) -> str:
        progress = self.progress
        return (
            f"The training loss must stay finite, but got {loss} in epoch {progress.epoch} of the "
            f"'{progress.phase}' phase. Lower the learning rate, or look for extreme values in the "
            "data and for balances declared exact that the data contradict."
        )


def shuffled(n_rows: int, passes: int, generator: torch.Generator) -> Tensor:
    """The numbers of all rows in random order, and again in another as often as there are passes."""
    return torch.cat([torch.randperm(n_rows, generator=generator) for _ in range(passes)])


def mean_rmse(mean: Tensor, y: Tensor, group: Group = ALONE) -> Tensor:
    """Root mean squared error of each output over what was measured, averaged over outputs.

    Rows are those of all processes of the group, the gradient is that of the rows given here.
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
