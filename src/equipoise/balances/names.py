"""Names of columns: their symbols and units, lists of names in messages, and suggestions for misspelt names."""

import difflib
import re
from collections.abc import Iterable, Sequence

_UNIT = re.compile(r"(.*\S)\s*\[([^\[\]]+)\]\s*", re.DOTALL)


def column_unit(name: str) -> str | None:
    """Return the unit in brackets at the end of a column name, if there is one.

    Example:
        >>> column_unit("Voltage [V]"), column_unit("Voltage")
        ('V', None)
    """
    match = _UNIT.fullmatch(name)
    return (match[2].strip() or None) if match else None


def column_symbol(name: str) -> str:
    """Return a column name without its unit.

    Example:
        >>> column_symbol("Voltage [V]"), column_symbol("Voltage")
        ('Voltage', 'Voltage')
    """
    match = _UNIT.fullmatch(name)
    return (match[1] if match else name).strip()


def quoted_list(names: Iterable[str], most: int = 12) -> str:
    """Join quoted names for a message.

    Args:
        names: The names.
        most: Names beyond this number are counted instead.
    Returns: The names in quotation marks, with commas and "and" between them; "none" without any.
    Example:
        >>> quoted_list(["a", "b", "c"])
        "'a', 'b' and 'c'"
        >>> quoted_list(["a", "b", "c"], most=2)
        "'a', 'b' and 1 more"
    """
    quoted = [repr(name) for name in names]
    if len(quoted) > most:
        quoted = [*quoted[:most], f"{len(quoted) - most} more"]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:]))) or "none"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Suggest the known names closest to a misspelt one, in a sentence; units and case do not count.

    Args:
        name: The misspelt name.
        known: All known names; listed where none of them is close.
    Returns: A sentence.
    Example:
        >>> did_you_mean("voltag", ["Voltage [V]", "Current [A]"])
        "Did you mean 'Voltage [V]'?"
        >>> did_you_mean("zzz", ["a", "b"])
        "Known: 'a' and 'b'."
    """
    spellings: dict[str, list[str]] = {}
    for full in known:
        spellings.setdefault(column_symbol(full).casefold(), []).append(full)
    close = difflib.get_close_matches(column_symbol(name[:200]).casefold(), spellings, n=3)
    suggestions = dict.fromkeys(full for symbol in close for full in spellings[symbol])
    return f"Did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else f"Known: {quoted_list(known)}."
