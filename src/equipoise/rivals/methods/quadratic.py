"""The QP layer (OptNet 2017, cvxpylayers 2019): projection as an optimisation problem inside the network.

::

    minimise ½ ‖y − μ‖²   subject to   B y = t

solved row by row by a general solver and differentiated through its optimality conditions. For linear balances the
solution is that of `orthogonal_gain`, to rounding: the layer is here to show that, and what it costs.
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
from equipoise.rivals.methods.fitting import MembersRun
from equipoise.rivals.methods.gains import GainGaussian, orthogonal_gain
from equipoise.rivals.methods.imposing import ImposedBNN
from equipoise.training import TrainingPlan

EPOCHS, ROWS = 5, 1000  # of fine-tuning: a solve per row and step allows no more
RATE = 0.1  # of the plan's
# Other solvers and modes leave gradients wrong in the fourth digit; one thread, as the closed form is given.
SOLVER = {"solve_method": "SCS", "eps": 1e-10, "n_jobs_forward": 1}
DERIVATIVE = {"mode": "dense", "n_jobs_backward": 1}

Solve = Callable[[Tensor, Tensor], Tensor]


def quadratic_layer(B: Float[Tensor, "m n_y"]) -> Solve:
    """The function that takes means `(n, n_y)` and targets `(n, m)` to the nearest means that obey.

    Raises: ImportError, if cvxpylayers is not installed.
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
    """Without the warnings of packages that announce their own changes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class SolvedGaussian(GainGaussian):
    """Orthogonal projection whose mean a solver finds.

    Args:
        solve: From `quadratic_layer`.
    """

    solve: Solve | None = None

    @classmethod
    def by(cls, solve: Solve, conditioned: ConditionedGaussian) -> "SolvedGaussian":
        """The same Gaussian and balances, its mean to be projected by a solver."""
        return replace(cls.of(conditioned, orthogonal_gain), solve=solve)  # type: ignore[return-value]

    @cached_property
    def mean(self) -> Float[Tensor, "... n_y"]:
        """The nearest point to `μ` that obeys."""
        return self._to_outputs(self.solve(self.prior.mean, self.target))  # type: ignore[misc]


def fine_tune(
    model: ImposedBNN,
    weights: Float[Tensor, "M P"],
    rows: Rows,
    plan: TrainingPlan,
    seeds: list[int],
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "M P"], dict[str, float]]:
    """Train on with the layer for a few epochs of a few rows; the weights, and seconds per step by either way.

    Args:
        model: With a conditioning of tolerance 0; it is left with the closed form, which predicts the same.
        weights: Of each member, trained without balances.
        rows: Training rows, of which the first are taken.
        plan: Of the training, whose rate is lowered.
        seeds: Of each member's shuffling.
        dropout: Probability that a hidden unit is left out in a step.
    """
    gently = replace(plan, learning_rate=RATE * plan.learning_rate, kl_warmup=0.0)
    run = MembersRun(model, rows.take(slice(0, ROWS)), None, gently, seeds, dropout)
    run.start_from(weights)
    solve = quadratic_layer(model.conditioning.B)  # type: ignore[union-attr]
    ways = {"closed form": partial(GainGaussian.of, rule=orthogonal_gain), "qp": partial(SolvedGaussian.by, solve)}
    seconds = {}
    with _quiet():
        for name, model.meet in ways.items():
            seconds[name] = _seconds_per_step(run)
        run.start_from(weights)
        run.history.epochs.extend(run.epochs(EPOCHS))
    model.meet = ways["closed form"]
    return run.weights.detach(), seconds


def _seconds_per_step(run: MembersRun, steps: int = 3) -> float:
    size = run.plan.rows_per_step(len(run.rows)) * len(run.seeds)
    batch, generator = run.rows.take(torch.arange(size) % len(run.rows)), torch.Generator().manual_seed(0)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        run.step(batch, 0.5, generator)
        times.append(time.perf_counter() - start)
    return min(times)
