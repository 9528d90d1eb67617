"""Implementations of the library's contracts as users would write them, outside the package."""

import math

import torch

import equipoise as eq


class LaplaceNoise(eq.Likelihood):
    """Measured outputs have Laplace noise of variance w, independent of each other; the paper's L1 otherwise.

    With `v = s²`, `w = 2 / a²` and `e = y − μ_C` the density of the sum of a normal and a Laplace number is::

        log p = log(a / 2) + a² v / 2 + log(exp(−a e) Φ(e / s − a s) + exp(a e) Φ(−e / s − a s))
    """

    name, is_joint = "laplace noise", False

    def __init__(self, least: float = 1e-12):
        self.least = least

    def settings(self):
        return {"least": self.least}

    def log_prob(self, gaussian, y, sensor_var=0.0):
        mean, var, measured = gaussian.mean, gaussian.var, ~y.isnan()
        w = torch.as_tensor(sensor_var, dtype=mean.dtype, device=mean.device)
        a, s = (2.0 / w.clamp_min(self.least)).sqrt(), var.clamp_min(self.least).sqrt()
        e = torch.where(measured, y - mean, 0.0)
        tails = [-a * e + torch.special.log_ndtr(e / s - a * s), a * e + torch.special.log_ndtr(-e / s - a * s)]
        density = (a / 2).log() + 0.5 * (a * s).square() + torch.logaddexp(*tails)
        normal = -0.5 * ((e / s).square() + 2 * s.log() + math.log(2 * math.pi))
        return torch.where(measured, torch.where(w > self.least, density, normal), 0.0).sum(-1)
