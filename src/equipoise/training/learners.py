"""Learners: the parameters of a model that training moves, and the gradients of its losses.

A learner stands between the phases of a training (`phases.py`), which say what is minimised and how fast, and a model.
There is one for a posterior of the weights, trained on the evidence lower bound, and one for members, weight vectors
that are trained side by side in one batched pass. Losses have an axis of members, of which a posterior has one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator
from equipoise.network import (
    ConstrainedBNN,
    Members,
    NetworkGaussian,
    WeightPosterior,
    derived_seed,
    member_seeds,
    parameters_of,
)
from equipoise.training.distributed import ALONE, Group
from equipoise.training.objective import Objective
from equipoise.training.optimizer import clip_norm
from equipoise.training.plan import TrainingPlan
from equipoise.training.starting_variances import split_residuals

ErrorOfMeans = Callable[[Tensor, Tensor, Group], Tensor]
"""From predicted means `(..., n, n_y)`, measured outputs and processes to a loss `(...)`, as `mean_rmse`."""
HELD_OUT_AT_ONCE = 8192  # rows


class Learner(ABC):
    """The parameters of a model that training moves, and how its losses are differentiated.

    Args:
        model: The model, changed in place.
        seed: Seed of all randomness.
        group: Processes that train together.

    Attributes:
        n_members: Length of the axis of losses.
        own: Names in the model's `state_dict` of tensors with a leading axis of members, each with a best state of its
            own; all others are shared.
        judged_in_warm_up: Whether a state may be kept while the weight of the priors still grows.
    """

    n_members: int = 1
    own: tuple[str, ...] = ()
    judged_in_warm_up: ClassVar[bool] = False

    def __init__(self, model: ConstrainedBNN, seed: int = 0, group: Group = ALONE):
        self.model, self.seed, self.group = model, seed, group

    @property
    def shared(self) -> list[nn.Parameter]:
        """Parameters of sensors, tolerances and offsets."""
        return parameters_of([self.model.sensor, self.model.conditioning])

    @abstractmethod
    def means(self) -> list[nn.Parameter]:
        """Return the parameters that the first phase moves."""

    @abstractmethod
    def groups(self, plan: TrainingPlan) -> list[dict]:
        """Return all parameters in groups, each with its `params` and the `peak` of its learning rate."""

    @abstractmethod
    def shuffling_seeds(self, *key: int) -> list[int]:
        """Return a seed for each member's order of the rows, in the epoch that `key` names."""

    @abstractmethod
    def backward_error(
        self, batch: Rows, generator: BatchGenerator, error: ErrorOfMeans
    ) -> Float[Tensor, "*n_members"]:
        """Return the error of the means, and leave its gradient in `.grad` of `means()`.

        Args:
            batch: This process's rows of a batch; with members those of the first, then those of the second, ….
            generator: Randomness of the batch.
            error: The error.
        """

    @abstractmethod
    def backward_bound(
        self, batch: Rows, n_rows: int, generator: BatchGenerator, kl_weight: float, temperature: float
    ) -> Float[Tensor, "*n_members"]:
        """Return the negative log likelihood per row, and leave the gradient of the bound (E1, E2) in every `.grad`.

        Args:
            batch: This process's rows of a batch, as of `backward_error`.
            n_rows: Number of rows in the data set.
            generator: Randomness of the batch.
            kl_weight: Weight of all divergences or priors.
            temperature: Further weight of those of the network's weights.
        """

    @abstractmethod
    def held_out_error(self, rows: Rows, generator: BatchGenerator, error: ErrorOfMeans) -> Float[Tensor, " n_members"]:
        """Return the error of the means on held-out rows.

        Args:
            rows: The held-out rows.
            generator: Randomness.
            error: The error.
        """

    @abstractmethod
    def held_out_nll(self, rows: Rows, generator: BatchGenerator, n_draws: int) -> Float[Tensor, " n_members"]:
        """Return the negative log likelihood per held-out row of the mixture over draws.

        Args:
            rows: The held-out rows.
            generator: Randomness.
            n_draws: Number of draws of everything uncertain.
        """

    @abstractmethod
    def start_variances(self, rows: AnyRows, validation: Rows | None, init_std: float) -> None:
        """Set all variances from the residuals of the means, and spreads of the weights to a small value.

        Args:
            rows: Training rows.
            validation: Held-out rows; None without any.
            init_std: Standard deviation of each weight.
        """

    @abstractmethod
    def hold_means(self) -> None:
        """Set the gradients of the means to zero, except those of the variance and sensor heads."""

    @abstractmethod
    def clip(self, max_norm: float) -> None:
        """Scale the gradients of each member's weights so that their norm is at most `max_norm`."""

    @abstractmethod
    def compile(self) -> None:
        """Compile all code that training will call."""

    def summary(self) -> dict:
        """Return divergences and posteriors of the tolerances for the record of an epoch."""
        model, record = self.model, {}
        if model.conditioning is not None:
            q = model.conditioning.tolerance
            mean, std = q.log_moments()
            record |= {"kl_tolerance": q.kl_terms().tolist(), "rho_mean": mean.tolist(), "rho_std": std.tolist()}
            if model.conditioning.offset is not None:
                record["kl_offset"] = model.conditioning.offset.kl_terms().tolist()
        if model.sensor is not None:
            record["kl_sensor"] = model.sensor.kl_terms().tolist()
        return record


class PosteriorLearner(Learner):
    """A posterior of the weights, trained on the evidence lower bound; arguments are those of `Learner`."""

    def __init__(self, model: ConstrainedBNN, seed: int = 0, group: Group = ALONE):
        super().__init__(model, seed, group)
        self.objective = Objective(model)

    @property
    def _posterior(self) -> WeightPosterior:
        return self.model.network.posterior

    def means(self) -> list[nn.Parameter]:
        """Return the posterior means."""
        return [self._posterior.loc]

    def groups(self, plan: TrainingPlan) -> list[dict]:
        """Return means, spreads, and what is shared, each with its rate."""
        groups = [
            {"params": self.means(), "peak": plan.learning_rate},
            {"params": self._posterior.spreads(), "peak": plan.learning_rate * plan.std_rate},
            {"params": self.shared, "peak": plan.learning_rate * plan.tolerance_rate},
        ]
        return [group for group in groups if group["params"]]

    def shuffling_seeds(self, *key: int) -> list[int]:
        """Return one seed."""
        return [derived_seed(derived_seed(self.seed, *key), 1)]

    def backward_error(self, batch: Rows, generator: BatchGenerator, error: ErrorOfMeans) -> Float[Tensor, ""]:
        """Differentiate the error over all processes at the posterior means.

        The arguments are those of `Learner.backward_error`.
        """
        loc = self._posterior.loc
        loss = error(self.model.network.mean_at_means(batch.x), batch.y, self.group)
        (loc.grad,) = torch.autograd.grad(loss, [loc])
        return self.group.sum_gradients([loc], loss.detach() / self.group.size)

    def backward_bound(
        self, batch: Rows, n_rows: int, generator: BatchGenerator, kl_weight: float, temperature: float
    ) -> Float[Tensor, ""]:
        """Differentiate the negative evidence lower bound, by compiled code where there is some.

        All rows have the same weight, and the divergences, which every process adds, count once.
        The arguments are those of `Learner.backward_bound`.
        """
        loss, weight = batch.y.new_zeros(()), len(batch) / generator.total
        if len(batch):
            loss = self.objective.backward(batch, n_rows, generator, kl_weight, temperature)
        trained = [*self.means(), *self._posterior.spreads(), *self.shared] if self.group.size > 1 else ()
        return self.group.sum_gradients(trained, loss, weight)

    def held_out_error(self, rows: Rows, generator: BatchGenerator, error: ErrorOfMeans) -> Float[Tensor, "1"]:
        """Return the error over all processes at the posterior means.

        The arguments are those of `Learner.held_out_error`.
        """
        rows = rows.take(self.group.share_of(len(rows)))
        means = [self.model.network.mean_at_means(part.x) for part in rows.pieces()]
        return error(torch.cat(means), rows.y, self.group).reshape(1)

    def held_out_nll(self, rows: Rows, generator: BatchGenerator, n_draws: int) -> Float[Tensor, "1"]:
        """Return `−Σ_i log mean_d p(y_i | θ_d, ρ_d) / n`, the negative log likelihood of the predicted mixture.

        It can be nats better than the mean of its components'; that would favour states with little weight uncertainty.
        The arguments are those of `Learner.held_out_nll`.
        """
        model, total = self.model, torch.zeros(1, dtype=torch.float64)
        for start in range(0, len(rows), HELD_OUT_AT_ONCE):
            part = rows.take(slice(start, start + HELD_OUT_AT_ONCE))
            generator.rows, generator.total = self.group.share_of(len(part)), len(part)
            if len(own := part.take(generator.rows)):
                draws = [model.log_likelihood(model.network(own.x, generator), own, generator) for _ in range(n_draws)]
                total += _mixture_nll(draws).sum().to("cpu", torch.float64)
        return self.group.sum(total) / len(rows)

    @torch.no_grad()
    def start_variances(self, rows: AnyRows, validation: Rows | None, init_std: float) -> None:
        """Split the residuals of the posterior means, and make all spreads of the weights small.

        The arguments are those of `Learner.start_variances`.
        """
        split_residuals(self.model, rows, validation)
        self._posterior.set_std(init_std)

    def hold_means(self) -> None:
        """Set the gradient of the posterior means to zero, but for the variance and sensor heads."""
        if (grad := self._posterior.loc.grad) is not None:
            self.model.network.hold_means(grad)

    def clip(self, max_norm: float) -> None:
        """Clip the gradient of all parameters of the posterior together."""
        clip_norm(self._posterior.parameters(), max_norm)

    def compile(self) -> None:
        """Compile the training step."""
        self.objective.compile()

    def summary(self) -> dict:
        """Return the divergence of the weights, too."""
        return {"kl_weights": float(self._posterior.kl())} | super().summary()


class MembersLearner(Learner):
    """Members: one weight vector each, on the negative log likelihood with the weights' prior.

    Each member has its own starting weights, its own shuffling and its own best state, so that it ends where it would
    have ended alone. Tolerances and sensors are properties of the data: the members share them. Weights without a
    spread overfit from the first epoch on, so that their best state can be an early one. Arguments are those of
    `Learner`; processes do not share the work.
    """

    own = ("network.posterior.weights",)
    judged_in_warm_up = True

    def __init__(self, model: ConstrainedBNN, seed: int = 0, group: Group = ALONE):
        super().__init__(model, seed, ALONE)
        self.members: Members = model.network.posterior
        self.n_members, self.seeds = len(self.members), member_seeds(seed, len(self.members))

    def means(self) -> list[nn.Parameter]:
        """Return the weights."""
        return [self.members.weights]

    def groups(self, plan: TrainingPlan) -> list[dict]:
        """Return weights and what is shared, each with its rate."""
        groups = [
            {"params": self.means(), "peak": plan.learning_rate},
            {"params": self.shared, "peak": plan.learning_rate * plan.tolerance_rate},
        ]
        return [group for group in groups if group["params"]]

    def shuffling_seeds(self, *key: int) -> list[int]:
        """Return a seed for each member, which it would have alone."""
        return [derived_seed(seed, *key, 1) for seed in self.seeds]

    def backward_error(
        self, batch: Rows, generator: BatchGenerator, error: ErrorOfMeans
    ) -> Float[Tensor, " n_members"]:
        """Differentiate the sum of the members' errors.

        The arguments are those of `Learner.backward_error`.
        """
        losses = self._error(batch, generator, error)
        self._differentiate(losses.sum(), self.means())
        return losses.detach()

    def backward_bound(
        self, batch: Rows, n_rows: int, generator: BatchGenerator, kl_weight: float, temperature: float
    ) -> Float[Tensor, " n_members"]:
        """Differentiate the sum of the members' negative log likelihoods and of the priors.

        The arguments are those of `Learner.backward_bound`.
        """
        losses = -self._log_prob(batch, generator).mean(1)
        of_weights = 0.5 * (self.members.weights.double() / self.members.prior_std).square().sum()
        prior = (temperature * of_weights + self.n_members * self.model.kl_shared()) / n_rows
        self._differentiate(losses.sum() + kl_weight * prior, [*self.means(), *self.shared])
        return losses.detach()

    def held_out_error(self, rows: Rows, generator: BatchGenerator, error: ErrorOfMeans) -> Float[Tensor, " n_members"]:
        """Return each member's error.

        The arguments are those of `Learner.held_out_error`.
        """
        return self._error(self._for_each(rows), generator, error)

    def held_out_nll(self, rows: Rows, generator: BatchGenerator, n_draws: int) -> Float[Tensor, " n_members"]:
        """Return each member's loss under the mixture over draws of tolerances, sensors and, with dropout, masks.

        The arguments are those of `Learner.held_out_nll`.
        """
        held_out = self._for_each(rows)
        if not (self.members.is_random or self.shared):
            return -self._log_prob(held_out, generator).mean(1)
        return _mixture_nll([self._log_prob(held_out, generator) for _ in range(n_draws)]).mean(1)

    @torch.no_grad()
    def start_variances(self, rows: AnyRows, validation: Rows | None, init_std: float) -> None:
        """Set each variance head from the residuals of the member; the first sets tolerances and sensors.

        The arguments are those of `Learner.start_variances`.
        """
        for weights in reversed(self.members.weights.unbind()):
            split_residuals(self.model, rows, validation, weights)

    def hold_means(self) -> None:
        """Set the gradients of all members to zero, but for their variance and sensor heads."""
        if (grad := self.members.weights.grad) is not None:
            self.model.network.hold_means(grad)

    @torch.no_grad()
    def clip(self, max_norm: float) -> None:
        """Clip the gradient of each member on its own."""
        if (grad := self.members.weights.grad) is not None:
            norm = torch.linalg.vector_norm(grad, dim=1, keepdim=True)
            grad *= (max_norm / (norm + 1e-6)).clamp(max=1.0)

    def compile(self) -> None:
        """Compile the network's pass at one weight vector, which variances start from."""
        network = self.model.network
        network.at_vector(self.members.weights[0].detach(), self.members.weights.new_zeros(1, network.sizes[0]))

    def _for_each(self, rows: Rows) -> Rows:
        """Return the rows once for each member; the generator of held-out rows is set to all of them."""
        return rows.take(torch.arange(len(rows), device=rows.device).repeat(self.n_members))

    def _at_own_rows(self, rows: Rows, generator: BatchGenerator) -> NetworkGaussian:
        generator.rows, generator.total = slice(0, len(rows)), len(rows)
        x = rows.x.unflatten(0, (self.n_members, -1))
        return self.members.at_own_rows(self.model.network, x, generator)

    def _error(self, rows: Rows, generator: BatchGenerator, error: ErrorOfMeans) -> Float[Tensor, " n_members"]:
        mean = self._at_own_rows(rows, generator).mean
        return error(mean, rows.y.unflatten(0, (self.n_members, -1)).to(mean.dtype), self.group)

    def _log_prob(self, rows: Rows, generator: BatchGenerator) -> Float[Tensor, "n_members b"]:
        """Compute the log likelihood of each member's rows, with one draw of masks, tolerances and sensors."""
        output = self._at_own_rows(rows, generator)
        factor = None if output.sensor_factor is None else output.sensor_factor.flatten(0, 1)
        flat = NetworkGaussian(output.mean.flatten(0, 1), output.var.flatten(0, 1), factor)
        return self.model.log_likelihood(flat, rows, generator).unflatten(0, (self.n_members, -1))

    @staticmethod
    def _differentiate(loss: Tensor, parameters: Sequence[nn.Parameter]) -> None:
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient


LearnerFactory = Callable[[ConstrainedBNN, int, Group], Learner]


def learner_of(model: ConstrainedBNN, seed: int = 0, group: Group = ALONE) -> Learner:
    """Return the learner for a model's weights; arguments are those of `Learner`."""
    kind = MembersLearner if isinstance(model.network.posterior, Members) else PosteriorLearner
    return kind(model, seed, group)


def _mixture_nll(log_prob: list[Tensor]) -> Tensor:
    """Return `−log mean_d p_d` of the densities of several draws."""
    return math.log(len(log_prob)) - torch.stack(log_prob).logsumexp(0)
