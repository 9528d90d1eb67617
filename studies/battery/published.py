"""Numbers that the paper prints, and the paths of ours in the results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter

import scipy.stats

from equipoise import report
from studies.battery.results import MODELS, WITH_BALANCES, Results

TABLES = {  # by LaTeX label; the list of variables, tab:io, is not counted
    "": "text",
    "tab:prediction": "Table 1",
    "tab:learned_tolerance": "Table 2",
    "tab:predictive_performance": "Table 3",
    "tab:constraint_violation": "Table 4",
}


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints for one model or both, and the path of ours in results.json.

    Args:
        label: LaTeX label of the paper's table; empty for a number in the text.
        name: Name of the quantity, with its unit.
        bnn: As printed for the network without balances; None if it has no such number.
        paper: As printed for the constrained network.
        path: Path of our number, with `{model}` for the model.
        factor: Factor of our number that makes it comparable.
    """

    label: str
    name: str
    bnn: str | None
    paper: str
    path: str
    factor: float = 1.0

    @property
    def models(self) -> tuple[str, ...]:
        """Models that have this number among ours."""
        return WITH_BALANCES if self.bnn is None else MODELS

    def value(self, model: str) -> float:
        """Return the printed number of "bnn" or "paper"; NaN if there is none."""
        printed = getattr(self, model, None)
        return math.nan if printed is None else float(printed)

    def text(self, model: str) -> str:
        """Format the printed number with as many digits as it is printed with."""
        printed = getattr(self, model, None)
        if printed is None:
            return "–"
        digits = sum(map(str.isdigit, printed.split("e")[0].lstrip("-0.")))
        return report.number(float(printed), digits)

    def ours(self, run: Results, model: str) -> float:
        """Return our number of a model.

        Args:
            run: Results of a run.
            model: Name of the model.
        """
        return self.factor * attrgetter(self.path.format(model=model))(run)


PRINTED = {
    "aleatoric": Printed(
        "tab:prediction", "Aleatoric [training sd]", "0.0149", "0.0140", "models.{model}.aleatoric.overall"
    ),
    "aleatoric_spread": Printed(
        "tab:prediction",
        "Aleatoric, 1.96 sd over outputs",
        "0.0096",
        "0.0097",
        "models.{model}.aleatoric.sd_over_outputs",
        1.96,
    ),
    "epistemic": Printed(
        "tab:prediction", "Epistemic [training sd]", "0.0074", "0.0068", "models.{model}.epistemic.overall"
    ),
    "epistemic_spread": Printed(
        "tab:prediction",
        "Epistemic, 1.96 sd over outputs",
        "0.0042",
        "0.0041",
        "models.{model}.epistemic.sd_over_outputs",
        1.96,
    ),
    "voltage_mu_rho": Printed(
        "tab:learned_tolerance", "Voltage: μ_ρ [log V²]", None, "-11.21", "tolerances.{model}.voltage.mu_rho"
    ),
    "voltage_sigma_rho": Printed(
        "tab:learned_tolerance", "Voltage: σ_ρ", None, "0.23", "tolerances.{model}.voltage.sigma_rho"
    ),
    "voltage_mean_r": Printed(
        "tab:learned_tolerance",
        "Voltage: “E[r]” = exp(μ_ρ) [V²]",
        None,
        "1.36e-5",
        "tolerances.{model}.voltage.paper_mean_r",
    ),
    "voltage_std_r": Printed(
        "tab:learned_tolerance",
        "Voltage: “Std[r]” = σ_ρ exp(μ_ρ) [V²]",
        None,
        "3.19e-6",
        "tolerances.{model}.voltage.paper_std_r",
    ),
    "heat_mu_rho": Printed(
        "tab:learned_tolerance", "Heat: μ_ρ [log (W/m³)²]", None, "-1.99", "tolerances.{model}.heat.mu_rho"
    ),
    "heat_sigma_rho": Printed("tab:learned_tolerance", "Heat: σ_ρ", None, "1.00", "tolerances.{model}.heat.sigma_rho"),
    "heat_mean_r": Printed(
        "tab:learned_tolerance",
        "Heat: “E[r]” = exp(μ_ρ) [(W/m³)²]",
        None,
        "1.37e-1",
        "tolerances.{model}.heat.paper_mean_r",
    ),
    "heat_std_r": Printed(
        "tab:learned_tolerance",
        "Heat: “Std[r]” = σ_ρ exp(μ_ρ) [(W/m³)²]",
        None,
        "1.36e-1",
        "tolerances.{model}.heat.paper_std_r",
    ),
    "mse": Printed(
        "tab:predictive_performance",
        "MSE [training variance]",
        "1.13e-4",
        "1.11e-4",
        "models.{model}.mse_noisy.overall",
    ),
    "mse_spread": Printed(
        "tab:predictive_performance",
        "MSE, 1.96 sd over outputs",
        "1.88e-3",
        "2.21e-3",
        "models.{model}.mse_noisy.sd_over_outputs",
        1.96,
    ),
    "width": Printed(
        "tab:predictive_performance",
        "Interval width [training sd]",
        "0.067",
        "0.059",
        "models.{model}.interval_width.overall",
    ),
    "width_spread": Printed(
        "tab:predictive_performance",
        "Interval width, 1.96 sd over outputs",
        "0.022",
        "0.022",
        "models.{model}.interval_width.sd_over_outputs",
        1.96,
    ),
    "coverage": Printed("", "Coverage of 95 % intervals", "0.99", "0.99", "models.{model}.coverage.overall"),
    "violation": Printed(
        "tab:constraint_violation",
        "Mean violation of means, both balances",
        "174.82",
        "8.81e-4",
        "models.{model}.violation_of_means.overall.mean",
    ),
    "violation_spread": Printed(
        "tab:constraint_violation",
        "Mean violation of means, sd over draws",
        "90.78",
        "4.3e-5",
        "models.{model}.violation_of_means.overall.sd_over_draws",
    ),
}


def kl_from(prior_mean: float, prior_std: float, mean: float, std: float) -> float:
    """Compute the KL divergence of a normal distribution from its normal prior, in nats (K2).

    Args:
        prior_mean, prior_std: Mean and standard deviation of the prior.
        mean, std: Those of the other distribution.
    Example:
        >>> round(kl_from(-2.0, 1.0, -1.99, 1.0), 6)
        5e-05
    """
    ratio = std / prior_std
    return 0.5 * (ratio**2 + ((mean - prior_mean) / prior_std) ** 2 - 1) - math.log(ratio)


def log_normal_moments(mu: float, std: float) -> tuple[float, float]:
    """Compute mean and standard deviation of `exp(N(mu, std²))` (K4).

    Args:
        mu: Mean of the logarithm.
        std: Its standard deviation.
    Example:
        >>> mean, std = log_normal_moments(0.0, 1.0)
        >>> round(mean, 4), round(std, 4)
        (1.6487, 2.1612)
    """
    distribution = scipy.stats.lognorm(std, scale=math.exp(mu))
    return float(distribution.mean()), float(distribution.std())
