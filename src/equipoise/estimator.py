"""ConstrainedBNNRegressor, the scikit-learn estimator.

In: parameters, balances, and arrays or data frames in the user's units. Out: predictions, draws, intervals and
reconciled values in the user's units and kind of table, and what the fit learned about balances and sensors.

Calls: `artifact` (to save), `reconciliation`, `prediction`, `training`, `network`, `data`, `balances`.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from equipoise.balances import Equality, check_equality_kind
from equipoise.data import (
    MOST_STREAMED,
    AnyRows,
    InputRangeError,
    NotFittedError,
    Standardizer,
    Table,
    TrainingData,
    check_inputs,
    check_lengths,
    check_measured,
    check_outputs,
    check_range,
    frames,
    is_mapped,
    match_constraint,
    obeyed_to_rounding,
    output_names,
    random_split,
    require_fit,
    split_at,
)
from equipoise.errors import (
    InputError,
    InputTypeError,
    check_choice,
    check_count,
    check_counts,
    check_device,
    check_fraction,
    check_positive,
    own_errors,
)
from equipoise.network import (
    ACTIVATIONS,
    Laplace,
    Likelihood,
    PosteriorFactory,
    as_likelihood,
    as_posterior,
    derived_seed,
)
from equipoise.prediction import Predictive, trust
from equipoise.reconciliation import ModelReconciliation, reconcile_with_model
from equipoise.training import STARTS, LaplaceRecipe, Recipe, TrainingPlan

__all__ = ["ConstrainedBNNRegressor", "InputRangeError", "NotFittedError"]

Array = NDArray[np.float64]


class ConstrainedBNNRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A Bayesian neural network whose predictions obey linear balances to within learned or given tolerances.

    Args:
        constraint: `LinearConstraint` between the columns of X and Y, an `Equality` of your own, or None for a plain
            Bayesian network.
        likelihood: "joint" (L2), "marginal", the paper's (L1), or a `Likelihood` of your own.
        sensor_std: Standard deviations of the sensors behind Y. "learn" (default) learns one per output that enters a
            balance, and how it depends on the inputs; None means noise-free sensors, so that all noise is the
            network's; a mapping from output names to numbers or "learn" (unnamed outputs are learned); or an array
            `(n_y,)` or, per training row, `(n, n_y)`. Nothing can be learned without balances or with
            likelihood="marginal", which treats measured values as true values: there "learn" is the same as None.
        tolerance: How far balances may be missed. None learns each (prior `log(r/c²) ~ N(−6, 3²)`); `0` is exact; a
            number is a fixed standard deviation in the balance's unit; a `TolerancePrior`, or a `VariancePrior` of your
            own, is learned from that prior; or a mapping from balance names to these. Balances to be learned that the
            data obey to rounding are exact, and their sensors noise-free: nothing else has a finite likelihood.
        offset: Also learn an offset of each balance, `A x + B y = b + δ`, with prior `N(0, c_k²)`.
        hidden: Widths of the hidden layers.
        activation: "silu", "tanh", "relu" or "gelu".
        prior_std: Prior standard deviation of every weight (the paper: 1); with "laplace" it is learned.
        posterior: "mean-field", the paper's posterior of the weights; "laplace" or a `Laplace`, a linearised Laplace
            posterior, which is meant for small tables and holds no rows out; or a `WeightPosterior` class of your own.
        start: What variances, tolerances and sensors start from. "residuals": those of the means, which are trained
            first. "prior", the paper's training: tolerances and sensors start at their priors, the variance head with
            its random weights, and all epochs minimise the evidence lower bound, at temperature 1 and with the whole
            divergence; `mean_epochs`, `noise_epochs`, `kl_warmup` and `temperature` of the plan have no effect.
        max_epochs: Upper bound on training epochs; None takes the training plan's.
        n_draws: Number of posterior draws that predictions average over.
        validation_fraction: Fraction of the rows held out to decide when training stops.
        training: A `TrainingPlan` with all other settings of training.
        random_state: Seed; the same seed gives the same bits.
        device: Device on which torch computes, for instance "cuda".
        checkpoint: File to which training is saved every few seconds, and from which an interrupted one continues.
        verbose: Show a progress bar.

    Attributes:
        tolerances_: Data frame with one row per balance: its tolerance in its own unit, the information in the data
            about it, and a verdict.
        sensor_std_: Data frame with one row per output: the sensor's standard deviation.
        history_: Record of every epoch.
        plan_: The `TrainingPlan` that was used.
        held_out_: Positions of the held-out rows, which decided when training stopped.
        n_rows_: Number of rows trained on.
        output_names_: Names of the outputs.
        seed_: Seed of all random numbers of the fit and its predictions.
        constraint_: The balances, with a column for each input; None without balances.
        model_, standardizer_: The fitted network in standardized units, and the translation to the user's.

    Example:
        >>> import numpy as np, equipoise as eq
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> parts = np.hstack([np.sin(2 * x), x**2])
        >>> Y = np.hstack([parts, parts.sum(1, keepdims=True)])
        >>> balance = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])
        >>> model = eq.ConstrainedBNNRegressor(balance, hidden=(16,), max_epochs=30, random_state=0).fit(x, Y)
        >>> draws = model.sample_y(x, 100)                                  # (100, 64, 3), obeying the balance
        >>> bool(abs(draws[..., 2] - draws[..., 0] - draws[..., 1]).max() < 1e-9)
        True
    """

    file_name: ClassVar[str] = "ConstrainedBNNRegressor"  # in model files; each class that can be saved has its own

    def __init__(
        self,
        constraint: Equality | None = None,
        *,
        likelihood: str | Likelihood = "joint",
        sensor_std: Any = "learn",
        tolerance: Any = None,
        offset: bool = False,
        hidden: tuple[int, ...] = (64, 64),
        activation: str = "silu",
        prior_std: float = 1.0,
        posterior: str | PosteriorFactory | Laplace = "mean-field",
        start: str = "residuals",
        max_epochs: int | None = None,
        n_draws: int = 256,
        validation_fraction: float = 0.1,
        training: TrainingPlan | None = None,
        random_state: Any = None,
        device: str | torch.device | None = None,
        checkpoint: str | os.PathLike | None = None,
        verbose: bool = False,
    ):
        self.constraint = constraint
        self.likelihood = likelihood
        self.sensor_std = sensor_std
        self.tolerance = tolerance
        self.offset = offset
        self.hidden = hidden
        self.activation = activation
        self.prior_std = prior_std
        self.posterior = posterior
        self.start = start
        self.max_epochs = max_epochs
        self.n_draws = n_draws
        self.validation_fraction = validation_fraction
        self.training = training
        self.random_state = random_state
        self.device = device
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        held_out: ArrayLike | None = None,
        callback: Callable[[dict], object] | None = None,
    ) -> "ConstrainedBNNRegressor":
        """Fit the network, the tolerances and the sensors to a table.

        Arrays that stay in their files (`numpy.load(…, mmap_mode="r")`) are not copied into memory, whatever their kind
        of numbers: each batch is read when it is needed, and the model is that of the same arrays in memory.

        Args:
            X: Inputs, then known columns, shape `(n, n_x + n_known)`: an array, or a data frame with these columns in
                any order.
            y: Outputs, shape `(n, n_y)` or `(n,)`: an array or a data frame; NaN means "not measured".
            held_out: Positions of the rows that are not trained on but decide when training stops; None draws
                `validation_fraction` of them at random, from arrays in files at most 100,000. They are kept in memory.
            callback: Called with the record of each epoch, as in `history_`.
        Returns: The estimator itself.
        Raises: InputError or InputTypeError, if a parameter or the data cannot be used; TrainingError, if training
            fails.
        """
        self.check_parameters()
        X, Y, precision = self._validated(X, y)
        with own_errors():
            self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        recipe = self.recipe(self.seed_)
        streams = recipe.can_stream and (is_mapped(X) or is_mapped(Y))
        if held_out is None and not recipe.holds_out:
            train_rows, held_out = split_at(np.zeros(0, int), len(Y))
        elif held_out is None:
            most = MOST_STREAMED if streams else None
            train_rows, held_out = random_split(Y, self.validation_fraction, self.seed_, most)
        else:
            train_rows, held_out = split_at(held_out, len(Y))
        self.held_out_, self.n_rows_ = held_out, len(train_rows)
        check_measured(Y, self.output_names_, train_rows)
        self.standardizer_ = Standardizer.fit(X, Y, self.constraint_, train_rows)
        obeyed = obeyed_to_rounding(self.constraint_, X, Y, precision)
        sensor_std = recipe.sensor_stds(self.output_names_, len(Y), self.constraint_, obeyed)
        data = TrainingData(X, Y, precision, self.standardizer_, obeyed, sensor_std)
        model = recipe.build(data)
        if model.conditioning is not None and recipe.likelihood.is_joint:
            data.check_exact(model.conditioning.tolerance)
        device = self._device
        training = data.streamed(train_rows, device) if streams else data.rows(train_rows).to(device)
        validation = data.rows(held_out).to(self._device) if len(held_out) else None
        self.plan_, settings = recipe.plan, {"checkpoint": self.checkpoint, "verbose": bool(self.verbose)}
        fit = recipe.fit(model, training, validation, callback=callback, **settings)
        self.model_, self.history_ = fit.model, fit.history
        self._added = fit.attributes
        for name, value in self._added.items():
            setattr(self, name, value)
        self._summarise(data, training)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the mean of the true outputs, and their standard deviation on request.

        Args:
            X: Inputs, then known columns, shape `(n, n_x + n_known)`: an array or a data frame, in the user's units.
            return_std: Whether to return the standard deviation, too.
        Returns:
            The mean in the outputs' units, shape `(n, n_y)`, or `(n,)` if y was one-dimensional; with `return_std` a
            pair of mean and standard deviation. A data frame of the library of X if X is one.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used.
        """
        p = self.predict_distribution(X)
        return (self._flat(p.mean), self._flat(p.std)) if return_std else self._flat(p.mean)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Any, Any]:
        """Predict central intervals of the true outputs.

        Args:
            X: Inputs, then known columns, as of `predict`.
            level: Probability of each interval.
        Returns: Lower and upper bounds in the outputs' units, each as the mean that `predict` returns.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used.
        """
        lower, upper = self.predict_distribution(X).interval(level)
        return self._flat(lower), self._flat(upper)

    def sample_y(self, X: Any, n: int = 1) -> Array:
        """Draw samples of the true outputs.

        With likelihood="joint" these are joint draws that obey the balances within their tolerances; with "marginal"
        outputs are drawn independently, as in the paper.

        Args:
            X: Inputs, then known columns, as of `predict`.
            n: Number of draws.
        Returns: Draws in the outputs' units, shape `(n, rows, n_y)`, or `(n, rows)` if y was one-dimensional.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used.
        """
        draws = self.predict_distribution(X).sample(n)
        return draws[..., 0] if self._single else draws

    def predict_distribution(self, X: Any) -> Predictive:
        """Return the predictive distribution of the true outputs.

        Args:
            X: Inputs, then known columns, as of `predict`.
        Returns:
            A `Predictive` with mean, standard deviation, intervals, joint samples, covariance, ledger and densities;
            its `measured()` adds the noise of the sensors.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used.
        """
        require_fit(self)
        wrap = frames.frame_builder(X, self.output_names_, self._output_labels)
        X = self._inputs(X, reset=False)
        check_range(X, self.standardizer_, self._input_names)
        return Predictive(
            self.model_,
            self.standardizer_,
            X,
            self.output_names_,
            self.model_.n_distinct or self.n_draws,
            derived_seed(self.seed_, 7),
            sensors_per_row=self._sensors_per_row,
            wrap=wrap,
        )

    def extrapolates(self, X: Any) -> NDArray[np.bool_]:
        """Mark rows in which an input exceeds the range of the training data by more than 5 % of that range.

        There, neither predictions nor their intervals are reliable, with balances or without.

        Args:
            X: Inputs, then known columns, as of `predict`.
        Returns: Mask, shape `(n,)`.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used.
        """
        require_fit(self)
        return np.any(self.standardizer_.beyond(self._inputs(X, reset=False)), axis=1)

    def reconcile(
        self,
        X: Any,
        measured: Any,
        std: Any = None,
        *,
        level: float = 0.95,
        n_draws: int | None = None,
        least_draws: float = 20,
    ) -> ModelReconciliation:
        """Estimate the true outputs from the prediction, the balances and readings of some of the outputs.

        In each row, posterior draws are weighted by the density that they give to its readings (R11). Where the
        effective number of draws is below `least_draws`, the Gaussian with the moments of the prediction is conditioned
        on the readings instead (R13).

        Args:
            X: Inputs, then known columns, as of `predict`.
            measured: Readings in the outputs' units, one row for each row of X: an array `(n, n_y)`, or a frame or a
                mapping with any of the outputs; NaN where there is none.
            std: Standard deviations of the readings' errors: a number, one for each output, by order or by name, or one
                for each row and output. None, NaN and outputs that are not named stand for the model's own sensors; 0
                is exact. Give the accuracy of the instruments where `tolerances_` says that tolerance and sensor noise
                are not separable.
            level: Probability of intervals, and confidence level of tests.
            n_draws: Number of posterior draws; that of the estimator by default.
            least_draws: Smallest effective number of draws; 0 always keeps the draws.
        Returns: A `ModelReconciliation` with estimates, intervals and tests of sensors and balances.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used; ReconciliationError, if the readings
            cannot be used.
        """
        p = self.predict_distribution(X)
        if n_draws is not None:
            check_count("n_draws", n_draws)
            p = replace(p, n_draws=int(n_draws))
        labels = getattr(X, "index", None) if frames.is_frame(X) else None
        inputs = self._input_names or ()
        learned: Any = {"tolerance": () if self.model_.conditioning is None else self.tolerances_["tol_std"].to_numpy()}
        learned |= {"sensor_std": self.sensor_std_["std"].to_numpy()}
        return reconcile_with_model(
            p, measured, std, level=level, least_draws=least_draws, inputs=inputs, labels=labels, **learned
        )

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Compute the coefficient of determination R² of the predicted means, averaged over outputs.

        Args:
            X: Inputs, then known columns, as of `predict`.
            y: Measured outputs, shape `(n, n_y)` or `(n,)`; NaN entries are left out.
            sample_weight: Weights of the rows, shape `(n,)`; equal ones by default.
        Returns: R², at most 1.
        Raises: NotFittedError; InputError or InputRangeError, if X cannot be used or no output is measured in two rows.
        """
        mean = np.asarray(self.predict(X), dtype=float).reshape(-1, len(self.output_names_))
        named = self.output_names_ if self._seen_names else ()
        with own_errors():
            Y = np.asarray(frames.select(y, named, "y"), dtype=float)
            weight = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        check_lengths(mean, Y, weight)
        Y = Y.reshape(len(mean), -1)
        if Y.shape[1] != mean.shape[1]:
            raise InputError(f"y must have {mean.shape[1]} columns, one per output, but got {Y.shape[1]}.")
        from sklearn.metrics import r2_score  # half a second that no prediction needs

        scores = []
        for j in range(Y.shape[1]):
            rows = ~np.isnan(Y[:, j])
            if rows.sum() >= 2:
                with own_errors():
                    scores.append(r2_score(Y[rows, j], mean[rows, j], sample_weight=weight[rows]))
        if not scores:
            raise InputError("score needs an output that is measured in 2 rows at least, but got none.")
        return float(np.mean(scores))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to one safetensors file, which `equipoise.load` reads.

        Args:
            path: The file; replaced if it exists.
        Raises: ArtifactError, if the model is not fitted or the file cannot be written.
        """
        from equipoise.artifact import save  # artifact imports this module: it rebuilds this class

        save(self, path)

    def recipe(self, seed: int) -> Recipe:
        """Return how the model is built from the data and trained; an estimator of another method returns another one.

        Args:
            seed: Seed of all randomness.
        """
        posterior = as_posterior(self.posterior)
        settings: dict[str, Any] = dict(
            likelihood=as_likelihood(self.likelihood),
            tolerance=self.tolerance,
            sensor_std=self.sensor_std,
            offset=bool(self.offset),
            hidden=tuple(self.hidden),
            activation=self.activation,
            prior_std=self.prior_std,
            plan=self._plan(),
            seed=seed,
            device=self._device,
        )
        if isinstance(posterior, Laplace):
            return LaplaceRecipe(**settings, n_members=posterior.n_members)
        return Recipe(**settings, posterior=posterior, start=self.start)

    def check_parameters(self) -> None:
        """Raise InputError or InputTypeError for the first parameter that cannot be used, as `fit` does at first."""
        if self.constraint is not None:
            check_equality_kind(self.constraint)
        if not (self.training is None or isinstance(self.training, TrainingPlan)):
            raise InputTypeError(
                f"training must be a TrainingPlan or None, but got {type(self.training).__name__}. "
                "Build one with TrainingPlan(...)."
            )
        as_likelihood(self.likelihood)
        if isinstance(as_posterior(self.posterior), Laplace) and self.offset:
            raise InputError("offset must be False with posterior='laplace', but got True. Use posterior='mean-field'.")
        check_choice("start", self.start, [*STARTS])
        if isinstance(as_posterior(self.posterior), Laplace) and self.start != "residuals":
            rule = f"start must be 'residuals' with posterior='laplace', but got {self.start!r}"
            raise InputError(f"{rule}. Use posterior='mean-field', the paper's posterior.")
        check_device(self.device)
        check_choice("activation", self.activation, ACTIVATIONS)
        if isinstance(self.sensor_std, str) and self.sensor_std != "learn":
            raise InputError(f"sensor_std as text must be 'learn', but got {self.sensor_std!r}.")
        check_counts("hidden", self.hidden)
        check_count("n_draws", self.n_draws)
        if self.max_epochs is not None:
            check_count("max_epochs", self.max_epochs)
        check_positive("prior_std", self.prior_std)
        check_fraction("validation_fraction", self.validation_fraction)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    # ------------------------------------------------------------------ data

    def _validated(self, X: Any, y: Any) -> tuple[Table, Table, float]:
        """Check a user's tables; return inputs and outputs as arrays, and the relative rounding of the outputs."""
        if y is None:
            raise InputError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        columns = output_names(y)
        self._seen_names = bool(columns)
        y = frames.select(y, self._named_outputs(), "y")
        self._output_labels = y.columns if frames.is_frame(y) and hasattr(y, "index") else None
        X = self._inputs(X, reset=True)
        Y, precision = check_outputs(y, self._named_outputs())
        check_lengths(X, Y)
        self._single = Y.ndim == 1
        Y = Y.reshape(len(Y), -1)
        self.constraint_ = self._constraint(X, Y)
        names = columns if self.constraint_ is None else self.constraint_.outputs
        self.output_names_ = tuple(names) or tuple(f"y{j}" for j in range(Y.shape[1]))
        return X, Y, precision

    def _inputs(self, X: Any, reset: bool) -> Table:
        return check_inputs(self, X, () if self.constraint is None else self.constraint.columns, reset)

    @property
    def _input_names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(names)

    def _named_outputs(self) -> tuple[str, ...]:
        return () if self.constraint is None else self.constraint.outputs

    def _constraint(self, X: Table, Y: Table) -> Equality | None:
        return match_constraint(self.constraint, X, Y, self._input_names)

    # ------------------------------------------------------------------ model

    def _summarise(self, data: TrainingData, rows: AnyRows) -> None:
        """Set the tables of learned tolerances and sensors, in the user's units."""
        model, standardizer, seed = self.model_, self.standardizer_, derived_seed(self.seed_, 6)
        self._sensors_per_row = data.sensor_std_per_row is not None
        sensor_var = trust.mean_sensor_var_over_rows(model, rows, seed).cpu().numpy()
        self.sensor_std_ = trust.sensor_table(model, standardizer, self.output_names_, sensor_var)
        evidence, residuals = [], []
        residual_var = trust.balance_residual_var(model, rows, seed).cpu().numpy()
        if self.constraint_ is not None:
            evidence = trust.tolerance_evidence(model, rows, seed)
            residuals = trust.residuals(self.constraint_, data.X, data.Y, data.relative_rounding)
        self.tolerances_ = trust.tolerance_table(
            model, standardizer, evidence, residuals, data.obeyed, sensor_var, residual_var
        )

    # ------------------------------------------------------------------ parameters

    def _plan(self) -> TrainingPlan:
        plan = self.training or TrainingPlan()
        plan = plan if self.max_epochs is None else replace(plan, max_epochs=int(self.max_epochs))
        return plan.of_paper() if self.start == "prior" else plan

    @property
    def _device(self) -> torch.device:
        return torch.device("cpu" if self.device is None else self.device)

    def _flat(self, values: Any) -> Any:
        return frames.first_column(values) if self._single else values
