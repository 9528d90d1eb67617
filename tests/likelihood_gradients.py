"""Gradients of the two likelihoods: by autograd over their definition, and of the joint one in 50 digits."""

import mpmath
import numpy as np
import torch

import references
from equipoise.gaussian.conditioning import condition
from equipoise.gaussian.distributions import DiagonalGaussian
from equipoise.network import likelihood

NAMES = ("mean", "var", "target", "tol_var", "sensor_var")


def by_autograd(name, B, parts, grad):
    """Differentiate `grad · Σ log p` of the likelihood called `name`; parts are mean, var, target, tol_var, y and w."""
    mean, var, target, tol_var, y, w = (torch.tensor(part) for part in parts)
    leaves = [part.requires_grad_() for part in (mean, var, target, tol_var, w)]
    gaussian = condition(DiagonalGaussian(mean, var), torch.tensor(B), target, tol_var)
    total = grad * getattr(likelihood, name)(gaussian, y, w).sum()
    gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
    return {key: gradient.numpy() for key, gradient in zip(NAMES, gradients, strict=True)}


def in_fifty_digits(B, row, name, index):
    """Differentiate the joint log density of one row by one number, by a central difference with step 1e-15."""
    position = (0, 1, 2, 3, 5)[NAMES.index(name)]

    def value(shift):
        mean, var, target, tol_var, y, w = ([mpmath.mpf(float(x)) for x in part] for part in row)
        moved = [mean, var, target, tol_var, y, w]
        moved[position][index] += shift
        return references.joint_log_prob_mp(moved[0], moved[1], B, *moved[2:])

    with mpmath.workdps(50):
        step = mpmath.mpf(10) ** -15
        return float((value(step) - value(-step)) / (2 * step))


def assert_close(gradients, expected, rtol):
    """Compare arrays relative to the largest element of each."""
    for name, other in expected.items():
        largest = np.abs(other).max(initial=0.0)
        np.testing.assert_allclose(gradients[name], other, rtol=0.0, atol=rtol * largest + 1e-300, err_msg=name)
