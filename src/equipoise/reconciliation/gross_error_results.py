"""Results of the tests for gross errors: alarms, suspects, and the estimated sizes of biases and leaks.

`GrossErrorTest` is made by the tests in `gross_errors.py`. `GlobalTest` compares a statistic with its threshold; the
statistic comes with the adjustment (`Solution.estimates`, `ModelReconciliation.statistic`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.balances import column_unit
from equipoise.reconciliation.significance import chi_square_p, chi_square_threshold, half_width, normal_p

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
SENSOR, BALANCE = "sensor", "balance"
ROWS_AT_ONCE = 2**14  # rows of a portion that fits into the processor's cache
EQUAL_WITHIN = 1e-9  # relative difference below which two |z| count as equal
CORRECTED = {"sidak": "together, by Šidák", "bonferroni": "together, by Bonferroni", None: "each"}


@dataclass(frozen=True)
class Candidate:
    """A sensor that may be biased, or a balance that may leak.

    Args:
        name: Name of the variable or of the balance.
        kind: "sensor" or "balance".
        unit: Unit of the size of the error; None if unknown.
    """

    name: str
    kind: str
    unit: str | None

    def __str__(self) -> str:
        unit = f" [{self.unit}]" if self.unit and column_unit(self.name) != self.unit else ""
        return f"{self.kind} {self.name!r}{unit}"


@dataclass(frozen=True, eq=False)
class GlobalTest:
    """The χ² test of whether rows obey their balances within the errors of their sensors::

        γ = eᵀ e ~ χ²    with as many degrees of freedom as e has entries        (R5)

    Args:
        statistic: `γ`: a number, or shape `(rows,)`.
        degrees_of_freedom: Number of independent balances between measured variables: an integer, or shape `(rows,)`.
        level: Confidence level.
        labels: Name of each row.
    Example:
        >>> test = GlobalTest(np.array([1.5, 9.0]), np.array([1, 1]), 0.95, np.array([0, 1]))
        >>> test.threshold.round(4), test.alarm
        (array([3.8415, 3.8415]), array([False,  True]))
    """

    statistic: Any
    degrees_of_freedom: Any
    level: float
    labels: Any

    @property
    def threshold(self) -> Any:
        """The value below which the statistic stays with probability `level`; NaN without degrees of freedom."""
        return chi_square_threshold(self.level, self.degrees_of_freedom)[()]

    @property
    def p_value(self) -> Any:
        """Probability of a statistic at least this large without gross errors."""
        return chi_square_p(self.statistic, self.degrees_of_freedom)[()]

    @property
    def alarm(self) -> Any:
        """Whether the statistic is above its threshold."""
        return self.statistic > self.threshold

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line for each row: statistic, threshold, degrees of freedom, p value and alarm."""
        import pandas as pd

        columns = ("statistic", "threshold", "degrees_of_freedom", "p_value", "alarm")
        data = {name.replace("_", " "): np.atleast_1d(getattr(self, name)) for name in columns}
        return pd.DataFrame(data, index=row_index(self.labels, np.arange(len(self.labels))))

    def __repr__(self) -> str:
        if np.ndim(self.statistic):
            return f"Global test at {self.level:.4g}: alarm in {np.sum(self.alarm)} of {len(self.statistic)} rows"
        if not self.degrees_of_freedom:
            return f"Global test at {self.level:.4g}: nothing to test"
        freedom = f"χ², {self.degrees_of_freedom} degree{'s' if self.degrees_of_freedom != 1 else ''} of freedom"
        numbers = f"{self.statistic:.4f} {'>' if self.alarm else '≤'} {self.threshold:.4f} ({freedom})"
        return f"Global test at {self.level:.4g}: {numbers}: {'alarm' if self.alarm else 'no alarm'}"


@dataclass(frozen=True, eq=False)
class GrossErrorTest:
    """A test with one standard normal number for each candidate, and the estimated size of its gross error::

        z_j = ŝ_j / std(ŝ_j),    ŝ_j = −f_jᵀ e / ‖f_j‖²,    std(ŝ_j) = 1 / ‖f_j‖        (R7)

    z² is twice the logarithm of the likelihood ratio. The sign of a bias is that of `measured − true`, the sign of a
    leak that of the balance's residual `A x + B y − b`. For one row that was given on its own, the properties return
    results without the first axis.

    Args:
        title: Name of the test.
        candidates: Sensors or balances, c of them.
        z: Shape `(rows, c)`; NaN for candidates that cannot be tested.
        std: Standard deviations of the estimated sizes, shape `(rows, c)`.
        limit: Critical value of |z|, shape `(rows,)`; NaN where nothing can be tested.
        selection_limit: The value that |z| of a row's suspect had to exceed for it to be the suspect, shape `(rows,)`.
        level: Confidence level.
        correction: Correction for many tests, so that `level` holds for all candidates of a row together; None for
            each.
        labels: Name of each row.
        single: Whether one row was given on its own.
    """

    title: str
    candidates: tuple[Candidate, ...]
    z: Array
    std: Array
    limit: Array
    selection_limit: Array
    level: float
    correction: str | None
    labels: Any
    single: bool

    @property
    def statistic(self) -> Array:
        """`z`, NaN for candidates that cannot be tested, shape `(rows, c)`."""
        return self._without_row_axis(self.z)

    @property
    def critical_value(self) -> Any:
        """The value below which |z| stays without gross errors, shape `(rows,)`; NaN where nothing can be tested."""
        return self._without_row_axis(self.limit)

    @property
    def size(self) -> Array:
        """Estimated bias or leak in its unit, shape `(rows, c)`; unbiased if it is the only gross error of the row."""
        return self._without_row_axis(self.z * self.std)

    @property
    def size_std(self) -> Array:
        """Standard deviation of `size`, shape `(rows, c)`."""
        return self._without_row_axis(self.std)

    @property
    def p_value(self) -> Array:
        """Probability of a |z| at least this large without gross errors, for one candidate alone, `(rows, c)`."""
        return self._without_row_axis(normal_p(self.z))

    @property
    def alarms(self) -> NDArray[np.bool_]:
        """Whether |z| is above its critical value, shape `(rows, c)`."""
        return self._without_row_axis(np.abs(self.z) > self.limit[:, None])

    @cached_property
    def worst(self) -> NDArray[np.intp]:
        """Position of the candidate with the largest |z| of each row, the first of equals; −1 without an alarm."""
        return worst_candidates(self.z, self.limit)

    @property
    def suspect(self) -> Any:
        """Name of the candidate with the largest |z| of a row, if that is an alarm; None otherwise, shape `(rows,)`."""
        names = np.array([*(candidate.name for candidate in self.candidates), None], dtype=object)
        return self._without_row_axis(names[self.worst])

    def of_rows(self, rows: slice) -> GrossErrorTest:
        """Select consecutive rows of the test."""
        parts = {name: getattr(self, name)[rows] for name in ("z", "std", "limit", "selection_limit", "labels")}
        return replace(self, **parts, single=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line for each candidate of a single row, or one for each alarm of several rows."""
        import pandas as pd

        alarms = np.abs(self.z) > self.limit[:, None]
        rows, columns = np.nonzero(np.ones_like(alarms) if self.single else alarms)
        data = {
            "name": [self.candidates[j].name for j in columns],
            "kind": [self.candidates[j].kind for j in columns],
            "unit": [self.candidates[j].unit or "" for j in columns],
            "statistic": self.z[rows, columns],
            "critical value": self.limit[rows],
            "p value": normal_p(self.z[rows, columns]),
            "alarm": alarms[rows, columns],
            "size": (self.z * self.std)[rows, columns],
            "size std": self.std[rows, columns],
        }
        return pd.DataFrame(data, index=row_index(self.labels, rows))

    def summary(self) -> pd.DataFrame:
        """Return a table with one line for each candidate: rows tested, alarms, rows as the worst, estimated size.

        `size` is a mean over all rows, unbiased for an error that is always there. `size at alarms` is a mean over
        alarms alone, and too large where only some rows have the error.
        """
        import pandas as pd

        counts = self._counts()
        tested, alarms = np.maximum(counts["rows"], 1), np.maximum(counts["alarms"], 1)
        mean = counts["sum"] / tested
        scatter = np.clip(counts["squares"] - tested * np.square(mean), 0.0, None) / np.maximum(tested - 1, 1)
        data = {
            "kind": [candidate.kind for candidate in self.candidates],
            "unit": [candidate.unit or "" for candidate in self.candidates],
            "rows": counts["rows"],
            "alarms": counts["alarms"],
            "share": counts["alarms"] / tested,
            "worst": counts["worst"],
            "size at alarms": np.where(counts["alarms"] > 0, counts["sum at alarms"] / alarms, np.nan),
            "size": np.where(counts["rows"] > 0, mean, np.nan),
            "size std": np.where(counts["rows"] > 1, np.sqrt(scatter / tested), np.nan),
        }
        names = [candidate.name for candidate in self.candidates]
        return pd.DataFrame(data, index=pd.Index(names, name="name"))

    def _counts(self) -> dict[str, NDArray[Any]]:
        """Sum alarms and sizes of each candidate over the rows, portion by portion."""
        columns, count = ("sum", "squares", "sum at alarms"), len(self.candidates)
        sums: dict[str, NDArray[Any]] = {name: np.zeros(count) for name in columns}
        sums |= {name: np.zeros(count, np.intp) for name in ("rows", "alarms")}
        for start in range(0, len(self.z), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            z, alarms = self.z[rows], np.abs(self.z[rows]) > self.limit[rows, None]
            size = np.where(np.isnan(z), 0.0, z * self.std[rows])
            sums["rows"] += np.count_nonzero(~np.isnan(z), axis=0)
            sums["alarms"] += alarms.sum(axis=0)
            sums["sum"] += size.sum(axis=0)
            sums["squares"] += np.square(size).sum(axis=0)
            sums["sum at alarms"] += np.where(alarms, size, 0.0).sum(axis=0)
        sums["worst"] = np.bincount(self.worst + 1, minlength=count + 1)[1:]
        return sums

    def __repr__(self) -> str:
        head = f"{self.title} at {self.level:.4g} {CORRECTED[self.correction]}"
        if not self.single:
            alarms = (np.abs(self.z) > self.limit[:, None]).sum(axis=0)
            counts = zip(self.candidates, alarms, strict=True)
            lines = [f"{candidate}: alarm in {count} of {len(self.z)} rows" for candidate, count in counts]
            return "\n  ".join([head, *lines])
        numbers = zip(self.candidates, self.z[0], self.std[0], strict=True)
        factor, limit = half_width(self.level), float(self.limit[0])
        if np.isnan(limit):
            return f"{head}: nothing to test"
        lines = [_line(candidate, z, z * std, factor * std, limit) for candidate, z, std in numbers]
        return "\n  ".join([f"{head}: |z| ≤ {limit:.4g}; ± half of the {100 * self.level:.4g} % interval", *lines])

    def _without_row_axis(self, values: NDArray[Any]) -> Any:
        return values[0] if self.single else values


def worst_candidates(z: Array, limit: Array) -> NDArray[np.intp]:
    """Find the position of the largest |z| of each row, the first of equals, or −1 where none exceeds the limit.

    Args:
        z: Statistics of the candidates, shape `(rows, c)`; NaN where one cannot be tested.
        limit: Critical value of each row, shape `(rows,)`.
    """
    worst = np.full(len(z), -1)
    for start in range(0, len(z), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        size = np.nan_to_num(np.abs(z[rows]), nan=-1.0)
        largest = size.max(axis=1, initial=-1.0, keepdims=True)
        alarm = largest[:, 0] > limit[rows]
        worst[rows][alarm] = (size[alarm] >= (1 - EQUAL_WITHIN) * largest[alarm]).argmax(axis=1)
    return worst


def row_index(labels: Any, rows: NDArray[np.intp]) -> pd.Index:
    """Return the labels of selected rows as a pandas index with a name.

    Args:
        labels: Labels of all rows.
        rows: Positions of the selected rows.
    """
    import pandas as pd

    selected = labels[rows]
    return (
        selected
        if isinstance(selected, pd.MultiIndex)
        else pd.Index(selected, name=getattr(selected, "name", None) or "row")
    )


def _line(candidate: Candidate, z: float, size: float, half: float, limit: float) -> str:
    """Describe the test of one candidate in a line."""
    if np.isnan(z):
        return f"{candidate}: cannot be tested"
    return f"{candidate}: z = {z:.4g}, {size_in_words(candidate, size, half)}" + (", ALARM" if abs(z) > limit else "")


def size_in_words(candidate: Candidate, size: float, half: float) -> str:
    """Describe a bias or a leak by its size, half of its interval, and its unit.

    Args:
        candidate: The sensor or balance.
        size: Size of the gross error.
        half: Half of its interval.
    """
    noun = "bias" if candidate.kind == SENSOR else "leak"
    return f"{noun} {size:.4g} ± {half:.4g}" + (f" {candidate.unit}" if candidate.unit else "")
