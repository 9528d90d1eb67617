"""What happened in a table, as people read it: alarms, suspects, adjustments, by sensor and by balance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from equipoise.balances import column_unit
from equipoise.reconciliation.alarms import Candidate, GrossErrorTest
from equipoise.reconciliation.observability import CLASSES, OBSERVABLE, REDUNDANT, UNOBSERVABLE
from equipoise.reconciliation.significance import half_width
from equipoise.reconciliation.tally import Account, Tally, tally

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.reconciliation.classical import Reconciliation
    from equipoise.reconciliation.with_model import ModelReconciliation


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
