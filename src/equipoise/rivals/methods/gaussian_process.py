"""A Gaussian process for each output, with a Matérn kernel, a length scale for each input, and white noise.

The processes have mean 0 in standardized units and the kernel, with scaled distances `d² = Σ_k (x_k − x'_k)² / l_k²`::

    k(x, x') = a (1 + √5 d + 5/3 d²) exp(−√5 d)

Length scales `l`, variance `a` and noise `n` of each output maximise its log marginal likelihood. At most `MOST_ROWS`
rows are used, drawn at random, since time grows with their cube and memory, for each output, with their square.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from equipoise.data import Rows
from equipoise.network import DRAW_BLOCK, ForwardPass, NetworkGaussian, WeightDraws

MOST_ROWS = 2000
STEPS = 200  # of the search for the parameters of a kernel, at most
LENGTHS, VARIANCES, NOISES = (1e-2, 1e3), (1e-3, 1e3), (1e-8, 10.0)  # bounds of the parameters
START = (1.0, 1.0, 0.1)  # length scales, variance and noise
JITTER = 1e-10  # relative to the variance
WORST = 1e12
LEAST_VAR = 1e-12  # of a prediction


def matern(
    x: Float[Tensor, "n n_x"], other: Float[Tensor, "p n_x"], log_scale: Float[Tensor, " n_x"], log_var: Tensor
) -> Float[Tensor, "n p"]:
    """Compute the kernel between two sets of rows.

    Args:
        x, other: Inputs.
        log_scale: Logarithms of the length scales `l`.
        log_var: Logarithm of the variance `a`.

    Example:
        >>> x = torch.zeros(1, 2, dtype=torch.float64)
        >>> matern(x, x, torch.zeros(2, dtype=torch.float64), torch.tensor(0.5)).log().item()
        0.5
    """
    scale = log_scale.exp()
    distance = torch.cdist(x / scale, other / scale, compute_mode="donot_use_mm_for_euclid_dist")
    d = math.sqrt(5.0) * distance
    return log_var.exp() * (1.0 + d + d.square() / 3.0) * (-d).exp()


def log_marginal_likelihood(
    x: Float[Tensor, "n n_x"], y: Float[Tensor, " n"], parameters: Float[Tensor, " n_x_and_2"]
) -> tuple[float, Float[Tensor, " n_x_and_2"]]:
    """Compute the log density of one output's values under its process, and its gradient.

    Where a noise is so small that close rows cannot be told apart, they are `−WORST` and 0.

    Args:
        x: Inputs.
        y: Values.
        parameters: Logarithms of length scales, variance and noise, in this order.
    """
    own = parameters.detach().clone().requires_grad_()
    K = _covariance(x, own)
    with torch.no_grad():
        L, failed = torch.linalg.cholesky_ex(K)
        if failed:
            return -WORST, torch.zeros_like(own)
        alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
        slope = 0.5 * (torch.outer(alpha, alpha) - torch.cholesky_inverse(L))
        value = -0.5 * y @ alpha - L.diagonal().log().sum() - 0.5 * len(y) * math.log(2.0 * math.pi)
    (gradient,) = torch.autograd.grad(K, [own], slope)
    return float(value), gradient


def most_likely_parameters(x: Float[Tensor, "n n_x"], y: Float[Tensor, " n"]) -> Float[Tensor, " n_x_and_2"]:
    """Return the logarithms of length scales, variance and noise that maximise the log marginal likelihood.

    Args:
        x: Inputs.
        y: Values of one output.
    """
    limits = [*[LENGTHS] * x.shape[1], VARIANCES, NOISES]
    start = np.log([*[START[0]] * x.shape[1], *START[1:]])

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = log_marginal_likelihood(x, y, torch.as_tensor(parameters))
        return -value, -gradient.numpy()

    result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=np.log(limits), options={"maxiter": STEPS})
    return torch.as_tensor(result.x)


class GaussianProcesses(WeightDraws):
    """Gaussian processes in the place of a network; they have no weights, and one "draw".

    Args:
        x: Inputs of the rows that they are conditioned on, shape `(n, n_x)`.
        y: Outputs of these rows, NaN where not measured, shape `(n, n_y)`.
        parameters: Logarithms of length scales, variance and noise of each output, shape `(n_y, n_x + 2)`.
        prior_std: No effect.

    Attributes:
        own_var: The part of each output's noise that belongs to the output itself and not to its sensor, shape
            `(n_y,)`: all of it, until it is changed.
    """

    name = "Gaussian processes"
    x: Tensor
    y: Tensor
    kernels: Tensor
    own_var: Tensor

    def __init__(self, x: Tensor, y: Tensor, parameters: Tensor, prior_std: float = 1.0):
        super().__init__(prior_std)
        for name, part in (("x", x), ("y", y), ("kernels", parameters)):
            self.register_buffer(name, part.detach().double().clone())
        self.register_buffer("own_var", self.noise_var)
        self._last: tuple[Tensor, Tensor, Tensor] | None = None
        self._solved: list[tuple[Tensor, Tensor]] | None = None

    @classmethod
    def fit(cls, rows: Rows, seed: int) -> "GaussianProcesses":
        """Fit a process to each output.

        Args:
            rows: Training rows, of which at most `MOST_ROWS` are used.
            seed: Seed of their choice.
        """
        rows = some_rows(rows, seed)
        x, y = rows.x.double(), rows.y.double()
        outputs = [(x[seen], column[seen]) for column in y.mT for seen in [~column.isnan()]]
        return cls(x, y, torch.stack([most_likely_parameters(*output) for output in outputs]))

    @property
    def noise_var(self) -> Float[Tensor, " n_y"]:
        """Variance of each output's white noise."""
        return self.kernels[:, -1].exp()

    @property
    def n_distinct(self) -> int:
        """One: there are no weights that could differ."""
        return 1

    def draw_block(self, seed: int, block: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws 1"]:
        """Return zeros; arguments are those of `WeightDraws.draw_block`, without effect."""
        return self.x.new_zeros(DRAW_BLOCK, 1)

    @torch.no_grad()
    def evaluate(
        self, network: Any, weights: Float[Tensor, "n_draws 1"], x: Float[Tensor, "n n_x"], forward: ForwardPass
    ) -> NetworkGaussian:
        """Compute means and variances of the processes, with `own_var`, the same for all draws.

        Args:
            network: No effect.
            weights: Draws, whose number counts.
            x: Standardized inputs.
            forward: No effect.
        """
        mean, var = (part.expand(len(weights), *part.shape) for part in self._predict_once(x.double()))
        return NetworkGaussian(mean, (var + self.own_var).clamp_min(LEAST_VAR))

    @torch.no_grad()
    def leave_one_out(self) -> NetworkGaussian:
        """Predict each of the rows from all others; Gaussians of shape `(n, n_y)`.

        ::

            μ_i = y_i − [K⁻¹ y]_i / [K⁻¹]_ii,   v_i = 1 / [K⁻¹]_ii − n,  plus `own_var`
        """
        mean, var = self._predict(self.x)
        for j, (L, alpha) in enumerate(self._solutions()):
            inverse_of_L = torch.linalg.solve_triangular(L, torch.eye(len(L)).to(L), upper=False)
            diagonal, seen = inverse_of_L.square().sum(0), ~self.y[:, j].isnan()
            mean[seen, j] = (self.y[:, j] - alpha / diagonal)[seen]
            var[seen, j] = (1.0 / diagonal - self.noise_var[j])[seen]
        return NetworkGaussian(mean, (var + self.own_var).clamp_min(LEAST_VAR))

    def settings(self) -> dict[str, Any]:
        """Return the number of rows and of outputs."""
        return {"n_rows": len(self.x), "n_outputs": self.y.shape[1]}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "GaussianProcesses":
        """Make processes of zeros; arguments are those of `WeightDraws.blank`."""
        n, n_x, n_y = settings["n_rows"], sizes[0], settings["n_outputs"]
        return cls(torch.zeros(n, n_x), torch.zeros(n, n_y), torch.zeros(n_y, n_x + 2), prior_std)

    def _predict_once(self, x: Float[Tensor, "n n_x"]) -> tuple[Tensor, Tensor]:
        """Compute `_predict`, or return what it computed for the same rows just before."""
        if torch.compiler.is_exporting():
            return self._predict(x)
        if self._last is None or not torch.equal(self._last[0], x):
            self._last = (x, *self._predict(x))
        return self._last[1:]

    def _predict(self, x: Float[Tensor, "n n_x"]) -> tuple[Tensor, Tensor]:
        """Compute means and variances of the values without noise, each of shape `(n, n_y)`."""
        means, variances = [], []
        solved = zip(self._solutions(), self.kernels, self.y.mT, strict=True)
        for (L, alpha), parameters, y in solved:
            cross = matern(x, self.x, parameters[:-2], parameters[-2]) * (~y.isnan()).double()
            explained = torch.linalg.solve_triangular(L, cross.mT, upper=False).square().sum(0)
            means.append(cross @ alpha)
            variances.append((parameters[-2].exp() - explained).clamp_min(0.0))
        return torch.stack(means, -1), torch.stack(variances, -1)

    def _solutions(self) -> list[tuple[Tensor, Tensor]]:
        """Compute for each output the Cholesky factor of its covariance `K`, and `K⁻¹ y`.

        Rows that do not have the output stand apart from all others, with the variance 1 and the value 0. The inverse
        of `K` is not formed: where there is hardly any noise, variances would be lost in its rounding.
        """
        if self._solved is not None:
            return self._solved
        solved = []
        for y, parameters in zip(self.y.mT, self.kernels, strict=True):
            seen = (~y.isnan()).double()
            eye = torch.eye(len(y), dtype=y.dtype, device=y.device)
            K = torch.where(torch.outer(seen, seen) > 0, _covariance(self.x, parameters), eye)
            L = torch.linalg.cholesky(K).contiguous()
            solved.append((L, torch.cholesky_solve(y.nan_to_num(0.0)[:, None], L)[:, 0].contiguous()))
        if not torch.compiler.is_exporting():
            self._solved = solved
        return solved


def some_rows(rows: Rows, seed: int) -> Rows:
    """Return at most `MOST_ROWS` of the rows, drawn at random, in their order.

    Args:
        rows: All rows.
        seed: Seed of the choice.
    """
    kept = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:MOST_ROWS].sort().values
    return rows.take(kept.to(rows.device))


def _covariance(x: Float[Tensor, "n n_x"], parameters: Float[Tensor, " n_x_and_2"]) -> Float[Tensor, "n n"]:
    """Compute the covariance of measured values, `k(x, x') + n δ`, with a jitter against rounding."""
    noise = parameters[-1].exp() + JITTER * parameters[-2].exp()
    return matern(x, x, parameters[:-2], parameters[-2]) + noise * torch.eye(len(x), dtype=x.dtype, device=x.device)
