"""What a logbook says, in sentences: is anything wrong, where, how large is it, and what cannot be known."""

from collections.abc import Iterator

import numpy as np

from equipoise.equations import quoted_list
from equipoise.reconciliation.alarms import SENSOR, Candidate
from equipoise.reconciliation.logbook import Logbook
from equipoise.reconciliation.observability import NON_REDUNDANT

CHANCE = 3.0  # standard deviations of a count that are more than chance


def verdicts(log: Logbook) -> list[str]:
    """Sentences, the most important first.

    Example:
        >>> from equipoise.constraints import LinearConstraint
        >>> from equipoise.reconciliation import reconcile
        >>> flows = LinearConstraint.from_equations("a = b", outputs=["a [kg/s]", "b [kg/s]"])
        >>> for sentence in verdicts(reconcile([[1.0, 1.02], [2.0, 1.99]], 0.1, flows).logbook()):
        ...     print(sentence)
        0 of 2 rows fail the global test at 95 %: no more than chance gives.
    """
    return [_alarms(log), *(_suspect(log, found) for found in standing_out(log)), *_limits(log)]


def standing_out(log: Logbook) -> list[Candidate]:
    """Candidates that are the suspect in more rows than chance would give to all of them, most rows first."""
    count = log.tally.errors.count
    order = np.argsort(-count, kind="stable")
    return [log.candidates[j] for j in order if count[j] > _by_chance(log)]


def more_than_chance(log: Logbook) -> bool:
    """Whether more rows fail the global test than chance would give."""
    return log.tally.alarms > _by_chance(log)


def _by_chance(log: Logbook) -> float:
    """What a count of false alarms of all rows hardly exceeds."""
    alpha, tested = 1.0 - log.level, log.tally.tested
    return alpha * tested + CHANCE * float(np.sqrt(alpha * log.level * tested))


def _alarms(log: Logbook) -> str:
    t = log.tally
    if not t.tested:
        return f"None of {t.rows:,} rows can be tested: too little is measured, and every value would be believed."
    share = f" ({100 * t.alarms / t.tested:.3g} %)" if t.alarms else ""
    head = f"{t.alarms:,} of {t.tested:,} rows{share} fail the global test at {100 * log.level:g} %"
    chance = f"chance would give {(1 - log.level) * t.tested:,.0f}"
    head += f": {chance}." if more_than_chance(log) else ": no more than chance gives."
    idle = t.rows - t.tested
    return f"{head} {idle:,} more cannot be tested: too little is measured there." if idle else head


def _suspect(log: Logbook, found: Candidate) -> str:
    j = log.candidates.index(found)
    size, error = float(log.tally.errors.mean[j]), float(log.tally.errors.standard_error[j])
    unit, rows = f" {found.unit}" if found.unit else "", log.tally.errors.count[j]
    amount = f"{abs(size):.4g}{f' ± {error:.2g}' if np.isfinite(error) else ''}{unit}"
    where = f"in {rows:,} row{'s' if rows != 1 else ''}"
    if found.kind == SENSOR:
        head = f"Sensor {found.name!r} is the suspect {where}: it shows {amount} too {'much' if size > 0 else 'little'}"
    else:
        side = "more" if size > 0 else "less"
        head = f"Balance {found.name!r} is the suspect {where}: its left side is {amount} {side} than its right side"
    others = " or ".join(f"{other.kind} {other.name!r}" for other in log.alike(found))
    return f"{head}; {others} would explain it as well." if others else f"{head}."


def _limits(log: Logbook) -> Iterator[str]:
    unchecked = [n for n, kind in zip(log.variables, log.classes, strict=True) if kind == NON_REDUNDANT]
    if unchecked:
        yield f"No balance checks {quoted_list(unchecked)}: an error there cannot be seen."
    if log.calculated:
        yield f"Calculated from the others where not measured: {quoted_list(log.calculated)}."
    if log.unobservable:
        rows = log.tally.classes[:, -1].max()
        which = quoted_list(log.unobservable)
        yield f"Nothing determines {which} in up to {rows:,} rows: no number is given there. Measure more."
