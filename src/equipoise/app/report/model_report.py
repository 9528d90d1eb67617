"""The report on a fitted model: its findings as a page of text, tables and figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from equipoise.app.report import balance_figures, output_figures, sentences
from equipoise.app.report.balance_figures import LEAST_SHARE
from equipoise.app.report.balance_residuals import DATA, DRAWS
from equipoise.app.report.formatting import LineNumbers, counted, number, percent, plus_minus, row_labels, with_unit
from equipoise.app.report.model_findings import Findings
from equipoise.app.report.page import Listing, Page, Section, Table
from equipoise.app.report.sentences import LEVEL, calibration_verdict
from equipoise.app.report.tolerances import BalanceTolerance

TABLE_LEVELS = (0.5, 0.8, 0.9, 0.95)
SHOWN_INPUTS = 12  # columns of inputs in the table of worst rows
CITATION = """\
@software{{equipoise,
  author  = {{{{The Equipoise authors}}}},
  title   = {{Equipoise: Bayesian neural networks that obey known balances}},
  version = {{{version}}},
}}
@unpublished{{marsh2026,
  author = {{Marsh, Matthew and Chachuat, Benoît and {{del Rio Chanona}}, Antonio}},
  title  = {{Learning with Embedded Linear Equality Constraints via Variational Bayesian Inference}},
  note   = {{Preprint}},
  year   = {{2026}},
}}"""


def report(
    findings: Findings,
    *,
    title: str,
    job: str | None = None,
    commands: Sequence[str] = (),
    notes: Mapping[str, Any] | None = None,
    lines: LineNumbers | None = None,
) -> Page:
    """Arrange the findings on a fitted model as a page, to be written by `render` or `markdown`.

    Args:
        findings: The numbers, from the function `findings`.
        title: The heading.
        job: Text of the job file that the model was fitted with, if there was one.
        commands: Command lines that reproduce the model and the report, in their order.
        notes: Other facts needed for reproduction, by name, such as the data's file.
        lines: Function from rows of the table, counted from 0, to their lines in the data's file; without it the report
            refers to rows, counted from 1.
    Returns: The page.
    Example:
        >>> import numpy as np
        >>> import equipoise as eq
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> model = eq.ConstrainedBNNRegressor(hidden=(8,), max_epochs=20, n_draws=8, random_state=0).fit(x, x**2)
        >>> page = report(eq.report.findings(model, x, x**2), title="A parabola")
        >>> page.sections[0].title
        'Outputs at a glance'
    """
    f = findings
    parts = [_outputs(f), _predictions(f), _calibration(f)]
    parts += [_residuals(f), _tolerances(f)] if f.residuals else []
    parts += [_ledger(f)]
    parts += [_variance_reductions(f)] if f.residuals else []
    parts += [_worst(f, lines), _training(f), _reproduction(f, job, commands, notes or {})]
    return Page(title, sentences.summary(f), parts)


# --- Outputs ----------------------------------------------------------------------------------------------------------


def _outputs(f: Findings) -> Section:
    has_baseline = sentences.has_baseline(f)
    header = ["output", "values", "R²", "RMSE", "expected RMSE", "bias", "95 % coverage"]
    header += ["R² without balances", "RMSE without balances"] if has_baseline else []
    rows = []
    for score, share in zip(f.scores, f.calibration.at(LEVEL), strict=True):
        sizes = [with_unit(value, score.unit) for value in (score.rmse, score.expected, score.bias)]
        row = [score.output, f"{score.n:,}", number(score.r2), *sizes, percent(share)]
        baseline = [number(score.baseline_r2), with_unit(score.baseline_rmse, score.unit)]
        rows.append(row + (baseline if has_baseline else []))
    caption = (
        "Errors of the predictive means against what was measured. The expected RMSE is what the model predicts for "
        "itself, sensor noise included; bias is the mean of predicted minus measured."
    )
    text = "If these rows were trained on, take the scores for flattering: new rows are predicted worse."
    return Section("Outputs at a glance", text, [Table(caption, header, rows, range(1, len(header)))])


def _predictions(f: Findings) -> Section:
    text = (
        "Each dot is a row of the table; on the diagonal predicted and measured value are the same. A vertical line is "
        "the 95 % interval of what the sensor should show: 19 of 20 of them should cross the diagonal."
    )
    return Section("Predicted against measured", text, figures=output_figures.predictions(f))


def _calibration(f: Findings) -> Section:
    header = ["output", "values", *(f"{100 * level:.0f} %" for level in TABLE_LEVELS), "95 % intervals"]
    shares = [f.calibration.at(level) for level in TABLE_LEVELS]
    rows = [
        [name, f"{n:,}", *(percent(share[j]) for share in shares), calibration_verdict(shares[-1][j], n)]
        for j, (name, n) in enumerate(zip(f.outputs, f.calibration.n.tolist(), strict=True))
    ]
    caption = "Share of the measured values inside central intervals of each level; it should be the level."
    text = (
        "Intervals that are too narrow promise too much, and those that are too wide waste what is known. They are "
        f"intervals of measured values, so sensor noise is part of them. {sentences.coverage(f)}\n\n"
        "In the drawings, left: the share of measured values inside central intervals, minus the level that it should "
        "be; above 0 intervals are too wide, below 0 too narrow. Right: how often F(y), the predicted probability of "
        "less than what was measured, falls into each tenth, relative to evenly; a hump means too wide, raised ends "
        "too narrow, a slope a bias."
    )
    note = "Differences are called more than chance as if rows were independent; neighbours in time often are not."
    table = Table(caption, header, rows, range(1, len(header) - 1))
    return Section("Can the intervals be relied on?", text, [table], output_figures.calibration(f), [note])


# --- Balances ---------------------------------------------------------------------------------------------------------


def _residuals(f: Findings) -> Section:
    header = ["balance", "residual of", "95 % are no larger than", "root mean square", "mean", "95 % lie between"]
    rows = [
        [
            residuals.balance,
            kind,
            *(with_unit(size, residuals.unit) for size in (summary.most, summary.rms, summary.mean)),
            f"{number(summary.lower)} and {number(summary.upper)}",
        ]
        for residuals in f.residuals
        for kind, summary in residuals.summaries.items()
    ]
    text = (
        "A residual is what a row leaves over when all terms of a balance are brought to one side: 0 where it holds. "
        f"“{DATA.capitalize()}” carry the noise of their sensors. Before conditioning the network knows nothing of a "
        "balance; after it means and draws obey as far as the balance's tolerance lets them. Draws are whole rows of "
        "true values, so they show what the uncertainty as a whole does to a balance."
    )
    note = f"Of {counted(f.n_decomposed, 'row')}; the model's residuals are of {DRAWS} posterior draws each."
    return Section(
        "Balances before and after",
        text,
        [Table("Residuals of each balance, in its own unit.", header, rows, (2, 3, 4, 5))],
        balance_figures.residuals(f),
        [note],
        [Listing("The balances", "\n".join(f"{residuals.balance}: {residuals.equation}" for residuals in f.residuals))],
    )


def _tolerances(f: Findings) -> Section:
    header = [
        "balance",
        "tolerance √r",
        "95 % interval",
        "with sensors (noise_std)",
        "learned [nats]",
        "verdict",
        "remarks",
    ]
    rows = []
    for tolerance in f.tolerances:
        interval = _interval(tolerance.kind, tolerance.tol_std_lower, tolerance.tol_std_upper)
        sizes = [with_unit(tolerance.tol_std, tolerance.unit), interval, with_unit(tolerance.noise_std, tolerance.unit)]
        rows.append([tolerance.balance, *sizes, number(tolerance.kl), tolerance.verdict, _remarks(tolerance)])
    caption = (
        "How far each balance may be missed, in its own unit; “with sensors” is the scatter of measured rows that "
        "tolerance and sensor noise explain together."
    )
    text = (
        "A tolerance is learned like everything else, and is worth something only if the data had something to say in "
        "it: where posterior and prior are the same, nothing was learned, whatever their width."
    )
    tables = [Table(caption, header, rows, range(1, 5)), *_sensors(f)]
    return Section("How far each balance can be trusted", text, tables, balance_figures.tolerances(f))


def _remarks(tolerance: BalanceTolerance) -> str:
    offset = f"offset {plus_minus(tolerance.offset, tolerance.offset_std)} {tolerance.unit or ''}".strip()
    return "; ".join(filter(None, [tolerance.note, offset if tolerance.offset_std > 0 else ""])) or "–"


def _sensors(f: Findings) -> list[Table]:
    """Make a table of the sensors' noise; no table if nothing is known about it."""
    if all(sensor.kind == "none" for sensor in f.sensors):
        return []
    rows = []
    for sensor in f.sensors:
        interval = _interval(sensor.kind, sensor.lower, sensor.upper)
        rows.append([sensor.output, with_unit(sensor.std, sensor.unit), interval, sensor.kind])
    caption = "Standard deviation of the sensor behind each output."
    return [Table(caption, ["output", "sensor noise", "95 % interval", "how it is known"], rows, (1, 2))]


def _interval(kind: str, lower: float, upper: float) -> str:
    return f"{number(lower)} to {number(upper)}" if kind == "learned" else "–"


# --- Uncertainty ------------------------------------------------------------------------------------------------------


def _ledger(f: Findings) -> Section:
    shares = output_figures.ledger_shares(f)
    std = (f.true_var + f.ledger["sensor"]) ** 0.5
    header = ["output", "standard deviation", *shares, "total"]
    rows = []
    for j, score in enumerate(f.scores):
        parts = [float(values[j]) for values in shares.values()]
        rows.append([score.output, with_unit(float(std[j]), score.unit), *map(percent, [*parts, max(sum(parts), 0.0)])])
    text = (
        "The variance of a prediction, term by term, averaged over rows. Aleatoric is the network's own noise; "
        "epistemic is disagreement between networks that the data allow, which more data would lessen; sensor is the "
        "noise of the instrument. Balances enter by reduction, what they take from the network's noise, by shift, what "
        "moving the means adds, and by interaction: negative where balances undo disagreement."
    )
    caption = "Standard deviation of measured values, and terms of their variance in percent of those that add to it."
    note = f"Averages over {counted(f.n_decomposed, 'row')}."
    table = Table(caption, header, rows, range(1, len(header)))
    return Section("Where the uncertainty comes from", text, [table], output_figures.ledgers(f), [note])


def _variance_reductions(f: Findings) -> Section:
    header = ["output", "before", "after", "variance taken away", "lost without"]
    rows = []
    for j, score in enumerate(f.scores):
        before, after = (with_unit(float(var[j]) ** 0.5, score.unit) for var in (f.before_var, f.true_var))
        shares = dict(zip(f.balances, f.lost_share[:, j].tolist(), strict=True))
        largest = [name for name in sorted(shares, key=lambda name: -shares[name])[:3] if shares[name] > LEAST_SHARE]
        lost = ", ".join(f"{name} {percent(shares[name])}" for name in largest)
        rows.append([score.output, before, after, percent(1 - f.true_var[j] / f.before_var[j]), lost or "–"])
    caption = (
        "Standard deviation of the true value before and after conditioning, and the balances that count most: the "
        "part of the variance before that would come back if this balance alone were left out."
    )
    text = (
        f"{sentences.variance_reduction(f)} Balances that say the same of an output share what they buy, and each "
        "alone can be left out at little cost: the parts need not add up."
    )
    note = (
        "This compares one network before and after conditioning. Training reckons with the balances and leaves the "
        "network wider before, so it is not the gain over a network that was trained without them."
    )
    table = Table(caption, header, rows, (1, 2, 3))
    return Section(
        "Which balance bought how much certainty", text, [table], balance_figures.variance_reductions(f), [note]
    )


# --- Rows, training, reproduction -------------------------------------------------------------------------------------


def _worst(f: Findings, lines: LineNumbers | None) -> Section:
    names = (f.inputs + f.known)[:SHOWN_INPUTS]
    noun, how_counted, labels = row_labels([outlier.row for outlier in f.outliers.worst], lines)
    header = [noun, "output", "measured", "predicted", "deviation", *names]
    rows = [
        [
            row_label,
            outlier.output,
            with_unit(outlier.measured, outlier.unit, 4),
            plus_minus(outlier.predicted, outlier.std),
            f"{number(outlier.z, 2)} sd",
            *(number(value, 4) for value in outlier.x[:SHOWN_INPUTS]),
        ]
        for row_label, outlier in zip(labels, f.outliers.worst, strict=True)
    ]
    caption = (
        f"Rows with the largest deviation, {how_counted}; the deviation is measured minus predicted "
        "in predicted standard deviations."
    )
    hidden = len(f.inputs + f.known) - len(names)
    notes = [f"{counted(hidden, 'more input')} not shown."] if hidden > 0 else []
    text = f"{sentences.outliers(f)} Look at these rows first: a sensor may have failed, or a case be missing."
    table = Table(caption, header, rows, [j for j in range(len(header)) if j != 1])
    return Section("Worst rows", text, [table] if rows else [], notes=notes)


def _training(f: Findings) -> Section:
    return Section("Training", sentences.training(f), figures=output_figures.training(f))


def _reproduction(f: Findings, job: str | None, commands: Sequence[str], notes: Mapping[str, Any]) -> Section:
    values = {"seed in use": f.seed, **notes, **f.versions}
    facts = [[str(name), str(value)] for name, value in values.items()]
    settings = [[name, value] for name, value in f.settings.items()]
    text = (
        "The same table, settings, seed and versions give the same model. If you publish what is shown here, please "
        "cite the software and the paper whose method it builds on."
    )
    tables = [Table("What it was made from, and with.", ["what", "which"], facts)]
    tables.append(Table("Settings of the model.", ["setting", "value"], settings))
    has_job = bool(job and job.strip())
    caption = f"To do it again{', with the job file below where it finds its table' * has_job}"
    listings = [Listing(caption, "\n".join(commands))] if commands else []
    listings += [Listing("The job file", job.strip("\n"))] if job and has_job else []
    listings.append(Listing("To cite", CITATION.format(version=f.versions.get("equipoise", "unknown"))))
    return Section("How to cite and reproduce", text, tables, listings=listings)
