"""Checks of implementations that are written outside the package, in the manner of scikit-learn's estimator checks.

In: an implementation of one of the library's contracts. Out: nothing, or an `AssertionError` that names the check and
what was expected. The checks are the contract: an implementation that passes them works wherever the library uses its
own.

Calls: `artifact`, `estimator` and all rooms below them.
"""

import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.artifact import load
from equipoise.balances import LinearConstraint
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, condition
from equipoise.network import Likelihood

Check = Callable[[], None]
N_ROWS, N_OUTPUTS = 4, 3
B = torch.tensor([[1.0, -1.0, 0.5]], dtype=torch.float64)


def check_likelihood(likelihood: Likelihood) -> None:
    """Check that a likelihood keeps to the contract of `equipoise.Likelihood`.

    Args:
        likelihood: An object of the class in question.
    Raises:
        AssertionError: With the name of the first check that fails.

    Example:
        >>> from equipoise.network import joint
        >>> check_likelihood(joint)
    """
    for name, check in likelihood_checks(likelihood):
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{type(likelihood).__name__}: {name}: {error}") from error


def likelihood_checks(likelihood: Likelihood) -> Iterator[tuple[str, Check]]:
    """Iterate over the checks of a likelihood by name, for instance to make each of them a test.

    Args:
        likelihood: An object of the class in question.

    Example:
        >>> from equipoise.network import marginal
        >>> [name for name, _ in likelihood_checks(marginal)][:2]
        ['its flags are set', 'its settings make it again']
    """
    checks = (
        _flags_are_set,
        _settings_make_it_again,
        _rows_are_independent,
        _draws_are_independent,
        _missing_outputs_are_left_out,
        _density_integrates_to_one,
        _units_shift_the_log_density,
        _gradients_are_right,
        _model_is_fitted_and_saved,
    )
    for check in checks:
        words = check.__name__.strip("_").replace("_", " ")
        name = f"its {words}" if words.startswith(("flags", "settings", "gradients", "density")) else words
        yield name, _bound(check, likelihood)


def _bound(check: Callable[[Likelihood], None], likelihood: Likelihood) -> Check:
    return lambda: check(likelihood)


# --- Gaussians to try -------------------------------------------------------------------------------------------------


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _gaussians() -> dict[str, DiagonalGaussian | ConditionedGaussian]:
    prior = DiagonalGaussian(_numbers(N_ROWS, N_OUTPUTS), _numbers(N_ROWS, N_OUTPUTS, seed=1).exp())
    target = _numbers(N_ROWS, 1, seed=2)
    return {"without balances": prior, "with a balance": condition(prior, B, target, 0.3)}


def _rows_of(gaussian: DiagonalGaussian | ConditionedGaussian, rows: slice) -> DiagonalGaussian | ConditionedGaussian:
    prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
    part = DiagonalGaussian(prior.mean[rows], prior.var[rows])
    if not isinstance(gaussian, ConditionedGaussian):
        return part
    return condition(part, gaussian.operator, gaussian.target[rows], gaussian.tol_var)


def _sensors(likelihood: Likelihood) -> list[float]:
    return [0.4] if likelihood.has_sensor_noise else [0.0]


# --- Checks -----------------------------------------------------------------------------------------------------------


def _flags_are_set(likelihood: Likelihood) -> None:
    _require(isinstance(likelihood, Likelihood), "it must derive from equipoise.Likelihood")
    _require(isinstance(likelihood.name, str) and likelihood.name != "", "name must be a text")
    for flag in ("is_joint", "has_sensor_noise"):
        _require(isinstance(getattr(likelihood, flag), bool), f"{flag} must be True or False")


def _settings_make_it_again(likelihood: Likelihood) -> None:
    settings = json.loads(json.dumps(likelihood.settings()))
    copies = [type(likelihood)(**settings), pickle.loads(pickle.dumps(likelihood))]
    gaussian, y = _gaussians()["with a balance"], _numbers(N_ROWS, N_OUTPUTS, seed=3)
    for copy in copies:
        same = torch.equal(copy.log_prob(gaussian, y, 0.4), likelihood.log_prob(gaussian, y, 0.4))
        _require(same, "a copy from settings() or by pickle must have the same density")


def _rows_are_independent(likelihood: Likelihood) -> None:
    y = _numbers(N_ROWS, N_OUTPUTS, seed=3)
    for case, gaussian in _gaussians().items():
        for w in _sensors(likelihood):
            value = likelihood.log_prob(gaussian, y, w)
            _require(value.shape == (N_ROWS,), f"{case}: expected one number per row, got {tuple(value.shape)}")
            _require(value.dtype == torch.float64, f"{case}: expected float64, got {value.dtype}")
            rows = [likelihood.log_prob(_rows_of(gaussian, slice(i, i + 1)), y[i : i + 1], w) for i in range(N_ROWS)]
            _assert_close(torch.cat(rows), value, 1e-12, f"{case}: row by row")


def _draws_are_independent(likelihood: Likelihood) -> None:
    y, w = _numbers(N_ROWS, N_OUTPUTS, seed=3), _sensors(likelihood)[0]
    for case, gaussian in _gaussians().items():
        prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
        draws = DiagonalGaussian(torch.stack([prior.mean, prior.mean + 0.1]), torch.stack([prior.var, prior.var]))
        if isinstance(gaussian, ConditionedGaussian):
            draws = condition(draws, gaussian.operator, gaussian.target, gaussian.tol_var)
        value = likelihood.log_prob(draws, y, w)
        _require(value.shape == (2, N_ROWS), f"{case}: expected shape (2, {N_ROWS}), got {tuple(value.shape)}")
        _assert_close(value[0], likelihood.log_prob(gaussian, y, w), 1e-12, f"{case}: first of two draws")


def _missing_outputs_are_left_out(likelihood: Likelihood) -> None:
    y, w = _numbers(N_ROWS, N_OUTPUTS, seed=3), _sensors(likelihood)[0]
    for case, gaussian in _gaussians().items():
        nothing = likelihood.log_prob(gaussian, torch.full_like(y, torch.nan), w)
        _assert_close(nothing, torch.zeros(N_ROWS).double(), 1e-9, f"{case}: nothing measured has density 1")
        part = y.clone()
        part[:, 1] = torch.nan
        _require(bool(likelihood.log_prob(gaussian, part, w).isfinite().all()), f"{case}: one output is missing")


def _density_integrates_to_one(likelihood: Likelihood) -> None:
    w, grid = _sensors(likelihood)[0], torch.linspace(-40.0, 40.0, 20_001, dtype=torch.float64)
    for case, gaussian in _gaussians().items():
        for j in range(N_OUTPUTS):
            y = torch.full((len(grid), 1, N_OUTPUTS), torch.nan, dtype=torch.float64)
            y[:, 0, j] = grid
            density = likelihood.log_prob(_rows_of(gaussian, slice(0, 1)), y, w).exp()[:, 0]
            total = torch.trapezoid(density, grid)
            _assert_close(total, torch.ones(()).double(), 1e-3, f"{case}: integral over output {j}")


def _units_shift_the_log_density(likelihood: Likelihood) -> None:
    """Compare the density in other units of the outputs, `y s`: its logarithm is less by `Σ log s`."""
    y, s, w = _numbers(N_ROWS, N_OUTPUTS, seed=3), torch.tensor([2.0, 0.5, 10.0]).double(), _sensors(likelihood)[0]
    for case, gaussian in _gaussians().items():
        prior = gaussian.prior if isinstance(gaussian, ConditionedGaussian) else gaussian
        other: DiagonalGaussian | ConditionedGaussian = DiagonalGaussian(prior.mean * s, prior.var * s.square())
        if isinstance(gaussian, ConditionedGaussian):
            other = condition(other, B / s, gaussian.target, gaussian.tol_var)
        shifted = likelihood.log_prob(other, y * s, w * s.square()) + s.log().sum()
        _assert_close(shifted, likelihood.log_prob(gaussian, y, w), 1e-9, f"{case}: other units")


def _gradients_are_right(likelihood: Likelihood) -> None:
    """Compare derivatives by mean, variance, target, tolerance and sensor variance with those of differences."""
    y = _numbers(N_ROWS, N_OUTPUTS, seed=3)
    y[0, 1] = torch.nan
    mean, var = _numbers(N_ROWS, N_OUTPUTS), _numbers(N_ROWS, N_OUTPUTS, seed=1).exp()
    target, tol_var = _numbers(N_ROWS, 1, seed=2), torch.full((N_ROWS, 1), 0.3, dtype=torch.float64)
    w = torch.full((N_ROWS, N_OUTPUTS), _sensors(likelihood)[0] or 0.1, dtype=torch.float64)
    leaves = [part.requires_grad_() for part in (mean, var, target, tol_var, w)]

    def density(mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor, w: Tensor) -> Tensor:
        return likelihood.log_prob(condition(DiagonalGaussian(mean, var), B, target, tol_var), y, w)

    try:
        torch.autograd.gradcheck(density, leaves)
    except RuntimeError as error:
        raise AssertionError(str(error)) from error


def _model_is_fitted_and_saved(likelihood: Likelihood) -> None:
    """Train a small model, let it predict and reconcile, save it and open it again."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    a, b = np.sin(X[:, 0]), X[:, 1] ** 2
    Y = np.stack([a, b, a + b], 1) + 0.05 * rng.normal(size=(60, 3))
    balance = LinearConstraint([[1.0, 1.0, -1.0]])
    model = ConstrainedBNNRegressor(
        balance, likelihood=likelihood, hidden=(4,), max_epochs=6, n_draws=8, random_state=0
    ).fit(X, Y)
    p = model.predict_distribution(X[:5])
    results = [p.mean, p.std, *p.interval(0.9), p.sample(3), p.covariance(), p.ledger().total, p.log_prob(Y[:5])]
    results += [p.measured().sample(2), model.reconcile(X[:5], Y[:5], 0.1).mean]
    for result in results:
        _require(bool(np.isfinite(np.asarray(result)).all()), "all results of a fitted model must be finite")
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.safetensors")
        again = load(path, implementations=[type(likelihood)])
        _require(type(again.model_.likelihood) is type(likelihood), "the file must name the likelihood")
        same = np.array_equal(again.predict_distribution(X[:5]).log_prob(Y[:5]), p.log_prob(Y[:5]))
        _require(same, "a model that was opened again must have the same density")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _assert_close(actual: Tensor, expected: Tensor, rtol: float, words: str) -> None:
    error = float((actual - expected).abs().max())
    size = max(1.0, float(expected.abs().max()))
    _require(error <= rtol * size, f"{words}: expected {expected.tolist()}, got {actual.tolist()}")
