import builtins
import math

import pytest

from equipoise.diagnosis import units
from equipoise.diagnosis.units import available, conversions, format_quantity, read_unit, same_dimension, unit_faults

pint = pytest.importorskip("pint")


@pytest.fixture
def without_pint(monkeypatch):
    """The module as it is where pint cannot be imported."""
    true_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pint":
            raise ImportError(name)
        return true_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    units._registry.cache_clear()
    units.read_unit.cache_clear()
    yield
    monkeypatch.undo()
    units._registry.cache_clear()
    units.read_unit.cache_clear()


@pytest.mark.parametrize(
    ("text", "same_as", "factor"),
    [
        ("mV", "V", 1e-3),
        ("µV", "V", 1e-6),
        ("μV", "V", 1e-6),
        ("m3/h", "m^3/s", 1 / 3600),
        ("m³/h", "m^3/s", 1 / 3600),
        ("l/min", "m^3/s", 1e-3 / 60),
        ("kg h-1", "kg/s", 1 / 3600),
        ("kg·h⁻¹", "kg/s", 1 / 3600),
        ("t/h", "kg/s", 1000 / 3600),
        ("W/(m2 K)", "W/m^2/K", 1.0),
        ("J kg^-1 K^-1", "J/kg/K", 1.0),
        ("mΩ", "ohm", 1e-3),
        ("%", "1", 0.01),
        ("-", "1", 1.0),
        ("1/s", "Hz", 1.0),
        ("kWh", "J", 3.6e6),
        ("A**2", "A^2", 1.0),
        ("°", "rad", math.pi / 180),
        ("Nm", "J", 1.0),
        ("1/Nm", "1/J", 1.0),
    ],
)
def test_units_are_read_as_engineers_write_them(text, same_as, factor):
    own, base = read_unit(text), read_unit(same_as)
    assert own.dimension == base.dimension
    assert own.factor / base.factor == pytest.approx(factor, rel=1e-12)


def test_temperatures_have_zeros_of_their_own():
    assert read_unit("°C").offset == pytest.approx(273.15)
    assert read_unit("K").offset == 0.0
    assert read_unit("°F").factor == pytest.approx(5 / 9)


@pytest.mark.parametrize(
    "text",
    [
        "bananas",
        "Nm3/h",
        "mol_H2O",
        "__import__('os').system('x')",
        "m^9^9^9^9",
        "(m)^99999999",
        "m**9**9**9",
        "2*V",
        "m" * 61,
        "a" * 59 + "!",
        "V if 1 else A",
        "Sm³/d",
        "((((",
        "m^99",
        "V;A",
    ],
)
def test_other_texts_are_not_read_and_nothing_is_computed_from_them(text):
    assert read_unit(text) is None  # 9^9^9^9 would take for ever


def test_columns_may_be_added_unless_their_units_forbid_it():
    assert same_dimension("a [V]", "b [mV]")
    assert not same_dimension("a [V]", "b [A]")
    assert same_dimension("a [V]", "b")
    assert same_dimension("a [bananas]", "b [A]")


@pytest.mark.parametrize(
    ("coefficients", "faults"),
    [
        ({"a [V]": 1.0, "b [V]": -1.0}, []),
        ({"a [V]": 1.0, "b": -1.0}, []),
        ({"a": 1.0, "b": -1.0}, []),
        ({"a [V]": 1.0, "b [mV]": -1e-3}, []),
        (
            {"a [V]": 1.0, "b [V]": 1.0, "c [mV]": -1.0},
            ["'c [mV]' is in mV and 'a [V]' in V: its factor 0.001 is missing"],
        ),
        (
            {"c [mV]": -1.0, "a [V]": 1.0, "b [V]": 1.0},
            ["'c [mV]' is in mV and 'a [V]' in V: its factor 0.001 is missing"],
        ),
        ({"a [V]": 1.0, "b [A]": -1.0}, ["'b [A]' is in A and 'a [V]' in V: they cannot be added"]),
        (
            {"a [V]": 1.0, "b [A]": -0.05},
            ["'b [A]' is in A and 'a [V]' in V: they can be added only if the factor 0.05 has a unit of its own"],
        ),
        (
            {"b [A]": -0.05, "a [V]": 1.0},
            ["'b [A]' is in A and 'a [V]' in V: they can be added only if the factor 0.05 has a unit of its own"],
        ),
        (
            {"a [K]": 1.0, "b [°C]": -1.0},
            ["'b [°C]' is in °C and 'a [K]' in K: their zeros differ by 273.15 in base units"],
        ),
        ({"a [V]": 1.0, "b [bananas]": -1.0}, ["the unit 'bananas' of 'b [bananas]' cannot be read"]),
        ({"a [W]": 1.0, "b [J/s]": -1.0}, []),
    ],
)
def test_units_of_a_balance_are_compared(coefficients, faults):
    assert unit_faults(coefficients) == faults


def test_without_pint_no_unit_is_read_and_none_forbids_anything(without_pint):
    assert not available()
    assert read_unit("V") is None
    assert same_dimension("a [V]", "b [A]")


def test_with_pint_units_are_available():
    assert available()


def test_conversions_bring_terms_without_a_factor_to_each_unit_that_occurs():
    found = conversions({"P [kW]": 1.0, "Q [MW]": -1.0, "R [W]": -0.001, "share": 1.0})
    assert found == {"kW": {"Q [MW]": 1000.0}, "MW": {"P [kW]": 0.001}, "W": {"P [kW]": 1000.0, "Q [MW]": 1e6}}


@pytest.mark.parametrize("other", ["I [A]", "T [°F]", "x [bananas]"])
def test_units_that_cannot_be_converted_are_left_alone(other):
    same = {"T [K]": 1.0, "U [K]": -1.0, other: 1.0}
    assert not any(conversions(same).values())


def test_without_pint_nothing_is_converted(without_pint):
    assert conversions({"P [kW]": 1.0, "Q [MW]": -1.0}) == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 V"), (0.2345, "0.23 V"), (-0.004, "-0.004 V"), (1234.0, "1200 V"), (2e7, "2e+07 V"), (3e-9, "3e-09 V")],
)
def test_numbers_are_written_with_two_digits(value, text):
    assert format_quantity(value, "V") == text
    assert format_quantity(value) == text.removesuffix(" V")
