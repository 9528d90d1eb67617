"""The template of a job file: a draft with every column, every option and comments, for people to edit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.app.job.job_errors import JobError, misplaced_columns
from equipoise.app.job.options import ModelOptions
from equipoise.balances import EquationError, did_you_mean, parse_equation

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT_COLUMN = 44  # comments begin there; a longer line has its comment behind it

_HEAD = """\
# What to learn from which table. Edit it, then: equipoise check, equipoise fit.
# Lines that begin with # are not read; remove the # to use them.
"""
_SKIP = "# skip_incomplete = true # leave out rows in which an input is missing\n"
_LISTS = {
    "inputs": "what the network sees",
    "outputs": "what it predicts, with its uncertainty",
    "known": "what enters balances, but not the network",
}
_UNSORTED = """
# Not used so far. Move each line into the list where it belongs, or leave it here:
"""
_BALANCES = """
# Linear equations between columns. A name needs no unit where one column fits, and `backticks` if it holds blanks.
"""
_PROPOSED = "# These were found in the data: keep what is a law, delete what is an accident.\n"
_SENSORS = """
# Standard deviations of the sensors behind outputs, in their own units, as in their data sheets; or "learn".
# [sensors]
"""
_TOLERANCES = """
# How far a balance may be missed: 0 (exact), a standard deviation in its own unit, "learn", or "learn" with what is
# believed beforehand, such as { median = 0.01, factor = 3.0 }: 0.01, give or take a factor of 3. What is left out is
# learned by 'fit', and exact for 'reconcile', which learns nothing.
# [tolerances]
"""
_MODEL = """
# Everything else has a default:
[model]
"""


def draft(
    columns: Sequence[str],
    ranges: Mapping[str, Any],
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    known: Sequence[str] = (),
    balances: Iterable[tuple[str, str, str]] = (),
    data: str = "data.csv",
) -> str:
    """Write the text of a job file, with every column, every option and comments that explain them.

    If inputs and outputs are given, `Job.parse` accepts the text: balances with columns that are in none of the lists,
    or without any output, are commented out.

    Args:
        columns: All columns of the table.
        ranges: For each column its lowest and highest value, or words about it.
        inputs, outputs, known: Columns whose place is known already.
        balances: Proposed balances: name, equation, and its residual in words.
        data: Path of the table, relative to the job file.
    Returns: The text, in TOML.
    Raises: JobError, if a column is not in the table or has two places.
    Example:
        >>> print(draft(["feed", "top"], {"feed": (0, 12.5)}, inputs=["feed"], outputs=["top"])[:520])
        # What to learn from which table. Edit it, then: equipoise check, equipoise fit.
        # Lines that begin with # are not read; remove the # to use them.
        data = "data.csv"
        # skip_incomplete = true # leave out rows in which an input is missing
        <BLANKLINE>
        inputs = [ # what the network sees
            "feed",                                  # 0 to 12.5
        ]
        <BLANKLINE>
        outputs = [ # what it predicts, with its uncertainty
            "top",
        ]
        ...
    """
    places = {"inputs": tuple(inputs), "outputs": tuple(outputs), "known": tuple(known)}
    comments = {name: _range_in_words(ranges.get(name, "")) for name in columns}
    _check_places(places, columns)
    sorted_columns = set().union(*places.values())
    unsorted = [name for name in columns if name not in sorted_columns]
    parts = [_HEAD, f"data = {_quoted(data)}\n", _SKIP]
    parts += [_list(place, names, comments) for place, names in places.items()]
    parts += [_UNSORTED, *(f"#   {_item(name, comments)}" for name in unsorted)] if unsorted else []
    proposals = list(_proposals(balances, places if inputs and outputs else {}))
    parts += _balances(proposals)
    parts += [_SENSORS, *(f'# {_key(name)} = "learn"\n' for name in outputs)]
    parts += [_TOLERANCES, *(f'# {_key(balance.name)} = "learn"\n' for balance in proposals if not balance.obstacle)]
    return "".join([*parts, _MODEL, *_options()])


class _Proposal(NamedTuple):
    name: str
    equation: str
    residual: str
    obstacle: str


def _check_places(places: Mapping[str, tuple[str, ...]], columns: Sequence[str]) -> None:
    for place, names in places.items():
        for name in names:
            if name not in columns:
                rule = f"{place} must name columns of the table"
                raise JobError(f"{rule}, but got {name!r}. {did_you_mean(name, columns)}")
    for sentence in misplaced_columns(places):
        raise JobError(sentence)


def _list(place: str, names: Sequence[str], comments: Mapping[str, str]) -> str:
    items = "".join(f"    {_item(name, comments)}" for name in names)
    return f"\n{place} = [ # {_LISTS[place]}\n{items}]\n"


def _item(name: str, comments: Mapping[str, str]) -> str:
    return _commented(f"{_quoted(name)},", comments[name], _COMMENT_COLUMN - 4)


def _proposals(balances: Iterable[tuple[str, str, str]], places: Mapping[str, tuple[str, ...]]) -> Iterator[_Proposal]:
    """Give each balance a name that is not blank and not used before: a key may occur only once in TOML."""
    names: set[str] = set()
    for name, equation, residual in balances:
        name = stem = name.strip() or "balance"
        while name in names:
            name = f"{stem} {len(names) + 1}"
        names.add(name)
        yield _Proposal(name, equation, residual, _obstacle(equation, places))


def _balances(proposals: list[_Proposal]) -> Iterator[str]:
    yield _BALANCES
    yield f"{_PROPOSED}[balances]\n" if proposals else '# [balances]\n# mass = "feed = top + bottom"\n'
    for name, equation, residual, obstacle in proposals:
        line = _commented(toml_line(name, equation), residual + obstacle, _COMMENT_COLUMN)
        yield f"# {line}" if obstacle else line


def _obstacle(equation: str, places: Mapping[str, tuple[str, ...]]) -> str:
    """Explain why the job cannot use a balance; return an empty text if it can, or if no places are given."""
    if not places:
        return ""
    try:
        used = parse_equation(equation, [name for names in places.values() for name in names]).coefficients
    except EquationError:
        return "; not used: some of its columns are in none of the lists"
    return "" if set(used) & set(places["outputs"]) else "; not used: it has no output"


def _options() -> Iterator[str]:
    for name, field in ModelOptions.model_fields.items():
        value = (field.examples or [None])[0] if field.default is None else field.default
        yield f"# {_commented(f'{name} = {json.dumps(value)}', field.description or '', _COMMENT_COLUMN - 2)}"


def _range_in_words(limits: Any) -> str:
    if isinstance(limits, str):
        return limits
    low, high = limits
    return f"{low:.6g} to {high:.6g}"


def _commented(text: str, comment: str, width: int) -> str:
    """Write a line with a comment behind it; line ends and other control characters of the comment become blanks."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in comment).split())
    return f"{text:{width}} # {plain}\n" if plain else f"{text}\n"


def toml_line(key: str, text: str) -> str:
    """Write a line of a job file with a key and a text.

    Args:
        key: The key; it is quoted where TOML requires this.
        text: Its value.
    Returns: The line, without a line end.

    Example:
        >>> print(toml_line("mass balance", "feed = top"))
        "mass balance" = "feed = top"
    """
    return f"{_key(key)} = {_quoted(text)}"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """Write a text as a string of TOML: that of JSON, with the one control character that JSON does not escape.

    Example:
        >>> print(_quoted('5" pipe \\\\ [°C]'))
        "5\\" pipe \\\\ [°C]"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
