"""What the paper prints and claims, and what a run of the study says to each claim.

Claims are about the paper's own method beside the Bayesian network without balances; they are judged on one seed or
more. With several, a difference counts when 0 is outside the 95 % confidence interval of its mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, TypeVar, get_args

import numpy as np
import scipy.stats

from equipoise.battery.results import VOLTAGES, Estimate, OutputKey, Results
from equipoise.report.page import number, plus_minus
from equipoise.tolerance import log_normal_moments

Run = TypeVar("Run")
Runs = Sequence[Results]
Outcome = Literal["reproduced", "not reproduced", "cannot be as stated"]

KEYS = get_args(OutputKey)
NAMES = {"bnn": "BNN", "paper": "Paper's method", "equipoise": "Equipoise"}
CONFIDENCE = 0.95
LEAST_PERCENT = 1.0  # by which a number must be smaller for that to mean something; the paper prints 6 to 12 %
ONE_SEED_MARGIN = 0.1  # relative; with one seed, smaller excess is not held against a model
SAME_COVERAGE = 0.02
PRINTED_COVERAGE_MARGIN = 0.01
TABLES = {  # by LaTeX label; the list of variables, tab:io, is not counted
    "": "text",
    "tab:prediction": "Table 1",
    "tab:learned_tolerance": "Table 2",
    "tab:predictive_performance": "Table 3",
    "tab:constraint_violation": "Table 4",
}
ORDERS = {"voltage": 2.0, "heat": 4.0}
LEARNED_NATS = 10.0
SAME_SIZE = 2.0  # numbers within this factor are called the same size


# --- Numbers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints for one model or both, and where ours stands in results.json.

    Args:
        label: The LaTeX label of the paper's table; empty for a number in the text.
        name: What it is.
        bnn: As printed for the network without balances; None if it has no such number.
        paper: As printed for the constrained network.
        path: Of our number, with `{model}` for the model.
        factor: What our number is multiplied with to mean the same.
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
        return ("paper", "equipoise") if self.bnn is None else ("bnn", "paper", "equipoise")

    def value(self, model: str) -> float:
        """The printed number of "bnn" or "paper"; NaN if there is none."""
        printed = getattr(self, model, None)
        return math.nan if printed is None else float(printed)

    def text(self, model: str) -> str:
        """The printed number with the digits it is printed with."""
        printed = getattr(self, model, None)
        if printed is None:
            return "–"
        digits = sum(map(str.isdigit, printed.split("e")[0].lstrip("-0.")))
        return number(float(printed), digits)

    def ours(self, run: Results, model: str) -> float:
        """Our number of a model."""
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


# --- Claims -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the numbers say to a claim.

    Args:
        outcome: Whether it holds here; "cannot be as stated" if it contradicts the paper's own method, data or numbers.
        why: One sentence with our numbers.
    """

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how it is judged.

    Args:
        name: A short name.
        statement: In our words.
        label: The LaTeX label of the table it rests on; empty if it stands in the text alone.
        judge: From the results of one or more seeds.
    """

    name: str
    statement: str
    label: str
    judge: Callable[[Runs], Verdict]


def over_seeds(runs: Sequence[Run], of: Callable[[Run], float]) -> Estimate:
    """Mean and standard error of a number over runs, or over parts of them."""
    return Estimate.of([float(of(run)) for run in runs])


def seeds_in_words(runs: Runs) -> str:
    """How many runs there are.

    Example:
        >>> seeds_in_words([])
        '0 seeds'
    """
    return "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"


def is_below(runs: Runs, of: Callable[[Results], float]) -> bool:
    """Whether a difference between two models is negative beyond noise; with a single seed, negative at all."""
    difference = over_seeds(runs, of)
    return difference.mean + _margin(runs, difference) < 0


def kl_from(prior_mean: float, prior_std: float, mean: float, std: float) -> float:
    """KL of a normal distribution from another, in nats: what the data taught (K2).

    Example:
        >>> round(kl_from(-2.0, 1.0, -1.99, 1.0), 6)
        5e-05
    """
    ratio = std / prior_std
    return 0.5 * (ratio**2 + ((mean - prior_mean) / prior_std) ** 2 - 1) - math.log(ratio)


def _accuracy(runs: Runs) -> Verdict:
    bnn, paper, ours = (_of_models(runs, "mse_true.overall", model) for model in NAMES)
    excess = over_seeds(runs, _paper_minus_bnn("mse_true.overall"))
    margin = _margin(runs, excess) if len(runs) > 1 else ONE_SEED_MARGIN * bnn.mean
    rule = "its 95 % confidence interval" if len(runs) > 1 else f"{100 * ONE_SEED_MARGIN:g} %"
    return Verdict(
        _reproduced(excess.mean <= margin),
        f"MSE against the truth is {_shown(paper)} with the balances and {_shown(bnn)} without, {_shown(ours)} for "
        f"Equipoise ({seeds_in_words(runs)}; an excess within {rule} is not counted).",
    )


def _same_coverage(runs: Runs) -> Verdict:
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    return Verdict(
        _reproduced(abs(paper.mean - bnn.mean) <= SAME_COVERAGE),
        f"95 % intervals cover {_shown(paper)} of the measured values with the balances and {_shown(bnn)} without "
        f"({seeds_in_words(runs)}; within {SAME_COVERAGE} counts as identical).",
    )


def _coverage_number(runs: Runs) -> Verdict:
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    printed = PRINTED["coverage"].value("paper")
    close = all(abs(model.mean - printed) <= PRINTED_COVERAGE_MARGIN for model in (bnn, paper))
    return Verdict(
        _reproduced(close),
        f"95 % intervals cover {_shown(bnn)} and {_shown(paper)} here ({seeds_in_words(runs)}); the right number for "
        f"a 95 % interval is 0.95, and {printed} would mean that it is too wide.",
    )


def _lower(score: str, what: str) -> Callable[[Runs], Verdict]:
    """Judges that a score is lower with the balances than without."""

    def judge(runs: Runs) -> Verdict:
        bnn, paper = (_of_models(runs, f"{score}.overall", model) for model in ("bnn", "paper"))
        difference = _paper_minus_bnn(f"{score}.overall")
        change = 100 * (paper.mean / bnn.mean - 1)
        certainty = (
            f"difference {_shown(over_seeds(runs, difference))}" if len(runs) > 1 else "which cannot rule out chance"
        )
        return Verdict(
            _reproduced(is_below(runs, difference) and change <= -LEAST_PERCENT),
            f"{what} is {_shown(paper)} with the balances and {_shown(bnn)} without, in training standard deviations: "
            f"{number(change, 2)} % ({seeds_in_words(runs)}, {certainty}; below {LEAST_PERCENT:g} % does not count).",
        )

    return judge


def _violation_of_means(balance: str, unit: str) -> Callable[[Runs], Verdict]:
    """Judges by how much the median violation of a balance falls."""

    def judge(runs: Runs) -> Verdict:
        path = f"violation_of_means.{balance}.median"
        bnn, paper = (_of_models(runs, path, model) for model in ("bnn", "paper"))
        orders = _orders(runs, path)
        return Verdict(
            _reproduced(orders.mean - _margin(runs, orders) > ORDERS[balance]),
            f"The median |residual| of the draws' means is {_shown(paper)} {unit} against {_shown(bnn)} {unit} "
            f"without the balances: {_shown(orders)} orders of magnitude less ({seeds_in_words(runs)}).",
        )

    return judge


def of_draws(runs: Runs) -> str:
    """What the paper does not say: how far draws of y themselves obey."""
    found, ours = (
        {balance: _orders(runs, f"violation_of_draws.{balance}.median", model) for balance in ORDERS}
        for model in ("paper", "equipoise")
    )
    return (
        f"The median |residual| of draws of y falls by a factor of {_factor(found['voltage'])} (voltage) and "
        f"{_factor(found['heat'])} (heat) against the BNN with the paper's method: the diagonal of Σ_C leaves out the "
        f"correlations that carry a balance; with our joint draws by {_factor(ours['voltage'])} and "
        f"{_factor(ours['heat'])} ({seeds_in_words(runs)}). Draws of the BNN and of the paper's method contain "
        "measurement noise, which they take for the truth; ours are of true values, without it."
    )


def _voltage_tolerance(runs: Runs) -> Verdict:
    kl, mu, sigma = (_of_tolerance(runs, "voltage", name) for name in ("kl", "mu_rho", "sigma_rho"))
    learned = kl.mean - _margin(runs, kl) > LEARNED_NATS
    return Verdict(
        _reproduced(learned),
        f"log r of the voltage balance moved from its prior N(−2, 1) to mean {_shown(mu)} and sd {_shown(sigma)}, "
        f"{_shown(kl)} nats away ({seeds_in_words(runs)}; more than {LEARNED_NATS:g} counts as learned).",
    )


def _heat_tolerance(runs: Runs) -> Verdict:
    kl, mu, sigma = (_of_tolerance(runs, "heat", name) for name in ("kl", "mu_rho", "sigma_rho"))
    voltage, heat = (over_seeds(runs, lambda run, k=k: _relative_tolerance(run, k)) for k in ("voltage", "heat"))
    verdicts = sorted({run.tolerances.paper.heat.verdict for run in runs})
    outcome: Outcome = "not reproduced"
    if verdicts == ["not informed by the data"]:
        outcome = "cannot be as stated"
    elif verdicts == ["informed"]:
        outcome = "reproduced"
    told = "” or “".join(verdicts)
    return Verdict(
        outcome,
        f"log r of the heat balance has mean {_shown(mu)} and sd {_shown(sigma)}, {_shown(kl)} nats from its prior "
        f"N(−2, 1), and the verdict “{told}”; relative to the balances' scales, √r is "
        f"{_shown(heat)} for the heat and {_shown(voltage)} for the voltage ({seeds_in_words(runs)}).",
    )


def _moments(runs: Runs) -> Verdict:
    exact, first_order = _log_normal_moments_of_print("heat"), _paper_moments_of_print("heat")
    printed = tuple(PRINTED[f"heat_{name}"].value("paper") for name in ("mean_r", "std_r"))
    wrong = all(abs(p - f) < abs(p - e) for p, f, e in zip(printed, first_order, exact, strict=True))
    ours, theirs = (_of_tolerance(runs, "heat", name) for name in ("mean_r", "paper_mean_r"))
    return Verdict(
        "cannot be as stated" if wrong else "reproduced",
        f"The printed {printed[0]} and {printed[1]} (W/m³)² are exp(μ_ρ) and σ_ρ exp(μ_ρ), whereas the log-normal has "
        f"E[r] = {number(exact[0])} and Std[r] = {number(exact[1])}; here E[r] is {_shown(ours)} and exp(μ_ρ) "
        f"{_shown(theirs)} ({seeds_in_words(runs)}).",
    )


def _noise_level(runs: Runs) -> Verdict:
    floor = over_seeds(runs, lambda run: float(_relative_noise(run).mean()))
    voltages = over_seeds(runs, lambda run: float(_relative_noise(run)[: len(VOLTAGES)].mean()))
    found, printed = _of_models(runs, "aleatoric.overall", "bnn"), PRINTED["aleatoric"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, found),
        f"The noise that was added is {_shown(floor)} training standard deviations on average over the outputs "
        f"({_shown(voltages)} over the voltages), {number(floor.mean / printed)} times the printed {printed}; the BNN "
        f"finds {_shown(found)} ({seeds_in_words(runs)}).",
    )


def _mse_level(runs: Runs) -> Verdict:
    floor = over_seeds(runs, lambda run: float((_relative_noise(run) ** 2).mean()))
    found, true = (_of_models(runs, f"{name}.overall", "bnn") for name in ("mse_noisy", "mse_true"))
    printed = PRINTED["mse"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, found),
        f"Even the truth itself has an MSE of {_shown(floor)} against measured values, {number(floor.mean / printed)} "
        f"times the printed {number(printed)}; the BNN has {_shown(found)} against them and {_shown(true)} against the "
        f"truth ({seeds_in_words(runs)}).",
    )


def _mse_spread(runs: Runs) -> Verdict:
    mean, spread = (PRINTED[name].value("bnn") for name in ("mse", "mse_spread"))
    most = 1.96 * math.sqrt(len(KEYS)) * mean  # when all outputs but one have none
    found = over_seeds(runs, lambda run: PRINTED["mse_spread"].ours(run, "bnn"))
    return Verdict(
        "cannot be as stated" if spread > most else "reproduced",
        f"{len(KEYS)} numbers that are not negative and have the mean {number(mean)} have at most "
        f"1.96 sd = {number(most)}, but {number(spread)} is printed; here it is {_shown(found)} "
        f"({seeds_in_words(runs)}).",
    )


CLAIMS = (
    Claim(
        "accuracy",
        "Point predictions with the balances are as accurate as without.",
        "tab:predictive_performance",
        _accuracy,
    ),
    Claim("same coverage", "Both networks have identical coverage.", "", _same_coverage),
    Claim("coverage", "The coverage is 0.99.", "", _coverage_number),
    Claim(
        "width",
        "Intervals are narrower with the balances.",
        "tab:predictive_performance",
        _lower("interval_width", "The mean width of 95 % intervals"),
    ),
    Claim(
        "aleatoric",
        "The balances reduce aleatoric uncertainty.",
        "tab:prediction",
        _lower("aleatoric", "Aleatoric uncertainty"),
    ),
    Claim(
        "epistemic",
        "The balances reduce epistemic uncertainty.",
        "tab:prediction",
        _lower("epistemic", "Epistemic uncertainty"),
    ),
    Claim(
        "voltage violation",
        "The median violation of the voltage balance falls by over two orders of magnitude.",
        "tab:constraint_violation",
        _violation_of_means("voltage", "V"),
    ),
    Claim(
        "heat violation",
        "The median violation of the heat balance falls by over four orders of magnitude.",
        "tab:constraint_violation",
        _violation_of_means("heat", "W/m³"),
    ),
    Claim(
        "voltage tolerance",
        "The tolerance of the voltage balance is learned, and precisely.",
        "tab:learned_tolerance",
        _voltage_tolerance,
    ),
    Claim(
        "heat tolerance",
        "The heat balance retains appreciable slack, calibrated from the data.",
        "tab:learned_tolerance",
        _heat_tolerance,
    ),
    Claim("moments", "E[r] and Std[r] of the learned tolerances are as printed.", "tab:learned_tolerance", _moments),
    Claim(
        "noise level",
        "Aleatoric uncertainty is 0.0149 of the outputs' spread, with noise of 2–5 mV.",
        "tab:prediction",
        _noise_level,
    ),
    Claim("MSE", "The MSE on the noisy test set is 1.13×10⁻⁴.", "tab:predictive_performance", _mse_level),
    Claim(
        "MSE spread",
        "The MSE is ± 1.88×10⁻³, 1.96 standard deviations over the outputs.",
        "tab:predictive_performance",
        _mse_spread,
    ),
)


# --- Parts ------------------------------------------------------------------------------------------------------------


def _of_models(runs: Runs, path: str, model: str) -> Estimate:
    return over_seeds(runs, attrgetter(f"models.{model}.{path}"))


def _of_tolerance(runs: Runs, balance: str, name: str) -> Estimate:
    return over_seeds(runs, attrgetter(f"tolerances.paper.{balance}.{name}"))


def _paper_minus_bnn(path: str) -> Callable[[Results], float]:
    """In the same run: the two models share their data."""
    paper, bnn = attrgetter(f"models.paper.{path}"), attrgetter(f"models.bnn.{path}")
    return lambda run: paper(run) - bnn(run)


def _factor(orders: Estimate) -> str:
    return number(10.0**orders.mean)


def _orders(runs: Runs, path: str, model: str = "paper") -> Estimate:
    """How many orders of magnitude a number lies below that of the BNN."""
    small, large = attrgetter(f"models.{model}.{path}"), attrgetter(f"models.bnn.{path}")
    with np.errstate(divide="ignore", invalid="ignore"):
        return over_seeds(runs, lambda run: np.log10(np.float64(large(run)) / np.float64(small(run))))


def _relative_noise(run: Results) -> np.ndarray:
    """Noise that was added to each output, in units of its training standard deviation."""
    return np.array([run.observation_std.true[key] / run.output_std[key] for key in KEYS])


def _relative_tolerance(run: Results, balance: str) -> float:
    return getattr(run.tolerances.paper, balance).tol_std / getattr(run.scales, balance)


def _paper_moments_of_print(balance: str) -> tuple[float, float]:
    mu, sigma = (PRINTED[f"{balance}_{name}"].value("paper") for name in ("mu_rho", "sigma_rho"))
    return math.exp(mu), sigma * math.exp(mu)


def _log_normal_moments_of_print(balance: str) -> tuple[float, float]:
    mu, sigma = (PRINTED[f"{balance}_{name}"].value("paper") for name in ("mu_rho", "sigma_rho"))
    return log_normal_moments(mu, sigma)


def _against_floor(printed: float, floor: Estimate, found: Estimate) -> Outcome:
    """A number below what noise alone makes it cannot be; otherwise ours must be of the same size."""
    if printed < floor.mean:
        return "cannot be as stated"
    return _reproduced(found.mean < SAME_SIZE * printed)


def _reproduced(holds: bool | np.bool_) -> Outcome:
    return "reproduced" if holds else "not reproduced"


def _margin(runs: Runs, estimate: Estimate) -> float:
    """Half the confidence interval of a mean over seeds, by Student's t; none with a single seed."""
    if math.isnan(estimate.standard_error):
        return 0.0
    return float(scipy.stats.t.ppf(0.5 + 0.5 * CONFIDENCE, len(runs) - 1)) * estimate.standard_error


def _shown(estimate: Estimate) -> str:
    return plus_minus(estimate.mean, estimate.standard_error)
