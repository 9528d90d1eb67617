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
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from equipoise.data import Rows
from equipoise.errors import MissingPackageError
from equipoise.gaussian import ConditionedGaussian
from equipoise.rivals.methods.gains import GainGaussian, orthogonal_gain
from equipoise.rivals.methods.imposed_network import ImposedBNN
from equipoise.rivals.methods.member_training import MemberTraining
from equipoise.training import TrainingPlan

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


def fine_tune(
    model: ImposedBNN,
    weights: Float[Tensor, "M P"],
    rows: Rows,
    plan: TrainingPlan,
    seeds: list[int],
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "M P"], dict[str, float]]:
    """Continue the training of members with the QP layer for a few epochs, and time its steps.

    Args:
        model: Has a conditioning of tolerance 0; afterwards it has the closed form, which predicts the same.
        weights: Weights of each member, trained without balances.
        rows: Training rows, of which the first `ROWS` are used.
        plan: The plan of the training before; its learning rate is lowered.
        seeds: Seed of each member's shuffling.
        dropout: Probability that a hidden unit is left out in a step.
    Returns: The weights, and seconds per step by "closed form" and by "qp".
    """
    gentle_plan = replace(plan, learning_rate=RATE * plan.learning_rate, kl_warmup=0.0)
    run = MemberTraining(model, rows.take(slice(0, ROWS)), None, gentle_plan, seeds, dropout)
    run.start_from(weights)
    solve = quadratic_layer(model.conditioning.B)  # type: ignore[union-attr]
    closed_form = partial(GainGaussian.of, rule=orthogonal_gain)
    seconds = {}
    with _quiet():
        for name, model.impose in {"closed form": closed_form, "qp": partial(SolvedGaussian.by, solve)}.items():
            seconds[name] = _seconds_per_step(run)
        run.start_from(weights)
        run.history.epochs.extend(run.epochs(EPOCHS))
    model.impose = closed_form
    return run.weights.detach(), seconds


def _seconds_per_step(run: MemberTraining, steps: int = 3) -> float:
    size = run.plan.rows_per_step(len(run.rows)) * len(run.seeds)
    batch, generator = run.rows.take(torch.arange(size) % len(run.rows)), torch.Generator().manual_seed(0)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run.step(batch, 0.5, generator)
        times.append(time.perf_counter() - start)
    return min(times)
