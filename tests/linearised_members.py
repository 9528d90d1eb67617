"""Small models with a linearised member, and their evidence by `variance_fit`, which sums over all rows."""

import math

import numpy as np
import torch

from equipoise.balances import LinearConstraint
from equipoise.data import Rows
from equipoise.gaussian import ConditioningLayer, LogNormalVariance
from equipoise.network import BayesianMLP, ConstrainedBNN, joint
from equipoise.training.evidence import PriorPrecisions, TangentKernel
from equipoise.training.variance_fit import FittedMember, VarianceFit, VarianceHead
from equipoise.training.variance_posterior import LinearisedMember

N, N_X, N_Y = 40, 2, 3
B = np.array([[1.0, 1.0, -1.0]]) / math.sqrt(3)


def normal(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def learned(n, mean=-3.0, std=2.0):
    return LogNormalVariance(torch.full((n,), mean), torch.full((n,), std), torch.full((n,), math.nan))


def model_and_rows(hidden=(4,), missing=False, sensor_std=None, slopes=0.0, n=N, noise=0.3):
    """A model with learned tolerance, whose outputs are a smooth function and sensor noise."""
    network = BayesianMLP(N_X, N_Y, hidden, "tanh", generator=torch.Generator().manual_seed(5)).double()
    layer = ConditioningLayer(LinearConstraint(B), learned(1))
    sensor = learned(N_Y)
    if sensor_std is not None:
        sensor = LogNormalVariance(torch.zeros(N_Y), torch.ones(N_Y), torch.full((N_Y,), sensor_std**2))
    weights = network.posterior.loc.detach() + 0.3 * normal(len(network.posterior.loc), seed=4)
    W, bias = network.layers(weights)[-1]
    W[:, N_Y:], bias[N_Y:] = slopes * W[:, N_Y:], -3.0
    x = normal(n, N_X, seed=2)
    truth = network.at(weights[None], x).mean[0] + 0.2 * torch.sin(2 * x[:, :1])
    truth[:, 2] = truth[:, 0] + truth[:, 1]
    y = truth + noise * normal(n, N_Y, seed=3)
    if missing:
        y[::4, 1] = torch.nan
        y[1::4, 2] = torch.nan
    target = torch.zeros(n, 1, dtype=torch.float64)
    return ConstrainedBNN(network, layer, joint, sensor), weights, Rows(x, y, target)


def member_of(model, weights, rows, weight=1.0):
    """The member linearised at these weights, with a weak prior."""
    precisions = PriorPrecisions.scaled_by_fan_in(model.network.sizes, N_Y)
    return LinearisedMember(model, weights, precisions, rows, weight), precisions


def evidence_by_all_rows(model, weights, rows, precisions):
    """The log evidence (K6) with priors as a function of levels of log v, and log tolerances and sensors."""
    head = VarianceHead.of(model, weights, rows.x)
    kernel = TangentKernel(model.network, weights, rows.x)
    member = FittedMember(weights, kernel, precisions, kernel.covariance(precisions), head)
    fit = VarianceFit(model, rows, [member], torch.zeros(1, N_Y, dtype=torch.float64))

    def evidence(values):
        raw = 20.0 * np.arctanh(np.asarray(values[:N_Y]) / 20.0)
        return -fit._objective(np.concatenate([raw, values[N_Y:]]), False)[0]

    return evidence
