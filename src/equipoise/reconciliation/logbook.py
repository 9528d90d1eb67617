"""The logbook of a table: tests and adjustments by sensor and by balance, as tables and in sentences.

A logbook is made of a reconciliation with or without a model; logbooks of consecutive pieces of a table can be added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, pdtrc

from equipoise.balances import column_unit, quoted_list
from equipoise.reconciliation.gross_error_results import SENSOR, Candidate, GrossErrorTest
from equipoise.reconciliation.observability import CLASSES, NON_REDUNDANT, OBSERVABLE, REDUNDANT, UNOBSERVABLE
from equipoise.reconciliation.significance import half_width
from equipoise.reconciliation.totals import TableResults, Totals, totals

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.reconciliation.classical_reconciliation import Reconciliation
    from equipoise.reconciliation.model_reconciliation import ModelReconciliation

CHANCE = 3.0  # standard deviations by which a count must exceed its expectation to be significant
RARE = float(ndtr(-CHANCE))  # the probability that a normal number does so


@dataclass(frozen=True, eq=False)
class Logbook:
    """Tests and adjustments of a table, by variable and by balance; logbooks of consecutive pieces can be added.

    Args:
        variables: Names of the columns.
        candidates: Candidates for gross errors: the variables, then the balances.
        tolerance: Standard deviations of the balances, in their units.
        level: Confidence level of the tests, and probability of intervals.
        totals: Totals over the rows of the table.
        nodal: Whether the nodal test was made.
    Example:
        >>> from equipoise.balances.linear import LinearConstraint
        >>> from equipoise.reconciliation import reconcile
        >>> flows = LinearConstraint.from_equations("a = b", outputs=["a [kg/s]", "b [kg/s]"])
        >>> first, second = (reconcile([[3.0, 3.0 + bias]], 0.1, flows).logbook() for bias in (0.05, 2.0))
        >>> (first + second).totals.alarms
        1
    """

    variables: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    tolerance: tuple[float, ...]
    level: float
    totals: Totals
    nodal: bool = True

    def __add__(self, other: Logbook) -> Logbook:
        return replace(self, totals=self.totals + other.totals)

    @property
    def units(self) -> tuple[str | None, ...]:
        """The unit of each variable, as given in its name; None without one."""
        return tuple(map(column_unit, self.variables))

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The class of each variable in most rows: redundant, observable or not."""
        return tuple(CLASSES[k] for k in self.totals.classes.argmax(axis=1))

    @property
    def unobservable(self) -> tuple[str, ...]:
        """Names of the variables that are unobservable in at least one row."""
        return self._variables_of_class(UNOBSERVABLE)

    @property
    def calculated(self) -> tuple[str, ...]:
        """Names of the variables that are unmeasured but observable in at least one row."""
        return self._variables_of_class(OBSERVABLE)

    def alike(self, candidate: Candidate) -> tuple[Candidate, ...]:
        """Return the other candidates that explain most of a suspect's rows as well.

        Args:
            candidate: A sensor or a balance.
        """
        position = self.candidates.index(candidate)
        often = self.totals.alike[position] > self.totals.errors.count[position] / 2
        return tuple(self.candidates[j] for j in np.flatnonzero(often) if j != position)

    def sensors(self) -> pd.DataFrame:
        """Return a table with one line for each variable: means, half-widths of intervals, class, alarms and error.

        `measured` and `± before` are taken over its readings, `reconciled` and `± after` over all rows in which its
        value is determined; half-widths are root mean squares. `error` is its estimated bias in the rows in which it is
        the suspect (`SuspectErrors.size`), with half of its interval.
        """
        import pandas as pd

        t, half, n = self.totals, half_width(self.level), len(self.variables)
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
        """Return a table with one line for each balance: residual before reconciliation, alarms and estimated leak.

        `error` is the estimated leak in the rows in which the balance is the suspect, with half of its interval. Nodal
        alarms are missing (`<NA>`) where the nodal test was not made.
        """
        import pandas as pd

        t, positions = self.totals, slice(len(self.variables), None)
        data = {
            "unit": [candidate.unit or "" for candidate in self.candidates[positions]],
            "tolerance": self.tolerance,
            "rows": t.residuals.count,
            "residual": t.residuals.mean,
            "residual std": t.residuals.std,
            "nodal alarms": pd.array(t.nodal_alarms if self.nodal else [None] * len(t.nodal_alarms), dtype="Int64"),
            **self._tests(positions),
        }
        names = [candidate.name for candidate in self.candidates[positions]]
        return pd.DataFrame(data, index=pd.Index(names, name="balance"))

    def _variables_of_class(self, kind: str) -> tuple[str, ...]:
        rows = self.totals.classes[:, CLASSES.index(kind)]
        return tuple(name for name, count in zip(self.variables, rows, strict=True) if count > 0)

    def _tests(self, positions: slice) -> dict[str, Any]:
        """Return the columns on alarms and estimated errors of consecutive candidates."""
        t = self.totals
        return {
            "alarms": t.candidate_alarms[positions],
            "suspect": t.errors.count[positions],
            "error": t.errors.size[positions],
            "± error": half_width(self.level) * t.errors.standard_error[positions],
        }


def logbook(result: Reconciliation, test: GrossErrorTest, time: Any = None) -> Logbook:
    """Make the logbook of one piece of a table.

    Args:
        result: The piece, reconciled.
        test: Its likelihood ratio test.
        time: When each row was measured; its number, from 1, if left out.
    """
    solution, nodal = result.solution, result.nodal_test()
    table, n = solution.measurements, solution.measurements.reported
    results = TableResults(
        table.values[:, :n],
        solution.estimates.values[:, :n],
        table.std[..., :n],
        solution.std[:, :n],
        solution.class_counts[:n],
        nodal.z * nodal.std,
        np.abs(nodal.z) > nodal.limit[:, None],
        result.global_test(),
        test,
        time,
    )
    return Logbook(result.variables, test.candidates, tuple(table.tolerance.tolist()), result.level, totals(results))


def logbook_with_model(
    result: ModelReconciliation,
    test: GrossErrorTest,
    tolerance: tuple[float, ...] = (),
    sensor_std: Any = np.nan,
    time: Any = None,
) -> Logbook:
    """Make the logbook of one piece of a table that was reconciled with a trained model.

    The model determines all outputs, so that all measured ones are redundant. There is no nodal test.

    Args:
        result: The piece, reconciled.
        test: Its likelihood ratio test.
        tolerance: Standard deviations of the balances.
        sensor_std: Standard deviations of the model's own sensors, which hold for readings without one of their own.
        time: When each row was measured; its number, from 1, if left out.
    """
    measured, classes = result.readings.measured, np.zeros((len(result.variables), len(CLASSES)), np.intp)
    classes[:, CLASSES.index(REDUNDANT)] = measured.sum(axis=0)
    classes[:, CLASSES.index(OBSERVABLE)] = len(measured) - measured.sum(axis=0)
    residuals = np.asarray(result.residuals.before) if tolerance else np.zeros((1, 0))
    results = TableResults(
        np.where(measured, result.readings.values, np.nan),
        np.asarray(result.mean).reshape(measured.shape),
        np.where(np.isnan(result.readings.std), sensor_std, result.readings.std),
        np.asarray(result.std).reshape(measured.shape),
        classes,
        residuals,
        np.zeros(residuals.shape, bool),
        result.global_test(),
        test,
        time,
    )
    return Logbook(result.variables, test.candidates, tolerance, result.level, totals(results), nodal=False)


def summary_sentences(log: Logbook) -> list[str]:
    """Summarise a logbook in sentences, the most important first: alarms, suspects, and what cannot be checked.

    Example:
        >>> from equipoise.balances.linear import LinearConstraint
        >>> from equipoise.reconciliation import reconcile
        >>> flows = LinearConstraint.from_equations("a = b", outputs=["a [kg/s]", "b [kg/s]"])
        >>> for sentence in summary_sentences(reconcile([[1.0, 1.02], [2.0, 1.99]], 0.1, flows).logbook()):
        ...     print(sentence)
        0 of 2 rows fail the global test at 95 %: no more than chance gives.
    """
    suspects = significant_suspects(log)
    return [
        _alarm_sentence(log),
        *(_suspect_sentence(log, suspect) for suspect in suspects),
        *_doubts_about_std(log, suspects),
        *_limits_of_checks(log),
    ]


def significant_suspects(log: Logbook) -> list[Candidate]:
    """List the candidates that are the suspect in significantly more rows than chance gives, most rows first.

    The first must exceed its own expected number of false alarms, corrected for the number of candidates. Its error
    makes candidates beside it suspect, so that the others must exceed the expected number of false alarms of all
    together.
    """
    count, expected = log.totals.errors.count, log.totals.expected_alarms
    order = np.argsort(-count, kind="stable")
    first = [j for j in order[:1] if count[j] and pdtrc(count[j] - 1, expected[j]) < RARE / np.count_nonzero(expected)]
    return [log.candidates[j] for j in order if j in first or (first and count[j] > _chance_limit(log))]


def alarms_exceed_chance(log: Logbook) -> bool:
    """Tell whether significantly more rows fail the global test than chance gives."""
    return log.totals.alarms > _chance_limit(log)


def _chance_limit(log: Logbook) -> float:
    """Return the number of false alarms in all rows that chance rarely exceeds."""
    alpha, tested = 1.0 - log.level, log.totals.tested
    return alpha * tested + CHANCE * float(np.sqrt(alpha * log.level * tested))


def _alarm_sentence(log: Logbook) -> str:
    t = log.totals
    if not t.tested:
        return f"None of {t.rows:,} rows can be tested: too little is measured, and every value would be believed."
    share = f" ({100 * t.alarms / t.tested:.3g} %)" if t.alarms else ""
    head = f"{t.alarms:,} of {t.tested:,} rows{share} fail the global test at {100 * log.level:g} %"
    chance = f"chance would give {(1 - log.level) * t.tested:,.0f}"
    head += f": {chance}." if alarms_exceed_chance(log) else ": no more than chance gives."
    idle = t.rows - t.tested
    return f"{head} {idle:,} more cannot be tested: too little is measured there." if idle else head


def _suspect_sentence(log: Logbook, suspect: Candidate) -> str:
    rows = log.totals.errors.count[log.candidates.index(suspect)]
    count = f"is the suspect in {rows:,} row{'s' if rows != 1 else ''}"
    head = f"{suspect.kind.capitalize()} {suspect.name!r} {count}{_error_in_words(log, suspect)}"
    others = " or ".join(f"{other.kind} {other.name!r}" for other in log.alike(suspect))
    return f"{head}; {others} would explain it as well." if others else f"{head}."


def _error_in_words(log: Logbook, suspect: Candidate) -> str:
    """Describe the size of a suspect's error, and its sign if it has one."""
    errors, j, unit = log.totals.errors, log.candidates.index(suspect), f" {suspect.unit}" if suspect.unit else ""
    size, half = float(errors.size[j]), half_width(log.level) * float(errors.standard_error[j])
    if errors.both_signs[j]:
        return f", with errors of both signs, typically {float(errors.typical[j]):.2g}{unit}"
    amount = f"{abs(size):.4g} ± {half:.2g}{unit}"
    if suspect.kind == SENSOR:
        return f": it shows {amount} too {'much' if size > 0 else 'little'}"
    return f": its left side is {amount} {'more' if size > 0 else 'less'} than its right side"


def _doubts_about_std(log: Logbook, suspects: list[Candidate]) -> Iterator[str]:
    """Warn of standard deviations that may be too small, if errors have both signs or most candidates are suspects.

    A biased sensor or a leak has one sign and one place.
    """
    errors = log.totals.errors
    unsigned = bool(suspects) and all(errors.both_signs[log.candidates.index(suspect)] for suspect in suspects)
    if unsigned or len(suspects) > max(1.0, np.count_nonzero(errors.count) / 2):
        errors_in_words = "Errors of both signs" if unsigned else "Errors in most sensors and balances"
        yield f"{errors_in_words} may mean that the standard deviations given are too small."


def _limits_of_checks(log: Logbook) -> Iterator[str]:
    """Name the variables that are non-redundant, calculated from others, or unobservable."""
    unchecked = [n for n, kind in zip(log.variables, log.classes, strict=True) if kind == NON_REDUNDANT]
    if unchecked:
        yield f"No balance checks {quoted_list(unchecked)}: an error there cannot be seen."
    if log.calculated:
        yield f"Calculated from the others where not measured: {quoted_list(log.calculated)}."
    if log.unobservable:
        rows = log.totals.classes[:, -1].max()
        names = quoted_list(log.unobservable)
        yield f"Nothing determines {names} in up to {rows:,} rows: no number is given there. Measure more."
