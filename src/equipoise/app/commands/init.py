"""`equipoise init`: a commented job file from the header of a table, with balances that the data seem to obey."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app.commands.console import format_number, print_note, print_text
from equipoise.app.commands.row_counts import print_omissions
from equipoise.app.commands.shared_options import check_output
from equipoise.app.commands.table_rows import read_table_header

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.diagnosis import Proposal

ROUNDING = 1e-12  # a residual below this share of the spread of its terms is rounding
SEVERAL = "repeat it, or separate several by commas."


def run(
    data: Annotated[Path, typer.Argument(help="The table: csv, tsv or parquet, compressed too.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The job file; beside the table by default.")
    ] = None,
    inputs: Annotated[list[str], typer.Option(help=f"Column that the network sees; {SEVERAL}")] = [],  # noqa: B006
    outputs: Annotated[list[str], typer.Option(help=f"Column that it predicts; {SEVERAL}")] = [],  # noqa: B006
    known: Annotated[list[str], typer.Option(help=f"Column that enters balances, but not the network; {SEVERAL}")] = [],  # noqa: B006
    force: Annotated[bool, typer.Option("--force", help="Replace a job file that is there.")] = False,
) -> None:
    """Write a commented job file for a table, with balances found in the data.

    Balances are near-null directions of the data, rounded to simple coefficients: keep what is a law, delete what is an
    accident. Example: equipoise init cell.csv --inputs "Current [A],SOC" --outputs "Voltage [V],OCV [V]"
    """
    from equipoise.app import tables
    from equipoise.app.job import JobError, draft
    from equipoise.app.tables import check_source, count_blank_rows, stem_of
    from equipoise.artifact import write

    target = output or data.with_name(f"{stem_of(check_source(data))}.toml")
    check_output(target, data)
    if target.exists() and not force:
        raise JobError(f"'{target}' is there already. Give another name with -o, or --force to replace it.")
    names, table = read_table_header(data), tables.read(data)
    columns = {
        "inputs": _column_names(inputs, names),
        "outputs": _column_names(outputs, names),
        "known": _column_names(known, names),
    }
    _print_text_columns(table, data)
    _print_grouped_columns(data)
    print_omissions(0, count_blank_rows(data))
    proposals = _propose_balances(table, columns["outputs"])
    balances = [(f"balance {i}", each.equation, _residual_text(each)) for i, each in enumerate(proposals, 1)]
    ranges = {str(name): _column_range(column) for name, column in table.items()}
    table_path = data.name if target.parent == data.parent else str(data.resolve())
    text = draft(names, ranges, **columns, balances=balances, data=table_path)
    write(target, lambda file: file.write(text.encode()))
    count = f"{len(balances)} {'balance' if len(balances) == 1 else 'balances'}"
    print_text(f"{target}: {len(names)} columns, {count} found in the data")
    for _, equation, residual in balances:
        print_text(f"  {equation}    ({residual})")
    print_text(f"Edit it, then: equipoise check {shlex.quote(str(target))}")


def _column_names(values: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of columns in the values of an option, which are split at commas unless a column is called so.

    Args:
        values: The values of the option, one for each time it was given.
        names: All columns of the table.
    """
    groups = [[value] if value in names else [part.strip() for part in value.split(",")] for value in values]
    return tuple(name for group in groups for name in group if name)


def _propose_balances(table: pd.DataFrame, outputs: tuple[str, ...]) -> list[Proposal]:
    """Find balances between the columns of numbers, and print a note on each limit of the search."""
    from equipoise.diagnosis import SearchWarning, propose

    numeric = [str(name) for name, column in table.items() if column.dtype.kind == "f"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SearchWarning)
        proposals = propose(
            table[numeric].to_numpy(dtype=float), numeric, [name for name in outputs if name in numeric]
        )
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        print_note(message)
    return proposals


def _print_text_columns(table: pd.DataFrame, path: Path) -> None:
    """Print notes on columns of text that resemble numbers, since no balance is searched among texts.

    Each such column has a note of its own, but those whose decimal sign is in doubt share one.
    """
    from equipoise.app import tables
    from equipoise.app.tables import AmbiguousNumberError, resemble_numbers
    from equipoise.balances import quoted_list

    ambiguous: dict[str, AmbiguousNumberError] = {}
    for name, column in table.items():
        if column.dtype.kind != "f" and resemble_numbers(column.dropna().astype(str)):
            try:
                tables.numbers(table, [str(name)], path, missing_ok=True)
            except AmbiguousNumberError as error:
                ambiguous[str(name)] = error
            except tables.TableError as error:
                print_note(f"{name!r} is taken for text: {error}")
    if ambiguous:
        columns = f"{quoted_list(list(ambiguous))} {'is' if len(ambiguous) == 1 else 'are'} taken for text"
        print_note(f"{columns}: {next(iter(ambiguous.values()))}")


def _print_grouped_columns(path: Path) -> None:
    """Print a note on the columns in which points or commas are read as separators of thousands, if there are any."""
    from equipoise.app.tables import NumberFormat
    from equipoise.balances import quoted_list

    number_format = NumberFormat.of(path)
    if number_format.grouped_columns:
        sign = {".": "points", ",": "commas"}[number_format.thousands]
        columns = quoted_list(sorted(number_format.grouped_columns))
        print_note(f"{sign} in {columns} are read as separators of thousands: 1{number_format.thousands}926 is 1926.")


def _residual_text(proposal: Proposal) -> str:
    """Return the words on how well the data obey a proposed balance, and in how many rows they do not."""
    exact, unit = proposal.relative < ROUNDING, f" {proposal.unit}" if proposal.unit else ""
    share = f"{format_number(100 * proposal.relative, 2)} % of the spread of its terms"
    size = "holds to rounding" if exact else f"residual {format_number(proposal.std)}{unit}, {share}"
    if not proposal.n_broken:
        return size
    return f"{size}{'' if exact else '; holds'} in all but {proposal.n_broken:,} of {proposal.n_rows:,} rows"


def _column_range(column: pd.Series) -> tuple[float, float] | str:
    """Return the least and the greatest number of a column, or the word for a column without numbers."""
    if column.dtype.kind != "f":
        return "text"
    values = column[column.notna()]
    return (float(values.min()), float(values.max())) if len(values) else "empty"
