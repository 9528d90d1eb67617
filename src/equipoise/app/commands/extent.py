"""Rows whose inputs lie beyond those that a model was trained on: counted as a table goes by, and told at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.screen import number, remark

if TYPE_CHECKING:
    from equipoise.estimator import ConstrainedBNNRegressor


@dataclass(frozen=True)
class Extent:
    """How many rows, how many lie beyond, and in which inputs; what was left out, passed over or is doubtful."""

    rows: int = 0
    beyond: int = 0
    inputs: frozenset[str] = frozenset()
    left_out: int = 0
    passed_over: int = 0
    doubtful: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: ConstrainedBNNRegressor, X: Any) -> Extent:
        """Of some rows, as the model takes them."""
        import numpy as np

        from equipoise.app.report import input_names

        beyond = model.standardizer_.beyond(np.asarray(X, dtype=float))
        outside = np.flatnonzero(beyond.any(0))
        return cls(len(beyond), int(beyond.any(1).sum()), frozenset(input_names(model)[j] for j in outside))

    def __add__(self, other: Extent) -> Extent:
        rows, beyond = self.rows + other.rows, self.beyond + other.beyond
        left_out, passed_over = self.left_out + other.left_out, self.passed_over + other.passed_over
        inputs, doubtful = self.inputs | other.inputs, self.doubtful | other.doubtful
        return Extent(rows, beyond, inputs, left_out, passed_over, doubtful)

    def tell(self, model: ConstrainedBNNRegressor) -> None:
        """A remark if any row lies beyond."""
        from equipoise.app.report import input_names

        s = model.standardizer_
        if not self.beyond or s.x_lowest is None or s.x_highest is None:
            return
        ranges = zip(input_names(model), s.x_lowest, s.x_highest, strict=False)  # known columns come after
        seen = [f"{name!r} from {number(a, 6)} to {number(b, 6)}" for name, a, b in ranges if name in self.inputs]
        rows = f"{self.beyond} of {self.rows} rows have inputs beyond those trained on ({', '.join(seen)})"
        remark(f"{rows}: neither predictions nor their intervals can be relied on there.")
