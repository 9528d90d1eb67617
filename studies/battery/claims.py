"""The paper's claims, and how each is judged: from the results of one seed or more to an outcome and a sentence.

Claims are about the paper's own method beside the Bayesian network without balances, both trained as in the paper: the
bound alone, from the priors. `with_our_training` gives the same two with our training, to be judged beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np

from equipoise import report
from studies.battery.published import PRINTED, log_normal_moments
from studies.battery.results import KEYS, VOLTAGES, Estimate, Results
from studies.battery.seeds import Runs, is_below, margin, over_seeds, seeds_in_words, text

Outcome = Literal["reproduced", "not reproduced", "cannot be as stated"]

LEAST_PERCENT = 1.0  # least reduction that counts; the paper prints 6 to 12 %
ONE_SEED_MARGIN = 0.1  # relative excess that does not count with one seed
SAME_COVERAGE = 0.02  # largest difference of coverages that are called identical
PRINTED_COVERAGE_MARGIN = 0.01
ORDERS = {"voltage": 2.0, "heat": 4.0}  # orders of magnitude by which the paper says that violations fall
LEARNED_NATS = 10.0  # KL divergence from the prior above which a tolerance counts as learned
SAME_SIZE = 2.0  # largest factor between numbers that are called the same size


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Args:
        outcome: Whether the claim holds here; "cannot be as stated" if it contradicts the paper's own method, data or
            numbers.
        why: The reason in one sentence with our numbers.
    """

    outcome: Outcome
    why: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Args:
        name: Short name.
        statement: The claim in our words.
        label: LaTeX label of the table that supports it; empty if it is in the text alone.
        judge: Returns the verdict from the results of one or more seeds.
    """

    name: str
    statement: str
    label: str
    judge: Callable[[Runs], Verdict]


def with_our_training(runs: Runs) -> Sequence[Results]:
    """Return the runs with the paper's two models as they are with our training, under the names of the paper's own.

    Args:
        runs: Results, one for each seed.
    """
    return [
        run.model_copy(
            update={
                "models": run.models.model_copy(
                    update={"bnn": run.models.bnn_residuals, "paper": run.models.paper_residuals}
                ),
                "tolerances": run.tolerances.model_copy(update={"paper": run.tolerances.paper_residuals}),
            }
        )
        for run in runs
    ]


def accuracy(runs: Runs) -> Verdict:
    """Judge whether the error against the truth is no larger with the balances."""
    bnn, paper, ours = (_of_models(runs, "mse_true.overall", model) for model in ("bnn", "paper", "equipoise"))
    excess = over_seeds(runs, _paper_minus_bnn("mse_true.overall"))
    allowed = margin(runs, excess) if len(runs) > 1 else ONE_SEED_MARGIN * bnn.mean
    rule = "its 95 % confidence interval" if len(runs) > 1 else f"{100 * ONE_SEED_MARGIN:g} %"
    return Verdict(
        _reproduced(excess.mean <= allowed),
        f"MSE against the truth is {text(paper)} with the balances and {text(bnn)} without, {text(ours)} for "
        f"Equipoise ({seeds_in_words(runs)}; an excess within {rule} is not counted).",
    )


def same_coverage(runs: Runs) -> Verdict:
    """Judge whether intervals cover as much with the balances as without."""
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    return Verdict(
        _reproduced(abs(paper.mean - bnn.mean) <= SAME_COVERAGE),
        f"95 % intervals cover {text(paper)} of the measured values with the balances and {text(bnn)} without "
        f"({seeds_in_words(runs)}; within {SAME_COVERAGE} counts as identical).",
    )


def coverage_number(runs: Runs) -> Verdict:
    """Judge whether the coverage of intervals is the printed one."""
    bnn, paper = (_of_models(runs, "coverage.overall", model) for model in ("bnn", "paper"))
    printed = PRINTED["coverage"].value("paper")
    close = all(abs(model.mean - printed) <= PRINTED_COVERAGE_MARGIN for model in (bnn, paper))
    return Verdict(
        _reproduced(close),
        f"95 % intervals cover {text(bnn)} and {text(paper)} here ({seeds_in_words(runs)}); the right number for "
        f"a 95 % interval is 0.95, and {printed} would mean that it is too wide.",
    )


def lower(score: str, title: str) -> Callable[[Runs], Verdict]:
    """Make the function that judges whether a score is lower with the balances than without.

    Args:
        score: A score of `ModelResults`.
        title: Its name in the sentence.
    """

    def judge(runs: Runs) -> Verdict:
        bnn, paper = (_of_models(runs, f"{score}.overall", model) for model in ("bnn", "paper"))
        difference = _paper_minus_bnn(f"{score}.overall")
        change = 100 * (paper.mean / bnn.mean - 1)
        certainty = (
            f"difference {text(over_seeds(runs, difference))}" if len(runs) > 1 else "which cannot rule out chance"
        )
        return Verdict(
            _reproduced(is_below(runs, difference) and change <= -LEAST_PERCENT),
            f"{title} is {text(paper)} with the balances and {text(bnn)} without, in training standard deviations: "
            f"{report.number(change, 2)} % ({seeds_in_words(runs)}, {certainty}; "
            f"below {LEAST_PERCENT:g} % does not count).",
        )

    return judge


def violation_of_means(balance: str, unit: str) -> Callable[[Runs], Verdict]:
    """Make the function that judges by how many orders of magnitude the median violation of a balance falls.

    Args:
        balance: "voltage" or "heat".
        unit: Its unit.
    """

    def judge(runs: Runs) -> Verdict:
        path = f"violation_of_means.{balance}.median"
        bnn, paper = (_of_models(runs, path, model) for model in ("bnn", "paper"))
        orders = _orders(runs, path)
        return Verdict(
            _reproduced(orders.mean - margin(runs, orders) > ORDERS[balance]),
            f"The median |residual| of the draws' means is {text(paper)} {unit} against {text(bnn)} {unit} "
            f"without the balances: {text(orders)} orders of magnitude less ({seeds_in_words(runs)}).",
        )

    return judge


def violations_of_draws(runs: Runs) -> str:
    """Describe how well draws of y obey the balances, of which the paper gives no numbers."""
    paper, ours = (
        {balance: _orders(runs, f"violation_of_draws.{balance}.median", model) for balance in ORDERS}
        for model in ("paper", "equipoise")
    )
    return (
        f"The median |residual| of draws of y falls by a factor of {_factor(paper['voltage'])} (voltage) and "
        f"{_factor(paper['heat'])} (heat) against the BNN with the paper's method: the diagonal of Σ_C leaves out the "
        f"correlations that carry a balance; with our joint draws by {_factor(ours['voltage'])} and "
        f"{_factor(ours['heat'])} ({seeds_in_words(runs)}). Draws of the BNN and of the paper's method contain "
        "measurement noise, which they take for the truth; ours are of true values, without it."
    )


def voltage_tolerance(runs: Runs) -> Verdict:
    """Judge whether the posterior of the voltage balance's tolerance is far from its prior."""
    kl, mu, sigma = (_of_tolerance(runs, "voltage", name) for name in ("kl", "mu_rho", "sigma_rho"))
    learned = kl.mean - margin(runs, kl) > LEARNED_NATS
    return Verdict(
        _reproduced(learned),
        f"log r of the voltage balance moved from its prior N(−2, 1) to mean {text(mu)} and sd {text(sigma)}, "
        f"{text(kl)} nats away ({seeds_in_words(runs)}; more than {LEARNED_NATS:g} counts as learned).",
    )


def heat_tolerance(runs: Runs) -> Verdict:
    """Judge whether the data informed the tolerance of the heat balance."""
    kl, mu, sigma = (_of_tolerance(runs, "heat", name) for name in ("kl", "mu_rho", "sigma_rho"))
    voltage, heat = (over_seeds(runs, lambda run, k=k: _relative_tolerance(run, k)) for k in ("voltage", "heat"))
    verdicts = sorted({run.tolerances.paper.heat.verdict for run in runs})
    outcome: Outcome = "not reproduced"
    if verdicts == ["not informed by the data"]:
        outcome = "cannot be as stated"
    elif verdicts == ["informed"]:
        outcome = "reproduced"
    words = "” or “".join(verdicts)
    return Verdict(
        outcome,
        f"log r of the heat balance has mean {text(mu)} and sd {text(sigma)}, {text(kl)} nats from its prior "
        f"N(−2, 1), and the verdict “{words}”; relative to the balances' scales, √r is "
        f"{text(heat)} for the heat and {text(voltage)} for the voltage ({seeds_in_words(runs)}).",
    )


def moments(runs: Runs) -> Verdict:
    """Judge whether the printed moments of tolerances are those of a log-normal distribution."""
    names = ("mu_rho", "sigma_rho", "mean_r", "std_r")
    mu, sigma, *printed = (PRINTED[f"heat_{name}"].value("paper") for name in names)
    exact, first_order = log_normal_moments(mu, sigma), (math.exp(mu), sigma * math.exp(mu))
    wrong = all(abs(p - f) < abs(p - e) for p, f, e in zip(printed, first_order, exact, strict=True))
    ours, theirs = (_of_tolerance(runs, "heat", name) for name in ("mean_r", "paper_mean_r"))
    return Verdict(
        "cannot be as stated" if wrong else "reproduced",
        f"The printed {printed[0]} and {printed[1]} (W/m³)² are exp(μ_ρ) and σ_ρ exp(μ_ρ), whereas the log-normal has "
        f"E[r] = {report.number(exact[0])} and Std[r] = {report.number(exact[1])}; here E[r] is {text(ours)} and "
        f"exp(μ_ρ) {text(theirs)} ({seeds_in_words(runs)}).",
    )


def noise_level(runs: Runs) -> Verdict:
    """Judge whether the printed aleatoric uncertainty is possible with the noise that was added."""
    floor = over_seeds(runs, lambda run: float(_relative_noise(run).mean()))
    voltages = over_seeds(runs, lambda run: float(_relative_noise(run)[: len(VOLTAGES)].mean()))
    bnn, printed = _of_models(runs, "aleatoric.overall", "bnn"), PRINTED["aleatoric"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, bnn),
        f"The noise that was added is {text(floor)} training standard deviations on average over the outputs "
        f"({text(voltages)} over the voltages), {report.number(floor.mean / printed)} times the printed {printed}; "
        f"the BNN finds {text(bnn)} ({seeds_in_words(runs)}).",
    )


def mse_level(runs: Runs) -> Verdict:
    """Judge whether the printed error is possible with the noise that was added."""
    floor = over_seeds(runs, lambda run: float((_relative_noise(run) ** 2).mean()))
    noisy, true = (_of_models(runs, f"{name}.overall", "bnn") for name in ("mse_noisy", "mse_true"))
    printed = PRINTED["mse"].value("bnn")
    return Verdict(
        _against_floor(printed, floor, noisy),
        f"Even the truth itself has an MSE of {text(floor)} against measured values, "
        f"{report.number(floor.mean / printed)} times the printed {report.number(printed)}; the BNN has {text(noisy)} "
        f"against them and {text(true)} against the truth ({seeds_in_words(runs)}).",
    )


def mse_spread(runs: Runs) -> Verdict:
    """Judge whether the printed spread of errors is possible with their printed mean."""
    mean, spread = (PRINTED[name].value("bnn") for name in ("mse", "mse_spread"))
    most = 1.96 * math.sqrt(len(KEYS)) * mean  # if all outputs but one have no error
    ours = over_seeds(runs, lambda run: PRINTED["mse_spread"].ours(run, "bnn"))
    return Verdict(
        "cannot be as stated" if spread > most else "reproduced",
        f"{len(KEYS)} numbers that are not negative and have the mean {report.number(mean)} have at most "
        f"1.96 sd = {report.number(most)}, but {report.number(spread)} is printed; here it is {text(ours)} "
        f"({seeds_in_words(runs)}).",
    )


def _of_models(runs: Runs, path: str, model: str) -> Estimate:
    return over_seeds(runs, attrgetter(f"models.{model}.{path}"))


def _of_tolerance(runs: Runs, balance: str, name: str) -> Estimate:
    return over_seeds(runs, attrgetter(f"tolerances.paper.{balance}.{name}"))


def _paper_minus_bnn(path: str) -> Callable[[Results], float]:
    """Make the function that subtracts the BNN's number from that of the paper's method in the same run."""
    paper, bnn = attrgetter(f"models.paper.{path}"), attrgetter(f"models.bnn.{path}")
    return lambda run: paper(run) - bnn(run)


def _factor(orders: Estimate) -> str:
    return report.number(10.0**orders.mean)


def _orders(runs: Runs, path: str, model: str = "paper") -> Estimate:
    """Compute by how many orders of magnitude a number is below that of the BNN."""
    small, large = attrgetter(f"models.{model}.{path}"), attrgetter(f"models.bnn.{path}")
    with np.errstate(divide="ignore", invalid="ignore"):
        return over_seeds(runs, lambda run: np.log10(np.float64(large(run)) / np.float64(small(run))))


def _relative_noise(run: Results) -> np.ndarray:
    """Return the noise that was added to each output, in units of its training standard deviation."""
    return np.array([run.observation_std.true[key] / run.output_std[key] for key in KEYS])


def _relative_tolerance(run: Results, balance: str) -> float:
    return getattr(run.tolerances.paper, balance).tol_std / getattr(run.scales, balance)


def _against_floor(printed: float, floor: Estimate, ours: Estimate) -> Outcome:
    """Judge a printed number: it must not be below the floor that noise sets, and ours must be of the same size."""
    if printed < floor.mean:
        return "cannot be as stated"
    return _reproduced(ours.mean < SAME_SIZE * printed)


def _reproduced(holds: bool | np.bool_) -> Outcome:
    return "reproduced" if holds else "not reproduced"


CLAIMS = (
    Claim(
        "accuracy",
        "Point predictions with the balances are as accurate as without.",
        "tab:predictive_performance",
        accuracy,
    ),
    Claim("same coverage", "Both networks have identical coverage.", "", same_coverage),
    Claim("coverage", "The coverage is 0.99.", "", coverage_number),
    Claim(
        "width",
        "Intervals are narrower with the balances.",
        "tab:predictive_performance",
        lower("interval_width", "The mean width of 95 % intervals"),
    ),
    Claim(
        "aleatoric",
        "The balances reduce aleatoric uncertainty.",
        "tab:prediction",
        lower("aleatoric", "Aleatoric uncertainty"),
    ),
    Claim(
        "epistemic",
        "The balances reduce epistemic uncertainty.",
        "tab:prediction",
        lower("epistemic", "Epistemic uncertainty"),
    ),
    Claim(
        "voltage violation",
        "The median violation of the voltage balance falls by over two orders of magnitude.",
        "tab:constraint_violation",
        violation_of_means("voltage", "V"),
    ),
    Claim(
        "heat violation",
        "The median violation of the heat balance falls by over four orders of magnitude.",
        "tab:constraint_violation",
        violation_of_means("heat", "W/m³"),
    ),
    Claim(
        "voltage tolerance",
        "The tolerance of the voltage balance is learned, and precisely.",
        "tab:learned_tolerance",
        voltage_tolerance,
    ),
    Claim(
        "heat tolerance",
        "The heat balance retains appreciable slack, calibrated from the data.",
        "tab:learned_tolerance",
        heat_tolerance,
    ),
    Claim("moments", "E[r] and Std[r] of the learned tolerances are as printed.", "tab:learned_tolerance", moments),
    Claim(
        "noise level",
        "Aleatoric uncertainty is 0.0149 of the outputs' spread, with noise of 2–5 mV.",
        "tab:prediction",
        noise_level,
    ),
    Claim("MSE", "The MSE on the noisy test set is 1.13×10⁻⁴.", "tab:predictive_performance", mse_level),
    Claim(
        "MSE spread",
        "The MSE is ± 1.88×10⁻³, 1.96 standard deviations over the outputs.",
        "tab:predictive_performance",
        mse_spread,
    ),
)
