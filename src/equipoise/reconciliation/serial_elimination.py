"""Serial elimination: several gross errors of a row are found one after the other.

The worst candidate is eliminated until the global test passes. To eliminate a sensor is to let its bias have any value,
to eliminate a balance is to let its leak have any value: in both cases the whitened residuals lose their component
along the candidate's direction (R9). No reconciliation is repeated; all rows with an alarm are processed together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.reconciliation.gross_error_results import EQUAL_WITHIN, Candidate, row_index, size_in_words
from equipoise.reconciliation.gross_errors import candidate_directions, candidates_of, count_distinct, scores
from equipoise.reconciliation.significance import chi_square_threshold, critical_value, half_width
from equipoise.reconciliation.solution import PIECE_NUMBERS, Solution

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
NO_ALARM, PASSED = "no alarm", "the global test passes"
NOTHING, MOST, EXHAUSTED = "no candidate stands out", "as many as allowed", "no redundancy is left"
DEPENDENT = 1e-6  # remaining fraction of a direction's length below which it depends on eliminated ones


@dataclass(frozen=True)
class Suspect:
    """A gross error found by serial elimination.

    Args:
        row: Position of the row.
        step: Step of the elimination in this row, from 1.
        candidate: The sensor or balance.
        statistic: Its z at that step.
        size, size_std: Estimated bias or leak and its standard deviation, all errors of the row being estimated
            together.
        alike: Other candidates that would explain the data as well.
        level: Probability of the interval that is printed.
    """

    row: int
    step: int
    candidate: Candidate
    statistic: float
    size: float
    size_std: float
    alike: tuple[Candidate, ...]
    level: float = 0.95

    def __str__(self) -> str:
        others = f"; it could as well be {' or '.join(map(str, self.alike))}" if self.alike else ""
        size = size_in_words(self.candidate, self.size, half_width(self.level) * self.size_std)
        return f"{self.candidate}: z = {self.statistic:.4g}, {size}{others}"


@dataclass(frozen=True, eq=False)
class Elimination:
    """The result of serial elimination.

    Args:
        suspects: All gross errors that were found, by row and step.
        candidates: All sensors and balances that were tested.
        statistic: Statistic of the global test after elimination, shape `(rows,)`.
        degrees_of_freedom: Its remaining degrees of freedom, shape `(rows,)`.
        reasons: Why elimination stopped, or that there was no alarm, shape `(rows,)`.
        level: Confidence level of all tests.
        labels: Name of each row.
        single: Whether one row was given on its own.
    """

    suspects: tuple[Suspect, ...]
    candidates: tuple[Candidate, ...]
    statistic: Array
    degrees_of_freedom: NDArray[np.intp]
    reasons: NDArray[np.object_]
    level: float
    labels: Any
    single: bool

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one line for each gross error."""
        import pandas as pd

        suspects = self.suspects
        data = {
            "name": [suspect.candidate.name for suspect in suspects],
            "kind": [suspect.candidate.kind for suspect in suspects],
            "unit": [suspect.candidate.unit or "" for suspect in suspects],
            "step": [suspect.step for suspect in suspects],
            "statistic": [suspect.statistic for suspect in suspects],
            "size": [suspect.size for suspect in suspects],
            "size std": [suspect.size_std for suspect in suspects],
            "could as well be": [", ".join(other.name for other in suspect.alike) for suspect in suspects],
        }
        return pd.DataFrame(data, index=row_index(self.labels, np.array([s.row for s in suspects], np.intp)))

    def summary(self) -> pd.DataFrame:
        """Return a table with one line for each candidate: in how many rows it was found, and its mean size there."""
        import pandas as pd

        sizes: dict[Candidate, list[float]] = {candidate: [] for candidate in self.candidates}
        for suspect in self.suspects:
            sizes[suspect.candidate].append(suspect.size)
        lines = [
            (c.kind, c.unit or "", len(row_sizes), len(row_sizes) / len(self.reasons), *_mean_and_error(row_sizes))
            for c, row_sizes in sizes.items()
        ]
        columns = ["kind", "unit", "rows", "share", "size", "size std"]
        return pd.DataFrame(lines, columns=columns, index=pd.Index([c.name for c in sizes], name="name"))

    def __repr__(self) -> str:
        if self.single:
            head = f"Serial elimination at {self.level:.4g}: {self.reasons[0]}"
            return "\n  ".join([head, *map(str, self.suspects)])
        rows = len({s.row for s in self.suspects})
        head = f"Serial elimination at {self.level:.4g}: gross errors in {rows} of {len(self.reasons)} rows"
        counts = Counter(s.candidate for s in self.suspects)
        return "\n  ".join([head, *(f"{c}: in {counts[c]} rows" for c in self.candidates if counts[c])])


def _mean_and_error(sizes: list[float]) -> tuple[float, float]:
    """Return the mean of sizes and its standard error, NaN where there are too few."""
    mean = float(np.mean(sizes)) if sizes else float("nan")
    return mean, float(np.std(sizes, ddof=1) / np.sqrt(len(sizes))) if len(sizes) > 1 else float("nan")


def serial_elimination(
    solution: Solution, level: float, correction: str | None, *, leaks: bool, most: int | None
) -> Elimination:
    """Eliminate the worst candidate of each row until its global test passes.

    ::

        e ← e − a aᵀ e,    f_j ← f_j − a aᵀ f_j,    a = f/‖f‖ of the candidate        (R9)

    Args:
        solution: The solution of the table.
        level: Confidence level of the global test, and of the tests of all candidates of a row together.
        correction: Correction for many candidates: "sidak", "bonferroni" or None.
        leaks: Whether balances are candidates too.
        most: Largest number of eliminations in a row; None for as many as there are degrees of freedom.
    """
    table, candidates = solution.measurements, candidates_of(solution, leaks=leaks)
    statistic, freedom = np.zeros(len(table)), np.zeros(len(table), np.intp)
    reasons = np.full(len(table), NO_ALARM, dtype=object)
    suspects: list[Suspect] = []
    for piece in solution.pieces():
        positions = np.arange(len(table))[piece.rows]
        statistic[positions] = np.square(piece.whitened).sum(axis=1)
        freedom[positions] = piece.whitened.shape[1]
        failing = np.flatnonzero(statistic[positions] > chi_square_threshold(level, freedom[positions]))
        directions = candidate_directions(solution, piece, leaks=leaks) if len(failing) else np.zeros((0, 1))
        for part in _parts(failing, directions.shape[-2] * directions.shape[-1]):
            part_directions = directions[part] if directions.ndim == 3 else np.tile(directions, (len(part), 1, 1))
            search = _Search(piece.whitened[part], part_directions, level, correction).run(most)
            rows = positions[part]
            statistic[rows], freedom[rows], reasons[rows] = search.statistic, search.freedom, search.reasons
            suspects += search.suspects(rows, candidates)
    ordered = tuple(sorted(suspects, key=lambda suspect: (suspect.row, suspect.step)))
    return Elimination(ordered, candidates, statistic, freedom, reasons, level, table.labels, table.single)


def _parts(rows: NDArray[np.intp], numbers: int) -> Iterator[NDArray[np.intp]]:
    """Split rows into parts whose directions fit into memory."""
    count = max(1, PIECE_NUMBERS // max(numbers, 1))
    for start in range(0, len(rows), count):
        yield rows[start : start + count]


@dataclass(frozen=True, eq=False)
class _Step:
    """One step of the elimination in several rows.

    Args:
        rows: Positions of the rows in which a candidate was eliminated.
        chosen: Position of that candidate in each row.
        z: Its z.
        alike: Candidates whose directions vanish with that of the eliminated one, shape `(rows, c)`.
    """

    rows: NDArray[np.intp]
    chosen: NDArray[np.intp]
    z: Array
    alike: NDArray[np.bool_]


class _Search:
    """Serial elimination in several rows at once: whitened residuals `(rows, f)` and directions `(rows, f, c)`."""

    def __init__(self, whitened: Array, directions: Array, level: float, correction: str | None):
        self.whitened, self.directions = whitened, directions
        self.level, self.correction = level, correction
        self.e, self.f = whitened.copy(), directions.copy()
        self.shortest = DEPENDENT * np.linalg.norm(directions, axis=1)
        self.freedom = np.full(len(whitened), whitened.shape[1])
        self.reasons = np.full(len(whitened), PASSED, dtype=object)
        self.steps: list[_Step] = []

    @property
    def statistic(self) -> Array:
        """Statistic of the global test of each row after the eliminations so far, shape `(rows,)`."""
        return np.square(self.e).sum(axis=1)

    def run(self, most: int | None) -> _Search:
        """Eliminate at most `most` candidates from each row, any number if None, and return the search itself."""
        rows = np.arange(len(self.e))
        while len(rows):
            if most is not None and len(self.steps) >= most:
                self.reasons[rows] = MOST
                return self
            rows = self._eliminate(rows)
            exhausted = self.freedom[rows] == 0
            self.reasons[rows[exhausted]] = EXHAUSTED
            fails = self.statistic[rows] > chi_square_threshold(self.level, self.freedom[rows])
            rows = rows[fails & ~exhausted]
        return self

    def _eliminate(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Eliminate the worst candidate of each row in which one is significant, and return those rows."""
        length = np.linalg.norm(self.f[rows], axis=1)
        testable = length > self.shortest[rows]
        z = np.where(testable, scores(self.e[rows], self.f[rows]) / np.where(testable, length, 1.0), 0.0)
        size = np.abs(z)
        chosen = (size >= (1 - EQUAL_WITHIN) * size.max(axis=1, keepdims=True)).argmax(axis=1)  # the first of equals
        n_tests = count_distinct(np.where(testable[:, None, :], self.f[rows], 0.0))
        limit = critical_value(self.level, n_tests, self.correction)
        significant = size[np.arange(len(rows)), chosen] > limit
        self.reasons[rows[~significant]] = NOTHING
        rows, chosen, z, testable = rows[significant], chosen[significant], z[significant], testable[significant]
        self._project(rows, chosen)
        alike = testable & (np.linalg.norm(self.f[rows], axis=1) <= self.shortest[rows])
        alike[np.arange(len(rows)), chosen] = False
        self.steps.append(_Step(rows, chosen, z[np.arange(len(rows)), chosen], alike))
        return rows

    def _project(self, rows: NDArray[np.intp], chosen: NDArray[np.intp]) -> None:
        """Remove the component along the chosen candidate's direction from residuals and directions (R9)."""
        unit = self.f[rows, :, chosen]
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        self.e[rows] -= unit * (unit * self.e[rows]).sum(axis=1, keepdims=True)  # R9
        self.f[rows] -= unit[:, :, None] * (unit[:, None, :] @ self.f[rows])  # R9
        self.freedom[rows] -= 1

    def suspects(self, positions: NDArray[np.intp], candidates: tuple[Candidate, ...]) -> list[Suspect]:
        """List the gross errors that were found, with the errors of each row estimated together.

        Args:
            positions: Positions of the rows in the table.
            candidates: The candidates for gross errors.
        """
        steps_of_rows: list[list[tuple[int, float, NDArray[np.bool_]]]] = [[] for _ in positions]
        for step in self.steps:
            for row, chosen, z, alike in zip(step.rows, step.chosen, step.z, step.alike, strict=True):
                steps_of_rows[row].append((int(chosen), float(z), alike))
        return [
            suspect
            for row, steps in enumerate(steps_of_rows)
            for suspect in self._suspects_of_row(row, steps, positions, candidates)
        ]

    def _suspects_of_row(
        self,
        row: int,
        steps: list[tuple[int, float, NDArray[np.bool_]]],
        positions: NDArray[np.intp],
        candidates: tuple[Candidate, ...],
    ) -> Iterator[Suspect]:
        """Estimate the sizes of all gross errors of one row together: `ŝ = −(Fᵀ F)⁻¹ Fᵀ e`."""
        if not steps:
            return
        F = self.directions[row][:, [chosen for chosen, _, _ in steps]]
        length = np.linalg.norm(F, axis=0)
        unit = F / length
        inverse = np.linalg.solve(unit.T @ unit, unit.T) / length[:, None]
        sizes, stds = -(inverse @ self.whitened[row]), np.linalg.norm(inverse, axis=1)
        for number, ((chosen, z, alike), size, std) in enumerate(zip(steps, sizes, stds, strict=True), start=1):
            alternatives = tuple(candidates[j] for j in np.flatnonzero(alike))
            yield Suspect(
                int(positions[row]), number, candidates[chosen], z, float(size), float(std), alternatives, self.level
            )
