"""Modes: members trained to the mode of their posterior, with the prior's strength learned from the evidence.

Two phases. *Misfit*: means are fitted without balances, each output with a constant variance. *Mode*: means are fitted
to the joint likelihood and the prior. After some epochs of either, the precisions of the prior move towards those with
the largest evidence (`evidence.py`), and so do variances, tolerances and sensors (`variance_fit.py`). Nothing is held
out. At the end every member is linearised about the point where it stopped, and one Gauss–Newton step leads to the mode
of the linearised network.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator, DiagonalGaussian, Gaussian
from equipoise.network import (
    ConstrainedBNN,
    LinearisedLaplace,
    Members,
    derived_seed,
    marginal,
)
from equipoise.training.distributed import ALONE, Group
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel
from equipoise.training.learners import MembersLearner
from equipoise.training.mode_search import held_head, nearest_mode
from equipoise.training.phases import Phase, shuffled
from equipoise.training.plan import cosine
from equipoise.training.starting_variances import split_variances
from equipoise.training.variance_fit import FittedMember, VarianceFit, VarianceHead
from equipoise.training.variance_posterior import LinearisedMember, draw_posterior

UPDATES = {"misfit": 10, "mode": 10}  # of the prior's precisions in a phase
FITS = 4  # of variances in the last phase
RATES = {"misfit": 3e-3, "mode": 1.5e-3}
STEPS_PER_EPOCH = 4  # at least
MOST_STEPS = 6000  # of a phase
UPDATE_NUMBERS = 640  # rows × outputs over which evidence is computed between updates
FINAL_NUMBERS = 4096  # and at the end
KEPT_DRAWS = 256
SEARCHES = 3  # for the modes of a small network, with updates in between
REPEATS = 3  # of each, since variances are held only nearly
LAST_REPEATS = 12
EVIDENCE_SLACK = 10.0  # nats
FIRST_VARIANCE = 0.1


class Modes(Members):
    """Members that are trained to modes: their weights, and the strength of their priors.

    Args:
        weights: Starting weights, shape `(M, P)`.
        sizes: Widths of inputs, hidden layers and last layer.
        n_outputs: Number of means, the first units of the last layer.
    """

    name = "modes"
    group: Tensor
    precisions: Tensor
    head_precisions: Tensor
    misfit_var: Tensor

    def __init__(self, weights: Float[Tensor, "M P"], sizes: Sequence[int], n_outputs: int):
        super().__init__(weights)
        groups = PriorPrecisions.scaled_by_fan_in(sizes, n_outputs)
        self.n_inputs = groups.n_inputs
        self.register_buffer("group", groups.group, persistent=False)
        self.register_buffer("precisions", groups.of_group.repeat(len(weights), 1))
        self.register_buffer("head_precisions", torch.ones(len(weights), n_outputs, dtype=torch.float64))
        self.register_buffer("misfit_var", torch.full((n_outputs,), FIRST_VARIANCE, dtype=torch.float64))

    def prior(self, member: int) -> PriorPrecisions:
        """Return the prior of a member."""
        return PriorPrecisions(self.group, self.precisions[member].clone(), self.n_inputs)

    @property
    def precision_of_each(self) -> Float[Tensor, "M P"]:
        """Prior precision of each weight of each member, in the weights' type."""
        own = self.precisions[:, self.group.clamp_min(0)]
        return torch.where(self.group >= 0, own, 0.0).to(self.weights)


class ModesLearner(MembersLearner):
    """Members trained to the mode of their posterior; tolerances and sensors are at their medians.

    Args:
        model, seed, group: Those of `Learner`.
        n_rows: Number of training rows, of which the priors are one part in the loss per row.
    """

    def __init__(self, model: ConstrainedBNN, seed: int = 0, group: Group = ALONE, n_rows: int = 1):
        super().__init__(model, seed, group)
        self.n_rows = n_rows

    @property
    def modes(self) -> Modes:
        """The members, with the strength of their priors."""
        return self.members  # type: ignore[return-value]

    def backward_misfit(self, batch: Rows) -> Float[Tensor, " n_members"]:
        """Return the negative log likelihood per row without balances, and leave the gradient of it and the prior."""
        x = batch.x.unflatten(0, (self.n_members, -1))
        mean = self.model.network.at(self.modes.weights, x).mean
        y, var = batch.y.unflatten(0, (self.n_members, -1)), self.modes.misfit_var
        measured = ~y.isnan()
        error = torch.where(measured, y - mean, 0.0)
        losses = 0.5 * (error.square() / var + torch.where(measured, var.log(), 0.0)).sum(-1).mean(1)
        return self._with_prior(losses)

    def backward_mode(self, batch: Rows) -> Float[Tensor, " n_members"]:
        """Return the negative log likelihood per row, and leave the gradient of it and the prior."""
        x = batch.x.unflatten(0, (self.n_members, -1))
        prior = self.model.network.at(self.modes.weights, x)
        flat = DiagonalGaussian(prior.mean.flatten(0, 1), prior.var.detach().flatten(0, 1))
        return self._with_prior(-self.log_prob(flat, batch).unflatten(0, (self.n_members, -1)).mean(1))

    def _with_prior(self, losses: Tensor) -> Tensor:
        weights = self.modes.weights
        prior = 0.5 * (self.modes.precision_of_each * weights.square()).sum() / self.n_rows
        self._differentiate(losses.sum() + prior, [weights])
        return losses.detach()

    def conditioned(self, gaussian: DiagonalGaussian, rows: Rows) -> Gaussian:
        """Condition the network's Gaussian on the balances, with tolerances and offsets at their medians.

        Args:
            gaussian: The network's Gaussian at the rows.
            rows: The rows.
        """
        layer = self.model.conditioning
        offset = None if layer is None or layer.offset is None else layer.offset.loc.detach()
        tol_var = None if layer is None else layer.tolerance.median().detach()
        return self.model.condition(gaussian, rows.target, tol_var, offset, rows.B)

    def log_prob(self, gaussian: DiagonalGaussian, rows: Rows) -> Tensor:
        """Compute the log density of each row.

        Args:
            gaussian: The network's Gaussian at the rows, before conditioning.
            rows: The rows.
        """
        return self.model.likelihood(self.conditioned(gaussian, rows), rows.y, self.sensor_var(rows))

    def sensor_var(self, rows: Rows) -> Tensor | float:
        """Return the variances of the sensors at these rows: known ones, or the medians of learned ones."""
        if rows.sensor_var is not None:
            return rows.sensor_var
        return 0.0 if self.model.sensor is None else self.model.sensor.median().detach()

    # ------------------------------------------------------------------ evidence

    def some_rows(self, rows: AnyRows, most_numbers: int, key: int) -> tuple[Rows, float]:
        """Return rows chosen at random, and the number of rows of the table that each stands for.

        Args:
            rows: Training rows.
            most_numbers: Rows × outputs, at most; all of a smaller table.
            key: Number of the choice.
        """
        n = max(1, min(len(rows), most_numbers // self.model.network.n_outputs))
        generator = torch.Generator().manual_seed(derived_seed(self.seed, 12, key))
        index = torch.randperm(len(rows), generator=generator)[:n].sort().values
        return rows.take(index.to(rows.device)), len(rows) / n

    def measurements(self, member: int, kernel: TangentKernel, rows: Rows, weight: float, joint: bool) -> Measurements:
        """Return what the likelihood says about a member's means.

        Args:
            member: Number of the member.
            kernel: Its network, linearised at the rows.
            rows: The rows.
            weight: How often each row counts.
            joint: Whether the likelihood is that of the model; otherwise that of the first phase.
        """
        if not joint:
            var = self.modes.misfit_var.expand(len(rows), -1)
            return Measurements.of(
                marginal, lambda mean: DiagonalGaussian(mean, var), kernel.head.mean, rows.y, 0.0, weight
            )
        var = self.model.network.at(self.modes.weights[member : member + 1].detach(), rows.x).var[0].double()
        return Measurements.of(
            self.model.likelihood,
            lambda mean: self.conditioned(DiagonalGaussian(mean, var), rows),
            kernel.head.mean,
            rows.y,
            self.sensor_var(rows),
            weight,
        )

    def evidence(self, member: int, rows: Rows, weight: float = 1.0, joint: bool = True) -> LinearEvidence:
        """Linearise a member at its weights and return its posterior at some rows.

        Args:
            member, rows, weight, joint: Those of `measurements`.
        """
        kernel = TangentKernel(self.model.network, self.modes.weights[member].detach(), rows.x)
        measurements = self.measurements(member, kernel, rows, weight, joint)
        return LinearEvidence(kernel, self.modes.prior(member), measurements)

    @torch.no_grad()
    def update_priors(self, rows: AnyRows, key: int, joint: bool) -> None:
        """Move the prior precisions of all members towards the largest evidence, at some of the rows.

        Args:
            rows: Training rows.
            key: Number of the choice of rows.
            joint: As of `measurements`; in the first phase its variances are updated, too.
        """
        part, _ = self.some_rows(rows, UPDATE_NUMBERS, key)
        variances = []
        for m in range(self.n_members):
            evidence = self.evidence(m, part, joint=joint)
            evidence.update_precisions()
            self.modes.precisions[m] = evidence.precisions.of_group
            if not joint:
                measured = ~part.y.isnan()
                squares = torch.where(measured, evidence.residuals.square(), 0.0).sum(0)
                freedom = torch.where(measured, evidence.freedom, 0.0).sum(0)
                variances.append(self.modes.misfit_var * squares / freedom.clamp_min(1e-6))
        if variances:
            self.modes.misfit_var.copy_(torch.stack(variances).mean(0).clamp_min(1e-8))

    @torch.no_grad()
    def fit_variances(self, rows: AnyRows, key: int, heads: bool, spreads: bool = False) -> None:
        """Fit variance heads, tolerances and sensors to the evidence of all members, at some of the rows.

        Args:
            rows: Training rows.
            key: Number of the choice of rows.
            heads: Whether variances may depend on the inputs.
            spreads: Whether the uncertainty of tolerances and sensors is computed, too.
        """
        part, weight = self.some_rows(rows, UPDATE_NUMBERS, key)
        members = []
        for m in range(self.n_members):
            weights, precisions = self.modes.weights[m].detach(), self.modes.prior(m)
            kernel = TangentKernel(self.model.network, weights, part.x)
            head = VarianceHead.of(self.model, weights, part.x)
            members.append(FittedMember(weights, kernel, precisions, kernel.covariance(precisions), head))
        fit = VarianceFit(self.model, part, members, self.modes.head_precisions, weight)
        fit.run(heads)
        if spreads:
            fit.set_spreads()

    @torch.no_grad()
    def reach_modes(self, rows: AnyRows, key: int) -> None:
        """Bring all members to modes of their posterior, unless weights outnumber what was measured.

        With as many weights as that, there are modes at which hidden units know the noise by heart. Such networks are
        linearised where they stopped.

        Args:
            rows: Training rows; only those of a small table are used, since all are needed.
            key: Number of the choice of rows, for updates in between.
        """
        part, weight = self.some_rows(rows, FINAL_NUMBERS, 0)
        if weight > 1 or int((self.modes.group >= 0).sum()) > int((~part.y.isnan()).sum()):
            return
        for search in range(SEARCHES):
            if search > 0:
                self.update_priors(rows, key + search, joint=True)
                self.fit_variances(rows, key + search, heads=True, spreads=search + 1 == SEARCHES)
            for m, weights in enumerate(self.modes.weights.detach().unbind()):
                for _ in range(LAST_REPEATS if search + 1 == SEARCHES else REPEATS):
                    self._search(m, weights, part)

    def _search(self, member: int, weights: Float[Tensor, " P"], rows: Rows) -> None:
        """Move a member's weights to the nearest mode, in place, and hold its variances."""
        kernel = TangentKernel(self.model.network, weights, rows.x)
        var = VarianceHead.of(self.model, weights, rows.x).var()
        measurements = self.measurements(member, kernel, rows, 1.0, joint=True)
        weights.copy_(nearest_mode(self.model.network, weights, rows.x, self.modes.prior(member), measurements))
        head = VarianceHead.of(self.model, weights, rows.x)
        held_head(head, var, self.modes.head_precisions[member]).write(self.model, weights)

    @torch.no_grad()
    def start_variances(self, rows: AnyRows, validation: Rows | None, init_std: float) -> None:
        """Split the variances of the first phase between networks, sensors and tolerances.

        Args:
            rows: Training rows.
            validation, init_std: No effect.
        """
        for weights in reversed(self.modes.weights.unbind()):
            split_variances(self.model, rows, self.modes.misfit_var, weights)
        self.modes.head_precisions.fill_(0.1 * len(rows))

    @torch.no_grad()
    def posterior(self, rows: AnyRows, n_kept: int = KEPT_DRAWS) -> LinearisedLaplace:
        """Linearise all members where they stopped, and draw weights and variances from their posterior.

        The model's tolerances and sensors become draws that belong to those of the weights.

        Args:
            rows: Training rows.
            n_kept: Number of draws.
        """
        part, weight = self.some_rows(rows, FINAL_NUMBERS, 0)
        points, model = self.modes.weights.detach(), self.model
        members = [LinearisedMember(model, point, self.modes.prior(m), part, weight) for m, point in enumerate(points)]
        shares = member_shares(torch.tensor([each.log_evidence for each in members], dtype=torch.float64))
        generator = torch.Generator().manual_seed(derived_seed(self.seed, 13))
        sample = draw_posterior(model, members, shares, part, n_kept, generator)
        if model.conditioning is not None and sample.tolerance is not None:
            model.conditioning.tolerance = sample.tolerance
        model.sensor = sample.sensor
        return LinearisedLaplace(points, sample.changes.to(points), sample.member.to(points.device))


def member_shares(log_evidence: Float[Tensor, " M"]) -> Float[Tensor, " M"]:
    """Return the weight of each member in predictions: equal ones, but for members that are clearly worse.

    The Laplace approximation of the evidence is good to some nats, and differences of that size mean nothing. Beyond
    that a worse mode loses weight.

    Args:
        log_evidence: Log evidence of each member.

    Example:
        >>> member_shares(torch.tensor([0.0, -1.0, -200.0], dtype=torch.float64))
        tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    lost = (log_evidence.max() - log_evidence - EVIDENCE_SLACK).clamp_min(0.0)
    weights = torch.exp(-lost)
    return weights / weights.sum()


class _ModePhase(Phase):
    """The common part of both phases: few steps in an epoch, and updates of the priors after some epochs."""

    learner: ModesLearner

    @property
    def n_epochs(self) -> int:
        """Half of the plan's epochs, fewer over large tables."""
        n_rows = self.learner.n_rows
        per_epoch = max(STEPS_PER_EPOCH, math.ceil(n_rows / self.plan.rows_per_step(n_rows)))
        return max(1, min(self.plan.max_epochs // 2, MOST_STEPS // per_epoch))

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start from the weights as they are.

        Args:
            rows, validation: No effect.
        """

    def orders(self, n_rows: int, epoch: int) -> Tensor:
        """Return orders of the rows with at least `STEPS_PER_EPOCH` steps.

        Args:
            n_rows: Number of rows.
            epoch: Number of the epoch within the phase.
        """
        steps = math.ceil(n_rows / self.plan.rows_per_step(n_rows))
        passes = max(1, math.ceil(STEPS_PER_EPOCH / steps))
        generators = map(torch.Generator().manual_seed, self.learner.shuffling_seeds(self.number, epoch))
        return torch.stack([shuffled(n_rows, passes, generator) for generator in generators])

    def groups(self) -> list[dict]:
        """Return the weights."""
        return [{"params": self.learner.means(), "peak": RATES[self.name]}]

    def rate(self, fraction: float) -> float:
        """Return the rate of a cosine decay."""
        return cosine(fraction)

    def finish_epoch(self, rows: AnyRows, epoch: int) -> None:
        """Update the priors after some of the epochs.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase, from 0.
        """
        if _is_due(epoch, self.n_epochs, UPDATES[self.name]):
            self.update(rows, epoch)

    @abstractmethod
    def update(self, rows: AnyRows, epoch: int) -> None:
        """Update what follows from the evidence.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase.
        """

    def validate(self, rows: Rows, generator: BatchGenerator) -> Tensor:
        """Return the loss on held-out rows, which decides nothing.

        Args:
            rows: Held-out rows.
            generator: No effect.
        """
        with torch.no_grad():
            prior = self.learner.model.network.at(self.learner.modes.weights, rows.x)
            repeated = rows.take(torch.arange(len(rows)).repeat(self.learner.n_members))
            flat = DiagonalGaussian(prior.mean.flatten(0, 1), prior.var.flatten(0, 1))
            return -self.learner.log_prob(flat, repeated).unflatten(0, (self.learner.n_members, -1)).mean(1)


class MisfitPhase(_ModePhase):
    """The first phase: means alone, without balances, each output with a constant variance."""

    name, number, loss = "misfit", 0, "nll"

    def backward(self, batch: Rows, n_rows: int, fraction: float, generator: BatchGenerator) -> Tensor:
        """Differentiate the misfit; arguments are those of `Phase.backward`.

        Args:
            batch: The rows.
            n_rows, fraction, generator: No effect.
        """
        return self.learner.backward_misfit(batch)

    def update(self, rows: AnyRows, epoch: int) -> None:
        """Update precisions of the priors, and variances.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase.
        """
        self.learner.update_priors(rows, epoch, joint=False)


class ModePhase(_ModePhase):
    """The second phase: means on the joint likelihood and the prior."""

    name, number, loss = "mode", 1, "nll"

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Split the variances of the first phase, and fit them to the evidence.

        Args:
            rows: Training rows.
            validation: No effect.
        """
        self.learner.start_variances(rows, validation, 0.0)
        self.learner.fit_variances(rows, 0, heads=False)
        self.learner.fit_variances(rows, 0, heads=True)

    def backward(self, batch: Rows, n_rows: int, fraction: float, generator: BatchGenerator) -> Tensor:
        """Differentiate the negative log likelihood and the prior.

        Args:
            batch: The rows.
            n_rows, fraction, generator: No effect.
        """
        return self.learner.backward_mode(batch)

    def update(self, rows: AnyRows, epoch: int) -> None:
        """Update precisions of the priors, and now and then variances.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase.
        """
        self.learner.update_priors(rows, self.n_epochs + epoch, joint=True)
        if _is_due(epoch, self.n_epochs, FITS):
            last = epoch + 1 >= self.n_epochs
            self.learner.fit_variances(rows, self.n_epochs + epoch, heads=True, spreads=last)
            if last:
                self.learner.reach_modes(rows, 2 * self.n_epochs)

    def limit_gradients(self) -> None:
        """Hold the heads, and clip."""
        grad = self.learner.modes.weights.grad
        if grad is not None:
            grad *= self.learner.modes.group >= 0
        super().limit_gradients()


def _is_due(epoch: int, n_epochs: int, times: int) -> bool:
    """Return whether an epoch is one of `times` evenly spaced ones, the last among them, after the first quarter."""
    first = n_epochs // 4
    due = {first + round((n_epochs - 1 - first) * (i + 1) / times) for i in range(times)} | {n_epochs - 1}
    return epoch in due


MODE_PHASES = (MisfitPhase, ModePhase)


def starting_modes(model: ConstrainedBNN, weights: Float[Tensor, "M P"]) -> ConstrainedBNN:
    """Return a model whose weights are members to be trained to modes.

    Args:
        model: The model.
        weights: Starting weights.
    """
    network = model.network
    modes = Modes(weights, network.sizes, network.n_outputs).to(weights.device)
    return model.variant(network=network.with_posterior(modes))
