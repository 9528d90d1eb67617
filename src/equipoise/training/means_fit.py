"""A network fitted on squared errors alone: means without any probability, as a yardstick of accuracy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import ArrayLike
from torch import Tensor

from equipoise.data import Array, Rows, Standardizer
from equipoise.errors import InputError
from equipoise.network import BayesianMLP, ConstrainedBNN, derived_seed, marginal
from equipoise.training.errors_of_means import mean_squares
from equipoise.training.learners import ErrorOfMeans, Learner
from equipoise.training.loop import train
from equipoise.training.phases import MeansPhase, shuffled
from equipoise.training.plan import TrainingPlan


@dataclass(frozen=True)
class FittedMeans:
    """A network that predicts means alone; `fit_means` makes it.

    Args:
        network: The network, of whose posterior only the means count.
        standardizer: Its translation to the user's units.
    """

    network: BayesianMLP
    standardizer: Standardizer

    @torch.no_grad()
    def predict(self, X: ArrayLike) -> Array:
        """Predict the outputs.

        Args:
            X: Inputs `(n, n_x)` in the user's units.
        Returns: Means in the outputs' units, `(n, n_y)`.
        """
        x = torch.as_tensor(self.standardizer.inputs(_table("X", X)), dtype=self.network.like.dtype)
        return self.standardizer.outputs_to_user(self.network.mean_at_means(x).double().numpy())


class SquaresPhase(MeansPhase):
    """All epochs of the plan on mean squared errors, without clipping, over the rows once in each.

    Args:
        learner, plan: As of `Phase`.
        generator: Randomness of all orders, one after the other.
    """

    error: ErrorOfMeans = staticmethod(mean_squares)
    loss = "mse"

    def __init__(self, learner: Learner, plan: TrainingPlan, generator: torch.Generator):
        super().__init__(learner, plan)
        self.generator = generator

    @property
    def n_epochs(self) -> int:
        """All epochs of the plan."""
        return self.plan.max_epochs

    def orders(self, n_rows: int, epoch: int) -> Int64[Tensor, "1 n_shown"]:
        """Return the next order; arguments are those of `Phase.orders`."""
        return shuffled(n_rows, 1, self.generator).unsqueeze(0)

    def limit_gradients(self) -> None:
        """Leave gradients as they are."""


def fit_means(
    X: ArrayLike,
    Y: ArrayLike,
    *,
    hidden: tuple[int, ...] = (64, 64),
    activation: str = "silu",
    training: TrainingPlan | None = None,
    random_state: int = 0,
    callback: Callable[[dict], object] | None = None,
) -> FittedMeans:
    """Fit a network of means on squared errors: no probabilities, no balances, no held-out rows.

    It starts with the weights with which `ConstrainedBNNRegressor` starts, and has its schedule of rates, so that it
    shows how accurate a network of this size can be.

    Args:
        X: Inputs `(n, n_x)` in any units.
        Y: Outputs `(n, n_y)` in any units; NaN where not measured.
        hidden: Widths of the hidden layers.
        activation: "silu", "tanh", "relu" or "gelu".
        training: `max_epochs`, `mean_learning_rate` and `batch_size` are used; defaults if None.
        random_state: Seed of starting weights and order of the rows.
        callback: Called with the record of each epoch.
    Returns: The fitted network.
    Raises: InputError, if X or Y is no table of numbers.

    Example:
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> fit = fit_means(x, x**2, hidden=(16,), training=TrainingPlan(max_epochs=200))
        >>> bool(abs(fit.predict(x) - x**2).max() < 0.1)
        True
    """
    X, Y, plan = _table("X", X), _table("Y", Y), training or TrainingPlan()
    if len(X) != len(Y) or not np.isfinite(X).all():
        raise InputError(f"X must have a finite row for each of the {len(Y)} rows of Y, but got shape {X.shape}.")
    standardizer = Standardizer.fit(X, Y, None)
    x = torch.as_tensor(standardizer.inputs(X), dtype=torch.float32)
    y = torch.as_tensor(standardizer.outputs(Y), dtype=torch.float32)
    generator = torch.Generator().manual_seed(derived_seed(random_state, 5))
    network = BayesianMLP(X.shape[1], Y.shape[1], hidden, activation, generator=generator)
    phases = [partial(SquaresPhase, generator=generator)]
    model = ConstrainedBNN(network, likelihood=marginal)
    train(model, Rows(x, y), None, plan, seed=random_state, phases=phases, callback=callback)
    return FittedMeans(network, standardizer)


def _table(name: str, values: ArrayLike) -> Array:
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or not table.size:
        raise InputError(f"{name} must be a table of numbers, but got shape {table.shape}.")
    return table
