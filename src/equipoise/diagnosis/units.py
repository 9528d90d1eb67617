"""Units of columns: read from names such as `"Voltage [V]"`, compared within a balance, and written behind numbers.

Units are read by pint (the extra `units`). Only names of units, whole powers of one digit, products, quotients and
parentheses are passed to pint: nothing is evaluated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from equipoise.balances import column_unit

_LONGEST = 60
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SPELLINGS = {"·": "*", "×": "*", "−": "-", "**": "^", "°C": "degC", "°F": "degF", "°": "deg", "%": " percent "}
_PART = re.compile(r"[^\W\d_]+(?:\^-?\d)?(?![\w^])|(?<![\w^-])1(?![\w^])|[*/()\s]")
_NEWTON_METRE = re.compile(r"\bNm\b")  # to pint this is a unit of yarn
_NORMAL_VOLUME = re.compile(r"\b[NS]m\^3")  # normal or standard cubic metres: an amount of gas, unknown to pint
_SUPERSCRIPT = re.compile(r"(?<=[^\W\d_])([⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹])")
_PLAIN_POWER = re.compile(r"(?<=[^\W\d_])(-?[1-9])(?![\w.])")  # m3/h, s-1


@dataclass(frozen=True)
class Unit:
    """A unit as pint reads it.

    Attributes:
        text: The unit as it stands in the column's name.
        dimension: Base dimensions with their powers, sorted by name.
        factor: Size of the unit in base units.
        offset: Zero of the unit in base units, such as 273.15 for °C.
    """

    text: str
    dimension: tuple[tuple[str, float], ...]
    factor: float
    offset: float


def available() -> bool:
    """Return whether units can be read, that is, whether pint is installed."""
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
    """Read a unit from its text; return None if it cannot be read or pint is not installed.

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
    except Exception:  # pint raises many kinds; the name of a column must not stop a diagnosis
        return None


def same_dimension(one: str, other: str) -> bool:
    """Return whether two columns have units of one dimension; True where a unit is missing or cannot be read.

    Args:
        one, other: Names of the columns, with their units.
    """
    first, second = (read_unit(unit) if unit else None for unit in map(column_unit, (one, other)))
    return first is None or second is None or first.dimension == second.dimension


def conversions(coefficients: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return, for each unit among the columns of a balance, the factors that convert the terms of other units to it.

    Terms with coefficients other than ±1 are not converted: they may have their factor already. Nor are balances whose
    units differ in dimension or offset.

    Args:
        coefficients: Coefficients of the balance by column.
    Returns: By text of the unit, factors by column.
    Example:
        >>> conversions({"Voltage [V]": 1.0, "Loss [mV]": -1.0})
        {'V': {'Loss [mV]': 0.001}, 'mV': {'Voltage [V]': 1000.0}}
    """
    texts = {name: text for name in coefficients if (text := column_unit(name))}
    units = {name: unit for name, text in texts.items() if (unit := read_unit(text))}
    if len({(unit.dimension, unit.offset) for unit in units.values()}) != 1:
        return {}
    factors = {}
    for target in dict.fromkeys(units.values()):
        others = {
            name: unit for name, unit in units.items() if abs(coefficients[name]) == 1 and unit.factor != target.factor
        }
        factors[target.text] = {name: float(f"{unit.factor / target.factor:.12g}") for name, unit in others.items()}
    return factors


def unit_faults(coefficients: Mapping[str, float]) -> list[str]:
    """Describe in words each unit of a balance that cannot be read or does not fit the units of the other columns.

    Args:
        coefficients: Coefficients of the balance by column.
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
    # The column whose unit is the most frequent one, if possible without a factor, is the one to compare with.
    reference = max(units, key=lambda name: (counts[kinds[name]], abs(coefficients[name]) == 1))
    mismatches = (_mismatch(name, reference, units, coefficients) for name in units if name != reference)
    return faults + [mismatch for mismatch in mismatches if mismatch]


def _mismatch(name: str, reference: str, units: Mapping[str, Unit], coefficients: Mapping[str, float]) -> str | None:
    own, usual = units[name], units[reference]
    what = f"'{name}' is in {own.text} and '{reference}' in {usual.text}"
    ratio = abs(coefficients[name] / coefficients[reference])
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
    """Rewrite a unit in pint's spelling; return None if the text is more than units, powers, products and quotients."""
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


def format_quantity(value: float, unit: str | None = None) -> str:
    """Format a number with two significant digits and its unit.

    Args:
        value: The number.
        unit: Its unit; empty or None for none.
    Example:
        >>> format_quantity(0.23, "V"), format_quantity(123456.0), format_quantity(1.5e-7, "A")
        ('0.23 V', '120000', '1.5e-07 A')
    """
    plain = value == 0 or 1e-4 <= abs(value) < 1e6
    text = np.format_float_positional(float(f"{value:.2g}"), trim="-") if plain else f"{value:.2g}"
    return f"{text} {unit}" if unit else text
