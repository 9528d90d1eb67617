"""Training of members: weight vectors instead of a posterior, all members in one batched pass.

The three phases are those of the library: means on squared error, then everything on the negative log-likelihood with
the weights' prior, then the variance and sensor heads alone. Rates, schedules, batch sizes and stopping are taken from
the `TrainingPlan`. Each member has its own starting weights, its own shuffling and its own best state, so that it ends
where it would have ended if it had been trained alone. Tolerances and sensors are properties of the data: the members
share them.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.data import Rows
from equipoise.network import NetworkGaussian, derived_seed, parameters_of
from equipoise.rivals.methods.imposed_network import ImposedBNN
from equipoise.rivals.methods.members import (
    dropout_masks,
    member_rmse,
    spread_mask,
    starting_weights,
)
from equipoise.training import (
    PHASES,
    Adam,
    History,
    TrainingError,
    TrainingPlan,
    cosine,
    one_cycle,
    shuffled,
    split_residuals,
)

Record = Callable[[dict], object]


def fit_members(
    model: ImposedBNN,
    rows: Rows,
    validation: Rows | None,
    plan: TrainingPlan,
    seeds: Sequence[int],
    *,
    dropout: float = 0.0,
    callback: Record | None = None,
) -> tuple[Float[Tensor, "M P"], History]:
    """Train one weight vector per seed; tolerances and sensors of `model` are trained in place.

    Args:
        model: The model, in standardized units.
        rows: Training rows.
        validation: Held-out rows that decide when to stop and which state is kept; None keeps the last.
        plan: Epochs, rates, batch sizes and patience.
        seeds: Seed of each member's starting weights and shuffling.
        dropout: Probability that a hidden unit is left out in a step, row by row.
        callback: Called with the record of each epoch.
    Returns: The weight vectors, and the record of all epochs.
    """
    run = MemberTraining(model, rows, validation, plan, seeds, dropout)
    for phase in PHASES:
        run.start(phase)
        for record in run.epochs(plan.epochs_of(phase)):
            run.history.epochs.append(record)
            if callback is not None:
                callback(record)
        run.finish()
    return run.weights.detach(), run.history


class MemberTraining:
    """One training of all members: their weights, the optimiser, and each member's best state in the phase.

    Args: Those of `fit_members`.
    """

    def __init__(
        self,
        model: ImposedBNN,
        rows: Rows,
        validation: Rows | None,
        plan: TrainingPlan,
        seeds: Sequence[int],
        dropout: float = 0.0,
    ):
        self.model, self.rows, self.plan, self.dropout = model, rows, plan, dropout
        self.validation, self.seeds, self.history = validation, list(seeds), History(stopped="all epochs run")
        device = rows.x.device
        self.weights = nn.Parameter(starting_weights(model.network, self.seeds).to(device))
        self.spread_heads = spread_mask(model.network).to(device)
        self.phase, self.best = "means", _Best(len(self.seeds))

    def start(self, phase: str) -> None:
        """Start a phase, "means", "elbo" or "noise": set what it starts from, and make its optimiser.

        The second phase starts with variances from the residuals of the means, the third from the best state of the
        second.
        """
        self.phase = phase
        if phase == "elbo":
            self._start_variances()
        if phase != "noise":
            self.best = _Best(len(self.seeds))
        rate = self.plan.mean_learning_rate if phase == "means" else self.plan.learning_rate
        groups = [{"params": [self.weights], "peak": rate}]
        if phase != "means" and (shared := self._shared()):
            groups.append({"params": shared, "peak": rate * self.plan.tolerance_rate})
        self.optimizer = Adam(groups, self._fused)

    @torch.no_grad()
    def start_from(self, weights: Float[Tensor, "M P"]) -> None:
        """Start the phase of the likelihood with the weights of trained members."""
        self.phase, self.best = "elbo", _Best(len(self.seeds))
        self.weights.copy_(weights)
        self.optimizer = Adam([{"params": [self.weights], "peak": self.plan.learning_rate}], self._fused)

    def epochs(self, total: int) -> Iterator[dict]:
        """Run at most `total` epochs of the phase and yield the record of each."""
        self.best.since.zero_()
        for epoch in range(total):
            clock = time.perf_counter()
            loss = self._epoch(epoch, total)
            record = {"epoch": len(self.history.epochs), "phase": self.phase}
            record["rmse" if self.phase == "means" else "nll"] = loss
            if self.validation is not None:
                record["validation"] = self._validate(epoch, total, record["epoch"])
            record["seconds"] = time.perf_counter() - clock
            yield record
            if self.phase == "elbo" and not bool((self.best.since < self.plan.patience).any()):
                self.history.stopped = "no improvement on held-out rows"
                return

    @torch.no_grad()
    def finish(self) -> None:
        """Return each member to its best state."""
        self.best.restore(self.weights, self._shared())
        self.model.eval()

    def predict(self, weights: Tensor, rows: Rows, generator: torch.Generator) -> NetworkGaussian:
        """Evaluate each member at its own `b` of the `M · b` rows; dropout draws a mask for every row.

        Args:
            weights: Weights of the members, shape `(M, P)`.
            rows: Rows of all members, one member after the other.
            generator: Randomness of the masks.
        """
        x, network = rows.x.unflatten(0, (len(weights), -1)), self.model.network
        masks = None
        if self.dropout > 0:
            masks = [mask.to(x) for mask in dropout_masks(network, tuple(x.shape[:2]), self.dropout, generator)]
        return network.at(weights, x, masks)

    def losses(self, weights: Tensor, rows: Rows, generator: torch.Generator) -> Float[Tensor, " M"]:
        """Compute each member's loss: RMSE in the first phase, negative log-likelihood per row in the others.

        Args:
            weights: Weights of the members, shape `(M, P)`.
            rows: Rows of all members, one member after the other.
            generator: Randomness of masks, tolerances and sensors.
        """
        if self.phase != "means":
            return -self._log_prob(weights, rows, generator).mean(1)
        mean = self.predict(weights, rows, generator).mean
        return member_rmse(mean, rows.y.unflatten(0, (len(weights), -1)).to(mean.dtype))

    def _log_prob(self, weights: Tensor, rows: Rows, generator: torch.Generator) -> Float[Tensor, "M b"]:
        """Compute the log-likelihood of each member's rows, with one draw of masks, tolerances and sensors."""
        output = self.predict(weights, rows, generator)
        factor = None if output.sensor_factor is None else output.sensor_factor.flatten(0, 1)
        flat = NetworkGaussian(output.mean.flatten(0, 1), output.var.flatten(0, 1), factor)
        return self.model.log_likelihood(flat, rows, generator).unflatten(0, (len(weights), -1))

    def _epoch(self, epoch: int, total: int) -> float:
        key = (PHASES.index(self.phase), epoch)
        n_rows, passes = len(self.rows), self.plan.passes(len(self.rows))
        order = torch.stack([shuffled(n_rows, passes, _cpu(seed, *key, 1)) for seed in self.seeds])
        batches = order.split(self.plan.rows_per_step(n_rows), dim=1)
        generator, parts = self._generator(*key), []
        for i, index in enumerate(batches):
            batch = self.rows.take(index.flatten().to(self.rows.x.device))
            parts.append(len(batch) * self.step(batch, (epoch + i / len(batches)) / total, generator))
        return sum(parts) / order.numel()

    def step(self, batch: Rows, fraction: float, generator: torch.Generator) -> float:
        """Take one optimiser step at `fraction` of the phase, and return the members' mean loss before it.

        Args:
            batch: Rows of all members, one member after the other.
            fraction: Share of the phase that is done, in [0, 1].
            generator: Randomness of masks, tolerances and sensors.
        """
        means = self.phase == "means"
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * (one_cycle(fraction) if means else cosine(fraction))
        self.optimizer.zero_grad()
        losses = self.losses(self.weights, batch, generator)
        if not bool(losses.isfinite().all()):
            raise TrainingError(f"The training loss must stay finite, but got {losses.tolist()}. Lower the rates.")
        (losses.sum() + (0.0 if means else self._kl_weight(fraction) * self._prior_loss())).backward()
        self._limit_gradients()
        self.optimizer.step()
        return float(losses.detach().mean())

    def _prior_loss(self) -> Tensor:
        """Compute the loss due to the priors of weights, tolerances and sensors, per row, summed over members."""
        of_weights = 0.5 * (self.weights.double() / self.model.network.posterior.prior_std).square().sum()
        shared = len(self.seeds) * self.model.kl_shared()
        return (self.plan.temperature * of_weights + shared) / len(self.rows)

    def _kl_weight(self, fraction: float) -> float:
        return 1.0 if self.phase == "noise" else min(1.0, fraction / max(self.plan.kl_warmup, 1e-9))

    @torch.no_grad()
    def _limit_gradients(self) -> None:
        """Zero the gradients of the means in the last phase, and clip each member's gradient to the plan's norm."""
        grad = self.weights.grad
        if grad is None:
            return
        if self.phase == "noise":
            grad *= self.spread_heads
        norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
        grad *= (self.plan.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    @torch.no_grad()
    def _validate(self, epoch: int, total: int, number: int) -> float:
        """Compute the mean loss on held-out rows, with the same noise every time, and keep the best states."""
        rows_of_each = torch.arange(len(self.validation)).repeat(len(self.seeds))  # type: ignore[arg-type]
        held_out = self.validation.take(rows_of_each.to(self.rows.x.device))  # type: ignore[union-attr]
        values = self._held_out_losses(held_out, self._generator(len(PHASES)))
        warming_up = self.phase == "elbo" and epoch <= self.plan.kl_warmup * total
        patience = self.plan.patience if self.phase == "elbo" else total
        if self.best.keep(values, self.weights, self._shared(), patience, counts=not warming_up):
            self.history.best_epoch = number
        return float(values.mean())

    def _held_out_losses(self, rows: Rows, generator: torch.Generator) -> Float[Tensor, " M"]:
        """Compute each member's loss under the mixture over draws of masks, tolerances and sensors."""
        if self.phase == "means" or not (self.dropout > 0 or self._shared()):
            return self.losses(self.weights, rows, generator)
        n_draws = self.plan.draws_per_row(len(self.validation))  # type: ignore[arg-type]
        draws = torch.stack([self._log_prob(self.weights, rows, generator) for _ in range(n_draws)])
        return math.log(n_draws) - draws.logsumexp(0).mean(1)

    @torch.no_grad()
    def _start_variances(self) -> None:
        """Set each variance head from the residuals of the member's means; the first sets tolerances and sensors."""
        loc = self.model.network.posterior.loc
        for member in reversed(range(len(self.seeds))):
            loc.copy_(self.weights[member])
            split_residuals(self.model, self.rows, self.validation)
            self.weights[member] = loc

    def _shared(self) -> list[nn.Parameter]:
        return parameters_of([self.model.sensor, self.model.conditioning])

    @property
    def _fused(self) -> bool:
        return self.rows.x.device.type in ("cpu", "cuda")  # elsewhere torch may have no fused Adam

    def _generator(self, *key: int) -> torch.Generator:
        return torch.Generator(self.rows.x.device).manual_seed(derived_seed(self.seeds[0], *key))


class _Best:
    """The best state of each member, and the tolerances and sensors of the epoch with the best mean over members."""

    def __init__(self, n_members: int):
        self.value = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.since = torch.zeros(n_members, dtype=torch.long)
        self.weights: Tensor | None = None
        self.together, self.shared = torch.inf, None

    def keep(
        self, values: Tensor, weights: Tensor, shared: list[nn.Parameter], patience: int, counts: bool = True
    ) -> bool:
        """Keep the states of one epoch that are better than before, and return whether their mean is.

        A member whose patience has run out keeps its state for good. While the weight of the prior still grows, no
        epoch `counts` against the patience. Its state may be kept, though: weights without a posterior spread overfit
        from the first epoch on, so that their best state can be an early one.

        Args:
            values: Loss of each member on the held-out rows.
            weights: Weights of each member.
            shared: Parameters of tolerances and sensors.
            patience: Epochs without improvement after which a member stops.
            counts: Whether this epoch counts as one without improvement where there is none.
        """
        values = values.double().cpu()
        better = (values < self.value) & (self.since < patience)
        self.weights = weights.detach().clone() if self.weights is None else self.weights
        self.weights[better] = weights.detach()[better]
        self.value = torch.where(better, values, self.value)
        self.since = torch.where(better, 0, self.since + int(counts))
        if improved := float(values.mean()) < self.together:
            self.together, self.shared = float(values.mean()), [part.detach().clone() for part in shared]
        return improved

    def restore(self, weights: Tensor, shared: list[nn.Parameter]) -> None:
        """Copy the best states into weights and shared parameters.

        Args:
            weights: Weights of the members, shape `(M, P)`; overwritten.
            shared: Parameters that all members share; overwritten.
        """
        if self.weights is not None:
            weights.copy_(self.weights)
        for part, kept in zip(shared, self.shared or [], strict=False):
            part.copy_(kept)


def _cpu(*key: int) -> torch.Generator:
    return torch.Generator().manual_seed(derived_seed(*key))
