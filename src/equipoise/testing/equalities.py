"""Checks of an equality."""

import copy
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.artifact import load
from equipoise.balances import ConstraintError, Equality, check_equality_kind, linearised
from equipoise.data import Standardizer
from equipoise.estimator import ConstrainedBNNRegressor

from .running import Check, require, run_checks, through_json

Array = NDArray[np.float64]
LEAST_ROWS = 20
ROUNDING = 1e-9  # relative to the terms of a balance
NOISE = 0.05  # of the sensors of the model to fit, relative to the outputs' standard deviations


@dataclass(frozen=True)
class _Case:
    """An equality, and rows of data that obey it, in the user's units."""

    equality: Equality
    X: Array
    Y: Array

    def require_close(self, actual: Array, expected: Array, words: str) -> None:
        """Raise unless two arrays of one value per row and balance agree to rounding of the balances' terms.

        Args:
            actual, expected: The arrays, shape `(rows, m)`.
            words: What they are, for the message.
        """
        bound = ROUNDING * (self.equality.magnitude(self.X[: len(actual)], self.Y[: len(actual)]) + np.abs(expected))
        _require_within(actual - expected, bound, words, self.equality)


def check_equality(equality: Equality, X: ArrayLike, Y: ArrayLike | None = None) -> None:
    """Check that an equality keeps to the contract of `equipoise.Equality`.

    Args:
        equality: An object of the class in question.
        X: At least 20 different rows of inputs, then known columns, as users might have them, shape `(n, n_columns)`.
        Y: Outputs that obey, shape `(n, n_outputs)`; by default random ones that are moved onto the balances.
    Raises:
        AssertionError: With the name of the first check that fails.

    Example:
        >>> from equipoise import LinearConstraint
        >>> balance = LinearConstraint.from_equations("feed = top + bottom", inputs=["feed"], outputs=["top", "bottom"])
        >>> check_equality(balance, np.linspace(1.0, 2.0, 30)[:, None])
    """
    if isinstance(equality, type):
        require(False, f"equality must be an object, but got the class. Pass {equality.__name__}().")
    run_checks(equality_checks(equality, X, Y), type(equality).__name__)


def equality_checks(equality: Equality, X: ArrayLike, Y: ArrayLike | None = None) -> Iterator[tuple[str, Check]]:
    """Iterate over the checks of an equality by name, for instance to make each of them a test.

    Args:
        equality: An object of the class in question.
        X: At least 20 different rows of inputs, then known columns, as users might have them, shape `(n, n_columns)`.
        Y: Outputs that obey, shape `(n, n_outputs)`; by default random ones that are moved onto the balances.

    Example:
        >>> from equipoise import LinearConstraint
        >>> balance = LinearConstraint([[1.0, 1.0]], A=[[-1.0]])
        >>> [name for name, _ in equality_checks(balance, np.linspace(1.0, 2.0, 30)[:, None])][:2]
        ['its names are set', 'shapes fit']
    """
    x = np.asarray(X, dtype=np.float64)
    yield "its names are set", lambda: _names_are_set(equality)
    yield "shapes fit", lambda: _shapes_fit(equality, x, tuple(map(str, getattr(X, "columns", ()))))
    checks = (
        _rows_are_independent,
        _nothing_lies_outside_the_pattern,
        _residual_is_that_of_linearise,
        _coefficients_are_derivatives_of_the_residual,
        _missing_outputs_are_told_by_NaN,
        _magnitude_bounds_the_residual,
        _scale_is_that_of_the_coefficients,
        _settings_make_it_again,
        _standardised_residual_is_the_same,
        *((_model_is_fitted_and_saved,) if equality.is_linear else ()),
    )
    for check in checks:
        words = check.__name__.strip("_").replace("_", " ")
        name = f"its {words}" if words.startswith(("magnitude", "scale", "settings", "coefficients")) else words
        yield name, lambda check=check: check(_case(equality, x, Y))


# --- Data to try ------------------------------------------------------------------------------------------------------


def _case(equality: Equality, X: Array, Y: ArrayLike | None) -> _Case:
    """Return rows of data, with outputs that are moved onto the balances where none are passed."""
    if Y is not None:
        return _Case(equality, X, np.asarray(Y, dtype=np.float64))
    require(equality.is_linear, "Y must be passed for equalities that are not linear in the outputs")
    Y = np.random.default_rng(0).normal(size=(len(X), equality.n_outputs))
    B, target = linearised(equality, X)
    misses = target - (B @ Y[..., None])[..., 0]
    return _Case(equality, X, Y + (np.linalg.pinv(B) @ misses[..., None])[..., 0])


def _require_within(errors: Array, bounds: Array, words: str, equality: Equality) -> None:
    """Raise, with the balance's name, unless errors of shape `(..., m)` are within their bounds."""
    bad = ~(np.abs(errors) <= bounds)
    if bad.any():
        where = tuple(np.argwhere(bad)[0])
        got = f"{errors[where]:.3g} for balance {equality.names[where[-1]]!r}, row {where[-2]}"
        require(False, f"{words}: expected a difference of at most {bounds[where]:.3g}, got {got}")


# --- Checks -----------------------------------------------------------------------------------------------------------


def _names_are_set(equality: Equality) -> None:
    require(isinstance(equality, Equality), "it must derive from equipoise.Equality")
    require(isinstance(equality.is_linear, bool), "is_linear must be True or False")
    if equality.is_linear:
        check_equality_kind(equality)
    for argument in ("names", "inputs", "known", "outputs"):
        values = getattr(equality, argument, None)
        require(isinstance(values, tuple) and all(isinstance(v, str) for v in values), f"{argument} must be texts")
    for argument in ("units", "equations"):
        require(len(getattr(equality, argument, ())) == equality.n_balances, f"{argument} must hold one per balance")
    require(equality.n_balances > 0 and equality.n_outputs > 0, "there must be a balance and an output")


def _shapes_fit(equality: Equality, X: Array, labels: tuple[str, ...] = ()) -> None:
    in_order = labels == equality.columns or sorted(labels) != sorted(equality.columns)
    require(in_order, f"X must have its columns in the order {equality.columns}, got {labels}")
    require(X.ndim == 2 and len(X) >= LEAST_ROWS, f"X must hold at least {LEAST_ROWS} rows, got shape {X.shape}")
    shape = (len(X), equality.n_columns)
    require(X.shape == shape, f"X must have a column for each of {equality.columns}, got shape {X.shape}")
    m, n_y = equality.n_balances, equality.n_outputs
    if equality.is_linear:
        try:
            B, target = linearised(equality, X)
        except ConstraintError:
            raise
        except Exception as error:
            rule = "linearise(X) must work without Y where is_linear is True"
            raise AssertionError(f"{rule}, but raised {type(error).__name__}: {error}") from error
        require(bool(np.isfinite(B).all() and np.isfinite(target).all()), "B and targets of finite X must be finite")
    shared, pattern = equality.shared_B, np.asarray(equality.pattern)
    require(shared is None or np.shape(shared) == (m, n_y), f"shared_B must have shape {(m, n_y)} or be None")
    require(pattern.dtype == bool and pattern.shape == (m, n_y), f"pattern must be booleans of shape {(m, n_y)}")


def _rows_are_independent(case: _Case) -> None:
    B, target = linearised(case.equality, case.X, case.Y)
    for i in range(0, len(case.X), 7):
        row = slice(i, i + 1)
        of_row, of_target = linearised(case.equality, case.X[row], case.Y[row])
        same = np.array_equal(of_row, B if B.ndim == 2 else B[row])
        rule = f"of row {i} alone must be that of the row among others: linearise must not compute over rows"
        require(same or np.allclose(of_row, B if B.ndim == 2 else B[row], rtol=1e-12, atol=0.0), f"B {rule}")
        require(np.allclose(of_target, target[row], rtol=1e-12, atol=1e-300), f"target {rule}")


def _nothing_lies_outside_the_pattern(case: _Case) -> None:
    B, _ = linearised(case.equality, case.X, case.Y)
    outside = ((B != 0) & ~case.equality.pattern).reshape(-1, *case.equality.pattern.shape).any(0)
    if outside.any():
        k, j = np.argwhere(outside)[0]
        entry = f"{case.equality.outputs[j]!r} in {case.equality.names[k]!r}"
        require(False, f"the coefficient of {entry} is not 0, but pattern says so")


def _residual_is_that_of_linearise(case: _Case) -> None:
    equality, other = case.equality, case.Y + 0.1 * (1.0 + np.abs(case.Y))
    for Y in (case.Y, other):
        B, target = linearised(equality, case.X, Y)
        moved = _Case(equality, case.X, Y)
        moved.require_close(
            equality.residual(case.X, Y), (B @ Y[..., None])[..., 0] - target, "residual must be B y − t"
        )
    case.require_close(equality.residual(case.X, case.Y), np.zeros((len(case.Y), equality.n_balances)), "Y must obey")
    draws = np.stack([case.Y, other])
    expected = np.stack([equality.residual(case.X, Y) for Y in draws])
    require(np.allclose(equality.residual(case.X, draws), expected, equal_nan=True), "Y may have draws on axis 0")
    if equality.is_linear:
        for part, ignoring in zip(linearised(equality, case.X, case.Y), linearised(equality, case.X), strict=True):
            require(np.array_equal(part, ignoring), "linearise must ignore Y where is_linear is True")


def _coefficients_are_derivatives_of_the_residual(case: _Case) -> None:
    equality, (B, _) = case.equality, linearised(case.equality, case.X, case.Y)
    for j, output in enumerate(equality.outputs):
        step = np.zeros(equality.n_outputs)
        step[j] = 1e-5 * max(1.0, float(np.abs(case.Y[:, j]).max()))
        change = equality.residual(case.X, case.Y + step) - equality.residual(case.X, case.Y - step)
        slack = 1e-4 * np.abs(B[..., j]) + 1e-9 * equality.magnitude(case.X, case.Y) / step[j]
        _require_within(change / (2 * step[j]) - B[..., j], slack, f"derivative with respect to {output!r}", equality)


def _missing_outputs_are_told_by_NaN(case: _Case) -> None:
    equality = case.equality
    for j, output in enumerate(equality.outputs):
        Y = case.Y.copy()
        Y[:, j] = np.nan
        for values in (equality.residual(case.X, Y), equality.magnitude(case.X, Y)):
            expected = np.broadcast_to(equality.pattern[:, j], values.shape)
            words = (
                f"without {output!r}, residual and magnitude must be NaN in the balances that have it, and there alone"
            )
            require(np.array_equal(np.isnan(values), expected), words)


def _magnitude_bounds_the_residual(case: _Case) -> None:
    equality, Y = case.equality, case.Y + 0.1 * (1.0 + np.abs(case.Y))
    magnitude = equality.magnitude(case.X, Y)
    require(
        magnitude.shape == (len(Y), equality.n_balances), f"expected one number per row and balance, got {magnitude}"
    )
    excess = np.abs(equality.residual(case.X, Y)) - (1.0 + ROUNDING) * magnitude
    _require_within(np.maximum(excess, 0.0), np.zeros_like(excess), "a residual larger than its terms", equality)


def _scale_is_that_of_the_coefficients(case: _Case) -> None:
    equality, std = case.equality, case.Y.std(0) + 1.0
    if not equality.is_linear:
        return
    c, (B, _) = equality.scale(std, case.X), linearised(equality, case.X)
    require(np.shape(c) == (equality.n_balances,) and bool((c > 0).all()), f"scales must be positive, got {c}")
    squares = np.square(B * std).sum(-1)
    expected = np.sqrt(squares if B.ndim == 2 else squares.mean(0))
    require(np.allclose(c, expected, rtol=1e-9), f"expected {expected.tolist()} (Z2), got {c.tolist()}")


def _settings_make_it_again(case: _Case) -> None:
    equality = case.equality
    settings = through_json(equality.settings())
    arrays = {name: np.array(values) for name, values in equality.arrays().items()}
    copies = [type(equality)(**settings, **arrays), pickle.loads(pickle.dumps(equality)), copy.deepcopy(equality)]
    for again in copies:
        for name in ("names", "inputs", "known", "outputs", "units", "equations"):
            same = getattr(again, name) == getattr(equality, name)
            require(same, f"a copy from settings() and arrays(), or by pickle, must have the same {name}")
        pairs = zip(linearised(again, case.X, case.Y), linearised(equality, case.X, case.Y), strict=True)
        same = all(np.array_equal(*pair) for pair in pairs) and np.array_equal(again.pattern, equality.pattern)
        require(same, "a copy from settings() and arrays(), or by pickle, must have the same coefficients")


def _standardised_residual_is_the_same(case: _Case) -> None:
    """Compare the residual of standardized outputs with that in the user's units, divided by its scale (Z3)."""
    if not case.equality.is_linear:
        return
    equality, Y = case.equality, case.Y + 0.1 * (1.0 + np.abs(case.Y))
    standardizer = Standardizer.fit(case.X, Y, equality)
    B, target = standardizer.linearise(case.X)
    z = (B @ standardizer.outputs(Y)[..., None])[..., 0] - target
    terms = _Case(equality, case.X, np.abs(Y) + np.abs(standardizer.y_mean))
    terms.require_close(z * standardizer.row_scale, equality.residual(case.X, Y), "in standardized units")


def _model_is_fitted_and_saved(case: _Case) -> None:
    """Train a small model with exact balances: its draws obey, its ledger adds up, and a file brings it back."""
    equality, X, few = case.equality, case.X, case.X[:5]
    rng = np.random.default_rng(1)
    Y = case.Y + NOISE * case.Y.std(0) * rng.normal(size=case.Y.shape)
    readings, std = Y[:5].copy(), NOISE * (case.Y.std(0) + 1e-3)
    Y[0, 0] = np.nan  # not measured
    model = ConstrainedBNNRegressor(equality, tolerance=0, hidden=(4,), max_epochs=6, n_draws=8, random_state=0)
    p = model.fit(X, Y).predict_distribution(few)
    results = [p.mean, p.std, *p.interval(0.9), p.covariance(), p.measured().sample(2), p.measured().log_prob(Y[:5])]
    for result in results:
        require(bool(np.isfinite(np.asarray(result)).all()), "all results of a fitted model must be finite")
    for words, y in {
        "draws": p.sample(20),
        "means": p.mean,
        "reconciled": model.reconcile(few, readings, std).mean,
    }.items():
        terms = equality.magnitude(few, np.abs(y) + np.abs(model.standardizer_.y_mean))
        _require_within(
            equality.residual(few, y), ROUNDING * terms, f"{words} must obey balances of tolerance 0", equality
        )
    require(np.allclose(p.ledger().total, p.var, rtol=1e-9), "the ledger's terms must add up to the variance")
    alone = np.concatenate([model.predict_distribution(few[i : i + 1]).mean for i in range(len(few))])
    require(np.allclose(alone, p.mean, rtol=1e-6, atol=1e-6 * float(np.abs(case.Y).max())), "rows predicted one by one")
    again = _opened(model, type(equality))
    require(type(again.constraint) is type(equality), "the file must name the equality")
    same = np.array_equal(again.predict_distribution(few).sample(3), p.sample(3))
    require(same, "a model that was opened again must have the same draws")


def _opened(model: ConstrainedBNNRegressor, implementation: type) -> ConstrainedBNNRegressor:
    """Return a model as it is after saving and loading."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.safetensors")
        return load(path, implementations=[implementation])
