"""MethodRecipe: how a method of the catalogue builds its model from data and trains it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import Equality
from equipoise.data import AnyRows, Array, Rows, TrainingData
from equipoise.gaussian import TolerancePrior, VariancePrior
from equipoise.network import (
    BayesianMLP,
    ConstrainedBNN,
    Imposition as GaussianImposition,
    Members,
    WeightDraws,
    as_likelihood,
    derived_seed,
    member_seeds,
    starting_members,
)
from equipoise.rivals.methods.catalogue import IMPOSITIONS, INFERENCES, Imposition, Inference, Method, MethodError
from equipoise.rivals.methods.dropout import Dropout, MaskedMembers
from equipoise.rivals.methods.gains import Completion, Projection
from equipoise.rivals.methods.laplace import LastLayerLaplace
from equipoise.rivals.methods.penalty import KeepResidual, Penalised
from equipoise.rivals.methods.posthoc import mixture_log_prob, set_scalar_tolerance
from equipoise.rivals.methods.qp_layer import fine_tune
from equipoise.training import Callback, Fit, History, Recipe, TrainingPlan, train

MECHANISMS: Mapping[str | None, GaussianImposition | None] = {
    None: None,
    "penalty": KeepResidual(),
    "projection": Projection(),
    "completion": Completion(),
    "qp": Projection(),
}
TUNING_SHARE = 4  # penalties and dropout probabilities are tried with the plan's epochs divided by this


@dataclass(frozen=True, kw_only=True)
class MethodRecipe(Recipe):
    """The recipe of `MethodRegressor`: one way to infer the weights, and one way to impose the balances.

    Args:
        method: Both.
        n_members: Number of networks in an ensemble.
        probabilities: Probabilities of dropout, of which the best on held-out rows is used.
        penalties: Strengths of the soft penalty, likewise.
    """

    method: Method
    n_members: int = 5
    probabilities: tuple[float, ...] = (0.0,)
    penalties: tuple[float, ...] = (0.0,)

    can_stream: ClassVar[bool] = False

    @property
    def inference(self) -> Inference:
        """The way to infer the weights."""
        return INFERENCES[self.method.inference]

    @property
    def imposition(self) -> Imposition:
        """The way to impose the balances."""
        return IMPOSITIONS[self.method.imposition]

    def tolerances(self, names: Sequence[str], obeyed: NDArray[np.bool_]) -> dict:
        """Return the tolerances that belong to the imposition; arguments are those of `Recipe.tolerances`."""
        match self.imposition.tolerance:
            case "learned":
                return super().tolerances(names, obeyed)
            case "paper":
                return dict.fromkeys(names, TolerancePrior.paper())
            case "given":
                user = self.tolerance if isinstance(self.tolerance, Mapping) else dict.fromkeys(names, self.tolerance)
                return {name: 0.0 if _is_learned(user.get(name)) else user[name] for name in names}
        return dict.fromkeys(names, 0.0)

    def sensor_stds(
        self, outputs: Sequence[str], n_rows: int, constraint: Equality | None, obeyed: NDArray[np.bool_]
    ) -> Array | None:
        """Return no sensors unless the imposition has them; arguments are those of `Recipe.sensor_stds`."""
        return super().sensor_stds(outputs, n_rows, constraint, obeyed) if self.imposition.sensors else None

    def build(self, data: TrainingData) -> ConstrainedBNN:
        """Build the model with its balances and the way to impose them; the argument is that of `Recipe.build`."""
        return super().build(data).variant(imposition=MECHANISMS[self.imposition.mechanism])

    def fit(
        self,
        model: ConstrainedBNN,
        rows: AnyRows,
        validation: Rows | None,
        *,
        checkpoint: Any = None,
        verbose: bool = False,
        callback: Callback = None,
    ) -> Fit:
        """Train one model, and return another one to predict with; arguments are those of `Recipe.fit`.

        Both share balances, tolerances and sensors. They may differ in what draws the weights, in whether the balances
        act, and in the likelihood.
        """
        if not isinstance(rows, Rows):
            raise MethodError(f"{self.method.name!r} needs rows in memory, but got rows that are read from files.")
        trained = model if self.imposition.in_training else model.variant(conditioning=None, imposition=None)
        trial = _Trial(self, trained, rows, validation)
        if self.method.inference == "dropout":
            trial = replace(trial, dropout=trial.best("dropout", self.probabilities))
        if self.imposition.mechanism == "penalty":
            trial = replace(trial, penalty=trial.best("penalty", self.penalties))
        fitted, history = trial.fit(self.plan, callback)
        attributes: dict[str, Any] = {"penalty_": trial.penalty, "dropout_": trial.dropout}
        if self.imposition.mechanism == "qp":
            fitted, attributes["step_seconds_"] = fine_tune(
                fitted.variant(conditioning=model.conditioning, imposition=None), rows, self.plan, self.seed
            )
        final = self.for_prediction(model, trial.with_draws(fitted), validation, rows)
        return Fit(final, history, attributes | {"n_parameters_": self._count(final)})

    def for_prediction(
        self, model: ConstrainedBNN, fitted: ConstrainedBNN, validation: Rows | None, rows: Rows
    ) -> ConstrainedBNN:
        """Return the fitted model with the balances as they act in prediction.

        Args:
            model: The model with its balances.
            fitted: What was trained.
            validation, rows: Held-out rows, None without any, and training rows.
        """
        final = fitted.variant(
            conditioning=model.conditioning,
            imposition=model.imposition,
            rounding=model.rounding,
            likelihood=as_likelihood(self.imposition.predicts),
        )
        if not self.imposition.in_prediction:
            final = final.variant(conditioning=None, imposition=None, rounding=None)
        if self.imposition.tolerance == "scalar":
            set_scalar_tolerance(final, rows if validation is None else validation, derived_seed(self.seed, 7))
        return final.eval()

    def members(self, network: BayesianMLP, dropout: float) -> Members:
        """Return the starting weights of all members; the first is the deterministic network of the same seed.

        Args:
            network: The network.
            dropout: Probability that a hidden unit is left out.
        """
        seeds = member_seeds(self.seed, self.n_members if self.method.inference == "ensemble" else 1)
        weights = starting_members(network, seeds).to(self.device)
        if self.method.inference == "dropout":
            return MaskedMembers(weights, self.prior_std, dropout)
        return Members(weights, self.prior_std)

    def draws(self, network: BayesianMLP, rows: Rows, dropout: float) -> WeightDraws:
        """Return what draws the weights in prediction, from what was trained.

        Args:
            network: The trained network.
            rows: Rows that it was trained on.
            dropout: Probability that a hidden unit is left out.
        """
        if self.inference.trains == "posterior":
            return network.posterior
        first = network.posterior.weights[0]
        match self.method.inference:
            case "dropout":
                return Dropout(first, network.sizes, self.prior_std, dropout)
            case "laplace":
                return LastLayerLaplace.fit(network, first, rows, self.prior_std)
        return network.posterior

    def _count(self, model: ConstrainedBNN) -> int:
        """Count the numbers that were trained."""
        n = sum((a + 1) * b for a, b in zip(model.network.sizes[:-1], model.network.sizes[1:], strict=True))
        weights = {"vi": 2 * n, "ensemble": self.n_members * n}.get(self.method.inference, n)
        learned = [part.tolerance for part in [model.conditioning] if part is not None]
        learned += [] if model.sensor is None else [model.sensor]
        return weights + sum(2 * int(part.learned.sum()) for part in learned)


@dataclass(frozen=True)
class _Trial:
    """A training with one probability of dropout and one strength of the penalty.

    Args:
        recipe: The recipe.
        model: The model to train.
        rows, validation: Training rows and held-out rows.
        dropout, penalty: Probability and strength.
    """

    recipe: MethodRecipe
    model: ConstrainedBNN
    rows: Rows
    validation: Rows | None
    dropout: float = 0.0
    penalty: float = 0.0

    def fit(self, plan: TrainingPlan, callback: Callback = None) -> tuple[ConstrainedBNN, History]:
        """Train the model in place; of members a new set is trained.

        Args:
            plan: Settings of training.
            callback: Called with the record of each epoch.
        """
        recipe, model = self.recipe, self.model
        if recipe.imposition.mechanism == "penalty":
            model = model.variant(likelihood=Penalised(self.penalty))
        if recipe.inference.trains == "members":
            members = recipe.members(model.network, self.dropout)
            model = model.variant(network=model.network.with_posterior(members))
        return model, train(model, self.rows, self.validation, plan, seed=recipe.seed, callback=callback)

    def with_draws(self, fitted: ConstrainedBNN) -> ConstrainedBNN:
        """Return a fitted model with what draws its weights in prediction."""
        draws = self.recipe.draws(fitted.network, self.rows, self.dropout)
        return fitted.variant(network=fitted.network.with_posterior(draws))

    def best(self, name: str, values: Sequence[float]) -> float:
        """Choose the value of a setting under which held-out rows are most likely, by short trainings with each.

        Args:
            name: Name of the field, "dropout" or "penalty".
            values: The values to try.
        """
        recipe, validation = self.recipe, self.validation
        if validation is None or len(values) == 1 or recipe.imposition.mechanism == "qp":  # QPs take too long
            return float(values[len(values) // 2])
        plan, nll = recipe.plan, {}
        fewer = {"max_epochs": max(1, plan.max_epochs // TUNING_SHARE), "mean_epochs": plan.mean_epochs // TUNING_SHARE}
        for value in map(float, values):
            trial = replace(self, model=deepcopy(self.model), **{name: value})
            fitted = trial.with_draws(trial.fit(replace(plan, **fewer))[0])
            if recipe.imposition.mechanism == "penalty":
                fitted = fitted.variant(likelihood=Penalised(0.0))
            nll[value] = -float(mixture_log_prob(fitted, validation, derived_seed(recipe.seed, 7)).mean())
        return min(nll, key=nll.__getitem__)


def _is_learned(tolerance: Any) -> bool:
    return tolerance is None or isinstance(tolerance, VariancePrior)
