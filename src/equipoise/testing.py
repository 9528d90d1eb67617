"""Checks of implementations that are written outside the package, in the manner of scikit-learn's estimator checks.

In: an implementation of one of the library's contracts. Out: nothing, or an `AssertionError` that names the check and
what was expected. The checks are the contract: an implementation that passes them works wherever the library uses its
own.

Calls: `artifact`, `estimator` and all rooms below them.
"""

import itertools
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.artifact import load
from equipoise.balances import LinearConstraint
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian, condition
from equipoise.network import Likelihood, PosteriorFactory, WeightPosterior, as_likelihood, as_posterior, posterior_name

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
    if isinstance(likelihood, type):
        raise AssertionError(f"likelihood must be an object, but got the class. Pass {likelihood.__name__}().")
    _run(likelihood_checks(likelihood), type(likelihood).__name__)


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
        _determined_outputs_have_a_density,
        _units_shift_the_log_density,
        _gradients_are_right,
        _model_is_fitted_and_saved,
    )
    for check in checks:
        words = check.__name__.strip("_").replace("_", " ")
        name = f"its {words}" if words.startswith(("flags", "settings", "gradients", "density")) else words
        yield name, _bound(check, likelihood)


def check_posterior(posterior: PosteriorFactory) -> None:
    """Check that a posterior of the weights keeps to the contract of `equipoise.WeightPosterior`.

    Args:
        posterior: The class in question, or `functools.partial` of it.
    Raises:
        AssertionError: With the name of the first check that fails.

    Example:
        >>> from equipoise.network import POSTERIORS
        >>> check_posterior(POSTERIORS["mean-field"])
    """
    _run(posterior_checks(as_posterior(posterior)), posterior_name(posterior))


def posterior_checks(posterior: PosteriorFactory) -> Iterator[tuple[str, Check]]:
    """Iterate over the checks of a posterior by name, for instance to make each of them a test.

    Args:
        posterior: The class in question, or `functools.partial` of it.
    """
    checks = (
        _draws_follow_from_the_generator,
        _settings_and_state_make_it_again,
        _spread_is_set,
        _draws_have_the_layer_moments,
        _divergence_is_that_of_all_weights,
        _parameters_get_gradients,
        _model_with_it_is_fitted_and_saved,
    )
    for check in checks:
        yield check.__name__.strip("_").replace("_", " "), _bound(check, posterior)


def _run(checks: Iterator[tuple[str, Check]], who: str) -> None:
    for name, check in checks:
        try:
            check()
        except Exception as error:  # whatever outside code does, the check that found it is named
            words = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{who}: {name}: {words}") from error


def _bound(check: Callable[[Any], None], implementation: Any) -> Check:
    return lambda: check(implementation)


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
    name = getattr(likelihood, "name", None)
    _require(isinstance(name, str) and name != "", "name must be a text")
    as_likelihood(likelihood)
    for flag in ("is_joint", "has_sensor_noise"):
        _require(isinstance(getattr(likelihood, flag, None), bool), f"{flag} must be True or False")


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


def _determined_outputs_have_a_density(likelihood: Likelihood) -> None:
    """Try an output that an exact balance determines: nothing is left of its variance, and there is no sensor noise."""
    prior = DiagonalGaussian(_numbers(N_ROWS, N_OUTPUTS), _numbers(N_ROWS, N_OUTPUTS, seed=1).exp())
    y, alone = _numbers(N_ROWS, N_OUTPUTS, seed=3), torch.tensor([[0.0, 2.0, 0.0]], dtype=torch.float64)
    value = likelihood.log_prob(condition(prior, alone, 2.0 * y[:, 1:2], 0.0), y, 0.0)
    advice = "keep variances above 0, for instance by Likelihood.output_var"
    _require(bool(value.isfinite().all()), f"expected finite densities, got {value.tolist()}; {advice}")


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
    again = _fitted_and_opened(type(likelihood), likelihood=likelihood)
    _require(type(again.model_.likelihood) is type(likelihood), "the file must name the likelihood")


# --- Posteriors -------------------------------------------------------------------------------------------------------

SIZES = (2, 3, 4)
N_WEIGHTS, N_DRAWS = 25, 20_000


def _made(posterior: PosteriorFactory) -> WeightPosterior:
    """Make a posterior with means and spreads that are nowhere special."""
    q = posterior(0.5 * _numbers(N_WEIGHTS).float(), SIZES, 0.7, 0.2).double()
    with torch.no_grad():
        for i, parameter in enumerate(q.spreads()):
            parameter.add_(0.05 * _numbers(*parameter.shape, seed=10 + i))
    return q


def _draws_of(q: WeightPosterior, n: int = N_DRAWS, seed: int = 0) -> Tensor:
    with torch.no_grad():
        return q.draw(n, torch.Generator().manual_seed(seed))


def _settings_and_state_make_it_again(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    _require(isinstance(q, WeightPosterior), "it must derive from equipoise.WeightPosterior")
    _require(isinstance(q.name, str) and q.name != "", "name must be a text")
    again = type(q)(torch.zeros(N_WEIGHTS), SIZES, 0.7, **json.loads(json.dumps(q.settings()))).double()
    again.load_state_dict(q.state_dict())
    _require(torch.equal(_draws_of(again, 5), _draws_of(q, 5)), "draws must follow from settings() and state_dict()")
    _require(bool(again.kl() == q.kl()), "the divergence must follow from settings() and state_dict()")


def _draws_follow_from_the_generator(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    draws = _draws_of(q, 5)
    _require(draws.shape == (5, N_WEIGHTS), f"expected draws of shape (5, {N_WEIGHTS}), got {tuple(draws.shape)}")
    _require(draws.dtype == q.loc.dtype, f"expected draws of {q.loc.dtype}, got {draws.dtype}")
    _require(torch.equal(draws, _draws_of(q, 5)), "the same generator must give the same draws")
    _require(not torch.equal(draws, _draws_of(q, 5, seed=1)), "another generator must give other draws")
    error = (_draws_of(q).mean(0) - q.loc.detach()).abs() / (_draws_of(q).std(0) / N_DRAWS**0.5)
    _require(float(error.max()) < 5.0, "the mean of many draws must be loc, within five standard errors")


def _spread_is_set(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    means = q.loc.detach().clone()
    q.set_std(0.01)
    _require(torch.equal(q.loc, means), "set_std must leave loc as it is")
    spread = _draws_of(q).std(0) / 0.01
    _require(
        float((spread - 1.0).abs().max()) < 0.05, f"expected a standard deviation of 0.01, got {0.01 * spread.mean()}"
    )


def _draws_have_the_layer_moments(posterior: PosteriorFactory) -> None:
    """Compare the moments of a layer's pre-activations with those over many draws, within five standard errors."""
    q = _made(posterior)
    if not q.has_layer_moments:
        return
    start = 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(SIZES)):
        h, draws = _numbers(3, fan_in, seed=4), _draws_of(q)
        W = draws[:, start : start + fan_in * fan_out].view(-1, fan_in, fan_out)
        start += (fan_in + 1) * fan_out
        a = h @ W + draws[:, start - fan_out : start].unsqueeze(1)
        mean, var = (moment.detach() for moment in q.layer_moments(layer, h))
        of_mean = (a.mean(0) - mean).abs() / (var / N_DRAWS).sqrt()
        of_var = (a.var(0) / var - 1.0).abs() / (2.0 / N_DRAWS) ** 0.5
        _require(float(of_mean.max()) < 5.0, f"layer {layer}: the mean must be that of draws")
        _require(float(of_var.max()) < 5.0, f"layer {layer}: the variance must be that of draws")


def _divergence_is_that_of_all_weights(posterior: PosteriorFactory) -> None:
    """Compare with the divergences of single weights, of which that of all is at least the sum.

    A weight of mean m and variance s² has a divergence of at least that of the normal with these moments.
    """
    q = _made(posterior)
    draws, prior = _draws_of(q), q.prior_std**2
    var = draws.var(0) * (1.0 - 3.0 * (2.0 / N_DRAWS) ** 0.5)
    least = 0.5 * ((draws.var(0) + q.loc.detach().square()) / prior - 1.0 - (var / prior).log())
    value, bound = float(q.kl().detach()), float(least.sum())
    _require(q.kl().shape == (), "kl() must be a single number")
    _require(value >= bound - 0.05 * N_WEIGHTS, f"expected at least {bound:.4g} nats for all weights, got {value:.4g}")
    _require(value <= 3.0 * bound + N_WEIGHTS, f"expected about {bound:.4g} nats for all weights, got {value:.4g}")


def _parameters_get_gradients(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    parameters = list(q.parameters())
    for name, loss in {"draws": q.draw(4, torch.Generator().manual_seed(0)).square().sum(), "kl": q.kl()}.items():
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            finite = gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any())
            _require(
                finite,
                f"{name}: each parameter must get a gradient, but one of shape {tuple(parameter.shape)} has none",
            )


def _model_with_it_is_fitted_and_saved(posterior: PosteriorFactory) -> None:
    """Train a small model, let it predict and reconcile, save it and open it again."""
    again = _fitted_and_opened(type(_made(posterior)), posterior=posterior)
    _require(again.model_.network.posterior.name == _made(posterior).name, "the file must name the posterior")


# --- Models -----------------------------------------------------------------------------------------------------------


def _fitted_and_opened(implementation: type, **parameters: Any) -> ConstrainedBNNRegressor:
    """Train a small model, check that it predicts and reconciles, and return it as it is after saving and loading."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    a, b = np.sin(X[:, 0]), X[:, 1] ** 2
    Y = np.stack([a, b, a + b], 1) + 0.05 * rng.normal(size=(60, 3))
    balance = LinearConstraint([[1.0, 1.0, -1.0]])
    model = ConstrainedBNNRegressor(balance, hidden=(4,), max_epochs=6, n_draws=8, random_state=0, **parameters)
    model.fit(X, Y)
    p = model.predict_distribution(X[:5])
    results = [p.mean, p.std, *p.interval(0.9), p.sample(3), p.covariance(), p.ledger().total, p.log_prob(Y[:5])]
    results += [p.measured().sample(2), model.reconcile(X[:5], Y[:5], 0.1).mean]
    for result in results:
        _require(bool(np.isfinite(np.asarray(result)).all()), "all results of a fitted model must be finite")
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder) / "model.safetensors")
        again = load(path, implementations=[implementation])
        same = np.array_equal(again.predict_distribution(X[:5]).log_prob(Y[:5]), p.log_prob(Y[:5]))
        _require(same, "a model that was opened again must have the same density")
    return again


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _assert_close(actual: Tensor, expected: Tensor, rtol: float, words: str) -> None:
    error = float((actual - expected).abs().max())
    size = max(1.0, float(expected.abs().max()))
    _require(error <= rtol * size, f"{words}: expected {expected.tolist()}, got {actual.tolist()}")
