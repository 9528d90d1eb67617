"""What tests for gross errors say: which statistics are too large, and how large the errors would be."""

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
AT_ONCE = 2**14  # rows that are counted together
SAME = 1e-9  # part by which two |z| may differ that are the same but for rounding
CORRECTED = {"sidak": "together, by Šidák", "bonferroni": "together, by Bonferroni", None: "each"}


@dataclass(frozen=True)
class Candidate:
    """Where a gross error may be.

    Args:
        name: Of a variable, or of a balance.
        kind: `sensor` for a biased one, `balance` for a leak.
        unit: Of the size of the error, if known.
    """

    name: str
    kind: str
    unit: str | None

    def __str__(self) -> str:
        unit = f" [{self.unit}]" if self.unit and column_unit(self.name) != self.unit else ""
        return f"{self.kind} {self.name!r}{unit}"


@dataclass(frozen=True, eq=False)
class GlobalTest:
    """Whether rows obey their balances as well as the errors of their sensors let expect::

        γ = eᵀ e ~ χ²    with as many degrees of freedom as e has numbers        (R5)

    Args:
        statistic: `γ`: a number, or shape `(rows,)`.
        degrees_of_freedom: Independent balances between measured variables, likewise.
        level: Confidence level.
        labels: Name of each row.
    """

    statistic: Any
    degrees_of_freedom: Any
    level: float
    labels: Any

    @property
    def threshold(self) -> Any:
        """What the statistic stays below with probability `level`; NaN where nothing can be tested."""
        return chi_square_threshold(self.level, self.degrees_of_freedom)[()]

    @property
    def p_value(self) -> Any:
        """Probability of a statistic at least this large if nothing is wrong."""
        return chi_square_p(self.statistic, self.degrees_of_freedom)[()]

    @property
    def alarm(self) -> Any:
        """Whether the statistic is above its threshold."""
        return self.statistic > self.threshold

    def to_frame(self) -> pd.DataFrame:
        """One line for each row of the table."""
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
    """One standard normal number for each candidate, and what it says::

        z_j = ŝ_j / std(ŝ_j),    ŝ_j = −f_jᵀ e / ‖f_j‖²,    std(ŝ_j) = 1 / ‖f_j‖        (R7)

    z² is twice the logarithm of the likelihood ratio. The sign of a bias is that of `measured − true`, the sign of a
    leak that of the balance's residual `A x + B y − b`. For one row that was given on its own, the first axis is
    missing in what the properties return.

    Args:
        title: Which test.
        candidates: Sensors or balances, c of them.
        z: Shape `(rows, c)`; NaN for what cannot be tested.
        std: Standard deviations of the estimated sizes, shape `(rows, c)`.
        limit: What |z| stays below, `(rows,)`.
        least: What |z| of the suspect of a row had to exceed for it to be the suspect, `(rows,)`.
        level, correction: The probability of that, for all candidates of a row together or, without a correction, each.
        labels: Name of each row.
        single: Whether one row was given on its own.
    """

    title: str
    candidates: tuple[Candidate, ...]
    z: Array
    std: Array
    limit: Array
    least: Array
    level: float
    correction: str | None
    labels: Any
    single: bool

    @property
    def statistic(self) -> Array:
        """`z`, NaN for what cannot be tested, shape `(rows, c)`."""
        return self._given(self.z)

    @property
    def critical_value(self) -> Any:
        """What |z| stays below, shape `(rows,)`; NaN where nothing can be tested."""
        return self._given(self.limit)

    @property
    def size(self) -> Array:
        """Estimated bias or leak, shape `(rows, c)`; unbiased if this candidate is the only gross error."""
        return self._given(self.z * self.std)

    @property
    def size_std(self) -> Array:
        """Standard deviation of `size`."""
        return self._given(self.std)

    @property
    def p_value(self) -> Array:
        """Probability of a |z| at least this large, for one candidate alone."""
        return self._given(normal_p(self.z))

    @property
    def alarms(self) -> NDArray[np.bool_]:
        """Whether |z| is above its critical value, shape `(rows, c)`."""
        return self._given(np.abs(self.z) > self.limit[:, None])

    @cached_property
    def worst(self) -> NDArray[np.intp]:
        """Position of the candidate with the largest |z| of each row, the first of equals, or −1 without an alarm."""
        return worst_of(self.z, self.limit)

    @property
    def suspect(self) -> Any:
        """Name of the candidate with the largest |z| of a row, if that is an alarm; None otherwise, shape `(rows,)`."""
        names = np.array([*(candidate.name for candidate in self.candidates), None], dtype=object)
        return self._given(names[self.worst])

    def of_rows(self, rows: slice) -> GrossErrorTest:
        """The same test of some rows of the table."""
        parts = {name: getattr(self, name)[rows] for name in ("z", "std", "limit", "least", "labels")}
        return replace(self, **parts, single=False)

    def to_frame(self) -> pd.DataFrame:
        """One line for each candidate of one row, or for each alarm in a table."""
        import pandas as pd

        alarms = np.abs(self.z) > self.limit[:, None]
        rows, chosen = np.nonzero(np.ones_like(alarms) if self.single else alarms)
        data = {
            "name": [self.candidates[j].name for j in chosen],
            "kind": [self.candidates[j].kind for j in chosen],
            "unit": [self.candidates[j].unit or "" for j in chosen],
            "statistic": self.z[rows, chosen],
            "critical value": self.limit[rows],
            "p value": normal_p(self.z[rows, chosen]),
            "alarm": alarms[rows, chosen],
            "size": (self.z * self.std)[rows, chosen],
            "size std": self.std[rows, chosen],
        }
        return pd.DataFrame(data, index=row_index(self.labels, rows))

    def summary(self) -> pd.DataFrame:
        """One line for each candidate: in how many rows it was tested, gave alarm, was the worst; its estimated size.

        The size over all rows is unbiased for an error that is always there; over alarms alone it is what people see,
        and too large where only some of the errors are.
        """
        import pandas as pd

        counts = self._counts()
        tested, seen = np.maximum(counts["rows"], 1), np.maximum(counts["alarms"], 1)
        mean = counts["sum"] / tested
        scatter = np.clip(counts["squares"] - tested * np.square(mean), 0.0, None) / np.maximum(tested - 1, 1)
        data = {
            "kind": [candidate.kind for candidate in self.candidates],
            "unit": [candidate.unit or "" for candidate in self.candidates],
            "rows": counts["rows"],
            "alarms": counts["alarms"],
            "share": counts["alarms"] / tested,
            "worst": counts["worst"],
            "size at alarms": np.where(counts["alarms"] > 0, counts["sum at alarms"] / seen, np.nan),
            "size": np.where(counts["rows"] > 0, mean, np.nan),
            "size std": np.where(counts["rows"] > 1, np.sqrt(scatter / tested), np.nan),
        }
        names = [candidate.name for candidate in self.candidates]
        return pd.DataFrame(data, index=pd.Index(names, name="name"))

    def _counts(self) -> dict[str, NDArray[Any]]:
        """Sums over the rows for each candidate, piece by piece."""
        columns, count = ("sum", "squares", "sum at alarms"), len(self.candidates)
        sums: dict[str, NDArray[Any]] = {name: np.zeros(count) for name in columns}
        sums |= {name: np.zeros(count, np.intp) for name in ("rows", "alarms")}
        for start in range(0, len(self.z), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
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
            seen = (np.abs(self.z) > self.limit[:, None]).sum(axis=0)
            counts = zip(self.candidates, seen, strict=True)
            lines = [f"{candidate}: alarm in {count} of {len(self.z)} rows" for candidate, count in counts]
            return "\n  ".join([head, *lines])
        numbers = zip(self.candidates, self.z[0], self.std[0], strict=True)
        factor, limit = half_width(self.level), float(self.limit[0])
        if np.isnan(limit):
            return f"{head}: nothing to test"
        lines = [_line(candidate, z, z * std, factor * std, limit) for candidate, z, std in numbers]
        return "\n  ".join([f"{head}: |z| ≤ {limit:.4g}; ± half of the {100 * self.level:.4g} % interval", *lines])

    def _given(self, values: NDArray[Any]) -> Any:
        return values[0] if self.single else values


def worst_of(z: Array, limit: Array) -> NDArray[np.intp]:
    """Position of the largest |z| of each row, the first of equals, or −1 where none is above the limit."""
    worst = np.full(len(z), -1)
    for start in range(0, len(z), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        size = np.nan_to_num(np.abs(z[rows]), nan=-1.0)
        largest = size.max(axis=1, initial=-1.0, keepdims=True)
        alarm = largest[:, 0] > limit[rows]
        worst[rows][alarm] = (size[alarm] >= (1 - SAME) * largest[alarm]).argmax(axis=1)
    return worst


def row_index(labels: Any, rows: NDArray[np.intp]) -> pd.Index:
    """The labels of some rows as an index that has a name."""
    import pandas as pd

    chosen = labels[rows]
    return (
        chosen if isinstance(chosen, pd.MultiIndex) else pd.Index(chosen, name=getattr(chosen, "name", None) or "row")
    )


def _line(candidate: Candidate, z: float, size: float, half: float, limit: float) -> str:
    if np.isnan(z):
        return f"{candidate}: cannot be tested"
    return f"{candidate}: z = {z:.4g}, {size_in_words(candidate, size, half)}" + (", ALARM" if abs(z) > limit else "")


def size_in_words(candidate: Candidate, size: float, half: float) -> str:
    """A bias or a leak with half of its interval and its unit."""
    what = "bias" if candidate.kind == SENSOR else "leak"
    return f"{what} {size:.4g} ± {half:.4g}" + (f" {candidate.unit}" if candidate.unit else "")
