"""One table predicted chunk by chunk: the columns that are added to it, and what its own columns are then called."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.app.commands.console import progress_bar
from equipoise.app.commands.incomplete_rows import CompleteChunks, suggest_skipping
from equipoise.app.commands.row_counts import RowCounts
from equipoise.app.commands.shared_options import SKIP_INCOMPLETE
from equipoise.app.commands.table_rows import append_columns, check_not_empty, frame_or_array, locate_range_errors

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.estimator import ConstrainedBNNRegressor
    from equipoise.prediction import Predictive

CHUNK_ROWS = 8_192  # rows at a time: a multiple of `NOISE_ROWS`
NOISE_ROWS = 64  # rows that share one stream of noise
MOST_DRAWN = 2_000_000  # numbers in memory at a time when draws are written
LEDGER_TERMS = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor")


@dataclass(frozen=True)
class PredictionOptions:
    """The columns that are predicted for every row.

    Attributes:
        measured: Predict measured values, sensor noise included, instead of true ones.
        level: Probability of the intervals.
        samples: Number of joint draws instead of moments; 0 for moments.
        ledger: Add the terms of each variance.
        device: Where torch computes; None is the processor.
        skip_incomplete: Leave out rows in which an input is missing.
    """

    measured: bool = False
    level: float = 0.95
    samples: int = 0
    ledger: bool = False
    device: str | None = None
    skip_incomplete: bool = False


def write_table(model: ConstrainedBNNRegressor, data: Path, output: Path, options: PredictionOptions) -> RowCounts:
    """Predict a table, and write the predictions beside its own columns to a file, whole or not at all.

    Args:
        model: A fitted model.
        data: The table.
        output: The file of the result.
        options: What is predicted.
    Returns: The counts of its rows.
    """
    from equipoise.app.tables import ColumnConverter, TableWriter, count_blank_rows

    counts, converter = RowCounts(), ColumnConverter(data, output)
    chunks = _chunks(model, data, options)
    with TableWriter(output) as table, progress_bar("predict") as bar:
        for frame, p in _predicted(model, chunks):
            p = p.measured() if options.measured else p
            columns = _draws(frame, p, options.samples) if options.samples else _moments(frame, p, options)
            own = converter.convert(frame).set_axis(_carried_names(list(frame.columns), columns), axis=1)
            table.write(append_columns(own, columns, max(options.samples, 1)))
            counts += RowCounts.of(model, p.X)
            bar.update(len(frame))
        check_not_empty(counts.n_rows, data)
    ambiguous_columns = frozenset(converter.doubtful)
    return dataclasses.replace(
        counts, n_incomplete=chunks.n_incomplete, n_blank=count_blank_rows(data), ambiguous_columns=ambiguous_columns
    )


def check_output_names(outputs: Sequence[str], samples: int, ledger: bool) -> None:
    """Raise ArtifactError if an output has the name of a column that is added for another one.

    Args:
        outputs: Names of the model's outputs.
        samples: Number of draws; 0 for moments.
        ledger: Whether the terms of the ledger are added.
    """
    from equipoise.artifact import ArtifactError

    suffixes = () if samples else (" std", " lower", " upper", *(f" {term} var" for term in LEDGER_TERMS if ledger))
    meanings = {"draw": "the number of a draw"} if samples else {}
    meanings |= {
        f"{name}{suffix}": f"a column of the prediction of {name!r}" for name in outputs for suffix in suffixes
    }
    for name in outputs:
        if name in meanings:
            rule = f"Columns must have different names, but {name!r} is an output and also {meanings[name]}"
            raise ArtifactError(f"{rule}. Rename that output in the data and fit again.")


def _chunks(model: ConstrainedBNNRegressor, data: Path, options: PredictionOptions) -> CompleteChunks:
    """Return the chunks of a table: fewer rows where many draws of each are held in memory."""
    from equipoise.app.report import input_names

    n_rows = CHUNK_ROWS
    if options.samples:
        most = MOST_DRAWN // (options.samples * len(model.output_names_))
        n_rows = max(NOISE_ROWS, min(CHUNK_ROWS, most // NOISE_ROWS * NOISE_ROWS))
    return CompleteChunks(data, input_names(model), n_rows, options.skip_incomplete)


def _predicted(model: ConstrainedBNNRegressor, chunks: CompleteChunks) -> Iterator[tuple[pd.DataFrame, Predictive]]:
    """Yield each chunk of a table, its cells as text, with its predictive distribution."""
    import pandas as pd

    from equipoise.app import tables

    inputs, first_row = list(chunks.inputs), 0
    for frame in chunks:
        with suggest_skipping(SKIP_INCOMPLETE):
            X = pd.DataFrame(tables.complete_numbers(frame, inputs, chunks.path), columns=inputs)
        with locate_range_errors(chunks.path, frame.index.tolist()):
            p = model.predict_distribution(frame_or_array(model, X))
        yield frame, dataclasses.replace(p, first_row=first_row)
        first_row += len(frame)


def _moments(frame: pd.DataFrame, p: Predictive, options: PredictionOptions) -> dict[str, Any]:
    """Return the columns `<output>`, `<output> std`, `… lower`, `… upper`, and the ledger's terms, `(rows,)` each."""
    import numpy as np

    lower, upper = p.interval(options.level)
    moments = {"": p.mean, " std": p.std, " lower": lower, " upper": upper}
    if options.ledger:
        ledger = p.ledger()
        moments |= {f" {term} var": getattr(ledger, term) for term in LEDGER_TERMS}
    values = {suffix: np.asarray(moment, dtype=float).reshape(len(frame), -1) for suffix, moment in moments.items()}
    return {f"{name}{suffix}": values[suffix][:, j] for j, name in enumerate(p.outputs) for suffix in values}


def _draws(frame: pd.DataFrame, p: Predictive, samples: int) -> dict[str, Any]:
    """Return the columns `draw` and `<output>`, `(rows * samples,)` each: the draws of each row follow each other."""
    import numpy as np

    draws = p.sample(samples).swapaxes(0, 1).reshape(len(frame) * samples, -1)
    columns = {name: draws[:, j] for j, name in enumerate(p.outputs)}
    return {"draw": np.tile(np.arange(samples), len(frame)), **columns}


def _carried_names(names: list[str], added: Collection[str]) -> list[str]:
    """Return names for a table's own columns beside those that are added: no name twice.

    Args:
        names: The table's own columns.
        added: Columns that are added.
    Returns: `<name> measured` for columns whose name is added; other names stay.

    Example:
        >>> _carried_names(["V", "SOC", "T", "T measured"], ["V", "V std", "T", "T std"])
        ['V measured', 'SOC', 'T measured measured', 'T measured']
    """
    reserved, carried = {*added, *names}, []
    for name in names:
        free = name
        while free in added or (free != name and free in reserved):
            free = f"{free} measured"
        reserved.add(free)
        carried.append(free)
    return carried
