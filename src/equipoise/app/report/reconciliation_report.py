"""The report on a plant: its measured and reconciled values as a page of text, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from equipoise.app.report import charts
from equipoise.app.report.formatting import LineNumbers, number, plus_minus, row_labels, with_unit
from equipoise.app.report.page import Figure, Listing, Page, Section, Table
from equipoise.balances import quoted_list
from equipoise.reconciliation import (
    Candidate,
    Incident,
    Logbook,
    alarms_exceed_chance,
    half_width,
    significant_suspects,
    summary_sentences,
    trends,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PLOTTED_SENSORS = 4  # whose adjustments are drawn over time


def plant_report(
    log: Logbook,
    *,
    title: str,
    job: str | None = None,
    notes: Mapping[str, Any] | None = None,
    lines: LineNumbers | None = None,
) -> Page:
    """Arrange the results of a reconciliation as a page, to be written by `render` or `markdown`.

    Args:
        log: Adjustments, alarms and suspects over the rows of the table, from `Reconciliation.logbook`.
        title: The heading.
        job: Text of the job file, if there was one.
        notes: Other facts needed for reproduction, by name, such as the data's file.
        lines: Function from rows of the table, counted from 0, to their lines in the data's file; without it the report
            refers to rows, counted from 1.
    Returns: The page.
    Example:
        >>> import equipoise as eq
        >>> balance = eq.LinearConstraint.from_equations("feed = product", outputs=["feed", "product"])
        >>> log = eq.reconcile([[5.0, 5.1], [5.2, 5.1]], 0.1, balance).logbook()
        >>> [section.title for section in plant_report(log, title="A plant").sections]
        ['Over time', 'Sensors', 'Balances', 'How to do it again']
    """
    parts = [_over_time(log), _variables(log), _balances(log)]
    parts += [_worst(log, lines)] if log.totals.worst_rows.incidents else []
    return Page(title, _lead(log), [*parts, _reproduction(log, job, notes or {})])


def _lead(log: Logbook) -> str:
    first, *others = summary_sentences(log)
    if significant_suspects(log):
        return "\n\n".join([first, *others])
    if alarms_exceed_chance(log):
        calm = "No single sensor or balance stands out: errors may be larger than was said, or several at a time."
    else:
        calm = "Nothing speaks against the sensors or the balances."
    return "\n\n".join([first, calm, *others])


# --- Over time --------------------------------------------------------------------------------------------------------


def _over_time(log: Logbook) -> Section:
    text = (
        "The global test asks of each row whether all balances together are missed by more than the errors of the "
        "sensors explain. An adjustment is what reconciliation adds to a reading: around 0 for an honest sensor, "
        "around minus its bias, or part of it, for one that lies."
    )
    run, names = log.totals.timeline.longest, trends.most_suspect(log, PLOTTED_SENSORS)
    notes = [f"Drawn are the extremes of every {run:,} rows: nothing that stands out is lost."] if run > 1 else []
    return Section(
        "Over time", text, figures=[_statistic(log), *(_adjustments(log, name) for name in names)], notes=notes
    )


def _statistic(log: Logbook) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        trends.draw_statistic(ax, log)
        ax.set_xlabel(trends.time_label(log))

    t = log.totals
    caption = f"Statistic of the global test, and what it stays below in {100 * log.level:g} % of rows without error."
    alt = f"Line of the global test over {t.rows:,} rows; {t.alarms:,} are above the threshold, "
    alt += f"the largest is {number(float(t.timeline.relative_statistic.max(initial=0.0)))} times the threshold."
    return Figure(charts.svg("statistic", 2.2, draw), caption, alt)


def _adjustments(log: Logbook, name: str) -> Figure:
    def draw(canvas: Canvas) -> None:
        ax = canvas.subplots()
        trends.draw_adjustments(ax, log, name)
        ax.set(xlabel=trends.time_label(log), title=charts.label(name, 60))

    j = log.variables.index(name)
    low, high = log.totals.timeline.lowest[:, j], log.totals.timeline.highest[:, j]
    unit, mean = log.units[j], float(log.totals.adjustments.mean[j])
    ends = f"from {with_unit(_minimum(low), unit)} to {with_unit(-_minimum(-high), unit)}"
    caption = f"What reconciliation adds to the readings of “{name}”."
    alt = f"Adjustments of {name} over time, {ends}, on average {with_unit(mean, unit)}."
    return Figure(charts.svg(f"adjustments-{name}", 1.9, draw), caption, alt)


def _minimum(values: Any) -> float:
    """Return the smallest value that is not NaN; infinity if there is none."""
    import numpy as np

    return float(np.fmin.reduce(values, initial=np.inf))


# --- Tables -----------------------------------------------------------------------------------------------------------


def _variables(log: Logbook) -> Section:
    header = [
        "variable",
        "class",
        "readings",
        "measured",
        "reconciled",
        "adjustment",
        "alarms",
        "suspect in rows",
        "error",
        "or else",
    ]
    rows, bold, suspects = [], [], significant_suspects(log)
    for i, row in enumerate(log.sensors().reset_index().to_dict("records")):
        half = [row["± before"], row["± after"]]
        values = [_with_half_width(row[c], h) for c, h in zip(("measured", "reconciled"), half, strict=True)]
        candidate = log.candidates[i]
        cells = [row["variable"], row["class"], f"{row['readings']:,}", *values, number(row["adjustment"])]
        rows.append([*cells, *_suspicion(log, row, candidate)])
        bold += [(i, 0)] if candidate in suspects else []
    caption = (
        "Means of measured values over their readings, of reconciled ones over all rows that determine them, in the "
        f"unit of the variable; ± is half of the {100 * log.level:g} % interval of one value, or of the error. "
        "Alarms are rows in which the likelihood ratio of this sensor is too large; one lying sensor gives alarms of "
        "its neighbours, too. It is the suspect where its own is the largest. The error, measured minus true, is the "
        "one that explains those rows best, corrected for their having been chosen because it looked large there; what "
        "stands under “or else” would explain them as well."
    )
    text = (
        "Measured redundant: balances check it, and its interval becomes narrower. Measured non-redundant: nothing "
        "checks it, and an error cannot be seen. Unmeasured observable: calculated from the others. Unmeasured "
        "unobservable: nothing determines it."
    )
    return Section("Sensors", text, [Table(caption, header, rows, range(2, 9), bold)])


def _balances(log: Logbook) -> Section:
    header = [
        "balance",
        "tolerance",
        "rows",
        "residual",
        "sd",
        "nodal alarms",
        "alarms",
        "suspect in rows",
        "error",
        "or else",
    ]
    rows, bold, suspects = [], [], significant_suspects(log)
    for i, row in enumerate(log.balances().reset_index().to_dict("records")):
        unit, candidate = row["unit"], log.candidates[len(log.variables) + i]
        tolerance = with_unit(row["tolerance"], unit) if row["tolerance"] else "exact"
        rows.append(
            [
                row["balance"],
                tolerance,
                f"{row['rows']:,}",
                with_unit(row["residual"], unit),
                with_unit(row["residual std"], unit),
                f"{row['nodal alarms']:,}" if isinstance(row["nodal alarms"], int) else "–",
                *_suspicion(log, row, candidate),
            ]
        )
        bold += [(i, 0)] if candidate in suspects else []
    caption = (
        "What each balance misses as measured (left minus right side): mean and standard deviation (sd) over the rows "
        "in which all of its variables are measured. The nodal test looks at this residual alone; the alarms beside it "
        f"are those of a leak, by the likelihood ratio. Errors ± half of their {100 * log.level:g} % interval."
    )
    return Section("Balances", "", [Table(caption, header, rows, range(1, 9), bold)])


def _suspicion(log: Logbook, row: Any, candidate: Candidate) -> list[str]:
    """Return the cells of a candidate for a gross error: alarms, rows as suspect, error there, and alternatives."""
    size = f"{plus_minus(row['error'], row['± error'])} {candidate.unit or ''}".strip() if row["suspect"] else "–"
    others = quoted_list(other.name for other in log.alike(candidate)) if row["suspect"] else ""
    return [f"{row['alarms']:,}", f"{row['suspect']:,}", size, others or "–"]


def _with_half_width(value: float, half: float) -> str:
    return f"{number(value, 4)} ± {number(half, 2)}" if half == half else number(value, 4)


def _worst(log: Logbook, lines: LineNumbers | None) -> Section:
    incidents = log.totals.worst_rows.incidents
    noun, how_counted, labels = row_labels([incident.row for incident in incidents], lines)
    header = [noun, "time", "statistic", "threshold", "suspect", "error"]
    cells = (_incident(incident, half_width(log.level)) for incident in incidents)
    rows = [[row_label, *others] for row_label, others in zip(labels, cells, strict=True)]
    caption = f"Rows that miss the threshold of the global test by most, {how_counted}; "
    caption += f"errors ± half of their {100 * log.level:g} % interval."
    text = "The suspect explains such a row best if only one thing is wrong with it; look at its neighbours in time."
    return Section("Worst rows", text, [Table(caption, header, rows, (0, 2, 3))])


def _incident(incident: Incident, factor: float) -> list[str]:
    suspect = incident.suspect
    unit = f" {suspect.unit}" if suspect and suspect.unit else ""
    when = "–" if incident.time is None else str(incident.time).replace("T", " ").removesuffix(".000000000")
    error = f"{plus_minus(incident.size, factor * incident.size_std)}{unit}" if suspect else "–"
    numbers = (number(value, 4) for value in (incident.statistic, incident.threshold))
    return [when, *numbers, f"{suspect.kind} {suspect.name}" if suspect else "–", error]


def _reproduction(log: Logbook, job: str | None, notes: Mapping[str, Any]) -> Section:
    facts = {**notes, "rows": f"{log.totals.rows:,}", "level": f"{log.level:g}", "equipoise": version("equipoise")}
    rows = [[str(name), str(value)] for name, value in facts.items()]
    text = "The same table and job file give the same numbers. Alarms are counted as if rows were independent."
    listings = [Listing("The job file", job.strip("\n"))] if job and job.strip() else []
    return Section(
        "How to do it again", text, [Table("What it was made from.", ["what", "which"], rows)], listings=listings
    )
