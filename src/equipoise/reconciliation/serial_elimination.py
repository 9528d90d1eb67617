"""Several gross errors, found one after the other: the worst candidate is taken out until nothing is wrong any more.

Taking a sensor out is the same as letting its bias be anything, and taking a balance out as letting its leak be
anything: in both cases the whitened residuals lose what lies in the candidate's direction (R9). So no reconciliation is
repeated; all rows with an alarm are worked on together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from equipoise.reconciliation.alarms import Candidate, row_index, size_in_words
from equipoise.reconciliation.gross_errors import candidate_directions, candidates_of, distinct, signed
from equipoise.reconciliation.significance import chi_square_threshold, critical_value, half_width
from equipoise.reconciliation.solution import PIECE, Solution

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
NO_ALARM, PASSED = "no alarm", "the global test passes"
NOTHING, MOST, EXHAUSTED = "no candidate stands out", "as many as allowed", "no redundancy is left"
DEPENDENT = 1e-6  # length of a direction, as part of the original, below which it says nothing new


@dataclass(frozen=True)
class Suspect:
    """A gross error that was found.

    Args:
        row: Position of the row.
        step: When it was found in its row, from 1.
        candidate: The sensor or balance.
        statistic: Its z at that step.
        size, size_std: The estimated bias or leak, all errors of the row being estimated together.
        alike: Others that would explain the data as well.
        level: Probability of the interval that is shown.
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
        found = size_in_words(self.candidate, self.size, half_width(self.level) * self.size_std)
        return f"{self.candidate}: z = {self.statistic:.4g}, {found}{others}"


@dataclass(frozen=True, eq=False)
class Elimination:
    """What serial elimination found.

    Args:
        suspects: All gross errors, by row and step.
        candidates: All that were looked at.
        statistic: Of the global test after elimination, shape `(rows,)`.
        degrees_of_freedom: That it has left, shape `(rows,)`.
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
        """One line for each gross error."""
        import pandas as pd

        found = self.suspects
        data = {
            "name": [suspect.candidate.name for suspect in found],
            "kind": [suspect.candidate.kind for suspect in found],
            "unit": [suspect.candidate.unit or "" for suspect in found],
            "step": [suspect.step for suspect in found],
            "statistic": [suspect.statistic for suspect in found],
            "size": [suspect.size for suspect in found],
            "size std": [suspect.size_std for suspect in found],
            "could as well be": [", ".join(other.name for other in suspect.alike) for suspect in found],
        }
        return pd.DataFrame(data, index=row_index(self.labels, np.array([s.row for s in found], np.intp)))

    def summary(self) -> pd.DataFrame:
        """One line for each candidate: in how many rows it was found, and its estimated size there."""
        import pandas as pd

        sizes: dict[Candidate, list[float]] = {candidate: [] for candidate in self.candidates}
        for suspect in self.suspects:
            sizes[suspect.candidate].append(suspect.size)
        lines = [
            (c.kind, c.unit or "", len(found), len(found) / len(self.reasons), *_moments(found))
            for c, found in sizes.items()
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


def _moments(sizes: list[float]) -> tuple[float, float]:
    """Mean of some sizes and its standard error, NaN where there are too few."""
    mean = float(np.mean(sizes)) if sizes else float("nan")
    return mean, float(np.std(sizes, ddof=1) / np.sqrt(len(sizes))) if len(sizes) > 1 else float("nan")


def serial_elimination(
    solution: Solution, level: float, correction: str | None, *, leaks: bool, most: int | None
) -> Elimination:
    """Take out the worst candidate of each row until its global test passes.

    ::

        e ← e − a aᵀ e,    f_j ← f_j − a aᵀ f_j,    a = f/‖f‖ of the candidate        (R9)

    Args:
        solution: What was reconciled.
        level: Of the global test, and of the test of all candidates of a row together.
        correction: For many candidates.
        leaks: Whether balances are candidates too.
        most: How many may be taken out of a row; None for as many as there are degrees of freedom.
    """
    given, candidates = solution.measurements, candidates_of(solution, leaks=leaks)
    statistic, freedom = np.zeros(len(given)), np.zeros(len(given), np.intp)
    reasons = np.full(len(given), NO_ALARM, dtype=object)
    suspects: list[Suspect] = []
    for piece in solution.pieces():
        positions = np.arange(len(given))[piece.rows]
        statistic[positions] = np.square(piece.whitened).sum(axis=1)
        freedom[positions] = piece.whitened.shape[1]
        failing = np.flatnonzero(statistic[positions] > chi_square_threshold(level, freedom[positions]))
        directions = candidate_directions(solution, piece, leaks=leaks) if len(failing) else np.zeros((0, 1))
        for some in _portions(failing, directions.shape[-2] * directions.shape[-1]):
            own = directions[some] if directions.ndim == 3 else np.tile(directions, (len(some), 1, 1))
            search = _Search(piece.whitened[some], own, level, correction).run(most)
            rows = positions[some]
            statistic[rows], freedom[rows], reasons[rows] = search.statistic, search.freedom, search.reasons
            suspects += search.suspects(rows, candidates)
    ordered = tuple(sorted(suspects, key=lambda suspect: (suspect.row, suspect.step)))
    return Elimination(ordered, candidates, statistic, freedom, reasons, level, given.labels, given.single)


def _portions(rows: NDArray[np.intp], numbers: int) -> Iterator[NDArray[np.intp]]:
    """Rows in portions of which the directions fit into memory."""
    most = max(1, PIECE // max(numbers, 1))
    for start in range(0, len(rows), most):
        yield rows[start : start + most]


@dataclass(frozen=True, eq=False)
class _Step:
    """Rows from which a candidate was taken, which one, its z, and which others its direction took with it."""

    rows: NDArray[np.intp]
    chosen: NDArray[np.intp]
    z: Array
    alike: NDArray[np.bool_]


class _Search:
    """Serial elimination in some rows at once: whitened residuals `(rows, f)` and directions `(rows, f, c)`."""

    def __init__(self, whitened: Array, directions: Array, level: float, correction: str | None):
        self.whitened, self.directions = whitened, directions
        self.level, self.correction = level, correction
        self.e, self.f = whitened.copy(), directions.copy()
        self.least = DEPENDENT * np.linalg.norm(directions, axis=1)
        self.freedom = np.full(len(whitened), whitened.shape[1])
        self.reasons = np.full(len(whitened), PASSED, dtype=object)
        self.steps: list[_Step] = []

    @property
    def statistic(self) -> Array:
        return np.square(self.e).sum(axis=1)

    def run(self, most: int | None) -> _Search:
        rows = np.arange(len(self.e))
        while len(rows):
            if most is not None and len(self.steps) >= most:
                self.reasons[rows] = MOST
                return self
            rows = self._take_out(rows)
            exhausted = self.freedom[rows] == 0
            self.reasons[rows[exhausted]] = EXHAUSTED
            fails = self.statistic[rows] > chi_square_threshold(self.level, self.freedom[rows])
            rows = rows[fails & ~exhausted]
        return self

    def _take_out(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Take the worst candidate out of each row, and return the rows in which one stands out."""
        length = np.linalg.norm(self.f[rows], axis=1)
        testable = length > self.least[rows]
        z = np.where(testable, signed(self.e[rows], self.f[rows]) / np.where(testable, length, 1.0), 0.0)
        size = np.abs(z)
        chosen = (size >= (1 - 1e-9) * size.max(axis=1, keepdims=True)).argmax(axis=1)  # the first of equals
        n_tests = distinct(np.where(testable[:, None, :], self.f[rows], 0.0))
        limit = critical_value(self.level, n_tests, self.correction)
        stands = size[np.arange(len(rows)), chosen] > limit
        self.reasons[rows[~stands]] = NOTHING
        rows, chosen, z, testable = rows[stands], chosen[stands], z[stands], testable[stands]
        self._project(rows, chosen)
        gone = testable & (np.linalg.norm(self.f[rows], axis=1) <= self.least[rows])
        gone[np.arange(len(rows)), chosen] = False
        self.steps.append(_Step(rows, chosen, z[np.arange(len(rows)), chosen], gone))
        return rows

    def _project(self, rows: NDArray[np.intp], chosen: NDArray[np.intp]) -> None:
        along = self.f[rows, :, chosen]
        along = along / np.linalg.norm(along, axis=1, keepdims=True)
        self.e[rows] -= along * (along * self.e[rows]).sum(axis=1, keepdims=True)  # R9
        self.f[rows] -= along[:, :, None] * (along[:, None, :] @ self.f[rows])  # R9
        self.freedom[rows] -= 1

    def suspects(self, positions: NDArray[np.intp], candidates: tuple[Candidate, ...]) -> list[Suspect]:
        """What was found, with the errors of each row estimated together."""
        found: list[list[tuple[int, float, NDArray[np.bool_]]]] = [[] for _ in positions]
        for step in self.steps:
            for row, chosen, z, gone in zip(step.rows, step.chosen, step.z, step.alike, strict=True):
                found[row].append((int(chosen), float(z), gone))
        return [
            suspect for row, steps in enumerate(found) for suspect in self._of_row(row, steps, positions, candidates)
        ]

    def _of_row(
        self,
        row: int,
        steps: list[tuple[int, float, NDArray[np.bool_]]],
        positions: NDArray[np.intp],
        candidates: tuple[Candidate, ...],
    ) -> Iterator[Suspect]:
        if not steps:
            return
        F = self.directions[row][:, [chosen for chosen, _, _ in steps]]
        length = np.linalg.norm(F, axis=0)
        unit = F / length
        inverse = np.linalg.solve(unit.T @ unit, unit.T) / length[:, None]
        sizes, stds = -(inverse @ self.whitened[row]), np.linalg.norm(inverse, axis=1)
        for number, ((chosen, z, gone), size, std) in enumerate(zip(steps, sizes, stds, strict=True), start=1):
            others = tuple(candidates[j] for j in np.flatnonzero(gone))
            yield Suspect(
                int(positions[row]), number, candidates[chosen], z, float(size), float(std), others, self.level
            )
