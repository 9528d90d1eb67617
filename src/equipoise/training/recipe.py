"""Recipes: how an estimator builds its model from data and trains it.

An estimator translates between the user's tables and rows in standardized units; everything between rows and a fitted
model is its recipe. Another method behind the same face, such as those in `rivals`, is another recipe.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances import Equality
from equipoise.data import AnyRows, Array, Rows, TrainingData, resolve_sensor_std, tolerance_by_balance
from equipoise.network import (
    LIKELIHOODS,
    BayesianMLP,
    ConstrainedBNN,
    Likelihood,
    PosteriorFactory,
    derived_seed,
    marginal as independent,
)
from equipoise.training.loop import History, train
from equipoise.training.phases import STARTS
from equipoise.training.plan import TrainingPlan

Callback = Callable[[dict], object] | None


@dataclass(frozen=True)
class Fit:
    """The result of a training.

    Args:
        model: The model to predict with.
        history: Record of every epoch.
        attributes: Further attributes for the estimator, by name, as JSON can hold them.
    """

    model: ConstrainedBNN
    history: History
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The recipe of `ConstrainedBNNRegressor`, whose parameters its arguments are.

    Args:
        likelihood: The likelihood in training.
        tolerance, sensor_std, offset: Tolerances, sensors and offsets as the user gives them.
        hidden, activation, prior_std: Of the network.
        posterior: Makes the posterior of the weights.
        start: What variances, tolerances and sensors start from, a key of `STARTS`.
        plan: Settings of training.
        seed: Seed of all randomness.
        device: Device of torch.

    Attributes:
        can_stream: Whether `fit` accepts rows that are read batch by batch.
        holds_out: Whether held-out rows decide when training stops.
        has_sensor_head: Whether the noise of learned sensors depends on the inputs (V4).
    """

    likelihood: Likelihood
    tolerance: Any = None
    sensor_std: Any = "learn"
    offset: bool = False
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "silu"
    prior_std: float = 1.0
    posterior: PosteriorFactory
    start: str = "residuals"
    plan: TrainingPlan
    seed: int = 0
    device: torch.device

    can_stream: ClassVar[bool] = True
    holds_out: ClassVar[bool] = True
    has_sensor_head: ClassVar[bool] = True

    def tolerances(self, names: Sequence[str], obeyed: NDArray[np.bool_]) -> dict:
        """Return the tolerance of each balance by name.

        Args:
            names: Names of the balances.
            obeyed: Which balances the data obey to rounding.
        """
        return tolerance_by_balance(self.tolerance, tuple(names), obeyed)

    def sensor_stds(
        self, outputs: Sequence[str], n_rows: int, constraint: Equality | None, obeyed: NDArray[np.bool_]
    ) -> Array | None:
        """Return the standard deviations of the sensors, NaN where they are learned; None for noise-free sensors.

        Args:
            outputs: Names of the outputs.
            n_rows: Number of rows of the table.
            constraint: The balances.
            obeyed: Which balances the data obey to rounding.
        """
        has_noise = self.likelihood.has_sensor_noise
        return resolve_sensor_std(self.sensor_std, tuple(outputs), n_rows, constraint, has_noise, obeyed)

    def build(self, data: TrainingData) -> ConstrainedBNN:
        """Build the network with its starting weights, and the balances, tolerances and sensors of the data.

        Args:
            data: The table, the standardizer, and what follows from both.
        """
        sensor, constraint = data.sensor(), data.standardizer.constraint
        network = BayesianMLP(
            len(data.standardizer.x_mean),
            data.Y.shape[1],
            self.hidden,
            self.activation,
            sensor_head=self.has_sensor_head and sensor is not None and bool(sensor.learned.any()),
            prior_std=self.prior_std,
            generator=torch.Generator().manual_seed(derived_seed(self.seed, 5)),
            posterior=self.posterior,
        )
        if constraint is None:
            likelihood = independent if self.likelihood.name in LIKELIHOODS else self.likelihood
            return ConstrainedBNN(network, None, likelihood, sensor).to(self.device)
        layer = data.conditioning(self.tolerances(constraint.names, data.obeyed), self.offset)
        return ConstrainedBNN(network, layer, self.likelihood, sensor, data.rounding()).to(self.device)

    def fit(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        *,
        checkpoint: str | os.PathLike | None = None,
        verbose: bool = False,
        callback: Callback = None,
    ) -> Fit:
        """Train a model.

        Args:
            model: From `build`; its parameters are changed in place.
            rows: Training rows.
            validation: Held-out rows; None without any.
            checkpoint, verbose, callback: As of `train`.
        """
        history = train(
            model,
            rows,
            validation,
            self.plan,
            seed=self.seed,
            phases=STARTS[self.start],
            checkpoint=checkpoint,
            verbose=verbose,
            callback=callback,
        )
        return Fit(model, history)
