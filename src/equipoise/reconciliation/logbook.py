"""What happened in a table, as people read it: alarms, suspects, adjustments, by sensor and by balance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, pdtrc

from equipoise.balances import column_unit, quoted_list
from equipoise.reconciliation.alarms import SENSOR, Candidate, GrossErrorTest
from equipoise.reconciliation.observability import CLASSES, NON_REDUNDANT, OBSERVABLE, REDUNDANT, UNOBSERVABLE
from equipoise.reconciliation.significance import half_width
from equipoise.reconciliation.totals import Account, Tally, tally

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.reconciliation.classical_reconciliation import Reconciliation
    from equipoise.reconciliation.model_reconciliation import ModelReconciliation


@dataclass(frozen=True, eq=False)
class Logbook:
    """The tests of a table, or of pieces of one that are added to each other, as people read them.

    Args:
        variables: Names of the columns.
        candidates: Sensors, then balances.
        tolerance: Of the balances.
        level: Confidence level of the tests, and probability of intervals.
        tally: Sums over the rows.
        nodal: Whether balances were tested by their own residuals.

    Example:
        >>> from equipoise.balances.linear import LinearConstraint
        >>> from equipoise.reconciliation import reconcile
        >>> flows = LinearConstraint.from_equations("a = b", outputs=["a [kg/s]", "b [kg/s]"])
        >>> first, second = (reconcile([[3.0, 3.0 + lie]], 0.1, flows).logbook() for lie in (0.05, 2.0))
        >>> (first + second).tally.alarms
        1
    """

    variables: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    tolerance: tuple[float, ...]
    level: float
    tally: Tally
    nodal: bool = True

    def __add__(self, other: Logbook) -> Logbook:
        return replace(self, tally=self.tally + other.tally)

    @property
    def units(self) -> tuple[str | None, ...]:
        """The unit of each variable, as far as its name tells."""
        return tuple(map(column_unit, self.variables))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The class of each variable in most rows."""
        return tuple(CLASSES[k] for k in self.tally.classes.argmax(axis=1))

    @property
    def unobservable(self) -> tuple[str, ...]:
        """Variables that nothing determines in some rows."""
        seen = self.tally.classes[:, CLASSES.index(UNOBSERVABLE)] > 0
        return tuple(name for name, some in zip(self.variables, seen, strict=True) if some)

    @property
    def calculated(self) -> tuple[str, ...]:
        """Variables that are not measured in some rows, but follow from the others there."""
        seen = self.tally.classes[:, CLASSES.index(OBSERVABLE)] > 0
        return tuple(name for name, some in zip(self.variables, seen, strict=True) if some)

    def alike(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """Others that would explain as well what this one is suspected of, in most of the rows."""
        position = self.candidates.index(candidate)
        often = self.tally.alike[position] > self.tally.errors.count[position] / 2
        return tuple(self.candidates[j] for j in np.flatnonzero(often) if j != position)

    def sensors(self) -> pd.DataFrame:
        """One line for each variable: means of its values, root mean squares of its half-widths, class and alarms.

        `measured` and `± before` are over its readings, `reconciled` and `± after` over all rows that determine it.

        `error` is its estimated bias in the rows in which it is the suspect, as `Selected` has it, ± half of its
        interval.
        """
        import pandas as pd

        t, half, n = self.tally, half_width(self.level), len(self.variables)
        data = {
            "unit": [unit or "" for unit in self.units],
            "class": self.classes,
            "readings": t.measured.count,
            "measured": t.measured.mean,
            "± before": half * np.sqrt(t.var_before.mean),
            "reconciled": t.reconciled.mean,
            "± after": half * np.sqrt(t.var_after.mean),
            "adjustment": t.adjustments.mean,
            **self._tests(slice(0, n)),
        }
        return pd.DataFrame(data, index=pd.Index(self.variables, name="variable"))

    def balances(self) -> pd.DataFrame:
        """One line for each balance: its residual as measured, alarms of the nodal test, and of a leak.

        `error` is the estimated leak in the rows in which the balance is the suspect, likewise. Nodal alarms are
        missing (`<NA>`) where there is no such test.
        """
        import pandas as pd

        t, of_balances = self.tally, slice(len(self.variables), None)
        data = {
            "unit": [candidate.unit or "" for candidate in self.candidates[of_balances]],
            "tolerance": self.tolerance,
            "rows": t.residuals.count,
            "residual": t.residuals.mean,
            "residual std": t.residuals.std,
            "nodal alarms": pd.array(t.open if self.nodal else [None] * len(t.open), dtype="Int64"),
            **self._tests(of_balances),
        }
        names = [candidate.name for candidate in self.candidates[of_balances]]
        return pd.DataFrame(data, index=pd.Index(names, name="balance"))

    def _tests(self, which: slice) -> dict[str, Any]:
        t = self.tally
        return {
            "alarms": t.flagged[which],
            "suspect": t.errors.count[which],
            "error": t.errors.size[which],
            "± error": half_width(self.level) * t.errors.standard_error[which],
        }


def logbook(result: Reconciliation, test: GrossErrorTest, time: Any = None) -> Logbook:
    """What happened in one piece of a table.

    Args:
        result: The piece, reconciled.
        test: Its likelihood ratio test.
        time: When each row was measured; its number, from 1, if left out.
    """
    solution, nodal = result.solution, result.nodal_test()
    given, n = solution.measurements, solution.measurements.reported
    account = Account(
        given.values[:, :n],
        solution.outcome.values[:, :n],
        given.std[..., :n],
        solution.std[:, :n],
        solution.class_counts[:n],
        nodal.z * nodal.std,
        np.abs(nodal.z) > nodal.limit[:, None],
        result.global_test(),
        test,
        time,
    )
    return Logbook(result.variables, test.candidates, tuple(given.tolerance.tolist()), result.level, tally(account))


def logbook_with_model(
    result: ModelReconciliation,
    test: GrossErrorTest,
    tolerance: tuple[float, ...] = (),
    sensor_std: Any = np.nan,
    time: Any = None,
) -> Logbook:
    """The same of readings that were reconciled with a trained model, which determines everything.

    The nodal test has no counterpart.

    Args:
        result, test, time: As above.
        tolerance: Of the balances.
        sensor_std: Standard deviations of the sensors that the model learned, for those that were not given.
    """
    seen, residuals = result.readings.seen, np.asarray(result.residuals.before) if tolerance else np.zeros((1, 0))
    measured, classes = seen.sum(axis=0), np.zeros((seen.shape[1], len(CLASSES)), np.intp)
    classes[:, CLASSES.index(REDUNDANT)] = measured
    classes[:, CLASSES.index(OBSERVABLE)] = len(seen) - measured
    account = Account(
        np.where(seen, result.readings.values, np.nan),
        np.asarray(result.mean).reshape(seen.shape),
        np.where(np.isnan(result.readings.std), sensor_std, result.readings.std),
        np.asarray(result.std).reshape(seen.shape),
        classes,
        residuals,
        np.zeros(residuals.shape, bool),
        result.global_test(),
        test,
        time,
    )
    return Logbook(result.variables, test.candidates, tolerance, result.level, tally(account), nodal=False)


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
