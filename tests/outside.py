"""Implementations of the library's contracts as users would write them, outside the package."""

import math

import numpy as np
import torch
from torch import nn

import equipoise as eq


class LaplaceNoise(eq.Likelihood):
    """Measured outputs have Laplace noise of variance w, independent of each other; the paper's L1 otherwise.

    With `v = s²`, `w = 2 / a²` and `e = y − μ_C` the density of the sum of a normal and a Laplace number is::

        log p = log(a / 2) + a² v / 2 + log(exp(−a e) Φ(e / s − a s) + exp(a e) Φ(−e / s − a s))
    """

    name, is_joint, normal_noise = "laplace noise", False, False

    def __init__(self, least: float = 1e-12):
        self.least = least

    def settings(self):
        return {"least": self.least}

    def sensor_noise(self, normal, sensor_var):
        u = torch.special.ndtr(normal) - 0.5
        scale = (torch.as_tensor(sensor_var, dtype=normal.dtype) / 2).sqrt()
        return -scale * u.sign() * torch.log1p(-2 * u.abs().clamp_max(0.5 - 1e-16))

    def measured_cdf(self, y, mean, var, sensor_var):
        w = torch.as_tensor(sensor_var, dtype=mean.dtype, device=mean.device).clamp_min(self.least)
        a, s, e = (2.0 / w).sqrt(), var.clamp_min(self.least).sqrt(), y - mean
        tails = [-a * e + torch.special.log_ndtr(e / s - a * s), a * e + torch.special.log_ndtr(-e / s - a * s)]
        left, right = (0.5 * (0.5 * (a * s).square() + tail).exp() for tail in tails)
        return torch.special.ndtr(e / s) - left + right

    def log_prob(self, gaussian, y, sensor_var=0.0):
        mean, var, measured = gaussian.mean, gaussian.var, ~y.isnan()
        w = torch.as_tensor(sensor_var, dtype=mean.dtype, device=mean.device)
        a, s = (2.0 / w.clamp_min(self.least)).sqrt(), var.clamp_min(self.least).sqrt()
        e = torch.where(measured, y - mean, 0.0)
        tails = [-a * e + torch.special.log_ndtr(e / s - a * s), a * e + torch.special.log_ndtr(-e / s - a * s)]
        density = (a / 2).log() + 0.5 * (a * s).square() + torch.logaddexp(*tails)
        normal = -0.5 * ((e / s).square() + 2 * s.log() + math.log(2 * math.pi))
        return torch.where(measured, torch.where(w > self.least, density, normal), 0.0).sum(-1)


class LowRank(eq.WeightPosterior):
    """Normals that are correlated along a few directions, `q(θ) = N(loc, diag(std²) + U Uᵀ)`."""

    name = "low rank"

    def __init__(self, loc, sizes, prior_std=1.0, init_std=1e-2, rank=2):
        super().__init__(loc, sizes, prior_std, init_std)
        self.log_std = nn.Parameter(torch.full_like(loc, init_std).log())
        self.U = nn.Parameter(torch.zeros(len(loc), rank, dtype=loc.dtype))

    def settings(self):
        return {"rank": self.U.shape[1]}

    def kl(self):
        var, U = (2 * self.log_std.double()).exp(), self.U.double()
        inner = torch.eye(U.shape[1], dtype=U.dtype) + U.mT @ (U / var.unsqueeze(-1))
        trace = (var.sum() + U.square().sum() + self.loc.double().square().sum()) / self.prior_std**2
        log_det = var.log().sum() + torch.logdet(inner)
        return 0.5 * (trace - len(var) + 2 * len(var) * math.log(self.prior_std) - log_det)

    def draw(self, n, generator=None):
        xi, eta = (torch.randn(n, k, dtype=self.loc.dtype, generator=generator) for k in self.U.shape)
        return self.loc + self.log_std.exp() * xi + eta @ self.U.mT

    def set_std(self, std):
        with torch.no_grad():
            self.log_std.fill_(math.log(std))
            self.U.zero_()


class ComponentBalance(eq.Equality):
    """A column that parts a feed in two: its mass, and the mass of a component whose fractions are measured by row."""

    name = "component balance"

    def __init__(self, mass=True):
        self.mass = mass
        names, columns = ("mass", "component") if mass else ("component",), ("top", "bottom", "loss")
        super().__init__(
            names=names,
            inputs=("feed", "z"),
            known=("x_top", "x_bottom"),
            outputs=columns,
            units=["kg/h"] * len(names),
            equations=["feed = top + bottom + loss", "z*feed = x_top*top + x_bottom*bottom"][-len(names) :],
        )

    def settings(self):
        return {"mass": self.mass}

    @property
    def pattern(self):
        return np.array([[True, True, True], [True, True, False]])[-self.n_balances :]

    def linearise(self, X, Y=None):
        feed, z, x_top, x_bottom = X.T
        one, zero = np.ones(len(X)), np.zeros(len(X))
        B = np.stack([np.stack([one, one, one], 1), np.stack([x_top, x_bottom, zero], 1)], 1)
        return B[:, -self.n_balances :], np.stack([feed, z * feed], 1)[:, -self.n_balances :]


class SquaredTarget(eq.Equality):
    """Weighted outputs add up to the square of an input: one B for all rows, and targets that are not linear in x."""

    name = "squared target"

    def __init__(self, weights):
        self.weights = np.asarray(weights, dtype=float)
        super().__init__(names=["sum"], inputs=["x"], outputs=[f"part {j}" for j in range(len(self.weights))])

    def arrays(self):
        return {"weights": self.weights}

    @property
    def shared_B(self):
        return self.weights[None]

    def linearise(self, X, Y=None):
        return self.weights[None], X**2


class RowByRow(eq.Equality):
    """A LinearConstraint that repeats its coefficients in every row: all results must be those of the original."""

    name = "row by row"

    def __init__(self, linear):
        self.linear = linear
        super().__init__(
            names=linear.names, inputs=linear.inputs, known=linear.known, outputs=linear.outputs, units=linear.units
        )

    @property
    def pattern(self):
        return self.linear.pattern

    def linearise(self, X, Y=None):
        return np.repeat(self.linear.B[None], len(X), 0), self.linear.target(X)


class Power(eq.Equality):
    """`P = V I`, nonlinear in the outputs: linearised at Y, and not to be fitted yet."""

    name, is_linear = "power", False

    def __init__(self):
        super().__init__(names=["power"], inputs=["R"], outputs=["P", "V", "I"], units=["W"])

    def linearise(self, X, Y=None):
        P, V, I = Y.T  # noqa: E741
        return np.stack([np.ones_like(P), -I, -V], 1)[:, None], (-V * I)[:, None]


class HalfNormal(eq.VariancePrior):
    """The tolerance `s = √r` of a balance is half-normal: `p(s) = √(2/π) / σ exp(−s² / (2 σ²))`, with mode 0."""

    name = "half-normal"

    def __init__(self, std=0.2, relative=True, closed_form=True):
        self.std, self.relative, self.closed_form = std, relative, closed_form

    def settings(self):
        return {"std": self.std, "relative": self.relative, "closed_form": self.closed_form}

    def log_prob(self, rho):
        return 0.5 * math.log(2 / math.pi) - math.log(2 * self.std) + 0.5 * rho - rho.exp() / (2 * self.std**2)

    def expected_log_prob(self, mean, std):
        if not self.closed_form:
            return super().expected_log_prob(mean, std)
        mean_r = (mean + 0.5 * std.square()).exp()
        return 0.5 * math.log(2 / math.pi) - math.log(2 * self.std) + 0.5 * mean - mean_r / (2 * self.std**2)


class AsinhVariance(eq.VariancePosterior):
    """Posterior of `ρ = loc + std asinh(a ξ) / a`, whose tails are lighter than a normal's; half-normal prior of √r."""

    def __init__(self, prior, log_unit, floor):
        super().__init__(torch.full_like(log_unit, math.nan), floor, log_unit=log_unit)
        self.prior = prior
        self.loc = nn.Parameter(log_unit + 2 * math.log(prior.std) - 1.0)
        self.log_std, self.log_a = (nn.Parameter(torch.full_like(log_unit, value)) for value in (0.2, -1.0))
        xi, weights = np.polynomial.hermite_e.hermegauss(80)
        self.xi, self.weights = torch.as_tensor(xi)[:, None], torch.as_tensor(weights / weights.sum())[:, None]
        self.start = self.kl_terms().detach(), self.log_moments()[1].detach()

    def rho(self, xi):
        return self.loc + self.log_std.exp() * torch.asinh(self.log_a.exp() * xi) / self.log_a.exp()

    def from_normal(self, normal):
        return self.rho(normal).exp() + self.floor

    def kl_terms(self):
        xi = self.xi
        log_q = -0.5 * (xi.square() + math.log(2 * math.pi)) - self.log_std
        log_q = log_q + 0.5 * torch.log1p((self.log_a.exp() * xi).square())
        return (self.weights * (log_q - self.prior.log_prob(self.rho(xi) - self.log_unit))).sum(0)

    def start_at(self, var, *, log_std=None, below_prior=False):
        with torch.no_grad():
            start = var.log()
            if below_prior:
                start = torch.minimum(start, self.log_unit + 2 * math.log(self.prior.std) - 1.0)
            self.loc.copy_(torch.where(var.isfinite(), start, self.loc))
            if log_std is not None:
                self.log_std.fill_(log_std)

    def set_log_moments(self, mean, std):
        with torch.no_grad():
            self.log_std.add_((std / self.log_moments()[1]).log())
            self.loc.copy_(mean)

    def prior_log_moments(self):
        mean, std = self.prior.log_moments()
        return mean + self.log_unit, torch.full_like(self.log_unit, std)

    def prior_log_prob(self, rho, k):
        return self.prior.log_prob(rho - self.log_unit[k])

    def kl_at_start(self):
        return self.start[0]

    def std_at_start(self):
        return self.start[1]


class Asinh(HalfNormal):
    """A half-normal prior whose posterior is not normal in ρ."""

    name = "half-normal, asinh"

    def posterior(self, log_unit, floor):
        return AsinhVariance(self, log_unit, floor)
