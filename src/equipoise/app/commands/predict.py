"""`equipoise predict`: predictions with their uncertainty for every row of a table of any length."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from equipoise.app.commands.console import print_text
from equipoise.app.commands.many_tables import Engine, predict_tables
from equipoise.app.commands.prediction_table import PredictionOptions, check_output_names, write_table
from equipoise.app.commands.shared_options import Device, ModelFile, SkipIncomplete, check_output
from equipoise.errors import check_device

LEAST_OUTSIDE = 1e-12  # of a probability: nearer to 1 its distance from 1 loses digits


def run(
    model: ModelFile,
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
    device: Device = None,
    engine: Annotated[
        Engine | None, typer.Option(help="Several tables side by side; one after the other by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core by default.", min=1)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Of several tables only those not there yet.")] = False,
    skip_incomplete: SkipIncomplete = False,
) -> None:
    """Predict every row of a table: for each output its mean, std, lower and upper bound.

    Columns are found by name in any order; others are carried through unchanged, measured outputs as "<col> measured".
    The table is read and written piece by piece. Each of the draws (--samples) obeys the balances, as far as these can
    be trusted. The parts of a variance (--ledger) give the squared std as aleatoric - reduction + epistemic + shift +
    interaction + sensor. Of several tables, each is predicted as if alone, into a file of its name in the folder. A
    note tells how many rows have inputs beyond those trained on, where no prediction can be relied on.
    """
    from equipoise.app.commands.open_model import open_model
    from equipoise.artifact import ArtifactError

    _check_level(level)
    if samples and ledger:
        raise ArtifactError("--ledger must go without --samples, but got both. The ledger is one of means, not draws.")
    options = PredictionOptions(measured, level, samples, ledger, device, skip_incomplete)
    times = f" × {samples} draws" if samples else ""
    several = len(data) > 1 or output.is_dir() or engine is not None or resume
    check_output(output, model, *data)
    check_device(device)
    loaded = open_model(model, device)
    check_output_names(loaded.output_names_, samples, ledger)
    if not several:
        counts = write_table(loaded, data[0], output, options)
        print_text(f"{output}: {counts.n_rows} rows{times}")
    else:
        n_tables, counts = predict_tables(model, data, output, options, resume=resume, engine=engine, workers=workers)
        before = f"; {len(data) - n_tables} were there" if resume else ""
        print_text(f"{output}: {n_tables} tables, {counts.n_rows} rows{times}{before}")
    counts.print_notes(loaded)


def _check_level(level: float) -> None:
    from equipoise.artifact import ArtifactError

    if not 0 < level < 1:
        raise ArtifactError(f"--level must be between 0 and 1, but got {level}. Use 0.95 for 95 %.")
    if 1 - level < LEAST_OUTSIDE:
        rule = f"--level must leave a probability of {LEAST_OUTSIDE:g} at least outside of intervals"
        raise ArtifactError(f"{rule}, but got {level!r}. Use 0.95 for 95 %.")
