"""For the tests of the report: small fitted models, each fitted once, and findings with numbers to recognise."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import equipoise as eq
from equipoise.app.report.balance_residuals import (
    DATA,
    DRAWS_AFTER,
    DRAWS_BEFORE,
    MEANS_AFTER,
    MEANS_BEFORE,
    BalanceResiduals,
    ResidualSummary,
)
from equipoise.app.report.model_findings import Findings
from equipoise.app.report.scores import Calibration, Outlier, Outliers, PlottedRows, Score
from equipoise.app.report.tolerances import BalanceTolerance, SensorNoise
from equipoise.training.loop import History

on_one_worker = pytest.mark.xdist_group("findings")  # so that these are fitted once
ONE_BATCH = eq.TrainingPlan(batch_size=128, mean_learning_rate=0.1, learning_rate=1e-2)
SMALL: dict[str, Any] = {"hidden": (8,), "max_epochs": 40, "n_draws": 32, "random_state": 0, "training": ONE_BATCH}
SHORT = SMALL | {"max_epochs": 8}  # where nothing has to be learned
OUTPUTS = ["a [kg/s]", "b [kg/s]", "total [kg/s]", "top [kg/s]"]
BALANCES = eq.LinearConstraint.from_equations(
    {"sum": "total = a + b", "split": "feed = top + total"}, inputs=["x", "z"], known=["feed [kg/s]"], outputs=OUTPUTS
)


@cache
def table(n: int = 120) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Inputs with a known feed, and flows with noise of 0.05 of which a tenth was not measured."""
    rng = np.random.default_rng(n)
    x, z = rng.uniform(-2, 2, (2, n))
    a, b = np.sin(x), 0.5 * x * z
    truth = np.stack([a, b, a + b, 1 + 0.3 * z], 1)
    X = pd.DataFrame({"x": x, "z": z, "feed [kg/s]": truth[:, 2] + truth[:, 3]})
    Y = truth + 0.05 * rng.normal(size=truth.shape)
    Y[rng.uniform(size=Y.shape) < 0.1] = np.nan
    return X, pd.DataFrame(Y, columns=OUTPUTS)


@cache
def balanced() -> eq.ConstrainedBNNRegressor:
    """Two balances: one with a learned tolerance, one with a prior in its own unit."""
    tolerance = {"split": eq.TolerancePrior.paper()}
    return eq.ConstrainedBNNRegressor(BALANCES, tolerance=tolerance, **SMALL).fit(*table())


@cache
def without_balances() -> eq.ConstrainedBNNRegressor:
    X, Y = table()
    return eq.ConstrainedBNNRegressor(**SMALL).fit(X[["x", "z"]], Y)


def normal_summary(size: float) -> ResidualSummary:
    """As of residuals that are normal with standard deviation `size`."""
    return ResidualSummary(100, 0.0, size, 1.96 * size, -1.96 * size, -0.674 * size, 0.0, 0.674 * size, 1.96 * size)


def residuals(balance: str = "sum", unit: str | None = "kg/s") -> BalanceResiduals:
    sizes = {DATA: 0.5, MEANS_BEFORE: 1.0, DRAWS_BEFORE: 2.0, MEANS_AFTER: 0.01, DRAWS_AFTER: 0.02}
    return BalanceResiduals(
        balance, unit, "total = a + b", {kind: normal_summary(size) for kind, size in sizes.items()}
    )


def tolerance(balance: str = "sum", **changes: Any) -> BalanceTolerance:
    usual = BalanceTolerance(
        balance=balance,
        unit="kg/s",
        kind="learned",
        verdict="informed",
        note="",
        biased=False,
        tol_std=0.1,
        tol_std_lower=0.05,
        tol_std_upper=0.2,
        noise_std=0.3,
        kl=2.5,
        contraction=0.9,
        mu_rho=2 * float(np.log(0.1)),
        sigma_rho=0.7,
        prior_mu_rho=-6.0,
        prior_sigma_rho=3.0,
        offset=0.0,
        offset_std=0.0,
    )
    return replace(usual, **changes)


def made_up(
    outputs: tuple[str, ...] = ("a [V]", "b"), balances: tuple[str, ...] = ("sum",), **changes: Any
) -> Findings:
    """Findings of any number of outputs and balances; output j has R² 0.9 − 0.01 j and RMSE j + 1."""
    n, m = len(outputs), len(balances)
    y = np.linspace(0, 1, 100)[:, None] * np.ones(n)
    terms = {"aleatoric": 6.0, "sensor": 1.0, "epistemic": 3.0, "shift": 0.0, "interaction": -2.0, "reduction": 4.0}
    terms |= {"total": 4.0, "before": 10.0, "tolerance_share": 0.0}
    epochs = [{"epoch": 0, "phase": "means", "rmse": 0.5, "validation": 0.6, "seconds": 1.0}]
    epochs += [{"epoch": e, "phase": "elbo", "nll": 3.0 - e, "validation": 4.0 - e, "seconds": 2.0} for e in (1, 2)]
    levels = np.linspace(0.05, 0.95, 19)
    usual = Findings(
        n_rows=100,
        n_scored=100,
        n_decomposed=100,
        inputs=("x",),
        known=(),
        scores=tuple(
            Score(name, "V" if "[V]" in name else None, 100, 0.9 - 0.01 * j, j + 1.0, 0.1, 2.0 * (j + 1))
            for j, name in enumerate(outputs)
        ),
        calibration=Calibration(levels[:, None] * np.ones(n), np.full((10, n), 10)),
        plotted=PlottedRows(y, y + 0.01, y - 0.1, y + 0.1),
        outliers=Outliers((Outlier(7, outputs[0], "V", 9.0, 1.0, 2.0, 4.0, (0.25,)),), 100 * n, 3),
        residuals=tuple(residuals(name) for name in balances),
        tolerances=tuple(tolerance(name) for name in balances),
        sensors=tuple(SensorNoise(name, None, "learned", 0.1, 0.05, 0.2) for name in outputs),
        ledger={name: np.full(n, value) for name, value in terms.items()},
        lost_without=np.full((m, n), 4.5),
        history=History(epochs, best_epoch=2, stopped="all epochs run"),
        seed=17,
        settings={"hidden": "(8,)"},
        versions={"equipoise": "1.2.3"},
    )
    return replace(usual, **changes)
