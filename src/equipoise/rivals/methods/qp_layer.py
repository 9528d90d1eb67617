"""The QP layer (OptNet 2017, cvxpylayers 2019): projection as an optimisation problem inside the network.

::

    minimise ½ ‖y − μ‖²   subject to   B y = t

A general solver solves it row by row, and gradients are taken through its optimality conditions. For linear balances
the solution equals that of `orthogonal_gain` to rounding: the layer is here to show that, and to measure its cost.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import AnyRows, Rows
from equipoise.errors import MissingPackageError
from equipoise.gaussian import BatchGenerator, ConditionedGaussian
from equipoise.network import ConstrainedBNN, Imposition
from equipoise.rivals.methods.gains import GainGaussian, Projection, orthogonal_gain
from equipoise.training import BoundPhase, TrainingPlan, TrainingRun

EPOCHS, ROWS = 5, 1000  # of fine-tuning: more would take too long with one solution per row and step
RATE = 0.1  # relative to the plan's learning rate
# Gradients of other solvers and modes are wrong in the fourth digit. One thread, as for the closed form.
SOLVER = {"solve_method": "SCS", "eps": 1e-10, "n_jobs_forward": 1}
DERIVATIVE = {"mode": "dense", "n_jobs_backward": 1}

Solve = Callable[[Tensor, Tensor], Tensor]


def quadratic_layer(B: Float[Tensor, "m n_y"]) -> Solve:
    """Return the function that projects means `(n, n_y)` onto the balances with targets `(n, m)` by a QP solver.

    Raises: MissingPackageError, if cvxpylayers is not installed.
    """
    try:
        with _quiet():
            import cvxpy as cp
            from cvxpylayers.torch import CvxpyLayer  # type: ignore[attr-defined]
    except ImportError:
        raise MissingPackageError(
            "The QP layer needs cvxpylayers. Install it: pip install 'equipoise[compare]'."
        ) from None
    y, mean, target = cp.Variable(B.shape[1]), cp.Parameter(B.shape[1]), cp.Parameter(B.shape[0])
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - mean)), [B.cpu().double().numpy() @ y == target])
    layer = CvxpyLayer(problem, [mean, target], [y])

    def solve(mean: Tensor, target: Tensor) -> Tensor:
        differentiated = torch.is_grad_enabled() and (mean.requires_grad or target.requires_grad)
        arguments = SOLVER | (DERIVATIVE if differentiated else {})
        with _quiet():
            (solved,) = layer(mean.double(), target.double(), solver_args=arguments)
        return solved

    return solve


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings, such as the deprecations that cvxpy and its solvers announce."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class SolvedGaussian(GainGaussian):
    """Orthogonal projection whose mean is computed by a QP solver.

    Args:
        solve: The function that `quadratic_layer` returns.
    """

    solve: Solve | None = None

    @classmethod
    def by(cls, solve: Solve, conditioned: ConditionedGaussian) -> "SolvedGaussian":
        """Replace the mean of a conditioned Gaussian by the solver's projection; its prior and balances stay.

        Args:
            solve: Projects a mean, by mean and target.
            conditioned: The conditioned Gaussian.
        """
        return replace(cls.of(conditioned, orthogonal_gain), solve=solve)  # type: ignore[return-value]

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:
        """The point nearest to `μ` that obeys the balances."""
        return self._to_outputs(self.solve(self.prior.mean, self.target))  # type: ignore[misc]


class SolvedProjection(Imposition):
    """Orthogonal projection by a QP solver.

    Args:
        solve: The function that `quadratic_layer` returns.
    """

    name = "qp"

    def __init__(self, solve: Solve):
        self.solve = solve

    def impose(self, conditioned: ConditionedGaussian) -> SolvedGaussian:
        """Replace the mean of a conditioned Gaussian by the solver's projection, and its gain by that of projection."""
        return SolvedGaussian.by(self.solve, conditioned)


class FineTuning(BoundPhase):
    """A few epochs on the likelihood, which move the weights alone."""

    @property
    def n_epochs(self) -> int:
        """A few."""
        return EPOCHS

    def start(self, rows: AnyRows, validation: Rows | None) -> None:
        """Start from the weights as they are; arguments are those of `Phase.start`."""

    def groups(self) -> list[dict]:
        """Return the weights."""
        return [{"params": self.learner.means(), "peak": self.plan.learning_rate}]


def fine_tune(
    model: ConstrainedBNN, rows: Rows, plan: TrainingPlan, seed: int
) -> tuple[ConstrainedBNN, dict[str, float]]:
    """Continue the training of members with the QP layer for a few epochs, and time its steps.

    Args:
        model: Has members that were trained without balances, and a conditioning of tolerance 0; it stays as it is.
        rows: Training rows, of which the first `ROWS` are used.
        plan: The plan of the training before; its learning rate is lowered.
        seed: Seed of the members' shuffling.
    Returns: The model with its members as they are now, and seconds per step by "closed form" and by "qp".
    """
    gentle_plan = replace(plan, learning_rate=RATE * plan.learning_rate, kl_warmup=0.0)
    solved = SolvedProjection(quadratic_layer(model.conditioning.B))  # type: ignore[union-attr]

    def run(imposition: Imposition) -> TrainingRun:
        members = deepcopy(model.network.posterior)
        copied = model.variant(network=model.network.with_posterior(members), imposition=imposition)
        return TrainingRun(copied, rows.take(slice(0, ROWS)), None, gentle_plan, seed, [FineTuning])

    with _quiet():
        impositions = {"closed form": Projection(), "qp": solved}
        seconds = {name: _seconds_per_step(run(imposition)) for name, imposition in impositions.items()}
        tuned = run(solved)
        for _ in tuned.epochs():
            pass
    return tuned.model.variant(imposition=model.imposition), seconds


def _seconds_per_step(run: TrainingRun, steps: int = 3) -> float:
    size = run.plan.rows_per_step(len(run.rows)) * run.learner.n_members
    batch, generator = run.rows.take(torch.arange(size) % len(run.rows)), BatchGenerator().manual_seed(0)
    run.start(run.phases[0])
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run.step(batch, 0.5, generator)  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    return min(times)
