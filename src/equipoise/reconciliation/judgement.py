"""What a logbook says, in sentences: is anything wrong, where, how large is it, and what cannot be known."""

from collections.abc import Iterator

import numpy as np
from scipy.special import ndtr, pdtrc

from equipoise.balances import quoted_list
from equipoise.reconciliation.alarms import SENSOR, Candidate
from equipoise.reconciliation.logbook import Logbook
from equipoise.reconciliation.observability import NON_REDUNDANT
from equipoise.reconciliation.significance import half_width

CHANCE = 3.0  # standard deviations of a count that are more than chance
RARE = float(ndtr(-CHANCE))  # the probability of that


def verdicts(log: Logbook) -> list[str]:
    """Sentences, the most important first.

    Example:
        >>> from equipoise.balances.linear import LinearConstraint
        >>> from equipoise.reconciliation import reconcile
        >>> flows = LinearConstraint.from_equations("a = b", outputs=["a [kg/s]", "b [kg/s]"])
        >>> for sentence in verdicts(reconcile([[1.0, 1.02], [2.0, 1.99]], 0.1, flows).logbook()):
        ...     print(sentence)
        0 of 2 rows fail the global test at 95 %: no more than chance gives.
    """
    found = standing_out(log)
    return [_alarms(log), *(_suspect(log, one) for one in found), *_too_small(log, found), *_limits(log)]


def standing_out(log: Logbook) -> list[Candidate]:
    """Candidates that are the suspect in more rows than chance gives, most rows first.

    The first must exceed what chance gives to it, corrected for the number of candidates. It draws its neighbours into
    suspicion, so that the others must exceed what chance gives to all of them together.
    """
    count, chance = log.tally.errors.count, log.tally.chance
    order = np.argsort(-count, kind="stable")
    first = [j for j in order[:1] if count[j] and pdtrc(count[j] - 1, chance[j]) < RARE / np.count_nonzero(chance)]
    return [log.candidates[j] for j in order if j in first or (first and count[j] > _by_chance(log))]


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
    rows = log.tally.errors.count[log.candidates.index(found)]
    where = f"is the suspect in {rows:,} row{'s' if rows != 1 else ''}"
    head = f"{found.kind.capitalize()} {found.name!r} {where}{_error(log, found)}"
    others = " or ".join(f"{other.kind} {other.name!r}" for other in log.alike(found))
    return f"{head}; {others} would explain it as well." if others else f"{head}."


def _error(log: Logbook, found: Candidate) -> str:
    """What the suspect's rows say of its error: its size and sign, as far as they have one."""
    errors, j, unit = log.tally.errors, log.candidates.index(found), f" {found.unit}" if found.unit else ""
    size, half = float(errors.size[j]), half_width(log.level) * float(errors.standard_error[j])
    if errors.both_signs[j]:
        return f", with errors of both signs, typically {float(errors.typical[j]):.2g}{unit}"
    amount = f"{abs(size):.4g} ± {half:.2g}{unit}"
    if found.kind == SENSOR:
        return f": it shows {amount} too {'much' if size > 0 else 'little'}"
    return f": its left side is {amount} {'more' if size > 0 else 'less'} than its right side"


def _too_small(log: Logbook, found: list[Candidate]) -> Iterator[str]:
    """Lies have a sign and a place; errors of both signs, or everywhere, speak against what was said of them."""
    errors = log.tally.errors
    unsigned = bool(found) and all(errors.both_signs[log.candidates.index(one)] for one in found)
    if unsigned or len(found) > max(1.0, np.count_nonzero(errors.count) / 2):
        what = "Errors of both signs" if unsigned else "Errors in most sensors and balances"
        yield f"{what} may mean that the standard deviations given are too small."


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
