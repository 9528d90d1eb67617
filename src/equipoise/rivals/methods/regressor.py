"""MethodRegressor: every method of the catalogue as an estimator."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances import LinearConstraint
from equipoise.data import Rows, TrainingData, require_fit
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian import TolerancePrior
from equipoise.network import ConstrainedBNN, as_likelihood, derived_seed
from equipoise.prediction import Predictive
from equipoise.rivals.methods.catalogue import IMPOSITIONS, INFERENCES, Imposition, Method, MethodError
from equipoise.rivals.methods.gains import GainGaussian, completing_gain, orthogonal_gain
from equipoise.rivals.methods.imposed_network import Impose, ImposedBNN, WeightSource
from equipoise.rivals.methods.laplace import LastLayerLaplace
from equipoise.rivals.methods.member_training import fit_members
from equipoise.rivals.methods.members import Dropout, Members
from equipoise.rivals.methods.penalty import Penalised, ResidualGaussian
from equipoise.rivals.methods.posthoc import set_scalar_tolerance
from equipoise.rivals.methods.qp_layer import fine_tune
from equipoise.training import History, TrainingPlan, train

Array = NDArray[np.float64]
Callback = Callable[[dict], object] | None
MECHANISMS: dict[str, Impose] = {
    "penalty": ResidualGaussian.before,
    "projection": partial(GainGaussian.of, rule=orthogonal_gain),
    "completion": partial(GainGaussian.of, rule=completing_gain),
    "qp": partial(GainGaussian.of, rule=orthogonal_gain),
}
TUNING_SHARE = 4  # penalties and dropout probabilities are tried with the plan's epochs divided by this


class MethodRegressor(ConstrainedBNNRegressor):
    """A network with one way to infer its weights and one way to impose the balances, for comparison.

    The network, its heads, its training plan and its methods are those of `ConstrainedBNNRegressor`, which is
    `inference="vi"` with `imposition="learned"`. A fitted `MethodRegressor` cannot be saved.

    Args:
        constraint: `LinearConstraint` between the columns of X and Y; None only with imposition "none".
        inference: "vi", "deterministic", "ensemble", "dropout" or "laplace".
        imposition: "none", "penalty", "projection", "completion", "qp", "posthoc", "posthoc-scalar", "fixed", "paper"
            or "learned".
        tolerance, sensor_std: Tolerances of the balances and standard deviations of the sensors, in their units, as in
            `ConstrainedBNNRegressor`. "learned" uses both; "fixed" uses numbers among them, and takes balances without
            one as exact; other impositions ignore them.
        n_members: Number of networks in an ensemble.
        dropout: Probability that a hidden unit is left out; of several, the best on held-out rows is used.
        penalties: Strengths of the soft penalty, of which the best on held-out rows is used.
        offset: Whether each balance also has a learned offset; only "learned" uses it.
        hidden, activation, prior_std, max_epochs, n_draws, validation_fraction, training, random_state, device:
            As in `ConstrainedBNNRegressor`.

    Attributes:
        n_parameters_: Number of trained parameters.
        penalty_, dropout_: The strength and the probability that were used; 0 in methods that have none.
        step_seconds_: Seconds per training step by the QP layer and by the closed form; only with imposition "qp".

    Example:
        >>> import numpy as np, equipoise as eq
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> Y = np.hstack([np.sin(x), x**2, np.sin(x) + x**2])
        >>> balance = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])
        >>> model = MethodRegressor(balance, inference="ensemble", imposition="projection", hidden=(8,), max_epochs=10,
        ...                         random_state=0).fit(x, Y)
        >>> bool(abs(model.predict(x) @ [1, 1, -1]).max() < 1e-12)
        True
    """

    checkpoint = None
    verbose = False
    posterior = "mean-field"  # where weights have one

    _can_stream = False

    def __init__(
        self,
        constraint: LinearConstraint | None = None,
        *,
        inference: str = "vi",
        imposition: str = "learned",
        tolerance: Any = None,
        sensor_std: Any = "learn",
        n_members: int = 5,
        dropout: float | tuple[float, ...] = (0.005, 0.02, 0.05, 0.1),
        penalties: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0),
        offset: bool = False,
        hidden: tuple[int, ...] = (64, 64),
        activation: str = "silu",
        prior_std: float = 1.0,
        max_epochs: int | None = None,
        n_draws: int = 256,
        validation_fraction: float = 0.1,
        training: TrainingPlan | None = None,
        random_state: Any = None,
        device: str | torch.device | None = None,
    ):
        self.constraint = constraint
        self.inference = inference
        self.imposition = imposition
        self.tolerance = tolerance
        self.sensor_std = sensor_std
        self.n_members = n_members
        self.dropout = dropout
        self.penalties = penalties
        self.offset = offset
        self.hidden = hidden
        self.activation = activation
        self.prior_std = prior_std
        self.max_epochs = max_epochs
        self.n_draws = n_draws
        self.validation_fraction = validation_fraction
        self.training = training
        self.random_state = random_state
        self.device = device

    @property
    def likelihood(self) -> str:  # type: ignore[override]
        """Likelihood in training, "joint" or "marginal", as the imposition determines it."""
        return self._imposition.likelihood

    def predict_distribution(self, X: Any) -> Predictive:
        """Return the whole predictive distribution of the true outputs.

        It is a mixture over `n_draws` draws, or over the members where these are all that differs between draws.

        Args:
            X: Inputs `(n, n_x)` in the user's units, an array or a data frame.
        """
        require_fit(self)
        p = super().predict_distribution(X)
        layer = self.model_.conditioning
        members = {"deterministic": 1, "ensemble": self.n_members}.get(self.inference)
        variances = (None if layer is None else layer.tolerance, self.model_.sensor)
        if members is None or any(part is not None and bool(part.learned.any()) for part in variances):
            return p
        return replace(p, n_draws=members)

    def save(self, path: Any) -> None:
        """Refuse to write a model file, since that describes a `ConstrainedBNNRegressor`.

        Raises: MethodError, always.
        """
        raise MethodError(
            f"A model file must hold a ConstrainedBNNRegressor, but got {self._method.title}. "
            "Methods are for comparison; fit a ConstrainedBNNRegressor to keep one."
        )

    # ------------------------------------------------------------------ building

    def _build(self, data: TrainingData) -> ConstrainedBNN:
        model = ImposedBNN(super()._build(data), MECHANISMS.get(self._imposition.mechanism or ""))
        self._layer = model.conditioning
        if self._layer is not None and self._imposition.tolerance != "learned":
            self._layer.offset = None
        if not self._imposition.in_training:
            model.conditioning = None
        return model.to(self._device)

    def _tolerance(self, obeyed: NDArray[np.bool_]) -> dict:
        names, tolerance = self.constraint_.names, self.tolerance  # type: ignore[union-attr]
        if self._imposition.tolerance == "learned":
            return super()._tolerance(obeyed)
        if self._imposition.tolerance == "paper":
            return dict.fromkeys(names, TolerancePrior.paper())
        if self._imposition.tolerance == "given":
            by_name = tolerance if isinstance(tolerance, Mapping) else dict.fromkeys(names, tolerance)
            return {name: 0.0 if _is_learned(by_name.get(name)) else by_name[name] for name in names}
        return dict.fromkeys(names, 0.0)

    def _sensor_std(self, Y: Array, obeyed: NDArray[np.bool_]) -> Array | None:
        return super()._sensor_std(Y, obeyed) if self._imposition.sensors else None

    # ------------------------------------------------------------------ training

    def _train(self, rows: Rows, validation: Rows | None, callback: Callback = None) -> History:  # type: ignore[override]
        model, imposition = self._model, self._imposition
        self.penalty_ = self.dropout_ = 0.0
        if self.inference == "dropout":
            self.dropout_ = self._tuned("dropout_", self._probabilities, rows, validation)
        if imposition.mechanism == "penalty":
            self.penalty_ = self._tuned("penalty_", self.penalties, rows, validation)
            model.likelihood = Penalised(self.penalty_)
        history = self._fit_weights(rows, validation, self._plan(), callback)
        model.conditioning = self._layer if imposition.in_prediction else None
        model.likelihood = as_likelihood(imposition.predicts)
        if imposition.tolerance == "scalar":
            set_scalar_tolerance(model, rows if validation is None else validation, derived_seed(self.seed_, 7))
        self.n_parameters_ = self._count()
        return history

    def _fit_weights(self, rows: Rows, validation: Rows | None, plan: TrainingPlan, callback: Callback) -> History:
        if INFERENCES[self.inference].trains == "posterior":
            return train(self._model, rows, validation, plan, seed=self.seed_, callback=callback)
        seeds, dropout = self._member_seeds(), self.dropout_
        weights, history = fit_members(self._model, rows, validation, plan, seeds, dropout=dropout, callback=callback)
        if self._imposition.mechanism == "qp":
            self._model.conditioning = self._layer
            weights, self.step_seconds_ = fine_tune(self._model, weights, rows, plan, seeds, dropout)
        self._model.source = self._source(weights, rows)
        return history

    def _source(self, weights: torch.Tensor, rows: Rows) -> WeightSource:
        network = self._model.network
        if self.inference == "dropout":
            return Dropout(network, weights[0], self.dropout_)
        return LastLayerLaplace(network, weights[0], rows) if self.inference == "laplace" else Members(weights)

    def _tuned(self, name: str, values: Sequence[float], rows: Rows, validation: Rows | None) -> float:
        """Choose the value of an attribute under which held-out rows are most likely, by short trainings with each."""
        if validation is None or len(values) == 1 or self._imposition.mechanism == "qp":  # QPs take too long
            return float(values[len(values) // 2])
        model, start, plan = self._model, deepcopy(self._model.state_dict()), self._plan()
        likelihood, penalised = model.likelihood, self._imposition.mechanism == "penalty"
        fewer = {"max_epochs": max(1, plan.max_epochs // TUNING_SHARE), "mean_epochs": plan.mean_epochs // TUNING_SHARE}
        short = replace(plan, **fewer)
        nll = {}
        for value in map(float, values):
            setattr(self, name, value)
            model.likelihood = Penalised(self.penalty_) if penalised else likelihood
            self._fit_weights(rows, validation, short, None)
            model.likelihood = Penalised(0.0) if penalised else likelihood
            nll[value] = -float(model.mixture_log_prob(validation, derived_seed(self.seed_, 7)).mean())
            model.source, model.likelihood = None, likelihood
            model.load_state_dict(start)
        return min(nll, key=nll.__getitem__)

    @property
    def _probabilities(self) -> list[float]:
        return np.atleast_1d(self.dropout).tolist()

    def _member_seeds(self) -> list[int]:
        """Return a seed for each member; the first member is the deterministic network of the same seed."""
        n = self.n_members if self.inference == "ensemble" else 1
        return [self.seed_, *(derived_seed(self.seed_, 11, member) for member in range(1, n))]

    def _count(self) -> int:
        model = self._model
        n = model.network.posterior.loc.numel()
        weights = {"vi": 2 * n, "ensemble": self.n_members * n}.get(self.inference, n)
        learned = [part.tolerance for part in [model.conditioning] if part is not None]
        learned += [] if model.sensor is None else [model.sensor]
        return weights + sum(2 * int(part.learned.sum()) for part in learned)

    # ------------------------------------------------------------------ parameters

    @property
    def _method(self) -> Method:
        return Method(self.inference, self.imposition)

    @property
    def _imposition(self) -> Imposition:
        return IMPOSITIONS[self._method.imposition]

    @property
    def _model(self) -> ImposedBNN:
        return self.model_  # type: ignore[return-value]

    def _check_parameters(self) -> None:
        method = self._method
        super()._check_parameters()
        if self.constraint is None and method.imposition != "none":
            raise MethodError(f"imposition {method.imposition!r} must have balances, but got constraint=None.")
        if not (self.constraint is None or isinstance(self.constraint, LinearConstraint)):
            got = type(self.constraint).__name__
            raise MethodError(f"constraint must be a LinearConstraint for methods other than our own, but got {got}.")
        if not (isinstance(self.n_members, int) and self.n_members >= 1):
            raise MethodError(f"n_members must be a whole number of at least 1, but got {self.n_members!r}.")
        if not self._probabilities or not all(0 <= p < 1 for p in self._probabilities):
            raise MethodError(f"dropout must be a probability in [0, 1), or several, but got {self.dropout!r}.")
        if not self.penalties or not all(0 <= strength < np.inf for strength in self.penalties):
            raise MethodError(f"penalties must hold numbers ≥ 0, but got {self.penalties!r}.")


def _is_learned(tolerance: Any) -> bool:
    return tolerance is None or isinstance(tolerance, TolerancePrior)
