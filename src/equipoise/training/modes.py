"""Modes: members trained to the mode of their posterior, with the prior's strength learned from the evidence.

Two phases. *Misfit*: means are fitted without balances, each output with a constant variance. *Mode*: means are fitted
to the joint likelihood and the prior. An epoch of either is a short descent (`descent.py`), after which the precisions
of the prior move towards those with the largest evidence (`evidence.py`); so do variances, tolerances and sensors
(`variance_fit.py`). Nothing is held out. At the end every member is linearised about the point where it stopped, and
one Gauss–Newton step leads to the mode of the linearised network.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import AnyRows, Rows
from equipoise.gaussian import BatchGenerator, DiagonalGaussian, Gaussian
from equipoise.network import (
    LIKELIHOODS,
    ConstrainedBNN,
    LinearisedLaplace,
    Members,
    derived_seed,
    marginal,
)
from equipoise.training.descent import LossOfMeans, density_loss, descend, normal_loss
from equipoise.training.distributed import ALONE, Group
from equipoise.training.evidence import LinearEvidence, Measurements, PriorPrecisions, TangentKernel
from equipoise.training.learners import MembersLearner
from equipoise.training.phases import Phase
from equipoise.training.starting_variances import split_variances
from equipoise.training.variance_fit import FittedMember, VarianceFit, VarianceHead
from equipoise.training.variance_posterior import LinearisedMember, draw_posterior

EPOCHS = {"misfit": 12, "mode": 12}
FITS = 4  # of variances in the last phase
STEPS = 12  # of a fit of variances to the evidence
MORE_STEPS = 30  # while weights are held
ITERATIONS = 15  # of a descent, in a table that evidence sees as a whole
MORE_ITERATIONS = 60  # in a larger one
DESCENT_ROWS = 16384  # at most, at random; priors then count as much as beside all rows
UPDATE_NUMBERS = 640  # rows × outputs over which evidence is computed between updates
HELD_NUMBERS = 65536  # over which variances are fitted while the weights are held
FINAL_NUMBERS = 16384  # and at the end
KEPT_DRAWS = 256
SEARCHES = 3  # for the modes of a small network, with updates in between
REPEATS = 3  # of each, since variances are held only nearly
LAST_REPEATS = 12
SEARCH_ITERATIONS = 400
EVIDENCE_SLACK = 10.0  # nats
FIRST_VARIANCE = 0.1
LEAST_FREEDOM = 0.2


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
    determined: Tensor

    def __init__(self, weights: Float[Tensor, "M P"], sizes: Sequence[int], n_outputs: int):
        super().__init__(weights)
        groups = PriorPrecisions.scaled_by_fan_in(sizes, n_outputs)
        self.n_inputs = groups.n_inputs
        self.register_buffer("group", groups.group, persistent=False)
        self.register_buffer("precisions", groups.of_group.repeat(len(weights), 1))
        self.register_buffer("head_precisions", torch.ones(len(weights), n_outputs, dtype=torch.float64))
        self.register_buffer("determined", torch.zeros(len(weights), dtype=torch.float64))
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

    def descend(self, rows: AnyRows, key: int, joint: bool, iterations: int) -> float:
        """Move every member towards its mode; return the loss per row, averaged over members, priors included.

        Args:
            rows: Training rows.
            key: Number of the choice of rows, from a large table.
            joint: As of `measurements`.
            iterations: Number of steps.
        """
        part, weight = self.some_rows(rows, DESCENT_ROWS * self.model.network.n_outputs, key)
        total, scaled = 0.0, not self.sees_all(rows)
        for m, precision in enumerate(self.modes.precision_of_each):
            weights = self.modes.weights[m].detach()
            loss = self._loss(m, part, weight, joint)
            better, value = descend(self.model.network, weights, part.x, loss, precision, iterations, scaled)
            self.modes.weights.data[m] = better
            total += value / self.n_members
        return total / self.n_rows

    def _loss(self, member: int, rows: Rows, weight: float, joint: bool) -> LossOfMeans:
        """Return the loss of a member's means, at variances that are held."""
        if not joint:
            return normal_loss(rows.y, self.modes.misfit_var, weight)
        if type(self.model.likelihood) in map(type, LIKELIHOODS.values()):  # quadratic in the means
            var = self._var(member, rows)
            return self._expanded(rows, var, torch.zeros_like(var), weight).loss
        return density_loss(lambda mean: self._density(member, mean, rows), weight)

    def _var(self, member: int, rows: Rows) -> Tensor:
        with torch.no_grad():
            return self.model.network.at(self.modes.weights[member : member + 1], rows.x).var[0].double()

    def _expanded(self, rows: Rows, var: Tensor, mean: Tensor, weight: float) -> Measurements:
        """Return what the likelihood of the model says about means."""
        return Measurements.of(
            self.model.likelihood,
            lambda mean: self.conditioned(DiagonalGaussian(mean, var), rows),
            mean,
            rows.y,
            self.sensor_var(rows),
            weight,
        )

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
        return self._expanded(rows, self._var(member, rows), kernel.head.mean, weight)

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
        part, weight = self.some_rows(rows, UPDATE_NUMBERS, key)
        variances = []
        for m in range(self.n_members):
            evidence = self.evidence(m, part, weight=weight if joint else 1.0, joint=joint)
            weights = self.modes.weights[m].detach() if joint and weight > 1 else None
            self.modes.determined[m] = evidence.update_precisions(self._signs(m, key), weights=weights)
            self.modes.precisions[m] = evidence.precisions.of_group
            if not joint and weight == 1:
                measured = ~part.y.isnan()
                squares = torch.where(measured, evidence.residuals.square(), 0.0).sum(0)
                freedom = torch.where(measured, evidence.freedom, 0.0).sum(0)
                variances.append(self.modes.misfit_var * squares / freedom.clamp_min(1e-6))
        if not joint and weight > 1:
            variances = [self._residual_var(m, rows, key) for m in range(self.n_members)]
        if variances:
            self.modes.misfit_var.copy_(torch.stack(variances).mean(0).clamp_min(1e-8))

    def _residual_var(self, member: int, rows: AnyRows, key: int) -> Tensor:
        """Return the mean square of each output's residuals per degree of freedom; as before where none is measured."""
        part, weight = self.some_rows(rows, HELD_NUMBERS, key)
        error = part.y - self.model.network.at(self.modes.weights[member : member + 1], part.x).mean[0]
        mean = error.square().nanmean(0)
        return torch.where(mean.isnan(), self.modes.misfit_var, mean / self._freedom(member, part, weight))

    def _freedom(self, member: int, rows: Rows, weight: float) -> float:
        """Return the share of the measured numbers that a member's weights leave free."""
        freedom = 1.0 - float(self.modes.determined[member]) / (weight * float((~rows.y.isnan()).sum()))
        return max(freedom, LEAST_FREEDOM)

    def sees_all(self, rows: AnyRows) -> bool:
        """Return whether evidence between updates is that of all rows."""
        return len(rows) * self.model.network.n_outputs <= UPDATE_NUMBERS

    @torch.no_grad()
    def fit_variances(self, rows: AnyRows, key: int, heads: bool) -> None:
        """Fit variance heads, tolerances and sensors.

        In a small table they are fitted to the evidence. From a part of a larger one the evidence would learn the noise
        of these rows by heart; there they are fitted to all rows (or very many) with the weights held, of which there
        are fewer than measured numbers. Levels alone, at the start, always follow from the evidence.

        Args:
            rows: Training rows.
            key: Number of the choice of rows.
            heads: Whether variances may depend on the inputs.
        """
        held = heads and not self.sees_all(rows)
        self._variance_fit(rows, key, held).run(heads, MORE_STEPS if held else STEPS)

    @torch.no_grad()
    def set_spreads(self, rows: AnyRows, key: int) -> None:
        """Set how uncertain tolerances and sensors are.

        Args:
            rows: Training rows.
            key: Number of the choice of rows.
        """
        self._variance_fit(rows, key, held=not self.sees_all(rows)).set_spreads()

    def _variance_fit(self, rows: AnyRows, key: int, held: bool) -> VarianceFit:
        part, weight = self.some_rows(rows, HELD_NUMBERS if held else UPDATE_NUMBERS, key)
        members = []
        for m in range(self.n_members):
            weights, precisions = self.modes.weights[m].detach(), self.modes.prior(m)
            kernel = TangentKernel(self.model.network, weights, part.x)
            covariance = None if held else kernel.covariance(precisions)
            head = VarianceHead.of(self.model, weights, part.x)
            freedom = self._freedom(m, part, weight)
            members.append(FittedMember(weights, kernel, precisions, covariance, head, freedom))
        return VarianceFit(self.model, part, members, self.modes.head_precisions, weight)

    def _signs(self, member: int, key: int) -> torch.Generator:
        return torch.Generator().manual_seed(derived_seed(self.seed, 14, key, member))

    @torch.no_grad()
    def reach_modes(self, rows: AnyRows, key: int) -> None:
        """Bring all members to modes of their posterior, in a small table with more measured numbers than weights.

        With more weights than that, there are modes at which hidden units know the noise by heart. Such networks are
        linearised where they stopped.

        Args:
            rows: Training rows.
            key: Number of the choice of rows, for updates in between.
        """
        part, _ = self.some_rows(rows, UPDATE_NUMBERS, 0)
        if not self.sees_all(rows) or int((self.modes.group >= 0).sum()) > int((~part.y.isnan()).sum()):
            return
        for search in range(SEARCHES):
            if search > 0:
                self.update_priors(rows, key + search, joint=True)
                self.fit_variances(rows, key + search, heads=True)
            for member in range(self.n_members):
                for _ in range(LAST_REPEATS if search + 1 == SEARCHES else REPEATS):
                    self._search(member, part)

    def _search(self, member: int, rows: Rows) -> None:
        """Move a member's weights to the nearest mode, in place, and hold its variances."""
        weights, precision = self.modes.weights[member].detach(), self.modes.precision_of_each[member]
        var, loss = self._var(member, rows), self._loss(member, rows, 1.0, joint=True)
        reached, _ = descend(self.model.network, weights, rows.x, loss, precision, SEARCH_ITERATIONS)
        weights.copy_(reached)
        head = VarianceHead.of(self.model, weights, rows.x)
        head.nearest_to(var, self.modes.head_precisions[member]).write(self.model, weights)

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

    def _density(self, member: int, mean: Tensor, rows: Rows) -> Tensor:
        return self.log_prob(DiagonalGaussian(mean, self._var(member, rows)), rows)

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
        shares = member_shares(torch.tensor([each.log_evidence / weight for each in members], dtype=torch.float64))
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
    """The common part of both phases: epochs of a descent and of updates of the priors; arguments as of `Phase`."""

    learner: ModesLearner
    loss = "nll"
    joint: bool

    @property
    def n_epochs(self) -> int:
        """At most half of the plan's epochs."""
        return max(1, min(self.plan.max_epochs // 2, EPOCHS[self.name]))

    def run_epoch(self, rows: AnyRows, epoch: int, steps: Callable[[], float]) -> float:
        """Make a descent, and update what follows from the evidence; arguments are those of `Phase.run_epoch`."""
        key = epoch + self.number * EPOCHS["misfit"]
        iterations = ITERATIONS if self.learner.sees_all(rows) else MORE_ITERATIONS
        loss = self.learner.descend(rows, key, self.joint, iterations)
        self.update(rows, epoch, key)
        return loss

    @abstractmethod
    def update(self, rows: AnyRows, epoch: int, key: int) -> None:
        """Update what follows from the evidence.

        Args:
            rows: Training rows.
            epoch: Number of the epoch within the phase.
            key: Number of the choice of rows.
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

    name, number, joint = "misfit", 0, False

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start from the weights as they are.

        Args:
            rows, validation: No effect.
        """

    def update(self, rows: AnyRows, epoch: int, key: int) -> None:
        """Update precisions of the priors, and variances; arguments are those of `_ModePhase.update`."""
        self.learner.update_priors(rows, key, joint=False)


class ModePhase(_ModePhase):
    """The second phase: means on the joint likelihood and the prior."""

    name, number, joint = "mode", 1, True

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Split the variances of the first phase, and fit them to the evidence.

        Args:
            rows: Training rows.
            validation: No effect.
        """
        self.learner.start_variances(rows, validation, 0.0)
        self.learner.fit_variances(rows, 0, heads=False)
        if self.learner.sees_all(rows):
            self.learner.fit_variances(rows, 0, heads=True)

    def update(self, rows: AnyRows, epoch: int, key: int) -> None:
        """Update precisions of the priors and variances; arguments are those of `_ModePhase.update`."""
        last = epoch + 1 == self.n_epochs
        self.learner.update_priors(rows, key, joint=True)
        if last or (epoch + 1) % max(1, self.n_epochs // FITS) == 0:
            self.learner.fit_variances(rows, key, heads=True)
        if last:
            self.learner.reach_modes(rows, key)
            self.learner.set_spreads(rows, key)


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
