"""A problem of the paper's size: three inputs, eight outputs, two balances that share no output."""

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.balances.linear import LinearConstraint
from equipoise.data.rows import Rows
from equipoise.data.scaling import Standardizer
from equipoise.gaussian.conditioning import ConditioningLayer
from equipoise.gaussian.tolerance import LogNormalVariance
from equipoise.network.likelihood import Likelihood
from equipoise.network.mlp import BayesianMLP
from equipoise.network.model import ConstrainedBNN

Array = NDArray[np.float64]
HIDDEN = (64, 64)
BALANCES = LinearConstraint.from_equations(
    {"voltage": "V = V_ocv - eta_p - eta_n - dV_ir", "heat": "Q_tot = Q_rev + Q_irr"},
    inputs=["soc", "current", "temperature"],
    outputs=["V", "V_ocv", "eta_p", "eta_n", "dV_ir", "Q_tot", "Q_rev", "Q_irr"],
)


def data(n: int) -> tuple[Array, Array]:
    """Inputs and noisy outputs that obey the balances but for the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, BALANCES.n_inputs))
    V_ocv, eta_p, eta_n, dV_ir, Q_rev, Q_irr = np.sin(X @ rng.normal(size=(BALANCES.n_inputs, 6))).T
    Y = np.stack([V_ocv - eta_p - eta_n - dV_ir, V_ocv, eta_p, eta_n, dV_ir, Q_rev + Q_irr, Q_rev, Q_irr], axis=1)
    return X, Y + 0.01 * rng.normal(size=Y.shape)


def rows(X: Array, Y: Array, standardizer: Standardizer) -> Rows:
    """The same in standardized units, as a model is trained on."""
    x = torch.as_tensor(standardizer.inputs(X), dtype=torch.float32)
    return Rows(x, torch.as_tensor(standardizer.outputs(Y)), torch.as_tensor(standardizer.target(X)))


def network() -> BayesianMLP:
    """3-64-64-16: eight means and eight variances."""
    generator = torch.Generator().manual_seed(0)
    return BayesianMLP(BALANCES.n_inputs, BALANCES.n_outputs, HIDDEN, generator=generator)


def model(standardizer: Standardizer, likelihood: Likelihood, *, sensor: bool = False) -> ConstrainedBNN:
    """A constrained Bayesian network with learned tolerances (and sensor noise), as the estimator builds it."""
    constraint = LinearConstraint(standardizer.B, names=BALANCES.names, outputs=BALANCES.outputs)
    layer = ConditioningLayer(constraint)
    prior = torch.full((BALANCES.n_outputs,), -6.0), torch.full((BALANCES.n_outputs,), 3.0)
    noise = LogNormalVariance(*prior, torch.full_like(prior[0], torch.nan)) if sensor else None
    return ConstrainedBNN(network(), layer, likelihood, noise)
