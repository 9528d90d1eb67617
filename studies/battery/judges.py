"""How each claim of the paper is judged: from the results of one seed or more to an outcome and a sentence.

Claims are about the paper's own method beside the Bayesian network without balances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np

from equipoise.app.report import number
from equipoise.gaussian import log_normal_moments
from studies.battery.published import PRINTED
from studies.battery.results import KEYS, MODELS, VOLTAGES, Estimate, Results
from studies.battery.seeds import Runs, is_below, margin, over_seeds, seeds_in_words, shown

Outcome = Literal["reproduced", "not reproduced", "cannot be as stated"]

LEAST_PERCENT = 1.0  # by which a number must be smaller for that to mean something; the paper prints 6 to 12 %
ONE_SEED_MARGIN = 0.1  # relative; with one seed, smaller excess is not held against a model
SAME_COVERAGE = 0.02
PRINTED_COVERAGE_MARGIN = 0.01
ORDERS = {"voltage": 2.0, "heat": 4.0}
LEARNED_NATS = 10.0
SAME_SIZE = 2.0  # numbers within this factor are called the same size


@dataclass(frozen=True)
class Verdict:
    """What the numbers say to a claim.

    Args:
        outcome: Whether it holds here; "cannot be as stated" if it contradicts the paper's own method, data or numbers.
        why: One sentence with our numbers.
    """

    outcome: Outcome
    why: str


def accuracy(runs: Runs) -> Verdict:
    """Whether the error against the truth is no larger with the balances."""
    bnn, paper, ours = (_of_models(runs, "mse_true.overall", model) for model in MODELS)
    excess = over_seeds(runs, _paper_minus_bnn("mse_true.overall"))
    allowed = margin(runs, excess) if len(runs) > 1 else ONE_SEED_MARGIN * bnn.mean
    rule = "its 95 % confidence interval" if len(runs) > 1 else f"{100 * ONE_SEED_MARGIN:g} %"
    return Verdict(
        _reproduced(excess.mean <= allowed),
        f"MSE against the truth is {shown(paper)} with the balances and {shown(bnn)} without, {shown(ours)} for "
        f"Equipoise ({seeds_in_words(runs)}; an excess within {rule} is not counted).",
    )


def same_coverage(runs: Runs) -> Verdict:
    """Whether intervals cover as much with the balances as without."""
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    return Verdict(
        _reproduced(abs(paper.mean - bnn.mean) <= SAME_COVERAGE),
        f"95 % intervals cover {shown(paper)} of the measured values with the balances and {shown(bnn)} without "
        f"({seeds_in_words(runs)}; within {SAME_COVERAGE} counts as identical).",
    )


def coverage_number(runs: Runs) -> Verdict:
    """Whether intervals cover as much as is printed."""
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    printed = PRINTED["coverage"].value("paper")
    close = all(abs(model.mean - printed) <= PRINTED_COVERAGE_MARGIN for model in (bnn, paper))
    return Verdict(
        _reproduced(close),
        f"95 % intervals cover {shown(bnn)} and {shown(paper)} here ({seeds_in_words(runs)}); the right number for "
        f"a 95 % interval is 0.95, and {printed} would mean that it is too wide.",
    )


def lower(score: str, what: str) -> Callable[[Runs], Verdict]:
    """Judges that a score is lower with the balances than without."""

    def judge(runs: Runs) -> Verdict:
        bnn, paper = (_of_models(runs, f"{score}.overall", model) for model in ("bnn", "paper"))
        difference = _paper_minus_bnn(f"{score}.overall")
        change = 100 * (paper.mean / bnn.mean - 1)
        certainty = (
            f"difference {shown(over_seeds(runs, difference))}" if len(runs) > 1 else "which cannot rule out chance"
        )
        return Verdict(
            _reproduced(is_below(runs, difference) and change <= -LEAST_PERCENT),
            f"{what} is {shown(paper)} with the balances and {shown(bnn)} without, in training standard deviations: "
            f"{number(change, 2)} % ({seeds_in_words(runs)}, {certainty}; below {LEAST_PERCENT:g} % does not count).",
        )

    return judge


def violation_of_means(balance: str, unit: str) -> Callable[[Runs], Verdict]:
    """Judges by how much the median violation of a balance falls."""

    def judge(runs: Runs) -> Verdict:
        path = f"violation_of_means.{balance}.median"
        bnn, paper = (_of_models(runs, path, model) for model in ("bnn", "paper"))
        orders = _orders(runs, path)
        return Verdict(
            _reproduced(orders.mean - margin(runs, orders) > ORDERS[balance]),
            f"The median |residual| of the draws' means is {shown(paper)} {unit} against {shown(bnn)} {unit} "
            f"without the balances: {shown(orders)} orders of magnitude less ({seeds_in_words(runs)}).",
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


def voltage_tolerance(runs: Runs) -> Verdict:
    """Whether the tolerance of the voltage balance moved far from its prior."""
    kl, mu, sigma = (_of_tolerance(runs, "voltage", name) for name in ("kl", "mu_rho", "sigma_rho"))
    learned = kl.mean - margin(runs, kl) > LEARNED_NATS
    return Verdict(
        _reproduced(learned),
        f"log r of the voltage balance moved from its prior N(−2, 1) to mean {shown(mu)} and sd {shown(sigma)}, "
        f"{shown(kl)} nats away ({seeds_in_words(runs)}; more than {LEARNED_NATS:g} counts as learned).",
    )


def heat_tolerance(runs: Runs) -> Verdict:
    """Whether the data said anything of the tolerance of the heat balance."""
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
        f"log r of the heat balance has mean {shown(mu)} and sd {shown(sigma)}, {shown(kl)} nats from its prior "
        f"N(−2, 1), and the verdict “{told}”; relative to the balances' scales, √r is "
        f"{shown(heat)} for the heat and {shown(voltage)} for the voltage ({seeds_in_words(runs)}).",
    )


def moments(runs: Runs) -> Verdict:
    """Whether the printed moments of tolerances are those of a log-normal distribution."""
    names = ("mu_rho", "sigma_rho", "mean_r", "std_r")
    mu, sigma, *printed = (PRINTED[f"heat_{name}"].value("paper") for name in names)
    exact, first_order = log_normal_moments(mu, sigma), (math.exp(mu), sigma * math.exp(mu))
    wrong = all(abs(p - f) < abs(p - e) for p, f, e in zip(printed, first_order, exact, strict=True))
    ours, theirs = (_of_tolerance(runs, "heat", name) for name in ("mean_r", "paper_mean_r"))
    return Verdict(
        "cannot be as stated" if wrong else "reproduced",
        f"The printed {printed[0]} and {printed[1]} (W/m³)² are exp(μ_ρ) and σ_ρ exp(μ_ρ), whereas the log-normal has "
        f"E[r] = {number(exact[0])} and Std[r] = {number(exact[1])}; here E[r] is {shown(ours)} and exp(μ_ρ) "
        f"{shown(theirs)} ({seeds_in_words(runs)}).",
    )


def noise_level(runs: Runs) -> Verdict:
    """Whether the printed uncertainty can be, with the noise that was added."""
    floor = over_seeds(runs, lambda run: float(_relative_noise(run).mean()))
    voltages = over_seeds(runs, lambda run: float(_relative_noise(run)[: len(VOLTAGES)].mean()))
    found, printed = _of_models(runs, "aleatoric.overall", "bnn"), PRINTED["aleatoric"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, found),
        f"The noise that was added is {shown(floor)} training standard deviations on average over the outputs "
        f"({shown(voltages)} over the voltages), {number(floor.mean / printed)} times the printed {printed}; the BNN "
        f"finds {shown(found)} ({seeds_in_words(runs)}).",
    )


def mse_level(runs: Runs) -> Verdict:
    """Whether the printed error can be, with the noise that was added."""
    floor = over_seeds(runs, lambda run: float((_relative_noise(run) ** 2).mean()))
    found, true = (_of_models(runs, f"{name}.overall", "bnn") for name in ("mse_noisy", "mse_true"))
    printed = PRINTED["mse"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, found),
        f"Even the truth itself has an MSE of {shown(floor)} against measured values, {number(floor.mean / printed)} "
        f"times the printed {number(printed)}; the BNN has {shown(found)} against them and {shown(true)} against the "
        f"truth ({seeds_in_words(runs)}).",
    )


def mse_spread(runs: Runs) -> Verdict:
    """Whether the printed spread of errors can be, with their printed mean."""
    mean, spread = (PRINTED[name].value("bnn") for name in ("mse", "mse_spread"))
    most = 1.96 * math.sqrt(len(KEYS)) * mean  # when all outputs but one have none
    found = over_seeds(runs, lambda run: PRINTED["mse_spread"].ours(run, "bnn"))
    return Verdict(
        "cannot be as stated" if spread > most else "reproduced",
        f"{len(KEYS)} numbers that are not negative and have the mean {number(mean)} have at most "
        f"1.96 sd = {number(most)}, but {number(spread)} is printed; here it is {shown(found)} "
        f"({seeds_in_words(runs)}).",
    )


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


def _against_floor(printed: float, floor: Estimate, found: Estimate) -> Outcome:
    """A number below what noise alone makes it cannot be; otherwise ours must be of the same size."""
    if printed < floor.mean:
        return "cannot be as stated"
    return _reproduced(found.mean < SAME_SIZE * printed)


def _reproduced(holds: bool | np.bool_) -> Outcome:
    return "reproduced" if holds else "not reproduced"
