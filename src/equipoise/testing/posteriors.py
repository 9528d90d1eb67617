"""Checks of a posterior of the weights."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from equipoise.network import BayesianMLP, PosteriorFactory, WeightPosterior, as_posterior, posterior_name

from .running import Check, bound, fitted_and_opened, numbers, require, run_checks, through_json

SIZES = (2, 3, 4)
N_WEIGHTS, N_DRAWS = 25, 20_000


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
    run_checks(posterior_checks(as_posterior(posterior)), posterior_name(posterior))  # type: ignore[arg-type]


def posterior_checks(posterior: PosteriorFactory) -> Iterator[tuple[str, Check]]:
    """Iterate over the checks of a posterior by name, for instance to make each of them a test.

    Args:
        posterior: The class in question, or `functools.partial` of it.
    """
    checks = (
        _starting_values_follow_from_the_arguments,
        _draws_follow_from_the_generator,
        _settings_and_state_make_it_again,
        _spread_is_set,
        _draws_have_the_layer_moments,
        _forward_pass_has_the_moments_of_draws,
        _divergence_is_that_of_all_weights,
        _divergence_is_from_the_prior,
        _parameters_get_gradients,
        _model_with_it_is_fitted_and_saved,
    )
    for check in checks:
        yield check.__name__.strip("_").replace("_", " "), bound(check, posterior)


def _made(posterior: PosteriorFactory) -> WeightPosterior:
    """Make a posterior with means and spreads that are nowhere special."""
    q = posterior(0.5 * numbers(N_WEIGHTS).float(), SIZES, 0.7, 0.2).double()
    with torch.no_grad():
        for i, parameter in enumerate(q.spreads()):
            parameter.add_(0.1 * numbers(*parameter.shape, seed=10 + i))
    return q


def _draws_of(q: WeightPosterior, n: int = N_DRAWS, seed: int = 0) -> Tensor:
    with torch.no_grad():
        return q.draw(n, torch.Generator().manual_seed(seed))


def _starting_values_follow_from_the_arguments(posterior: PosteriorFactory) -> None:
    first, second = (posterior(torch.zeros(N_WEIGHTS), SIZES, 0.7, 0.2).state_dict() for _ in range(2))
    for name, values in first.items():
        advice = "take random starting values from a torch.Generator with a seed of its own"
        require(torch.equal(values, second[name]), f"{name} must start the same for the same arguments; {advice}")


def _settings_and_state_make_it_again(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    require(isinstance(q, WeightPosterior), "it must derive from equipoise.WeightPosterior")
    name = getattr(q, "name", None)
    require(isinstance(name, str) and name != "", f"name must be a text, but got {name!r}")
    again = type(q)(torch.zeros(N_WEIGHTS), SIZES, 0.7, **through_json(q.settings())).double()
    shapes, made = ({name: tuple(v.shape) for name, v in each.state_dict().items()} for each in (q, again))
    require(made == shapes, f"settings() must make parameters of the same shapes, {shapes}, but makes {made}")
    again.load_state_dict(q.state_dict())
    require(torch.equal(_draws_of(again, 5), _draws_of(q, 5)), "draws must follow from settings() and state_dict()")
    require(bool(again.kl() == q.kl()), "the divergence must follow from settings() and state_dict()")


def _draws_follow_from_the_generator(posterior: PosteriorFactory) -> None:
    single = _made(posterior).float()  # as networks are
    for each in (single, q := _made(posterior)):
        draws = _draws_of(each, 5)
        require(draws.shape == (5, N_WEIGHTS), f"expected draws of shape (5, {N_WEIGHTS}), got {tuple(draws.shape)}")
        require(draws.dtype == each.loc.dtype, f"expected draws of {each.loc.dtype}, as loc is, got {draws.dtype}")
    require(torch.equal(draws, _draws_of(q, 5)), "the same generator must give the same draws")
    require(not torch.equal(draws, _draws_of(q, 5, seed=1)), "another generator must give other draws")
    error = (_draws_of(q).mean(0) - q.loc.detach()).abs() / (_draws_of(q).std(0) / N_DRAWS**0.5)
    require(float(error.max()) < 5.0, "the mean of many draws must be loc, within five standard errors")


def _spread_is_set(posterior: PosteriorFactory) -> None:
    q = _made(posterior)
    means = q.loc.detach().clone()
    q.set_std(0.01)
    require(torch.equal(q.loc, means), "set_std must leave loc as it is")
    spread = _draws_of(q).std(0) / 0.01
    got = f"got {0.01 * float(spread.min()):.4g} to {0.01 * float(spread.max()):.4g} over {N_DRAWS} draws"
    rule = "after set_std(0.01) each weight must have a standard deviation of 0.01, all sources of spread together"
    require(float((spread - 1.0).abs().max()) < 0.05, f"{rule}, within 5 %; {got}")


def _draws_have_the_layer_moments(posterior: PosteriorFactory) -> None:
    """Compare the moments of a layer's pre-activations with those over many draws, within five standard errors."""
    q = _made(posterior)
    if not q.has_layer_moments:
        return
    start = 0
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(SIZES)):
        h, draws = numbers(3, fan_in, seed=4), _draws_of(q)
        W = draws[:, start : start + fan_in * fan_out].view(-1, fan_in, fan_out)
        start += (fan_in + 1) * fan_out
        a = h @ W + draws[:, start - fan_out : start].unsqueeze(1)
        mean, var = (moment.detach() for moment in q.layer_moments(layer, h))
        of_mean = (a.mean(0) - mean).abs() / (var / N_DRAWS).sqrt()
        of_var = (a.var(0) / var - 1.0).abs() / (2.0 / N_DRAWS) ** 0.5
        require(float(of_mean.max()) < 5.0, f"layer {layer}: the mean must be that of draws")
        require(float(of_var.max()) < 5.0, f"layer {layer}: the variance must be that of draws")


def _forward_pass_has_the_moments_of_draws(posterior: PosteriorFactory) -> None:
    """Compare a network without hidden layers at one input with its moments over many draws of the weights."""
    x, generator = numbers(1, 2, seed=6), torch.Generator().manual_seed(0)
    settings = {"prior_std": 0.7, "init_std": 0.2, "posterior": posterior}
    network = BayesianMLP(2, 2, hidden=(), generator=generator, **settings).double()
    with torch.no_grad():
        outputs = network.at(network.posterior.draw(N_DRAWS, generator), x).mean[:, 0]
        if network.posterior.has_layer_moments:
            rows = network(x.expand(N_DRAWS, -1), generator).mean
        else:
            rows = torch.cat([network(x, generator).mean for _ in range(N_DRAWS // 20)])
    std = outputs.std(0)
    of_mean = (rows.mean(0) - outputs.mean(0)).abs() / (std * (1 / len(rows) + 1 / N_DRAWS) ** 0.5)
    of_var = (rows.var(0) / outputs.var(0) - 1.0).abs() / (2.0 / len(rows) + 2.0 / N_DRAWS) ** 0.5
    require(float(of_mean.max()) < 5.0, "the mean of a forward pass must be that of draws, within five standard errors")
    require(float(of_var.max()) < 5.0, "the variance of a forward pass must be that of draws")


def _divergence_is_that_of_all_weights(posterior: PosteriorFactory) -> None:
    """Compare with the divergence of the normal that has the mean and the covariance of many draws.

    For a normal posterior the two agree; another one diverges more, since the normal has the largest entropy. The
    logarithm of the determinant of a sample covariance is corrected for its bias; margins are five standard errors.
    Two modes along a single direction cannot be told from a normal by these draws, and diverge by up to log 2 more.
    """
    q = _made(posterior)
    draws, prior_var = _draws_of(q), q.prior_std**2
    cov = torch.cov(draws.T)
    freedom = 0.5 * (N_DRAWS - 1.0 - torch.arange(N_WEIGHTS, dtype=torch.float64))
    log_det = torch.logdet(cov) - (torch.digamma(freedom) - math.log(0.5 * (N_DRAWS - 1.0))).sum()
    squares = draws.square().sum(1) / prior_var
    expected = 0.5 * float(squares.mean() - N_WEIGHTS + N_WEIGHTS * math.log(prior_var) - log_det)
    value = float(q.kl().detach())
    require(q.kl().shape == (), "kl() must be a single number")
    normal = _look_normal(draws)
    error_of_log_det = _mahalanobis(draws).std() if not normal else torch.tensor(2.0 * N_WEIGHTS).sqrt()
    margin = 2.5 * float(squares.std() + error_of_log_det) / N_DRAWS**0.5
    most = expected + math.log(2.0) if normal else 1.5 * expected + 0.3
    require(value >= expected - margin, f"expected at least {expected:.4g} nats for all weights, got {value:.4g}")
    require(value <= most + margin, f"expected about {expected:.4g} nats for all weights, got {value:.4g}")


def _mahalanobis(draws: Tensor) -> Tensor:
    """Return the squared distance of each draw from the mean, in the units of the covariance of all."""
    centred = draws - draws.mean(0)
    return (torch.linalg.solve(torch.cov(draws.T), centred.T).T * centred).sum(1)


def _look_normal(draws: Tensor) -> bool:
    """Return whether skewness and kurtosis of each weight, and of all together, are those of a normal distribution.

    That is within five standard errors, `√(6 / n)`, `√(24 / n)` and `√(8 P (P + 2) / n)`.
    """
    z = (draws - draws.mean(0)) / draws.std(0)
    skewness, kurtosis = z.pow(3).mean(0), z.pow(4).mean(0) - 3.0
    P = draws.shape[1]
    together = float(_mahalanobis(draws).square().mean()) - P * (P + 2)
    alone = max(float(skewness.abs().max()) / 6**0.5, float(kurtosis.abs().max()) / 24**0.5)
    return max(alone, abs(together) / (8 * P * (P + 2)) ** 0.5) < 5.0 / len(draws) ** 0.5


def _divergence_is_from_the_prior(posterior: PosteriorFactory) -> None:
    """Compare divergences from two priors: they differ by that of the mean log prior densities of draws.

    `KL₂ − KL₁ = P log(p₂ / p₁) + ½ E‖θ‖² (1 / p₂² − 1 / p₁²)` for any posterior; the bound is five standard errors.
    """
    q, (p1, p2) = _made(posterior), (0.7, 2.0)
    other = posterior(torch.zeros(N_WEIGHTS), SIZES, p2, 0.2).double()
    other.load_state_dict(q.state_dict())
    got = (q.prior_std, other.prior_std)
    require(got == (p1, p2), f"prior_std must be that of the arguments, {(p1, p2)}, but is {got}; pass it to super()")
    squares, slope = _draws_of(q).square().sum(1), 0.5 * (1 / p2**2 - 1 / p1**2)
    expected = N_WEIGHTS * math.log(p2 / p1) + slope * float(squares.mean())
    margin = 5.0 * abs(slope) * float(squares.std()) / N_DRAWS**0.5 + 1e-9
    difference = float((other.kl() - q.kl()).detach())
    rule = f"kl() must change by {expected:.4g} ± {margin:.2g} nats when prior_std goes from {p1} to {p2}"
    require(abs(difference - expected) <= margin, f"{rule}, but changes by {difference:.4g}")


def _parameters_get_gradients(posterior: PosteriorFactory) -> None:
    """Compare derivatives of draws and of the divergence with those of differences at the same random numbers."""
    q = _made(posterior)
    factors = numbers(4, N_WEIGHTS, seed=7)
    losses = {"draws": lambda: (factors * q.draw(4, torch.Generator().manual_seed(0))).sum(), "kl": q.kl}
    for loss_name, loss in losses.items():
        gradients = torch.autograd.grad(loss(), list(q.parameters()), allow_unused=True)
        for (name, parameter), gradient in zip(q.named_parameters(), gradients, strict=True):
            finite = gradient is not None and bool(gradient.isfinite().all()) and bool((gradient != 0).any())
            rule = f"{loss_name}: each parameter must get a gradient, but {name}"
            require(finite, f"{rule} of shape {tuple(parameter.shape)} has none")
            _require_slopes(loss, parameter, gradient, f"{loss_name}: the gradient by {name} must be the derivative")  # type: ignore[arg-type]


def _require_slopes(loss: Callable[[], Tensor], parameter: Tensor, gradient: Tensor, words: str) -> None:
    """Compare a gradient with central differences along three directions, within a thousandth."""
    start = parameter.detach().clone()
    for seed in range(3):
        direction, step, values = numbers(*parameter.shape, seed=20 + seed), 1e-3, []
        with torch.no_grad():
            for sign in (1.0, -1.0):
                parameter.copy_(start + sign * step * direction)
                values.append(float(loss()))
            parameter.copy_(start)
        slope, got = (values[0] - values[1]) / (2.0 * step), float((gradient * direction).sum())
        error, size = abs(slope - got), float(gradient.norm() * direction.norm()) / direction.numel() ** 0.5
        require(error <= 1e-3 * max(size, abs(slope)), f"{words}; along a direction it is {slope:.4g}, got {got:.4g}")


def _model_with_it_is_fitted_and_saved(posterior: PosteriorFactory) -> None:
    """Train a small model, let it predict and reconcile, save it and open it again."""
    again = fitted_and_opened(type(_made(posterior)), posterior=posterior)
    require(again.model_.network.posterior.name == _made(posterior).name, "the file must name the posterior")
