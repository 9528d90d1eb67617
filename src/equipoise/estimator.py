"""ConstrainedBNNRegressor: the scikit-learn face. Arrays or frames in the user's own units in, the same out."""

import math
import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from equipoise import frames, trust
from equipoise.conditioning import ConditioningLayer
from equipoise.constraints import LinearConstraint
from equipoise.likelihood import joint, marginal
from equipoise.model import ConstrainedBNN, Rows, derived_seed
from equipoise.network import ACTIVATIONS, BayesianMLP
from equipoise.predictive import Predictive
from equipoise.reconciliation.with_model import ModelReconciliation, reconcile_with_model
from equipoise.scaling import Standardizer
from equipoise.sensors import sensor_posterior, sensor_std_of
from equipoise.tolerance import TolerancePrior, tolerance_posterior
from equipoise.training import History, TrainingPlan, train

Array = NDArray[np.float64]
LIKELIHOODS = {"joint": joint, "marginal": marginal}
FARTHEST = 1e30  # standard deviations from the training data: beyond them single precision overflows


class InputRangeError(ValueError):
    """An input so far out that nothing can be computed with it: its column, its row from 0, and its value."""

    rule = f"must lie within {FARTHEST:g} standard deviations of the training data"

    def __init__(self, column: str, row: int, value: float):
        got = f"{value:g} in column {column!r}, row {row}"
        super().__init__(f"X {self.rule}, but got {got}. Correct it or drop the row.")
        self.column, self.row, self.value = column, row, value


class ConstrainedBNNRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A Bayesian neural network whose predictions obey linear balances as far as these can be trusted.

    Args:
        constraint: `LinearConstraint` between the columns of X and Y, or None for a plain Bayesian network.
        likelihood: "joint" (L2) or "marginal", the paper's (L1).
        sensor_std: Standard deviations of the sensors behind Y. "learn" (default) learns one per output that enters a
            balance, and how it depends on the inputs; None means noise-free sensors, so that all noise is the
            network's; a mapping from output names to numbers or "learn" (unnamed outputs are learned); or an array
            `(n_y,)` or, per training row, `(n, n_y)`. Nothing can be learned without balances or with
            likelihood="marginal", which takes what was measured for the truth: there "learn" is the same as None.
        tolerance: How far balances may be missed. None learns each (prior `log(r/c²) ~ N(−6, 3²)`); `0` is exact; a
            number is a fixed standard deviation in the balance's unit; a `TolerancePrior` is learned from that prior;
            or a mapping from balance names to these. Balances to be learned that the data obey to rounding are exact,
            and their sensors noise-free: nothing else has a finite likelihood.
        offset: Also learn an offset of each balance, `A x + B y = b + δ`, with prior `N(0, c_k²)`.
        hidden: Widths of the hidden layers.
        activation: "silu", "tanh", "relu" or "gelu".
        prior_std: Prior standard deviation of every weight (the paper: 1).
        max_epochs: Upper bound on training epochs; None takes the training plan's.
        n_draws: Posterior draws that predictions average over.
        validation_fraction: Share of rows held out to decide when to stop.
        training: A `TrainingPlan` with everything else about training.
        random_state: Seed; the same seed gives the same bits.
        device: Where torch computes, for instance "cuda".
        checkpoint: File that training is saved to every few seconds and continued from if it was cut short.
        verbose: Show a progress bar.

    Attributes:
        tolerances_: Data frame with one row per balance: tolerance in its own unit, what the data taught it, verdict.
        sensor_std_: Data frame with one row per output: the sensor's standard deviation.
        history_: Record of every epoch.
        held_out_: Positions of the rows that were not trained on but decided when to stop.
        n_rows_: How many rows were trained on.
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

    def __init__(
        self,
        constraint: LinearConstraint | None = None,
        *,
        likelihood: str = "joint",
        sensor_std: Any = "learn",
        tolerance: Any = None,
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
        """Fit to inputs X `(n, n_x)` and outputs y `(n, n_y)` or `(n,)`; NaN in y means "not measured".

        Args:
            X, y: Arrays or data frames.
            held_out: Positions of the rows that are not trained on but decide when to stop; None picks
                `validation_fraction` of them at random.
            callback: Called with the record of each epoch, as in `history_`.
        """
        self._check_parameters()
        X, Y, precision = self._validated(X, y)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        train_rows, held_out = self._split(Y) if held_out is None else _given_split(held_out, len(Y))
        self.held_out_, self.n_rows_ = held_out, len(train_rows)
        self._check_measured(Y[train_rows])
        self.standardizer_ = Standardizer.fit(X[train_rows], Y[train_rows], self.constraint_)
        obeyed = self._obeyed_to_rounding(X, Y, precision)
        sensor_std = self._sensor_std(Y, obeyed)
        self.model_ = self._build(X, Y, obeyed, sensor_std, precision)
        self._check_exact_balances(X, Y, obeyed, sensor_std, precision)
        rows = self._rows(X, Y, sensor_std)
        trained_on = rows.take(torch.as_tensor(train_rows)).to(self._device)
        validation = rows.take(torch.as_tensor(held_out)).to(self._device) if len(held_out) else None
        self.history_ = self._train(trained_on, validation, callback)
        self._summarise(X, Y, trained_on, obeyed, precision)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean of the true outputs; with `return_std` also their standard deviation."""
        p = self.predict_distribution(X)
        return (self._flat(p.mean), self._flat(p.std)) if return_std else self._flat(p.mean)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Any, Any]:
        """Lower and upper bounds of the central intervals of the true outputs."""
        lower, upper = self.predict_distribution(X).interval(level)
        return self._flat(lower), self._flat(upper)

    def sample_y(self, X: Any, n: int = 1) -> Array:
        """Draws of the true outputs, shape `(n, rows, n_y)`: draws on axis 0."""
        draws = self.predict_distribution(X).sample(n)
        return draws[..., 0] if self._single else draws

    def predict_distribution(self, X: Any) -> Predictive:
        """The whole predictive distribution: mean, std, intervals, joint samples, covariance, ledger, densities."""
        check_is_fitted(self)
        wrap = frames.in_kind(X, self.output_names_, self._output_labels)
        X = self._inputs(X, reset=False)
        self._check_range(X)
        return Predictive(
            self.model_,
            self.standardizer_,
            X,
            self.output_names_,
            self.n_draws,
            derived_seed(self.seed_, 7),
            sensors_per_row=self._sensors_per_row,
            wrap=wrap,
        )

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
        """What the true outputs are, given that some of them were measured: prediction, balances and readings together.

        Posterior draws are weighted in each row by how well they foresaw its readings (R11). Where fewer than
        `least_draws` effective ones are left, the Gaussian with the moments of the prediction is conditioned (R13).

        Args:
            X: Inputs.
            measured: Readings, one row for each row of X: an array `(n, n_y)`, a frame or a mapping with any of the
                outputs; NaN where there is none.
            std: Standard deviations of their errors: a number, one for each output, by order or by name, or one for
                each row and output. None, NaN and what is not named are the model's own sensors; 0 is exact. Where
                `tolerances_` could not tell tolerance and sensor noise apart, data sheets know better.
            level: Probability of intervals, and confidence level of tests.
            n_draws: Posterior draws; those of the estimator by default.
            least_draws: See above; 0 always keeps the draws.
        Raises: ReconciliationError, with the name of what is wrong.
        """
        p = self.predict_distribution(X)
        if n_draws is not None:
            if not (isinstance(n_draws, numbers.Integral) and int(n_draws) >= 1):
                raise ValueError(f"n_draws must be a whole number of at least 1, but got {n_draws!r}.")
            p = replace(p, n_draws=int(n_draws))
        inputs = tuple(getattr(self, "feature_names_in_", ()))
        labels = getattr(X, "index", None) if frames.is_frame(X) else None
        return reconcile_with_model(
            p, measured, std, level=level, least_draws=least_draws, inputs=inputs, labels=labels
        )

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination R², averaged over outputs; entries of y that were not measured are left out."""
        mean = np.asarray(self.predict(X), dtype=float).reshape(-1, len(self.output_names_))
        named = self.output_names_ if self._seen_names else ()
        Y = np.asarray(frames.select(y, named, "y"), dtype=float).reshape(len(mean), -1)
        weight = np.ones(len(mean)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        scores = []
        for j in range(Y.shape[1]):
            seen = ~np.isnan(Y[:, j])
            if seen.sum() >= 2:
                scores.append(r2_score(Y[seen, j], mean[seen, j], sample_weight=weight[seen]))
        if not scores:
            raise ValueError("score needs an output that is measured in 2 rows at least, but got none.")
        return float(np.mean(scores))

    def save(self, path: str | os.PathLike) -> None:
        """Write the fitted model to one safetensors file, to be opened with `equipoise.load`."""
        from equipoise import artifact  # it rebuilds this class, so it stands below it

        artifact.save(self, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    # ------------------------------------------------------------------ data

    def _validated(self, X: Any, y: Any) -> tuple[Array, Array, float]:
        """Inputs and outputs as arrays, and the relative rounding of the outputs as they came."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        columns = frames.columns_of(y) or ((y.name,) if isinstance(getattr(y, "name", None), str) else ())
        self._seen_names = bool(columns)
        y = frames.select(y, self._named_outputs(), "y")
        self._output_labels = y.columns if frames.is_frame(y) and hasattr(y, "index") else None
        X = self._inputs(X, reset=True)
        checks: Any = {"ensure_2d": False, "ensure_all_finite": "allow-nan", "input_name": "y"}
        Y = check_array(y, dtype=None, **checks)  # type: ignore[arg-type]
        precision = float(np.finfo(Y.dtype).eps) if Y.dtype.kind == "f" else float(np.finfo(float).eps)
        try:
            Y = check_array(Y, dtype=np.float64, **checks)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            if (found := frames.culprit(y)) is None:
                raise
            raise ValueError(f"y must hold numbers, NaN where not measured, but got {found}.") from error
        check_consistent_length(X, Y)
        self._single = Y.ndim == 1
        Y = Y.reshape(len(Y), -1)
        self.constraint_ = self._constraint(X, Y)
        names = columns if self.constraint_ is None else self.constraint_.outputs
        self.output_names_ = tuple(names) or tuple(f"y{j}" for j in range(Y.shape[1]))
        return X, Y, precision

    def _check_measured(self, Y: Array) -> None:
        for j, name in enumerate(self.output_names_):
            if (n_measured := int((~np.isnan(Y[:, j])).sum())) < min(3, len(Y)):
                raise ValueError(
                    f"Every output must be measured in 3 rows at least that are trained on, but got {n_measured} for "
                    f"{name!r}. Drop it."
                )

    def _inputs(self, X: Any, reset: bool) -> Array:
        if self.constraint is not None and self.constraint.n_columns:
            X = frames.select(X, self.constraint.columns, "X")
        try:
            checked = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1)
        except (TypeError, ValueError) as error:
            if (found := frames.culprit(X)) is None:
                raise
            raise ValueError(f"X must hold finite numbers only, but got {found}. Drop it or fill it in.") from error
        return np.asarray(checked)

    def _check_range(self, X: Array) -> None:
        """Of inputs in standard deviations, and of every term of a balance beside the balance's scale."""
        s, c = self.standardizer_, self.constraint_
        with np.errstate(over="ignore"):
            size = np.zeros(X.shape)
            size[:, : len(s.x_mean)] = np.abs(s.inputs(X))
            if c is not None:
                size = np.maximum(size, np.abs(X) * (np.abs(c.A) / s.row_scale[:, None]).max(0, initial=0.0))
        if (size > FARTHEST).any():
            i, j = map(int, np.argwhere(size > FARTHEST)[0])
            names = getattr(self, "feature_names_in_", None) if c is None else c.columns
            raise InputRangeError(f"x{j}" if names is None else str(names[j]), i, float(X[i, j]))

    def _named_outputs(self) -> tuple[str, ...]:
        return () if self.constraint is None else self.constraint.outputs

    def _constraint(self, X: Array, Y: Array) -> LinearConstraint | None:
        """The constraint with a column of A for every input, checked against the shapes of the data."""
        c = self.constraint
        if c is None:
            return None
        if Y.shape[1] != c.n_outputs:
            raise ValueError(
                f"y must have one column per output of the balances ({', '.join(map(repr, c.outputs))}), "
                f"but got {Y.shape[1]} columns."
            )
        if c.n_columns == 0:
            inputs = getattr(self, "feature_names_in_", None)
            names = [f"x{j}" for j in range(X.shape[1])] if inputs is None else list(inputs)
            A = np.zeros((c.n_balances, X.shape[1]))
            return LinearConstraint(c.B, A, c.b, names=c.names, inputs=names, outputs=c.outputs, units=c.units)
        if X.shape[1] != c.n_columns or c.n_inputs == 0:
            raise ValueError(
                f"X must have one column for each input and known column of the balances "
                f"({', '.join(map(repr, c.columns))}), at least one of them an input, but got {X.shape[1]} columns."
            )
        return c

    def _split(self, Y: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows to train on and rows held out; a row that is empty or has a rarely measured output is not held out."""
        measured = ~np.isnan(Y)
        rare = measured.sum(0) < min(10, len(Y))
        eligible = np.flatnonzero(measured.any(1) & ~(measured & rare).any(1))
        n_held_out = int(self.validation_fraction * len(eligible))
        held_out = np.sort(np.random.default_rng(self.seed_).permutation(eligible)[:n_held_out])
        return np.setdiff1d(np.arange(len(Y)), held_out), held_out

    def _rows(self, X: Array, Y: Array, sensor_std: Array | None) -> Rows:
        s = self.standardizer_
        per_row = None
        if sensor_std is not None and sensor_std.ndim == 2:
            per_row = torch.as_tensor((sensor_std / s.y_std) ** 2)
        return Rows(
            torch.as_tensor(s.inputs(X), dtype=torch.float32),
            torch.as_tensor(s.outputs(Y)),
            None if self.constraint_ is None else torch.as_tensor(s.target(X)),
            per_row,
        )

    # ------------------------------------------------------------------ model

    def _build(
        self, X: Array, Y: Array, obeyed: NDArray[np.bool_], sensor_std: Array | None, precision: float
    ) -> ConstrainedBNN:
        s = self.standardizer_
        sensor = None
        if sensor_std is not None and sensor_std.ndim == 1:
            sensor = sensor_posterior(sensor_std, Y, s, precision)
        network = BayesianMLP(
            len(s.x_mean),
            Y.shape[1],
            tuple(self.hidden),
            self.activation,
            sensor_head=sensor is not None and bool(sensor.learned.any()),
            prior_std=self.prior_std,
            generator=torch.Generator().manual_seed(derived_seed(self.seed_, 5)),
        )
        if self.constraint_ is None:
            return ConstrainedBNN(network, None, marginal, sensor).to(self._device)
        constraint = LinearConstraint(s.B, names=self.constraint_.names, outputs=self.constraint_.outputs)
        floor = torch.as_tensor(s.rounding(X, Y, 4 * precision)) ** 2
        tolerance = tolerance_posterior(self._tolerance(obeyed), constraint.names, torch.as_tensor(s.row_scale), floor)
        exact = torch.as_tensor(obeyed) & (tolerance.median() == 0)  # nothing may move a balance that is a fact
        layer = ConditioningLayer(constraint, tolerance, offset=~exact & bool(self.offset))
        rounding = torch.as_tensor(s.rounding(X, Y, max(1e-9, 64 * precision)))
        return ConstrainedBNN(network, layer, LIKELIHOODS[self.likelihood], sensor, rounding).to(self._device)

    def _train(self, rows: Rows, validation: Rows | None, callback: Callable[[dict], object] | None = None) -> History:
        """Fit `model_` in place; other methods train in other ways."""
        return train(
            self.model_,
            rows,
            validation,
            self._plan(),
            seed=self.seed_,
            checkpoint=self.checkpoint,
            verbose=bool(self.verbose),
            callback=callback,
        )

    def _tolerance(self, obeyed: NDArray[np.bool_]) -> dict:
        """What was said of each balance; those that the data obey to rounding and that were to be learned are exact."""
        names = self.constraint_.names  # type: ignore[union-attr]
        said = self.tolerance if isinstance(self.tolerance, Mapping) else dict.fromkeys(names, self.tolerance)
        exact = {
            name: 0.0
            for name, obeys in zip(names, obeyed, strict=True)
            if obeys and (said.get(name) is None or isinstance(said.get(name), TolerancePrior))
        }
        return dict(said) | exact

    def _obeyed_to_rounding(self, X: Array, Y: Array, precision: float) -> NDArray[np.bool_]:
        c = self.constraint_
        if c is None:
            return np.zeros(0, dtype=bool)
        z, magnitude = c.residual(X, Y), c.magnitude(X, Y)
        seen = ~np.isnan(z)
        obeys = np.where(seen, np.abs(z) <= 64 * precision * magnitude, True)
        return obeys.all(0) & (seen.sum(0) >= 3)

    def _check_exact_balances(
        self, X: Array, Y: Array, obeyed: NDArray[np.bool_], sensor_std: Array | None, precision: float
    ) -> None:
        """An exact balance that noise-free sensors contradict has no likelihood under L2."""
        c, layer = self.constraint_, self.model_.conditioning
        if c is None or layer is None or self.likelihood != "joint":
            return
        exact = (layer.tolerance.median() == 0).cpu().numpy()
        noisy = np.zeros((1, c.n_outputs), bool) if sensor_std is None else ~(np.atleast_2d(sensor_std) == 0)
        noisy = noisy.any(0)
        for k in np.flatnonzero(exact & ~obeyed & ~((c.B != 0) & noisy).any(1)):
            worst = np.nanmax(np.abs(c.residual(X, Y)[:, k]), initial=0.0)
            if worst > max(1e-9, 64 * precision) * np.nanmax(c.magnitude(X, Y)[:, k], initial=0.0):
                raise ValueError(
                    f"Balance '{c.names[k]}' is exact (tolerance 0) and its sensors noise-free, but the data miss it "
                    f"by up to {worst:.3g} {c.units[k] or ''}. Give its outputs a sensor_std "
                    "(or 'learn'), or the balance a tolerance."
                )

    def _sensor_std(self, Y: Array, obeyed: NDArray[np.bool_]) -> Array | None:
        """Sensor standard deviations in the user's units, NaN where learned: `(n_y,)`, `(n, n_y)`, or None for none."""
        std, c = sensor_std_of(self.sensor_std, self.output_names_, len(Y)), self.constraint_
        if c is None or self.likelihood == "marginal":
            learnable = np.zeros(Y.shape[1], dtype=bool)
        else:
            learnable = (c.B != 0).any(0) & ~(c.B[obeyed] != 0).any(0)
        std = np.where(np.isnan(std) & ~learnable, 0.0, std)
        if self.likelihood == "marginal" and c is not None and (std > 0).any():
            raise ValueError(
                "sensor_std must be None or 'learn' with likelihood='marginal', which takes what was measured for the "
                f"truth, but got {self.sensor_std!r}. Use likelihood='joint' to keep sensor noise apart."
            )
        return std if (np.isnan(std) | (std > 0)).any() else None

    def _summarise(self, X: Array, Y: Array, rows: Rows, obeyed: NDArray[np.bool_], precision: float) -> None:
        """What was learned of balances and sensors, in the user's units."""
        model, standardizer = self.model_, self.standardizer_
        self._sensors_per_row = rows.sensor_var is not None
        sensor_var = trust.sensor_var(model, rows, derived_seed(self.seed_, 6)).cpu().numpy()
        self.sensor_std_ = trust.sensor_table(model, standardizer, self.output_names_, sensor_var)
        taught, systematic = [], []
        left = trust.residual_var(model, rows, derived_seed(self.seed_, 6)).cpu().numpy()
        if self.constraint_ is not None:
            taught = trust.lessons(model, rows, derived_seed(self.seed_, 6))
            systematic = trust.residuals(self.constraint_, X, Y, 64 * precision)
        self.tolerances_ = trust.tolerance_table(model, standardizer, taught, systematic, obeyed, sensor_var, left)

    # ------------------------------------------------------------------ parameters

    def _plan(self) -> TrainingPlan:
        plan = self.training or TrainingPlan()
        return plan if self.max_epochs is None else replace(plan, max_epochs=int(self.max_epochs))

    @property
    def _device(self) -> torch.device:
        return torch.device("cpu" if self.device is None else self.device)

    def _flat(self, values: Any) -> Any:
        return frames.first_column(values) if self._single else values

    def _check_parameters(self) -> None:
        if not (self.constraint is None or isinstance(self.constraint, LinearConstraint)):
            raise TypeError(
                f"constraint must be a LinearConstraint or None, but got {type(self.constraint).__name__}. "
                "Build one with LinearConstraint.from_equations(...)."
            )
        _check_choice("likelihood", self.likelihood, LIKELIHOODS)
        _check_choice("activation", self.activation, ACTIVATIONS)
        if isinstance(self.sensor_std, str) and self.sensor_std != "learn":
            raise ValueError(f"sensor_std as text must be 'learn', but got {self.sensor_std!r}.")
        widths = list(self.hidden) if np.iterable(self.hidden) else [None]
        if not all(isinstance(width, numbers.Integral) and int(width) > 0 for width in widths):
            raise ValueError(f"hidden must hold positive whole numbers, but got {self.hidden!r}.")
        for name in ("n_draws", "max_epochs"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, numbers.Integral) and int(value) >= 1):
                raise ValueError(f"{name} must be a whole number of at least 1, but got {value!r}.")
        if not (isinstance(self.prior_std, numbers.Real) and 0 < float(self.prior_std) < math.inf):
            raise ValueError(f"prior_std must be a positive number, but got {self.prior_std!r}.")
        fraction = self.validation_fraction
        if not (isinstance(fraction, numbers.Real) and 0 <= float(fraction) < 1):
            raise ValueError(f"validation_fraction must be in [0, 1), but got {self.validation_fraction!r}.")


def _given_split(held_out: Any, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    chosen = np.unique(np.asarray(held_out))
    whole = chosen.dtype.kind in "iu" and chosen.ndim == 1
    if len(chosen) and not (whole and chosen[0] >= 0 and chosen[-1] < n and len(chosen) < n - 1):
        raise ValueError(
            f"held_out must hold positions of rows, 0 to {n - 1}, and leave two rows at least to train on, "
            f"but got {held_out!r}."
        )
    return np.setdiff1d(np.arange(n), chosen), chosen.astype(np.intp)


def _check_choice(name: str, value: Any, choices: Mapping) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, but got {value!r}.")
