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
