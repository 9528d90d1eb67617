"""The phases of a training: what is minimised, which parameters move and how fast, and how a state is judged.

*Means*: the network's means are fitted to the mean of the outputs' root mean squared errors, since a heteroscedastic
network that is trained from scratch on a likelihood takes for noise what it has not learned yet, and since squared
errors would let noisy outputs outweigh those that are measured well. *ELBO*: variances start from the residuals of the
first phase (`starting_variances.py`), standard deviations of the weights start small, and everything is trained on the
negative evidence lower bound, or, where weights have no posterior, on likelihood and priors. *Noise*: while the rate
falls, the means still improve, and variances lag behind them and stay too large; so at last the means are fixed, and
standard deviations of the weights, variance head, tolerances and sensors alone are trained on the same objective.

As in the paper, everything can also be trained on the bound alone, from the priors: `PriorStartPhase`.

A phase of another kind is a class that derives from one of these; `train(..., phases=[...])` takes it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from jaxtyping import Int64
from torch import Tensor

from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator
from equipoise.training.errors_of_means import mean_rmse
from equipoise.training.learners import ErrorOfMeans, Learner
from equipoise.training.plan import TrainingPlan, cosine, one_cycle


class Phase(ABC):
    """One phase of a training.

    Args:
        learner: The parameters that move.
        plan: Epochs, rates and other settings.

    Attributes:
        name: Name in the history and in checkpoints.
        number: Number in the seeds of its epochs.
        loss: Name of its loss in the history.
        can_stop: Whether it ends once held-out rows have not improved for as many epochs as the plan's patience.
        keeps_best: Whether the best state of the phase before may still be the best.
    """

    name: ClassVar[str]
    number: ClassVar[int]
    loss: ClassVar[str]
    can_stop: ClassVar[bool] = False
    keeps_best: ClassVar[bool] = False

    def __init__(self, learner: Learner, plan: TrainingPlan):
        self.learner, self.plan = learner, plan

    @property
    def n_epochs(self) -> int:
        """Number of epochs, at most."""
        return self.plan.epochs_of(self.name)

    @abstractmethod
    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Set what the phase starts from; before, parameters are those of the best state of the phase before.

        Args:
            rows: Training rows.
            validation: Held-out rows; None without any.
        """

    @abstractmethod
    def run_epoch(self, rows: AnyRows, epoch: int, steps: Callable[[], float]) -> float:
        """Run an epoch, and return its loss.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase, from 0.
            steps: Makes the optimizer's steps of a `SteppedPhase` in this epoch, and returns their mean loss.
        """

    def groups(self) -> list[dict]:
        """Return the parameters that the optimizer moves, in groups with `params` and the `peak` of their rate."""
        return []

    @abstractmethod
    def validate(self, rows: Rows, generator: BatchGenerator) -> Tensor:
        """Return the loss on held-out rows, one for each member.

        Args:
            rows: The held-out rows.
            generator: Randomness, the same in every epoch.
        """

    def is_warming_up(self, epoch: int) -> bool:
        """Return whether the objective still changes in the epoch with this number, from 1."""
        return False

    def summary(self) -> dict:
        """Return further entries for the record of an epoch."""
        return {}


class SteppedPhase(Phase):
    """A phase whose epochs are steps of the optimizer on batches; arguments are those of `Phase`."""

    def run_epoch(self, rows: AnyRows, epoch: int, steps: Callable[[], float]) -> float:
        """Make the steps; arguments are those of `Phase.run_epoch`."""
        return steps()

    def orders(self, n_rows: int, epoch: int) -> Int64[Tensor, "n_members n_shown"]:
        """Return the order in which each member sees the rows in an epoch, which may pass over them several times.

        Args:
            n_rows: Number of rows.
            epoch: Number of the epoch within the phase.
        """
        generators = map(torch.Generator().manual_seed, self.learner.shuffling_seeds(self.number, epoch))
        return torch.stack([shuffled(n_rows, self.plan.passes(n_rows), generator) for generator in generators])

    @abstractmethod
    def groups(self) -> list[dict]:
        """Return the parameters that move, in groups with `params` and the `peak` of their rate."""

    @abstractmethod
    def rate(self, fraction: float) -> float:
        """Return the learning rate relative to its peak at a fraction of the phase."""

    @abstractmethod
    def backward(self, batch: Rows, n_rows: int, fraction: float, generator: BatchGenerator) -> Tensor:
        """Return the loss of a batch, one for each member, and leave gradients in `.grad`.

        Args:
            batch: This process's rows of a batch.
            n_rows: Number of rows in the data set.
            fraction: Share of the phase that is done.
            generator: Randomness of the batch.
        """

    def limit_gradients(self) -> None:
        """Change gradients before a step: they are clipped."""
        self.learner.clip(self.plan.max_grad_norm)


class MeansPhase(SteppedPhase):
    """The first phase: the means alone, on their errors."""

    name, number, loss = "means", 0, "rmse"
    error: ErrorOfMeans = staticmethod(mean_rmse)

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start from the means as they are; arguments are those of `Phase.start`."""

    def groups(self) -> list[dict]:
        """Return the means."""
        return [{"params": self.learner.means(), "peak": self.plan.mean_learning_rate}]

    def rate(self, fraction: float) -> float:
        """Return the rate of one cycle."""
        return one_cycle(fraction)

    def backward(self, batch: Rows, n_rows: int, fraction: float, generator: BatchGenerator) -> Tensor:
        """Differentiate the error of the means; arguments are those of `SteppedPhase.backward`."""
        return self.learner.backward_error(batch, generator, self.error)

    def validate(self, rows: Rows, generator: BatchGenerator) -> Tensor:
        """Return the error of the means on held-out rows; arguments are those of `Phase.validate`."""
        return self.learner.held_out_error(rows, generator, self.error)


class BoundPhase(SteppedPhase):
    """The second phase: everything, on the negative evidence lower bound (E2), whose divergences gain weight."""

    name, number, loss, can_stop = "elbo", 1, "nll", True

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Set variances from residuals, and small spreads for the weights; arguments are those of `Phase.start`."""
        self.learner.start_variances(rows, validation, self.plan.init_std)

    def groups(self) -> list[dict]:
        """Return all parameters."""
        return self.learner.groups(self.plan)

    def rate(self, fraction: float) -> float:
        """Return the rate of a cosine decay."""
        return cosine(fraction)

    def kl_weight(self, fraction: float) -> float:
        """Return the weight of all divergences at a fraction of the phase."""
        return min(1.0, fraction / max(self.plan.kl_warmup, 1e-9))

    def backward(self, batch: Rows, n_rows: int, fraction: float, generator: BatchGenerator) -> Tensor:
        """Differentiate the bound, return its likelihood per row; arguments are those of `SteppedPhase.backward`."""
        kl_weight, temperature = self.kl_weight(fraction), self.plan.temperature
        return self.learner.backward_bound(batch, n_rows, generator, kl_weight, temperature)

    def validate(self, rows: Rows, generator: BatchGenerator) -> Tensor:
        """Return the loss of the predicted mixture per held-out row; arguments are those of `Phase.validate`."""
        return self.learner.held_out_nll(rows, generator, self.plan.draws_per_row(len(rows)))

    def is_warming_up(self, epoch: int) -> bool:
        """Return whether `kl_weight` is still below 1."""
        return epoch <= self.plan.kl_warmup * self.n_epochs

    def summary(self) -> dict:
        """Return divergences, and posteriors of the tolerances."""
        return self.learner.summary()


class PriorStartPhase(BoundPhase):
    """The only phase of a training as in the paper: everything, on the bound, from the priors."""

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start tolerances and sensors at their priors, and the variance head with the weights that it was built with.

        Spreads of the weights start small, on which the paper says nothing. The arguments are those of `Phase.start`.
        """
        self.learner.model.network.posterior.set_std(self.plan.init_std)

    def kl_weight(self, fraction: float) -> float:
        """Return 1."""
        return 1.0


class NoisePhase(BoundPhase):
    """The last phase: all but the means, on the whole bound."""

    name, number, can_stop, keeps_best = "noise", 2, False, True

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start from the best state; arguments are those of `Phase.start`."""

    def kl_weight(self, fraction: float) -> float:
        """Return 1."""
        return 1.0

    def is_warming_up(self, epoch: int) -> bool:
        """Return False."""
        return False

    def limit_gradients(self) -> None:
        """Hold the means, and clip."""
        self.learner.hold_means()
        super().limit_gradients()


PhaseFactory = Callable[[Learner, TrainingPlan], Phase]
PHASES: tuple[PhaseFactory, ...] = (MeansPhase, BoundPhase, NoisePhase)
STARTS: Mapping[str, tuple[PhaseFactory, ...]] = {"residuals": PHASES, "prior": (PriorStartPhase,)}
"""Phases of a training by what variances, tolerances and sensors start from."""


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
