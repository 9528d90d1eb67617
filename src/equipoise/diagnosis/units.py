"""Do the units of a balance's columns agree? They are read from names such as `"Voltage [V]"`, by pint (extra `units`).

Only names of units, whole powers of one digit, products, quotients and parentheses reach pint: nothing is evaluated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from equipoise.balances import column_unit

_LONGEST = 60
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SPELLINGS = {"·": "*", "×": "*", "−": "-", "**": "^", "°C": "degC", "°F": "degF", "°": "deg", "%": " percent "}
_PART = re.compile(r"[^\W\d_]+(?:\^-?\d)?(?![\w^])|(?<![\w^-])1(?![\w^])|[*/()\s]")
_NEWTON_METRE = re.compile(r"\bNm\b")  # pint takes it for a unit of yarn
_NORMAL_VOLUME = re.compile(r"\b[NS]m\^3")  # normal or standard cubic metres: an amount of gas, unknown to pint
_SUPERSCRIPT = re.compile(r"(?<=[^\W\d_])([⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹])")
_PLAIN_POWER = re.compile(r"(?<=[^\W\d_])(-?[1-9])(?![\w.])")  # m3/h, s-1


@dataclass(frozen=True)
class Unit:
    """A unit as pint understands it.

    Attributes:
        text: As it stands in the column's name.
        dimension: Powers of base dimensions.
        factor: Size in base units.
        offset: Its zero in base units, such as 273.15 for °C.
    """

    text: str
    dimension: tuple[tuple[str, float], ...]
    factor: float
    offset: float


def available() -> bool:
    """Whether units can be looked at: whether pint is installed."""
    return _registry() is not None


@lru_cache(maxsize=1)
def _registry() -> Any:
    try:
        import pint
    except ImportError:
        return None
    return pint.UnitRegistry()


@lru_cache(maxsize=4096)
def read_unit(text: str) -> Unit | None:
    """A unit from its text; None if it cannot be read, or pint is not installed.

    Example:
        >>> read_unit("mV").factor, read_unit("m3/h") == read_unit("m3/h"), read_unit("bananas")
        (0.001, True, None)
    """
    ureg, plain = _registry(), _normalised(text)
    if ureg is None or plain is None:
        return None
    try:
        parsed = ureg.parse_units(plain)
        factor, _ = ureg.get_base_units(parsed, check_nonmult=False)
        offset = ureg.Quantity(0.0, parsed).to_base_units().magnitude
        powers = sorted((name, float(power)) for name, power in parsed.dimensionality.items())
        return Unit(text, tuple(powers), float(factor), float(offset))
    except Exception:  # whatever pint says of it, the name of a column must not stop a check
        return None


def same_dimension(one: str, other: str) -> bool:
    """Whether columns of these names may be added, as far as their units can be read."""
    first, second = (read_unit(unit) if unit else None for unit in map(column_unit, (one, other)))
    return first is None or second is None or first.dimension == second.dimension


def conversions(coefficients: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """For each unit among the columns of a balance: factors that bring terms of other units to it.

    Terms that have a factor already, and balances with several dimensions or zeros, are left as they are.

    Example:
        >>> conversions({"Voltage [V]": 1.0, "Loss [mV]": -1.0})
        {'V': {'Loss [mV]': 0.001}, 'mV': {'Voltage [V]': 1000.0}}
    """
    texts = {name: text for name in coefficients if (text := column_unit(name))}
    units = {name: unit for name, text in texts.items() if (unit := read_unit(text))}
    if len({(unit.dimension, unit.offset) for unit in units.values()}) != 1:
        return {}
    found = {}
    for to in dict.fromkeys(units.values()):
        others = {
            name: unit for name, unit in units.items() if abs(coefficients[name]) == 1 and unit.factor != to.factor
        }
        found[to.text] = {name: float(f"{unit.factor / to.factor:.12g}") for name, unit in others.items()}
    return found


def unit_faults(coefficients: Mapping[str, float]) -> list[str]:
    """What is wrong with the units of one balance, in words.

    Args:
        coefficients: Of the balance, by column.
    Example:
        >>> unit_faults({"Voltage [V]": 1.0, "Loss [mV]": 1.0})
        ["'Loss [mV]' is in mV and 'Voltage [V]' in V: its factor 0.001 is missing"]
    """
    texts = {name: unit for name in coefficients if (unit := column_unit(name))}
    units = {name: unit for name, text in texts.items() if (unit := read_unit(text))}
    faults = [f"the unit '{text}' of '{name}' cannot be read" for name, text in texts.items() if name not in units]
    if not units:
        return faults
    kinds = {name: (unit.dimension, unit.factor, unit.offset) for name, unit in units.items()}
    counts = Counter(kinds.values())
    like = max(units, key=lambda name: (counts[kinds[name]], abs(coefficients[name]) == 1))  # others have factors
    found = (_fault(name, like, units, coefficients) for name in units if name != like)
    return faults + [fault for fault in found if fault]


def _fault(name: str, like: str, units: Mapping[str, Unit], coefficients: Mapping[str, float]) -> str | None:
    own, usual = units[name], units[like]
    what = f"'{name}' is in {own.text} and '{like}' in {usual.text}"
    ratio = abs(coefficients[name] / coefficients[like])
    if own.dimension != usual.dimension:
        if ratio == 1:
            return f"{what}: they cannot be added"
        return f"{what}: they can be added only if the factor {ratio:.6g} has a unit of its own"
    if own.offset != usual.offset:
        return f"{what}: their zeros differ by {abs(own.offset - usual.offset):.6g} in base units"
    if own.factor != usual.factor and ratio == 1:
        return f"{what}: its factor {own.factor / usual.factor:.6g} is missing"
    return None


def _normalised(text: str) -> str | None:
    """The text in pint's spelling; None if it holds anything but names of units, powers, products and quotients."""
    if len(text) > _LONGEST:
        return None
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[1].translate(_POWERS), text)
    text = _PLAIN_POWER.sub(r"^\1", text).strip()
    if text in ("", "-", "1"):
        return "dimensionless"
    if _NORMAL_VOLUME.search(text) or _PART.sub("", text):
        return None
    return _NEWTON_METRE.sub("(N*m)", text)
