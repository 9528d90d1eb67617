"""Checks of a prior of tolerances, and of the posterior that it makes."""

import json
import math
import pickle
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from equipoise.gaussian import VariancePosterior, VariancePrior, check_prior_kind

from .running import Check, bound, fitted_and_opened, numbers, require, require_close, run_checks

N_DRAWS = 40_000
FLOOR = 1e-12
LOG_UNIT = (0.0, 1.3)  # of two balances whose units differ


def check_tolerance_prior(prior: VariancePrior) -> None:
    """Check that a prior of tolerances, and the posterior that it makes, keep to their contracts.

    Args:
        prior: An object of the class in question, which derives from `equipoise.VariancePrior`.
    Raises:
        AssertionError: With the name of the first check that fails.

    Example:
        >>> from equipoise import TolerancePrior
        >>> check_tolerance_prior(TolerancePrior(-4.0, 2.0))
    """
    if isinstance(prior, type):
        raise AssertionError(f"prior must be an object, but got the class. Pass {prior.__name__}().")
    run_checks(tolerance_prior_checks(prior), type(prior).__name__)


def tolerance_prior_checks(prior: VariancePrior) -> Iterator[tuple[str, Check]]:
    """Iterate over the checks of a prior of tolerances by name, for instance to make each of them a test.

    Args:
        prior: An object of the class in question.

    Example:
        >>> from equipoise import TolerancePrior
        >>> [name for name, _ in tolerance_prior_checks(TolerancePrior())][:2]
        ['name and unit are set', 'density integrates to one']
    """
    checks = (
        _name_and_unit_are_set,
        _density_integrates_to_one,
        _density_has_its_derivative,
        _moments_are_those_of_the_density,
        _expectation_is_that_over_draws,
        _settings_make_it_again,
        _posterior_starts_close_to_the_prior,
        _draws_increase_and_keep_the_floor,
        _units_move_the_posterior,
        _divergence_is_that_over_draws,
        _moments_are_those_of_draws,
        _parameters_get_gradients,
        _state_makes_the_posterior_again,
        _model_with_it_is_fitted_and_saved,
    )
    for check in checks:
        yield check.__name__.strip("_").replace("_", " "), bound(check, prior)


def _made(prior: VariancePrior) -> VariancePosterior:
    """Make the posterior of two variances in different units, as it starts."""
    q = prior.posterior(torch.tensor(LOG_UNIT, dtype=torch.float64), torch.full((2,), FLOOR, dtype=torch.float64))
    require(isinstance(q, VariancePosterior), "posterior(...) must return an equipoise.VariancePosterior")
    require(q.n_entries == 2 and bool(q.learned.all()), "posterior(...) must have one learned variance per unit")
    return q


def _trained(prior: VariancePrior) -> VariancePosterior:
    """Make a posterior whose parameters are nowhere special."""
    q = _made(prior)
    with torch.no_grad():
        for i, parameter in enumerate(q.parameters()):
            parameter.add_(0.2 * numbers(*parameter.shape, seed=10 + i))
    return q


def _draws_of(q: VariancePosterior) -> Tensor:
    with torch.no_grad():
        return q.draw((N_DRAWS,), torch.Generator().manual_seed(0))


def _require_mean(values: Tensor, expected: Tensor, words: str) -> None:
    """Raise unless the means of independent values over axis 0 are as expected, within five standard errors."""
    error = (values.mean(0) - expected).abs()
    within = bool((error <= 5.0 * values.std(0) / len(values) ** 0.5 + 1e-6 * (1.0 + expected.abs())).all())
    require(within, f"{words}: expected {values.mean(0).tolist()} from draws, got {expected.tolist()}")


def _rho(prior: VariancePrior) -> Tensor:
    """Return a grid that holds nearly all of the prior, in which the spacing is a 200th of its standard deviation."""
    mean, std = prior.log_moments()
    require(math.isfinite(mean) and math.isfinite(std) and std > 0, "log_moments() must be finite, and std positive")
    return mean + std * torch.linspace(-60.0, 40.0, 20_001, dtype=torch.float64)


# --- The prior --------------------------------------------------------------------------------------------------------


def _name_and_unit_are_set(prior: VariancePrior) -> None:
    require(isinstance(prior, VariancePrior), "it must derive from equipoise.VariancePrior")
    check_prior_kind(prior)
    require(isinstance(prior.relative, bool), f"relative must be True or False, got {prior.relative!r}")


def _density_integrates_to_one(prior: VariancePrior) -> None:
    rho = _rho(prior)
    log_prob = prior.log_prob(rho)
    require(log_prob.shape == rho.shape, f"log_prob must have the shape of rho, got {tuple(log_prob.shape)}")
    require(bool(log_prob[6000:14001].isfinite().all()), "log_prob must be finite: variances are never impossible")
    total = float(torch.trapezoid(log_prob.exp(), rho))
    require(abs(total - 1.0) < 1e-3, f"the density of log r must integrate to 1, but got {total:.6g}")


def _density_has_its_derivative(prior: VariancePrior) -> None:
    mean, std = prior.log_moments()
    rho = (mean + std * numbers(5, seed=1)).requires_grad_()
    (slope,) = torch.autograd.grad(prior.log_prob(rho).sum(), rho)
    step = 1e-5 * std
    with torch.no_grad():
        change = (prior.log_prob(rho + step) - prior.log_prob(rho - step)) / (2 * step)
    require_close(slope, change, 1e-4, "the gradient of log_prob")


def _moments_are_those_of_the_density(prior: VariancePrior) -> None:
    rho, (mean, std) = _rho(prior), prior.log_moments()
    density = prior.log_prob(rho).exp()
    expected_mean = float(torch.trapezoid(density * rho, rho))
    expected_std = math.sqrt(float(torch.trapezoid(density * (rho - expected_mean).square(), rho)))
    close = abs(mean - expected_mean) < 0.01 * expected_std and abs(std / expected_std - 1.0) < 0.01
    require(close, f"log_moments() must be {(expected_mean, expected_std)}, got {(mean, std)}")


def _expectation_is_that_over_draws(prior: VariancePrior) -> None:
    mean, std = torch.tensor([-1.0, 0.5]).double() + prior.log_moments()[0], torch.tensor([0.3, 0.8]).double()
    values = prior.log_prob(mean + std * numbers(N_DRAWS, 2))
    _require_mean(values, prior.expected_log_prob(mean, std), "expected_log_prob")


def _settings_make_it_again(prior: VariancePrior) -> None:
    again = type(prior)(**json.loads(json.dumps(prior.settings())))
    rho = prior.log_moments()[0] + numbers(7)
    for copy in (again, pickle.loads(pickle.dumps(prior))):
        same = torch.equal(copy.log_prob(rho), prior.log_prob(rho)) and copy.relative == prior.relative
        require(same, "a copy from settings(), or by pickle, must be the same prior")


# --- Its posterior ----------------------------------------------------------------------------------------------------


def _posterior_starts_close_to_the_prior(prior: VariancePrior) -> None:
    q = _made(prior)
    kl, std = q.kl_terms().detach(), q.log_moments()[1].detach()
    require(bool((kl > -1e-9).all()), f"no divergence is negative, got {kl.tolist()}")
    require(bool((kl < 2.0).all()), f"the divergence at the start must be small, got {kl.tolist()} nats")
    require_close(q.kl_at_start(), kl, 1e-6, "kl_at_start()")
    require_close(q.std_at_start(), std, 1e-6, "std_at_start()")


def _draws_increase_and_keep_the_floor(prior: VariancePrior) -> None:
    q = _trained(prior)
    with torch.no_grad():
        r = q.from_normal(torch.linspace(-6.0, 6.0, 25, dtype=torch.float64)[:, None].expand(-1, 2))
        require(r.shape == (25, 2), f"expected draws of shape (25, 2), got {tuple(r.shape)}")
        require(bool((r.diff(dim=0) >= 0).all()), "from_normal must increase in each number")
        require(bool((r >= FLOOR).all()), "no variance may be below the floor")
        require_close(q.median(), r[12], 1e-12, "the median, which belongs to the number 0")
        draws = [q.draw((3,), torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    require(torch.equal(draws[0], draws[1]), "the same generator must give the same draws")
    require(not torch.equal(draws[0], draws[2]), "another generator must give other draws")
    q.start_at(torch.tensor([1e-3, math.nan], dtype=torch.float64))
    require_close(q.median()[:1].detach().log(), torch.tensor([math.log(1e-3)]), 1e-6, "log of the median of start_at")
    require_close(q.median()[1:].detach().log(), r[12, 1:].log(), 1e-12, "log of a median that start_at must leave")
    q.set_log_moments(mean := q.log_moments()[0] - 1.0, std := 0.5 * q.log_moments()[1])
    for name, got, expected in zip(("mean", "std"), q.log_moments(), (mean, std), strict=True):
        require_close(got, expected, 1e-6, f"the {name} that set_log_moments sets")


def _units_move_the_posterior(prior: VariancePrior) -> None:
    """Compare two variances whose prior is the same but for its unit."""
    q, step = _made(prior), LOG_UNIT[1] - LOG_UNIT[0]
    pairs = {"prior_log_moments": q.prior_log_moments()[0], "log_moments": q.log_moments()[0]}
    for name, mean in pairs.items():
        require(abs(float(mean[1] - mean[0]) - step) < 1e-6, f"{name} must move by log_unit, got {mean.tolist()}")
    rho = q.prior_log_moments()[0][0] + numbers(5)
    same = torch.allclose(q.prior_log_prob(rho + step, 1), q.prior_log_prob(rho, 0), rtol=1e-9, atol=1e-9)
    require(same, "prior_log_prob must move by log_unit")
    expected = prior.log_prob(rho - LOG_UNIT[0])
    shift = q.prior_log_prob(rho, 0) - expected
    require(float(shift.max() - shift.min()) < 1e-9, "prior_log_prob must be the prior's but for a constant")


def _divergence_is_that_over_draws(prior: VariancePrior) -> None:
    """Compare with the mean of log q − log p, where the density of a draw is that of its normal number, transformed."""
    q = _trained(prior)
    normal = numbers(N_DRAWS, 2).requires_grad_()
    rho = (q.from_normal(normal) - q.floor).log()
    (slope,) = torch.autograd.grad(rho.sum(), normal)
    log_q = -0.5 * normal.square() - 0.5 * math.log(2 * math.pi) - slope.log()
    log_p = prior.log_prob(rho - torch.tensor(LOG_UNIT, dtype=torch.float64))
    _require_mean((log_q - log_p).detach(), q.kl_terms().detach(), "kl_terms()")


def _moments_are_those_of_draws(prior: VariancePrior) -> None:
    q = _trained(prior)
    rho, (mean, std) = (_draws_of(q) - FLOOR).log(), (part.detach() for part in q.log_moments())
    _require_mean(rho, mean, "mean of log_moments()")
    _require_mean((rho - mean).square(), std.square(), "variance of log_moments()")
    summary, r = q.summary(0, 2.0), _draws_of(q)[:, 0].sort().values
    for name, probability in {"tol_std_lower": 0.025, "tol_std": 0.5, "tol_std_upper": 0.975}.items():
        below = float((r.sqrt() * 2.0 <= summary[name]).double().mean())
        margin = 5.0 * math.sqrt(probability * (1 - probability) / N_DRAWS)
        require(abs(below - probability) < margin + 1e-3, f"{name} of summary(): {below:.4f} of the draws lie below")


def _parameters_get_gradients(prior: VariancePrior) -> None:
    q = _trained(prior)
    parameters = list(q.parameters())
    require(len(parameters) > 0, "a posterior must have parameters")
    for name, loss in {"draws": q.draw((4,), torch.Generator().manual_seed(0)).sum(), "kl": q.kl_terms().sum()}.items():
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            finite = gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any())
            require(finite, f"{name}: each parameter must get a gradient, but one of shape {tuple(parameter.shape)}")


def _state_makes_the_posterior_again(prior: VariancePrior) -> None:
    q, other = _trained(prior), type(prior)(**prior.settings())
    again = other.posterior(torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    again.load_state_dict(q.state_dict())
    require(torch.equal(_draws_of(again), _draws_of(q)), "draws must follow from settings() and state_dict()")
    require(torch.equal(again.kl_terms(), q.kl_terms()), "divergences must follow from settings() and state_dict()")


def _model_with_it_is_fitted_and_saved(prior: VariancePrior) -> None:
    """Train a small model, let it predict and reconcile, save it and open it again."""
    again = fitted_and_opened(type(prior), tolerance=prior)
    require(again.tolerance.settings() == prior.settings(), "the file must bring the prior back")
    table = again.tolerances_
    require(list(table["kind"]) == ["learned"], "the tolerance must be learned")
    require(bool(np.isfinite(table[["tol_std", "kl", "information"]].to_numpy(float)).all()), "its row must be finite")
