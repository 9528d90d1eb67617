"""`equipoise predict`: predictions with their uncertainty for every row of a table of any length."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.app.commands import gaps
from equipoise.app.commands.extent import Extent
from equipoise.app.commands.parts import Asked, Engine, predict_parts
from equipoise.app.commands.screen import is_watched, say

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.prediction import Predictive

CHUNK = 8_192  # rows at a time: a multiple of the rows that share one stream of noise
SAMPLED = 2_000_000  # numbers in memory at a time when draws are written
LEAST_OUTSIDE = 1e-12  # of a probability: nearer to 1 its distance from 1 loses digits
LEDGER = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor")


def run(
    model: Annotated[Path, typer.Argument(help="The model file.", show_default=False)],
    data: Annotated[
        list[Path], typer.Argument(help="Tables with the inputs; other columns are kept.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Where to: csv, tsv or parquet; a folder for several.", show_default=False),
    ],
    measured: Annotated[
        bool, typer.Option("--measured", help="Of what sensors will show, instead of the true values.")
    ] = False,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    samples: Annotated[
        int, typer.Option(help="So many joint draws instead, one line for each row and draw.", min=0)
    ] = 0,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Add the parts of each variance; the reduction is subtracted.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Where torch computes, for instance cuda.")] = None,
    engine: Annotated[
        Engine | None, typer.Option(help="Several tables side by side; one after the other by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core by default.", min=1)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Of several tables only those not there yet.")] = False,
    skip_incomplete: gaps.Skip = False,
) -> None:
    """Predict every row of a table: for each output its mean, std, lower and upper bound.

    Columns are found by name in any order; others are carried through unchanged, measured outputs as "<col> measured".
    The table is read and written piece by piece. Each of the draws (--samples) obeys the balances, as far as these can
    be trusted. The parts of a variance (--ledger) give the squared std as aleatoric - reduction + epistemic + shift +
    interaction + sensor. Of several tables, each is predicted as if alone, into a file of its name in the folder. A
    note tells how many rows have inputs beyond those trained on, where no prediction can be relied on.
    """
    from equipoise.app.commands.device import check_device
    from equipoise.app.commands.rows import check_output, tell_of_doubtful
    from equipoise.artifact import ArtifactError, model_file as artifact

    _check_level(level)
    if samples and ledger:
        raise ArtifactError("--ledger must go without --samples, but got both. The ledger is one of means, not draws.")
    asked = Asked(measured, level, samples, ledger, device, skip_incomplete)
    times = f" × {samples} draws" if samples else ""
    several = len(data) > 1 or output.is_dir() or engine is not None or resume
    check_output(output, model, *data)
    check_device(device)
    loaded = artifact.load(model, device)
    _check_names(loaded.output_names_, samples, ledger)
    if not several:
        extent = write_table(loaded, data[0], output, asked)
        say(f"{output}: {extent.rows} rows{times}")
    else:
        n_tables, extent = predict_parts(model, data, output, asked, resume=resume, engine=engine, workers=workers)
        before = f"; {len(data) - n_tables} were there" if resume else ""
        say(f"{output}: {n_tables} tables, {extent.rows} rows{times}{before}")
    gaps.tell(extent.left_out, extent.passed_over)
    tell_of_doubtful(extent.doubtful)
    extent.tell(loaded)


def write_table(model: Any, data: Path, output: Path, asked: Asked) -> Extent:
    """Predict a table, and write it whole or not at all; returns its rows."""
    from tqdm.auto import tqdm

    from equipoise.app.commands.rows import beside, check_left
    from equipoise.app.tables import ColumnConverter, TableWriter, count_blank_rows

    extent, samples, converter = Extent(), asked.samples, ColumnConverter(data, output)
    rows = _rows(model, data, samples, asked.skip_incomplete)
    with TableWriter(output) as table, tqdm(desc="predict", unit="row", disable=not is_watched()) as bar:
        for frame, p in _pieces(model, rows):
            p = p.measured() if asked.measured else p
            told = _draws(frame, p, samples) if samples else _moments(frame, p, asked.level, asked.ledger)
            kept = converter.convert(frame).set_axis(_carried(list(frame.columns), told), axis=1)
            table.write(beside(kept, told, max(samples, 1)))
            extent += Extent.of(model, p.X)
            bar.update(len(frame))
        check_left(extent.rows, data)
    doubtful = frozenset(converter.doubtful)
    return extent + Extent(left_out=rows.left_out, passed_over=count_blank_rows(data), doubtful=doubtful)


def _check_level(level: float) -> None:
    from equipoise.artifact import ArtifactError

    if not 0 < level < 1:
        raise ArtifactError(f"--level must be between 0 and 1, but got {level}. Use 0.95 for 95 %.")
    if 1 - level < LEAST_OUTSIDE:
        rule = f"--level must leave a probability of {LEAST_OUTSIDE:g} at least outside of intervals"
        raise ArtifactError(f"{rule}, but got {level!r}. Use 0.95 for 95 %.")


def _check_names(outputs: Sequence[str], samples: int, ledger: bool) -> None:
    """Refuse outputs of which one has the name of what is told of another."""
    from equipoise.artifact import ArtifactError

    suffixes = () if samples else (" std", " lower", " upper", *(f" {term} var" for term in LEDGER if ledger))
    taken = {"draw": "the number of a draw"} if samples else {}
    taken |= {f"{name}{suffix}": f"what is told of {name!r}" for name in outputs for suffix in suffixes}
    for name in outputs:
        if name in taken:
            rule = f"Columns must have different names, but {name!r} is an output and also {taken[name]}"
            raise ArtifactError(f"{rule}. Rename that output in the data and fit again.")


def _rows(model: Any, data: Path, samples: int, skip: bool) -> gaps.RowsWithInputs:
    from equipoise.app.report import input_names

    rows = CHUNK if not samples else max(64, min(CHUNK, SAMPLED // (samples * len(model.output_names_)) // 64 * 64))
    return gaps.RowsWithInputs(data, input_names(model), rows, skip)


def _pieces(model: Any, rows: gaps.RowsWithInputs) -> Iterator[tuple[pd.DataFrame, Predictive]]:
    """The table piece by piece, as text, each with its predictive distribution."""
    import pandas as pd

    from equipoise.app import tables
    from equipoise.app.commands.rows import in_kind, placed

    names, first_row = list(rows.inputs), 0
    for frame in rows:
        with gaps.hinted(gaps.OPTION):
            X = pd.DataFrame(tables.complete_numbers(frame, names, rows.path), columns=names)
        with placed(rows.path, frame.index.tolist()):
            p = model.predict_distribution(in_kind(model, X))
        yield frame, dataclasses.replace(p, first_row=first_row)
        first_row += len(frame)


def _moments(frame: pd.DataFrame, p: Predictive, level: float, ledger: bool) -> dict[str, Any]:
    """`<col>`, `<col> std`, `<col> lower`, `<col> upper`, and the terms of the ledger, by column."""
    import numpy as np

    lower, upper = p.interval(level)
    parts = {"": p.mean, " std": p.std, " lower": lower, " upper": upper}
    if ledger:
        account = p.ledger()
        parts |= {f" {term} var": getattr(account, term) for term in LEDGER}
    values = {suffix: np.asarray(part, dtype=float).reshape(len(frame), -1) for suffix, part in parts.items()}
    return {f"{name}{suffix}": values[suffix][:, j] for j, name in enumerate(p.outputs) for suffix in values}


def _draws(frame: pd.DataFrame, p: Predictive, samples: int) -> dict[str, Any]:
    """Long form: for each row of the table its draws, one after the other."""
    import numpy as np

    draws = p.sample(samples).swapaxes(0, 1).reshape(len(frame) * samples, -1)
    told = {name: draws[:, j] for j, name in enumerate(p.outputs)}
    return {"draw": np.tile(np.arange(samples), len(frame)), **told}


def _carried(columns: list[str], told: Collection[str]) -> list[str]:
    """Names for the table's own columns: `<col> measured` for those that are predicted, and no name twice.

    Example:
        >>> _carried(["V", "SOC", "T", "T measured"], ["V", "V std", "T", "T std"])
        ['V measured', 'SOC', 'T measured measured', 'T measured']
    """
    taken, names = {*told, *columns}, []
    for name in columns:
        free = name
        while free in told or (free != name and free in taken):
            free = f"{free} measured"
        taken.add(free)
        names.append(free)
    return names
