"""The tables of the battery study, from the results of one seed or more.

With several seeds every number is a mean over them ± its standard error. The best of the models is printed in bold
if it is better than all others and 0 is outside the 95 % confidence intervals of the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from equipoise import TolerancePrior, report
from studies.battery.claims import CLAIMS, with_our_training
from studies.battery.published import PRINTED, TABLES, Printed, kl_from, log_normal_moments
from studies.battery.results import (
    HEATS,
    KEYS,
    MODELS,
    NAMES,
    VOLTAGES,
    WITH_BALANCES,
    ModelResults,
    OutputKey,
    Results,
    ScoreByOutput,
    Tolerance,
)
from studies.battery.seeds import Runs, is_below, over_seeds, seeds_in_words, text

Number = Callable[[Results], float]
ModelNumber = Callable[[ModelResults], float]
MARKS = {"reproduced": "✓", "not reproduced": "✗", "cannot be as stated": "⊘"}
BALANCES = ("voltage", "heat")
SYMBOLS = {"eta_p": "η₊", "eta_n": "η₋", "dV_IR": "ΔV_IR"}
UNITS = {"W.m-3": "W/m³", "": "–"}
LEDGER = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "total", "before", "tolerance_share")


# --- The paper's tables -----------------------------------------------------------------------------------------------


def claims(runs: Runs) -> report.Table:
    """Tabulate the paper's claims with a verdict on each, for the paper's models as they are trained there."""
    return _claims(runs, "as it is trained there: the bound alone, from the priors")


def claims_with_our_training(runs: Runs) -> report.Table:
    """Tabulate the verdicts on the same claims for the paper's two models with our training."""
    return _claims(with_our_training(runs), "with our training, which starts from residuals")


def _claims(runs: Runs, how: str) -> report.Table:
    rows = []
    for claim in CLAIMS:
        verdict = claim.judge(runs)
        outcome = f"{MARKS[verdict.outcome]} {verdict.outcome}"
        rows.append([claim.statement, outcome, verdict.why, TABLES[claim.label]])
    caption = f"Claims of the paper and what is found here with its method {how}; {seeds_in_words(runs)}."
    return report.Table(caption, ["Claim", "Verdict", "Why", "Rests on"], rows)


def published_and_ours(runs: Runs) -> report.Table:
    """Tabulate every number that the paper prints, beside ours."""
    rows = []
    for printed in PRINTED.values():
        texts = {model: _cell(runs, lambda run, m=model, p=printed: p.ours(run, m)) for model in printed.models}
        cells = [printed.text("bnn"), printed.text("paper"), *(texts.get(model, "–") for model in MODELS)]
        rows.append([printed.name, TABLES[printed.label], *cells])
    header = ["Quantity", "Where", "BNN, published", "Constrained, published", *NAMES.values()]
    return report.Table(_caption(runs, "Published and ours"), header, rows, numeric=range(2, len(header)))


def variables(runs: Runs) -> report.Table:
    """Tabulate inputs and outputs with their ranges."""
    rows = [
        [v.role, symbol(v.symbol), v.description, _unit(v.unit), _plain(v.min), _plain(v.max)]
        for v in runs[0].input_output_table
    ]
    caption = "Inputs and outputs (tab:io), with the least and greatest value in the data before noise."
    return report.Table(caption, ["Role", "Symbol", "Description", "Unit", "Least", "Greatest"], rows, numeric=(4, 5))


def uncertainty(runs: Runs) -> report.Table:
    """Tabulate predictive uncertainties, as in the paper's Table 1."""
    return _as_printed(
        runs,
        "Predictive uncertainty (tab:prediction), averaged over test rows and outputs, in training standard deviations",
        ["aleatoric", "aleatoric_spread", "epistemic", "epistemic_spread"],
        rated=("aleatoric", "epistemic"),
    )


def performance(runs: Runs) -> report.Table:
    """Tabulate errors and interval widths, as in the paper's Table 3, and coverage, which it gives in the text."""
    return _as_printed(
        runs,
        "Accuracy and 95 % intervals of measured values (tab:predictive_performance)",
        ["mse", "mse_spread", "width", "width_spread", "coverage"],
        rated=("mse", "width"),
    )


def tolerances(runs: Runs) -> report.Table:
    """Tabulate learned tolerances, as in the paper's Table 2, with their divergence from the prior and the verdicts."""
    rows = [_published_tolerance(balance) for balance in BALANCES]
    rows += [_tolerance(runs, model, balance) for model in WITH_BALANCES for balance in BALANCES]
    header = ["Balance", "Model", "μ_ρ", "σ_ρ", "exp(μ_ρ)", "σ_ρ exp(μ_ρ)", "E[r]", "Std[r]", "√r", "μ_ρ, relative"]
    header += ["KL [nats]", "Contraction", "Informed", "Verdict"]
    title = (
        "Learned tolerances (tab:learned_tolerance): ρ = log r, r in V² or (W/m³)², √r in V or W/m³ at its median. The "
        "paper prints exp(μ_ρ) as E[r] and σ_ρ exp(μ_ρ) as Std[r]; E[r] and Std[r] here are those of the log-normal. "
        "Relative: log(r / c²), c the balance's scale. Of the published posterior, what follows from it is shown too"
    )
    return report.Table(_caption(runs, title), header, rows, numeric=range(2, 12))


def violations(runs: Runs) -> report.Table:
    """Tabulate violations of the balances by means and by draws, as in the paper's Table 4."""
    columns = {"voltage": "Voltage [V]", "heat": "Heat [W/m³]", "overall": "Both [own units]"}
    published = [
        [f"{NAMES[model]}, published", "means", *["–"] * 4, PRINTED["violation"].text(model), "–"]
        for model in ("bnn", "paper")
    ]
    title = "|Residuals| over posterior draws and test rows (tab:constraint_violation); both: mean of the two balances"
    return _violations(runs, title, columns, published)


def relative_violations(runs: Runs) -> report.Table:
    """Tabulate violations relative to the scales of the balances."""
    columns = {"voltage_relative": "Voltage", "heat_relative": "Heat", "overall_relative": "Both"}
    return _violations(runs, "|Residuals| relative to the balances' scales c, so that units do not decide", columns)


# --- Beyond the paper -------------------------------------------------------------------------------------------------


def accuracy(runs: Runs) -> report.Table:
    """Tabulate squared errors against the values without noise."""
    lines: dict[str, ModelNumber] = {
        "all outputs": attrgetter("mse_true.overall"),
        "voltages": attrgetter("mse_true_voltages"),
        "heats": attrgetter("mse_true_heats"),
    }
    lines |= {symbol(key): lambda model, key=key: model.mse_true.by_output[key] for key in KEYS}
    table = _by_model(runs, "MSE of predictive means against the truth without noise, in training variances", lines)
    plain = [run.deterministic for run in runs if run.deterministic is not None]
    if len(plain) < len(runs):
        return table
    cells = [_cell(plain, attrgetter("overall")), _mean_cell(plain, VOLTAGES), _mean_cell(plain, HEATS)]
    cells += [_mean_cell(plain, [key]) for key in KEYS]
    rows = [[*row, cell] for row, cell in zip(table.rows, cells, strict=True)]
    header = [*table.header, "Deterministic network"]
    return report.Table(table.caption, header, rows, numeric=range(1, len(header)), bold=table.bold)


def scores(runs: Runs) -> report.Table:
    """Tabulate scores of the predictive distributions."""
    lines: dict[str, ModelNumber] = {
        "CRPS, mean over outputs [training sd]": attrgetter("crps.overall"),
        "Energy score [training sd]": attrgetter("energy_score"),
        "Joint NLL [nats per row]": attrgetter("joint_nll"),
    }
    lines |= {f"CRPS of {symbol(key)}": lambda model, key=key: model.crps.by_output[key] for key in KEYS}
    return _by_model(runs, "Scores of the predictive distribution of measured values; smaller is better", lines)


def coverage(runs: Runs) -> report.Table:
    """Tabulate the coverage of central intervals by output, model and level."""
    levels = runs[0].models.bnn.calibration.levels
    rows = [
        [symbol(key), NAMES[model], *(_cell(runs, _coverage_at(model, key, i)) for i in range(len(levels)))]
        for key in KEYS
        for model in MODELS
    ]
    header = ["Output", "Model", *(f"{100 * level:g} %" for level in levels)]
    title = "Share of measured values inside central intervals of each nominal level"
    return report.Table(_caption(runs, title), header, rows, numeric=range(2, len(header)))


def ledgers(runs: Runs) -> list[report.Table]:
    """Tabulate the terms of the predictive variance, one table for each model."""
    return [_ledger(runs, model) for model in MODELS]


def noise(runs: Runs) -> report.Table:
    """Tabulate learned and true observation noise."""
    rows = []
    for key in KEYS:
        true = _cell(runs, lambda run, key=key: run.observation_std.true[key])
        learned = [_cell(runs, _observation_std(model, key)) for model in MODELS]
        ratios = [_cell(runs, _noise_ratio(model, key)) for model in MODELS]
        sensor = _cell(runs, lambda run, key=key: run.sensor_std[key])
        rows.append([symbol(key), _unit_of(key), true, *learned, *ratios, sensor])
    header = ["Output", "Unit", "True", *NAMES.values(), *(f"{name} / true" for name in NAMES.values())]
    header.append("Equipoise, sensor alone")
    title = (
        "Noise of the measurements, as it was added and as each model found it (aleatoric and sensor noise together)"
    )
    return report.Table(_caption(runs, title), header, rows, numeric=range(2, len(header)))


# --- The run ----------------------------------------------------------------------------------------------------------


def training(runs: Runs) -> report.Table:
    """Tabulate epochs, time and end of each model's training."""
    lines = {"Epochs": "epochs", "Best epoch": "best_epoch", "Time in epochs [s]": "seconds"}
    table = _by_model(runs, "Training", {line: attrgetter(f"history.{name}") for line, name in lines.items()})
    ended = ["Ended because", *(getattr(runs[0].models, model).history.stopped for model in MODELS)]
    return report.Table(table.caption, table.header, [*table.rows, ended], numeric=table.numeric)


def times(runs: Runs) -> report.Table:
    """Tabulate the seconds of each stage."""
    rows = [[stage, _cell(runs, lambda run, s=stage: run.seconds.get(s, np.nan))] for stage in runs[0].seconds]
    return report.Table(_caption(runs, "Time by stage"), ["Stage", "Seconds"], rows, numeric=(1,))


def settings(runs: Runs) -> report.Table:
    """Tabulate seeds, rows, versions and all settings of the first run."""
    first = runs[0]
    rows = [["seeds", ", ".join(str(run.seed) for run in runs)]]
    rows += [[f"rows for {name}", f"{count:,}"] for name, count in first.rows.model_dump().items()]
    rows += [[f"version of {name}", version] for name, version in first.versions.model_dump().items()]
    rows += [[path, value] for path, value in _leaves(first.config, "")]
    caption = f"Data, versions and settings (of seed {first.seed}, where seeds differ)."
    return report.Table(caption, ["Setting", "Value"], rows)


# --- Parts ------------------------------------------------------------------------------------------------------------


def symbol(key: str) -> str:
    """Return the symbol of an output or input as it is printed.

    Example:
        >>> symbol("eta_p"), symbol("Q_rev")
        ('η₊', 'Q_rev')
    """
    return SYMBOLS.get(key, key)


def best(runs: Runs, number: ModelNumber) -> str | None:
    """Find the model whose number is significantly the smallest; return None with one seed, or if there is none.

    Args:
        runs: Results, one for each seed.
        number: Computes the number from the results of a model.
    """
    if len(runs) < 2:
        return None
    for model in MODELS:
        others = [other for other in MODELS if other != model]
        if all(is_below(runs, _difference(number, model, other)) for other in others):
            return model
    return None


def _difference(number: ModelNumber, model: str, other: str) -> Number:
    return lambda run: number(getattr(run.models, model)) - number(getattr(run.models, other))


def _bold(runs: Runs, number: ModelNumber, column: int, first_row: int) -> list[tuple[int, int]]:
    """List the cell of the best model, in a column with one row for each model."""
    winner = best(runs, number)
    return [] if winner is None else [(first_row + MODELS.index(winner), column)]


def _by_model(runs: Runs, title: str, lines: Mapping[str, ModelNumber]) -> report.Table:
    """Tabulate numbers by model, with a row for each number and a column for each model."""
    rows, bold = [], []
    for i, (name, number) in enumerate(lines.items()):
        rows.append([name, *(_cell(runs, lambda run, m=m, n=number: n(getattr(run.models, m))) for m in MODELS)])
        winner = best(runs, number)
        bold += [] if winner is None else [(i, 1 + MODELS.index(winner))]
    return report.Table(_caption(runs, title), ["", *NAMES.values()], rows, numeric=range(1, 1 + len(NAMES)), bold=bold)


def _as_printed(runs: Runs, title: str, names: Sequence[str], rated: Sequence[str]) -> report.Table:
    """Tabulate the paper's numbers, then ours.

    Args:
        runs: Results of one seed or more.
        title: Title of the table.
        names: Keys of `PRINTED`, a column for each.
        rated: Those of them whose smallest number is printed in bold.
    """
    columns = {name: PRINTED[name] for name in names}
    rows = [[f"{NAMES[model]}, published", *_printed_cells(columns.values(), model)] for model in ("bnn", "paper")]
    bold = []
    for column, (name, printed) in enumerate(columns.items(), 1):
        if name in rated:
            path = printed.path.removeprefix("models.{model}.")
            bold += _bold(runs, attrgetter(path), column, first_row=len(rows))
    for model in MODELS:
        cells = [_cell(runs, lambda run, p=p, model=model: p.ours(run, model)) for p in columns.values()]
        rows.append([f"{NAMES[model]}, here", *cells])
    header = ["Model", *(printed.name for printed in columns.values())]
    return report.Table(_caption(runs, title), header, rows, numeric=range(1, len(header)), bold=bold)


def _printed_cells(columns: Iterable[Printed], model: str) -> list[str]:
    return [printed.text(model) for printed in columns]


def _published_tolerance(balance: str) -> list[str]:
    """Return the row of a printed posterior, with the numbers that follow from it."""
    printed = [PRINTED[f"{balance}_{name}"] for name in ("mu_rho", "sigma_rho", "mean_r", "std_r")]
    mu, sigma = (each.value("paper") for each in printed[:2])
    prior = TolerancePrior.paper()
    information = kl_from(prior.mean, prior.std, mu, sigma), 1 - (sigma / prior.std) ** 2
    moments = (*log_normal_moments(mu, sigma), math.exp(0.5 * mu))
    derived = [*map(report.number, moments), "–", *map(report.number, information)]
    return [balance, f"{NAMES['paper']}, published", *_printed_cells(printed, "paper"), *derived, "–", "–"]


def _tolerance(runs: Runs, model: str, balance: str) -> list[str]:
    names = ("mu_rho", "sigma_rho", "paper_mean_r", "paper_std_r", "mean_r", "std_r", "tol_std", "mu_rho_relative")
    tolerance_of = attrgetter(f"tolerances.{model}.{balance}")
    numbers = [_cell(runs, lambda run, n=n: getattr(tolerance_of(run), n)) for n in (*names, "kl", "contraction")]
    learned: list[Tolerance] = [tolerance_of(run) for run in runs]
    informed = _counted(["yes" if tolerance.informed else "no" for tolerance in learned])
    return [balance, f"{NAMES[model]}, here", *numbers, informed, _counted([t.verdict for t in learned])]


def _counted(words: Sequence[str]) -> str:
    """Join the words of all seeds: once if they agree, else each with its count."""
    kinds = dict.fromkeys(words)
    return words[0] if len(kinds) == 1 else ", ".join(f"{kind} ({words.count(kind)})" for kind in kinds)


def _violations(
    runs: Runs, title: str, columns: Mapping[str, str], published: Sequence[list[str]] = ()
) -> report.Table:
    pairs = [(part, statistic) for part in columns for statistic in ("mean", "median")]
    rows, bold = list(published), []
    for kind, words in (("violation_of_means", "means"), ("violation_of_draws", "draws of y")):
        for column, (part, statistic) in enumerate(pairs, 2):
            bold += _bold(runs, attrgetter(f"{kind}.{part}.{statistic}"), column, first_row=len(rows))
        for model in MODELS:
            paths = [f"models.{model}.{kind}.{part}.{statistic}" for part, statistic in pairs]
            rows.append([f"{NAMES[model]}, here", words, *(_cell(runs, attrgetter(path)) for path in paths)])
    header = ["Model", "Of", *(f"{columns[part]}, {statistic}" for part, statistic in pairs)]
    return report.Table(_caption(runs, title), header, rows, numeric=range(2, len(header)), bold=bold)


def _coverage_at(model: str, key: str, level: int) -> Number:
    return lambda run: getattr(run.models, model).calibration.coverage[key][level]


def _observation_std(model: str, key: OutputKey) -> Number:
    return lambda run: getattr(run.models, model).observation_std[key]


def _noise_ratio(model: str, key: OutputKey) -> Number:
    learned = _observation_std(model, key)
    return lambda run: learned(run) / run.observation_std.true[key]


def _ledger(runs: Runs, model: str) -> report.Table:
    balances = list(runs[0].models.paper.ledger["V"].lost_without)
    rows = []
    for key in KEYS:
        terms = [_cell(runs, _ledger_term(model, key, name)) for name in LEDGER]
        lost = [_cell(runs, _ledger_loss(model, key, balance)) for balance in balances]
        rows.append([symbol(key), *terms, *lost])
    signs = {"Reduction": "−", "Epistemic": "+", "Shift": "+", "Interaction": "+", "Sensor": "+", "Total": "="}
    header = ["Output", "Aleatoric", *(f"{sign}\N{NO-BREAK SPACE}{name}" for name, sign in signs.items())]
    header += ["Before", "Tolerance's share", *(f"Lost without {balance}" for balance in balances)]
    title = f"Variance of measured values, {NAMES[model]}: averages over test rows, in training variances"
    return report.Table(_caption(runs, title), header, rows, numeric=range(1, len(header)))


def _ledger_term(model: str, key: str, name: str) -> Number:
    return lambda run: getattr(getattr(run.models, model).ledger[key], name)


def _ledger_loss(model: str, key: str, balance: str) -> Number:
    return lambda run: getattr(run.models, model).ledger[key].lost_without.get(balance, np.nan)


def _cell(runs: Sequence[Any], number: Callable[[Any], float]) -> str:
    """Format a number over seeds."""
    return text(over_seeds(runs, number))


def _mean_cell(scores: Sequence[ScoreByOutput], keys: Sequence[Any]) -> str:
    return _cell(scores, lambda score: np.mean([score.by_output[key] for key in keys]).item())


def _caption(runs: Runs, title: str) -> str:
    seeds = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds, mean ± standard error"
    return f"{title}. {seeds}."


def _plain(value: float) -> str:
    """Format a bound of a range, without trailing zeros."""
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace("-", "−")


def _unit(unit: str) -> str:
    return UNITS.get(unit, unit)


def _unit_of(key: str) -> str:
    return "V" if key in VOLTAGES else "W/m³" if key in HEATS else "–"


def _leaves(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Iterate over the settings by their paths."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
