"""`equipoise init`: a commented job file from the header of a table, with balances that the data seem to obey."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.app.commands import gaps
from equipoise.app.commands.screen import number, remark, say

if TYPE_CHECKING:
    import pandas as pd

    from equipoise.diagnosis import Proposal

ROUNDING = 1e-12  # residual beside the spread of its terms below which nothing is left of it
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
    from equipoise.app.commands.rows import check_output, header_of
    from equipoise.app.job import JobError, draft
    from equipoise.app.tables import check_source, count_blank_rows, stem_of

    target = output or data.with_name(f"{stem_of(check_source(data))}.toml")
    check_output(target, data)
    if target.exists() and not force:
        raise JobError(f"'{target}' is there already. Give another name with -o, or --force to replace it.")
    names, table = header_of(data), tables.read(data)
    chosen = {
        place: _split(said, names) for place, said in (("inputs", inputs), ("outputs", outputs), ("known", known))
    }
    _tell_of_texts(table, data)
    _tell_of_thousands(data)
    gaps.tell(0, count_blank_rows(data))
    found = _found(table, chosen["outputs"])
    proposals = [(f"balance {i}", each.equation, _residual(each)) for i, each in enumerate(found, 1)]
    ranges = {str(name): _range(column) for name, column in table.items()}
    place = data if target.parent == data.parent else data.resolve()
    text = draft(names, ranges, **chosen, balances=proposals, data=place.name if place is data else str(place))
    _write(target, text)
    say(
        f"{target}: {len(names)} columns, {len(found)} {'balance' if len(found) == 1 else 'balances'} found in the data"
    )
    for _, equation, residual in proposals:
        say(f"  {equation}    ({residual})")
    say(f"Edit it, then: equipoise check {shlex.quote(str(target))}")


def _split(said: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Names as they were given, or separated by commas where no column is called so."""
    parts = [[one] if one in names else [part.strip() for part in one.split(",")] for one in said]
    return tuple(part for some in parts for part in some if part)


def _found(table: pd.DataFrame, outputs: tuple[str, ...]) -> list[Proposal]:
    from equipoise.diagnosis import SearchWarning, propose

    numeric = [str(name) for name, column in table.items() if column.dtype.kind == "f"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SearchWarning)
        found = propose(table[numeric].to_numpy(dtype=float), numeric, [name for name in outputs if name in numeric])
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        remark(message)
    return found


def _tell_of_texts(table: pd.DataFrame, path: Path) -> None:
    """A remark on each column that was meant to hold numbers, as text is found in no balance; one on all in doubt."""
    from equipoise.app import tables
    from equipoise.app.tables import AmbiguousNumberError, resemble_numbers
    from equipoise.balances import quoted_list

    doubtful: dict[str, AmbiguousNumberError] = {}
    for name, column in table.items():
        if column.dtype.kind != "f" and resemble_numbers(column.dropna().astype(str)):
            try:
                tables.numbers(table, [str(name)], path, missing_ok=True)
            except AmbiguousNumberError as error:
                doubtful[str(name)] = error
            except tables.TableError as error:
                remark(f"{name!r} is taken for text: {error}")
    if doubtful:
        told = f"{quoted_list(list(doubtful))} {'is' if len(doubtful) == 1 else 'are'} taken for text"
        remark(f"{told}: {next(iter(doubtful.values()))}")


def _tell_of_thousands(path: Path) -> None:
    """A remark on the columns in which a point or a comma may be taken for a decimal sign."""
    from equipoise.app.tables import NumberFormat
    from equipoise.balances import quoted_list

    number_format = NumberFormat.of(path)
    if number_format.grouped_columns:
        sign = {".": "points", ",": "commas"}[number_format.thousands]
        columns = quoted_list(sorted(number_format.grouped_columns))
        remark(f"{sign} in {columns} are read as separators of thousands: 1{number_format.thousands}926 is 1926.")


def _residual(found: Proposal) -> str:
    exact, unit = found.relative < ROUNDING, f" {found.unit}" if found.unit else ""
    share = f"{number(100 * found.relative, 2)} % of the spread of its terms"
    size = "holds to rounding" if exact else f"residual {number(found.std)}{unit}, {share}"
    if not found.n_broken:
        return size
    return f"{size}{'' if exact else '; holds'} in all but {found.n_broken:,} of {found.n_rows:,} rows"


def _range(column: pd.Series) -> tuple[float, float] | str:
    if column.dtype.kind != "f":
        return "text"
    values = column[column.notna()]
    return (float(values.min()), float(values.max())) if len(values) else "empty"


def _write(path: Path, text: str) -> None:
    from equipoise.artifact import write

    write(path, lambda file: file.write(text.encode()))
