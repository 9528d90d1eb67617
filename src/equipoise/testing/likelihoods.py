"""Checks of a likelihood."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from equipoise.gaussian import DiagonalGaussian, Gaussian, condition
from equipoise.network import Likelihood, as_likelihood

from .running import Check, bound, fitted_and_opened, numbers, require, require_close, run_checks, through_json

N_ROWS, N_OUTPUTS, N_NOISES = 4, 3, 50_000
ITS = ("flag", "settings", "gradients", "density", "curvature", "noise")  # beginnings of names of checks
B = torch.tensor([[1.0, -1.0, 0.5], [0.0, 1.0, 1.0]], dtype=torch.float64)


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
    run_checks(likelihood_checks(likelihood), type(likelihood).__name__)


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
        _density_of_two_outputs_integrates_to_one,
        _flag_is_joint_tells_how_it_behaves,
        _curvature_is_that_of_the_density,
        _determined_outputs_have_a_density,
        _units_shift_the_log_density,
        _origins_leave_the_log_density,
        _gradients_are_right,
        _noise_and_quantiles_are_those_of_the_density,
        _model_is_fitted_and_saved,
    )
    for check in checks:
        words = check.__name__.strip("_").replace("_", " ")
        name = f"its {words}" if words.startswith(ITS) else words
        yield name, bound(check, likelihood)


# --- Gaussians to try -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """Gaussians of a few rows with balances `B y = t`, of which there may be none."""

    mean: Tensor
    var: Tensor
    B: Tensor
    target: Tensor
    tol_var: float

    def gaussian(self) -> Gaussian:
        """Return the Gaussians of all rows, conditioned if there are balances."""
        prior = DiagonalGaussian(self.mean, self.var)
        return condition(prior, self.B, self.target, self.tol_var) if len(self.B) else prior

    def rows(self, rows: slice) -> "_Case":
        """Return the case for some of the rows."""
        return replace(self, mean=self.mean[rows], var=self.var[rows], target=self.target[rows])

    def in_units(self, s: Tensor) -> "_Case":
        """Return the case for the outputs `y s`."""
        return replace(self, mean=self.mean * s, var=self.var * s.square(), B=self.B / s)

    def two_draws(self) -> "_Case":
        """Return a first draw like this one, and one of other moments."""
        other = self.another_draw()
        return replace(self, mean=torch.stack([self.mean, other.mean]), var=torch.stack([self.var, other.var]))

    def another_draw(self) -> "_Case":
        """Return the second draw alone."""
        return replace(self, mean=self.mean + 0.1, var=1.3 * self.var)

    def moved(self, c: Tensor) -> "_Case":
        """Return the case for the outputs `y + c`."""
        return replace(self, mean=self.mean + c, target=self.target + self.B @ c)


def _cases() -> dict[str, _Case]:
    mean, var = numbers(N_ROWS, N_OUTPUTS), numbers(N_ROWS, N_OUTPUTS, seed=1).exp()
    balances = {"without balances": B[:0], "with a balance": B[:1], "with coupled balances": B}
    return {
        name: _Case(mean, var, rows, numbers(N_ROWS, len(rows), seed=2), tol_var=0.3) for name, rows in balances.items()
    }


def _sensors(likelihood: Likelihood) -> list[float]:
    return [0.4] if likelihood.has_sensor_noise else [0.0]


# --- Checks -----------------------------------------------------------------------------------------------------------


def _flags_are_set(likelihood: Likelihood) -> None:
    require(isinstance(likelihood, Likelihood), "it must derive from equipoise.Likelihood")
    name = getattr(likelihood, "name", None)
    require(isinstance(name, str) and name != "", "name must be a text")
    for flag in ("is_joint", "has_sensor_noise", "normal_noise"):
        require(isinstance(getattr(likelihood, flag, None), bool), f"{flag} must be True or False")
    as_likelihood(likelihood)
    parts = likelihood.named_parameters() if isinstance(likelihood, nn.Module) else vars(likelihood).items()
    learned = [attribute for attribute, value in parts if isinstance(value, Tensor) and value.requires_grad]
    require(not learned, f"training moves no parameters of a likelihood, but {', '.join(learned)} requires a gradient")


def _settings_make_it_again(likelihood: Likelihood) -> None:
    settings = through_json(likelihood.settings())
    copies = [type(likelihood)(**settings), pickle.loads(pickle.dumps(likelihood))]
    gaussian, y = _cases()["with a balance"].gaussian(), numbers(N_ROWS, N_OUTPUTS, seed=3)
    for copy in copies:
        same = torch.equal(copy.log_prob(gaussian, y, 0.4), likelihood.log_prob(gaussian, y, 0.4))
        require(same, "a copy from settings() or by pickle must have the same density")


def _rows_are_independent(likelihood: Likelihood) -> None:
    y = numbers(N_ROWS, N_OUTPUTS, seed=3)
    for case, made in _cases().items():
        gaussian = made.gaussian()
        for w in _sensors(likelihood):
            value = likelihood.log_prob(gaussian, y, w)
            require(value.shape == (N_ROWS,), f"{case}: expected one number per row, got {tuple(value.shape)}")
            require(value.dtype == torch.float64, f"{case}: expected float64, got {value.dtype}")
            rows = [likelihood.log_prob(made.rows(slice(i, i + 1)).gaussian(), y[i : i + 1], w) for i in range(N_ROWS)]
            require_close(torch.cat(rows), value, 1e-12, f"{case}: row by row")


def _draws_are_independent(likelihood: Likelihood) -> None:
    """Compare two draws at once with each alone; sensor variances differ by draw, row and output."""
    y = numbers(N_ROWS, N_OUTPUTS, seed=3)
    w = _sensors(likelihood)[0] * numbers(2, N_ROWS, N_OUTPUTS, seed=4).exp()
    for case, made in _cases().items():
        draws, each = made.two_draws().gaussian(), (made.gaussian(), made.another_draw().gaussian())
        value = likelihood.log_prob(draws, y, w)
        require(value.shape == (2, N_ROWS), f"{case}: expected shape (2, {N_ROWS}), got {tuple(value.shape)}")
        curvature = likelihood.curvature(draws, y, w)
        for i, (which, alone) in enumerate(zip(("first", "second"), each, strict=True)):
            words = f"{case}: {which} of two draws, with sensor variances of its own"
            require_close(value[i], likelihood.log_prob(alone, y, w[i]), 1e-12, words)
            require_close(curvature[i], likelihood.curvature(alone, y, w[i]), 1e-9, f"{words}: curvature")


def _missing_outputs_are_left_out(likelihood: Likelihood) -> None:
    y, w = numbers(N_ROWS, N_OUTPUTS, seed=3), _sensors(likelihood)[0]
    for case, made in _cases().items():
        gaussian = made.gaussian()
        nothing = likelihood.log_prob(gaussian, torch.full_like(y, torch.nan), w)
        require_close(nothing, torch.zeros(N_ROWS).double(), 1e-9, f"{case}: nothing measured has density 1")
        part = y.clone()
        part[:, 1] = torch.nan
        require(bool(likelihood.log_prob(gaussian, part, w).isfinite().all()), f"{case}: one output is missing")


def _determined_outputs_have_a_density(likelihood: Likelihood) -> None:
    """Try an output that an exact balance determines: nothing is left of its variance, and there is no sensor noise."""
    prior = DiagonalGaussian(numbers(N_ROWS, N_OUTPUTS), numbers(N_ROWS, N_OUTPUTS, seed=1).exp())
    y, alone = numbers(N_ROWS, N_OUTPUTS, seed=3), torch.tensor([[0.0, 2.0, 0.0]], dtype=torch.float64)
    value = likelihood.log_prob(condition(prior, alone, 2.0 * y[:, 1:2], 0.0), y, 0.0)
    advice = "keep variances above 0, for instance by Likelihood.output_var"
    require(bool(value.isfinite().all()), f"expected finite densities, got {value.tolist()}; {advice}")


def _density_integrates_to_one(likelihood: Likelihood) -> None:
    w, grid = _sensors(likelihood)[0], torch.linspace(-40.0, 40.0, 20_001, dtype=torch.float64)
    for case, made in _cases().items():
        gaussian = made.rows(slice(0, 1)).gaussian()
        for j in range(N_OUTPUTS):
            y = torch.full((len(grid), 1, N_OUTPUTS), torch.nan, dtype=torch.float64)
            y[:, 0, j] = grid
            density = likelihood.log_prob(gaussian, y, w).exp()[:, 0]
            total = torch.trapezoid(density, grid)
            require_close(total, torch.ones(()).double(), 1e-3, f"{case}: integral over output {j}")


def _density_of_two_outputs_integrates_to_one(likelihood: Likelihood) -> None:
    w, grid = _sensors(likelihood)[0], torch.linspace(-25.0, 25.0, 501, dtype=torch.float64)
    for case, made in _cases().items():
        gaussian = made.rows(slice(0, 1)).gaussian()
        y = torch.full((len(grid), len(grid), 1, N_OUTPUTS), torch.nan, dtype=torch.float64)
        y[..., 0, 0], y[..., 0, 1] = grid.unsqueeze(-1), grid
        density = likelihood.log_prob(gaussian, y, w).exp()[..., 0]
        total = torch.trapezoid(torch.trapezoid(density, grid), grid)
        require_close(total, torch.ones(()).double(), 5e-3, f"{case}: integral over outputs 0 and 1")


def _flag_is_joint_tells_how_it_behaves(likelihood: Likelihood) -> None:
    """Compare the density of whole rows with the product of those of single outputs, which balances connect."""
    y, w = numbers(N_ROWS, N_OUTPUTS, seed=3), _sensors(likelihood)[0]
    gaussian, product = _cases()["with coupled balances"].gaussian(), torch.zeros(N_ROWS).double()
    for j in range(N_OUTPUTS):
        alone = torch.full_like(y, torch.nan)
        alone[:, j] = y[:, j]
        product = product + likelihood.log_prob(gaussian, alone, w)
    independent = bool(((likelihood.log_prob(gaussian, y, w) - product).abs() < 1e-6).all())
    rule = f"is_joint must be {not independent}, for the density of a row is {'' if independent else 'not '}the product"
    require(independent != likelihood.is_joint, f"{rule} of those of its outputs")


def _curvature_is_that_of_the_density(likelihood: Likelihood) -> None:
    """Compare with the Hessian by autograd in the mean before conditioning, negative eigenvalues set to 0."""
    y = numbers(N_ROWS, N_OUTPUTS, seed=3)
    y[0, 1] = torch.nan
    for case, made in _cases().items():
        for w in _sensors(likelihood):
            gaussian = made.gaussian()
            expected = Likelihood.curvature_root(likelihood, gaussian, y, w)
            curvature = likelihood.curvature(gaussian, y, w)
            require_close(curvature, expected @ expected.mT, 1e-6, f"{case}: curvature in the mean")


def _noise_and_quantiles_are_those_of_the_density(likelihood: Likelihood) -> None:
    """Compare the variance of sensor noise with w, and the distribution function of an output with its density.

    Two draws of three outputs have means, variances and sensor variances of their own.
    """
    mean, var = numbers(2, 1, N_OUTPUTS), 0.7 * (0.3 * numbers(2, 1, N_OUTPUTS, seed=1)).exp()
    w = _sensors(likelihood)[0] * (0.5 * numbers(2, 1, N_OUTPUTS, seed=2)).exp()
    normal = numbers(2, N_NOISES, N_OUTPUTS, seed=5)
    noise = likelihood.sensor_noise(normal, w.expand_as(normal))
    squares = noise.square()
    error = (squares.mean(1, keepdim=True) - w).abs() / (squares.std(1, keepdim=True) / N_NOISES**0.5).clamp_min(1e-300)
    got = f"sensor_noise must have variance {w.flatten().tolist()}, but has {squares.mean(1).flatten().tolist()}"
    require(float(error.max()) < 5.0, got)
    grid = torch.linspace(-5.0, 5.0, 1001, dtype=torch.float64)
    y = grid.reshape(1, -1, 1).expand(2, -1, N_OUTPUTS)
    F = likelihood.measured_cdf(y, mean.expand_as(y), var.expand_as(y), w.expand_as(y))
    slope = torch.gradient(F, spacing=(grid,), dim=1)[0]
    columns = [
        likelihood.log_prob(DiagonalGaussian(*(part[..., j : j + 1] for part in (mean, var))), y[..., j : j + 1], w_j)
        for j, w_j in enumerate(w.split(1, -1))
    ]
    advice = "define measured_cdf and sensor_noise, and set normal_noise to False"
    error = float((slope - torch.stack(columns, -1).exp())[:, 1:-1].abs().max())
    require(error < 2e-3, f"the derivative of measured_cdf must be the density, but is {error:.2g} off; {advice}")
    if likelihood.has_sensor_noise:
        _require_ranks(likelihood, noise, mean, w)


def _require_ranks(likelihood: Likelihood, noise: Tensor, mean: Tensor, w: Tensor) -> None:
    """Compare noise about means that are certain with the distribution function of what is measured."""
    at = mean.expand_as(noise)
    ranks = likelihood.measured_cdf(at + noise, at, torch.full_like(at, 1e-6), w.expand_as(at)).sort(1).values
    uniform = (torch.arange(ranks.shape[1]).double() + 0.5) / ranks.shape[1]
    error = float((ranks - uniform.unsqueeze(-1)).abs().max())
    rule = "sensor_noise must have the distribution function measured_cdf where the true value is certain"
    require(error < 4.5 / N_NOISES**0.5, f"{rule}, but is {error:.2g} off")


def _units_shift_the_log_density(likelihood: Likelihood) -> None:
    """Compare the density in other units of the outputs, `y s`: its logarithm is less by `Σ log s`."""
    y, s, w = numbers(N_ROWS, N_OUTPUTS, seed=3), torch.tensor([2.0, 0.5, 10.0]).double(), _sensors(likelihood)[0]
    for case, made in _cases().items():
        shifted = likelihood.log_prob(made.in_units(s).gaussian(), y * s, w * s.square()) + s.log().sum()
        require_close(shifted, likelihood.log_prob(made.gaussian(), y, w), 1e-9, f"{case}: outputs times {s.tolist()}")


def _origins_leave_the_log_density(likelihood: Likelihood) -> None:
    """Compare with the density of the outputs `y + c`: training takes the means of the outputs off."""
    y, c, w = numbers(N_ROWS, N_OUTPUTS, seed=3), torch.tensor([3.0, -20.0, 0.5]).double(), _sensors(likelihood)[0]
    for case, made in _cases().items():
        moved = likelihood.log_prob(made.moved(c).gaussian(), y + c, w)
        require_close(moved, likelihood.log_prob(made.gaussian(), y, w), 1e-9, f"{case}: outputs plus {c.tolist()}")


def _gradients_are_right(likelihood: Likelihood) -> None:
    """Compare derivatives by mean, variance, target, tolerance and sensor variance with those of differences."""
    y = numbers(N_ROWS, N_OUTPUTS, seed=3)
    y[0, 1] = torch.nan
    mean, var = numbers(N_ROWS, N_OUTPUTS), numbers(N_ROWS, N_OUTPUTS, seed=1).exp()
    target, tol_var = numbers(N_ROWS, 1, seed=2), torch.full((N_ROWS, 1), 0.3, dtype=torch.float64)
    w = torch.full((N_ROWS, N_OUTPUTS), _sensors(likelihood)[0] or 0.1, dtype=torch.float64)
    leaves = [part.requires_grad_() for part in (mean, var, target, tol_var, w)]

    def density(mean: Tensor, var: Tensor, target: Tensor, tol_var: Tensor, w: Tensor) -> Tensor:
        return likelihood.log_prob(condition(DiagonalGaussian(mean, var), B[:1], target, tol_var), y, w)

    names = ("mean", "var", "target", "tol_var", "sensor_var")
    gradients = torch.autograd.grad(density(*leaves).sum(), leaves, allow_unused=True)
    for name, gradient in zip(names, gradients, strict=True):
        advice = "replace missing outputs before they enter a formula; a mask afterwards lets NaN through"
        finite = gradient is None or bool(gradient.isfinite().all())
        require(finite, f"the gradient by {name} is not finite where an output is missing; {advice}")
    try:
        torch.autograd.gradcheck(density, leaves)
    except RuntimeError as error:
        raise AssertionError(f"inputs 0 to 4 are {', '.join(names)}: {error}") from error


def _model_is_fitted_and_saved(likelihood: Likelihood) -> None:
    """Train a small model, let it predict and reconcile, save it and open it again."""
    again = fitted_and_opened(type(likelihood), likelihood=likelihood)
    require(type(again.model_.likelihood) is type(likelihood), "the file must name the likelihood")
