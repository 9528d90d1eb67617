"""Implementations of the library's contracts as users would write them, outside the package."""

import math

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
