"""Data of the battery study: against PyBaMM's own equations, coulomb counting, and the noise that was asked for."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from equipoise.rivals.cases.battery import (
    INPUTS,
    OUTPUTS,
    Cell,
    CellConfig,
    CellError,
    ConfigError,
    balances,
    cell as cell_module,
    simulate as run_all,
)

pytestmark = pytest.mark.xdist_group("cell")  # one worker has what its tests share

SMALL = CellConfig(currents=(1.0, 1.5, 3.0), temperatures=(273, 313), soc_points=40)
COPIES = 40


@pytest.fixture(scope="module")
def cell():
    return Cell(SMALL)


@pytest.fixture(scope="module")
def table():
    return run_all(SMALL)


@pytest.fixture(scope="module")
def hardest(cell):
    """The discharge with the largest losses: its solution, its table and the times of the table's rows."""
    solution = cell.solve(3.0, 273.0)
    return solution, cell.table(3.0, 273.0), np.linspace(0, solution.t[-1], SMALL.soc_points)


# --- The cell ---------------------------------------------------------------------------------------------------------


def test_both_balances_close_to_rounding(table):
    x, y = table[list(INPUTS)], table[list(OUTPUTS)]
    eps = np.finfo(float).eps
    assert (np.abs(balances().residual(x, y)) <= 4 * eps * balances().magnitude(x, y)).all()


def test_the_total_heat_closes_the_temperature_equation(hardest):
    import pybamm

    solution, table, seconds = hardest
    values = pybamm.ParameterValues("Ai2020")
    inner, step = slice(1, -1), 0.5
    T = solution["Volume-averaged cell temperature [K]"]
    slope = (T(seconds[inner] + step) - T(seconds[inner] - step)) / (2 * step)
    heat_capacity = solution["Volume-averaged effective heat capacity [J.K-1.m-3]"](seconds[inner])
    conductance = values["Total heat transfer coefficient [W.m-2.K-1]"] * values["Cell cooling surface area [m2]"]
    cooling = conductance * (T(seconds[inner]) - 273.0)  # in W
    stored = heat_capacity * slope * values["Cell volume [m3]"]
    total = table["Q_tot [W.m-3]"].to_numpy()[inner] * values["Cell volume [m3]"]
    # The difference quotient is good to about 1e-5; the contact's heat alone is more than a quarter of the total.
    np.testing.assert_allclose(stored + cooling, total, rtol=2e-5)


def test_irreversible_heat_is_the_current_times_the_lost_voltages(table):
    import pybamm

    lost = table[["eta_p [V]", "eta_n [V]", "dV_IR [V]"]].sum(axis=1)
    volume = pybamm.ParameterValues("Ai2020")["Cell volume [m3]"]
    np.testing.assert_allclose(table["Q_irr [W.m-3]"] * volume, table["I [A]"] * lost, rtol=1e-9)


def test_losses_are_positive_and_the_contact_drop_is_ohms_law(table):
    assert (table[["eta_p [V]", "eta_n [V]", "dV_IR [V]"]] > 0).all(axis=None)
    np.testing.assert_allclose(table["dV_IR [V]"], 0.05 * table["I [A]"], rtol=1e-13)


def test_the_first_open_circuit_voltage_is_that_of_the_resting_cell(cell):
    import pybamm

    values = pybamm.ParameterValues("Ai2020")
    x, y = pybamm.lithium_ion.get_initial_stoichiometries(0.95, values)
    param: Any = pybamm.LithiumIonParameters()
    at_rest = [values.evaluate(e.prim.U(pybamm.Scalar(s), 298.15)) for e, s in ((param.p, y), (param.n, x))]
    first = cell.table(1.0, 298.15)["V_OCV [V]"][0]
    assert first == pytest.approx(np.subtract(*at_rest).item(), rel=1e-9)


def test_the_state_of_charge_counts_coulombs_and_agrees_between_electrodes(cell, hardest):
    import pybamm

    solution, table, seconds = hardest
    *_, full, empty = pybamm.lithium_ion.get_min_max_stoichiometries(pybamm.ParameterValues("Ai2020"))
    positive = solution["Average positive particle stoichiometry"](seconds)
    np.testing.assert_allclose(table["SOC"], (empty - positive) / (empty - full), atol=1e-9)
    np.testing.assert_allclose(table["SOC"], 0.95 - 3.0 * seconds / 3600 / cell.capacity, atol=1e-9)
    np.testing.assert_allclose(table["SOC"], np.linspace(0.95, 0.05, 40), atol=1e-9)


def test_a_discharge_that_meets_the_cut_off_has_its_rows_evenly_before_it():
    table = Cell(SMALL.model_copy(update={"parameter_set": "Marquis2019"})).table(3.0, 273.0)
    assert len(table) == 40
    assert table["V [V]"].iloc[-1] == pytest.approx(3.105, abs=1e-7)
    assert 0.3 < table["SOC"].iloc[-1] < 0.4
    np.testing.assert_allclose(np.diff(table["SOC"], n=2), 0, atol=1e-9)


def test_the_solver_errs_far_less_than_the_sensors(hardest, monkeypatch):
    monkeypatch.setattr(cell_module, "SOLVER_TOLERANCE", 1e-12)
    error = (Cell(SMALL).table(3.0, 273.0) - hardest[1]).abs().max()
    assert error["V [V]"] < 0.002 / 1000
    assert error["Q_tot [W.m-3]"] < 0.030 / 100


def test_the_grid_has_a_numbered_discharge_for_each_current_and_temperature(table):
    first = table.groupby("discharge")[["I [A]", "T [K]"]].agg(["min", "max"]).to_numpy()
    grid = [(1.0, 273), (1.0, 313), (1.5, 273), (1.5, 313), (3.0, 273), (3.0, 313)]
    np.testing.assert_array_equal(first, [(i, i, t, t) for i, t in grid])
    assert table.columns.tolist() == [*INPUTS, *OUTPUTS, "discharge"]
    assert table.groupby("discharge").size().tolist() == [40] * 6


def test_c_rates_are_multiples_of_the_nominal_capacity(cell):
    in_rates = Cell(SMALL.model_copy(update={"currents_are_c_rates": True}))
    assert cell.currents() == (1.0, 1.5, 3.0)
    assert in_rates.currents() == pytest.approx((2.28, 3.42, 6.84), rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"curents": (1.0,)}, r"curents of .*Extra inputs are not permitted"),
        ({"soc_start": 0.2, "soc_end": 0.4}, r"soc_end must be less than soc_start, but got 0\.4 and 0\.2"),
        ({"currents": (1.0, 1.0)}, r"currents must differ from each other, but got \(1\.0, 1\.0\)"),
        ({"currents": ()}, "currents of "),
        ({"currents": (1.0, -1.0)}, r"currents\.1 of "),
        ({"temperatures": (float("nan"),)}, r"temperatures\.0 of "),
        ({"soc_points": 1}, "soc_points of "),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        CellConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"parameter_set": "Ai2021"}, r"but got 'Ai2021'\. Did you mean 'Ai2020'"),
        ({"parameter_set": "Xu2019"}, r"a whole cell with its heat, but got 'Xu2019' \(Parameter 'Negative electrode"),
        ({"contact_resistance": 2.0}, r"above the voltage cut-off .* but got at 1 A and 273 K: .*Minimum voltage"),
    ],
)
def test_a_cell_that_cannot_be_simulated_says_why(fields, message):
    with pytest.raises(CellError, match=message):
        run_all(SMALL.model_copy(update=fields))


def test_without_pybamm_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybamm", None)
    with pytest.raises(ImportError, match=r"needs PyBaMM.*pip install 'equipoise\[battery\]'"):
        run_all(SMALL)


def test_importing_the_package_does_not_import_pybamm():
    program = "import sys; sys.modules['pybamm'] = None"
    program += "; import equipoise.rivals.cases.battery as b; print(b.balances().names)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("('voltage', 'heat')", "")
