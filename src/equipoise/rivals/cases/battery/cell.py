"""Constant-current discharges of a lithium-ion cell: PyBaMM's single particle model with one lumped temperature."""

from __future__ import annotations

import os
from importlib import metadata
from itertools import product
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from tqdm.auto import tqdm

from equipoise.balances import did_you_mean
from equipoise.errors import EquipoiseError, MissingPackageError

INPUTS = ("I [A]", "SOC", "T [K]")  # the ambient temperature; that of the cell results from the discharge
KEYS = {
    "V": "V [V]",
    "V_OCV": "V_OCV [V]",
    "eta_p": "eta_p [V]",
    "eta_n": "eta_n [V]",
    "dV_IR": "dV_IR [V]",
    "Q_tot": "Q_tot [W.m-3]",
    "Q_rev": "Q_rev [W.m-3]",
    "Q_irr": "Q_irr [W.m-3]",
}
OUTPUTS = tuple(KEYS.values())

CURRENT, AMBIENT, INITIAL = "Current function [A]", "Ambient temperature [K]", "Initial temperature [K]"
# With PyBaMM's own 1e-4, heats are wrong by 25 to 100 W/m³; with this, by far less than the 0.03 W/m³ of sensors.
SOLVER_TOLERANCE = 1e-10
MISSING = "The battery study needs PyBaMM, but it is not installed. Run: pip install 'equipoise[battery]'."

Solution = Any  # pybamm.Solution; PyBaMM is imported when it is needed
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CellError(EquipoiseError, ValueError):
    """The cell or one of its discharges cannot be simulated."""


class ConfigError(EquipoiseError, ValueError):
    """A configuration of the battery case has a field that cannot be used; the message names it."""


class Config(BaseModel):
    """Base of the battery case's configurations: frozen, without unknown fields, and with errors of the library."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **fields: Any):
        try:
            super().__init__(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "its fields"
            if first["type"] == "value_error":  # a sentence of ours, from a validator or from a part of this
                raise ConfigError(first["msg"].removeprefix("Value error, ")) from error
            got = f"{first['input']!r} ({first['msg']})"
            raise ConfigError(f"{place} of {type(self).__name__} must be valid, but got {got}.") from error


class CellConfig(Config):
    """A cell and the grid of its discharges, one for each current and ambient temperature.

    Attributes:
        parameter_set: Name of a PyBaMM parameter set.
        contact_resistance: In Ω; the single particle model has no other ohmic loss.
        currents: In A, or C-rates.
        currents_are_c_rates: Whether `currents` are C-rates, to be multiplied by the nominal capacity in A h.
        temperatures: Ambient temperatures in K, which are also those of the cell at the start.
        soc_points: Rows of each discharge, evenly spaced in state of charge.
        soc_start: State of charge at the start.
        soc_end: State of charge at the end, if the voltage cut-off does not come first.
    Raises: ConfigError, if a value is out of its range.
    """

    parameter_set: str = "Ai2020"
    contact_resistance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    currents: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    currents_are_c_rates: bool = False
    temperatures: Annotated[tuple[Positive, ...], Field(min_length=1)] = (273, 283, 293, 298, 303, 313, 318)
    soc_points: Annotated[int, Field(ge=2)] = 500
    soc_start: Annotated[float, Field(gt=0, le=1)] = 0.95
    soc_end: Annotated[float, Field(ge=0, lt=1)] = 0.05

    @model_validator(mode="after")
    def _check(self) -> CellConfig:
        if self.soc_end >= self.soc_start:
            got = f"{self.soc_end} and {self.soc_start}"
            raise ValueError(f"soc_end must be less than soc_start, but got {got}. Exchange them.")
        for field in ("currents", "temperatures"):
            values = getattr(self, field)
            if len(set(values)) < len(values):
                raise ValueError(f"{field} must differ from each other, but got {values}. Drop the repeated one.")
        return self


class Cell:
    """A cell to be discharged; PyBaMM's model is built once for all currents and temperatures.

    Args:
        config: The cell and the grid of its discharges.

    Attributes:
        config: The same.
        capacity: Charge between empty and full in A h, from the lithium content.
        nominal_capacity: Charge in A h that C-rates refer to.
    Raises: CellError, if PyBaMM has no such parameter set, or the set lacks parameters of the model.
        MissingPackageError, if PyBaMM is not installed.
    """

    def __init__(self, config: CellConfig):
        name, known = config.parameter_set, list(import_pybamm().parameter_sets)
        rule = "parameter_set must be the name of a PyBaMM parameter set"
        if name not in known:
            raise CellError(f"{rule}, but got {name!r}. {did_you_mean(name, known)}")
        self.config = config
        try:
            self._build()
        except KeyError as error:
            got = f"{name!r} (" + str(error.args[0]).split(". ")[0] + ")"
            raise CellError(f"{rule} of a whole cell with its heat, but got {got}. Choose another.") from error

    def _build(self) -> None:
        pybamm, config = import_pybamm(), self.config
        values = pybamm.ParameterValues(config.parameter_set)
        model = pybamm.lithium_ion.SPM({"thermal": "lumped", "contact resistance": "true"})
        self._empty, self._full, *_ = map(float, pybamm.lithium_ion.get_min_max_stoichiometries(values))
        self.capacity = float(values.evaluate(model.param.n.Q_init)) * (self._full - self._empty)
        self.nominal_capacity = float(values["Nominal cell capacity [A.h]"])
        values.set_initial_state(config.soc_start)
        values.update({"Contact resistance [Ohm]": config.contact_resistance}, check_already_exists=False)
        values.update(dict.fromkeys((CURRENT, AMBIENT, INITIAL), "[input]"))
        solver = pybamm.IDAKLUSolver(rtol=SOLVER_TOLERANCE, atol=SOLVER_TOLERANCE)
        self._simulation = pybamm.Simulation(model, parameter_values=values, solver=solver)
        self._simulation.build()

    def currents(self) -> tuple[float, ...]:
        """Return the currents of the grid in A."""
        unit = self.nominal_capacity if self.config.currents_are_c_rates else 1.0
        return tuple(current * unit for current in self.config.currents)

    def solve(self, current: float, temperature: float) -> Solution:
        """Simulate a discharge at a constant current.

        Args:
            current: In A.
            temperature: Ambient temperature in K.
        Returns: PyBaMM's solution, from `soc_start` to `soc_end`.
        Raises: CellError, if the discharge cannot be simulated.
        """
        seconds = 3600 * self.capacity * (self.config.soc_start - self.config.soc_end) / current
        inputs = {CURRENT: current, AMBIENT: temperature, INITIAL: temperature}
        try:
            return self._simulation.solve([0, seconds], inputs=inputs)
        except import_pybamm().SolverError as error:
            rule = "Discharges must start above the voltage cut-off and be solvable"
            got = f"at {current:g} A and {temperature:g} K: {error}"
            raise CellError(f"{rule}, but got {got}. Take lower currents or a lower contact resistance.") from error

    def soc(self, solution: Solution, seconds: np.ndarray) -> np.ndarray:
        """Compute the state of charge at times of a discharge, from the lithium content of the negative electrode.

        Args:
            solution: From `solve`.
            seconds: Times since the start, shape `(n,)`.
        Returns: States of charge, from 0 to 1, shape `(n,)`.
        """
        stoichiometry = solution["Average negative particle stoichiometry"](seconds)
        return (stoichiometry - self._empty) / (self._full - self._empty)

    def table(self, current: float, temperature: float) -> pd.DataFrame:
        """Simulate one discharge and tabulate it in rows that are evenly spaced in state of charge.

        During a discharge eta_p, eta_n and dV_IR are positive losses: V = V_OCV − eta_p − eta_n − dV_IR, with V_OCV at
        the particles' surfaces. Heats are averages over the cell's volume. PyBaMM does not count the heat of the
        contact resistance in its total, though it warms the cell; here it is part of Q_irr and Q_tot.

        Args:
            current: In A.
            temperature: Ambient temperature in K.
        Returns: Columns `INPUTS` and `OUTPUTS`, one row per point.
        """
        solution = self.solve(current, temperature)
        seconds = np.linspace(0, solution.t[-1], self.config.soc_points)  # at constant current even in charge as well

        def at(name: str) -> np.ndarray:
            return solution[name](seconds)

        contact = at("Lumped contact resistance heating [W.m-3]")
        irreversible = at("Volume-averaged irreversible electrochemical heating [W.m-3]")
        columns: dict[str, Any] = {
            "I [A]": current,
            "SOC": self.soc(solution, seconds),
            "T [K]": float(temperature),
            "V [V]": at("Voltage [V]"),
            "V_OCV [V]": at("Surface open-circuit voltage [V]"),
            "eta_p [V]": -at("X-averaged positive electrode reaction overpotential [V]"),
            "eta_n [V]": at("X-averaged negative electrode reaction overpotential [V]"),
            "dV_IR [V]": at("Contact overpotential [V]"),
            "Q_tot [W.m-3]": at("Volume-averaged total heating [W.m-3]") + contact,
            "Q_rev [W.m-3]": at("Volume-averaged reversible heating [W.m-3]"),
            "Q_irr [W.m-3]": irreversible + at("Volume-averaged Ohmic heating [W.m-3]") + contact,
        }
        return pd.DataFrame(columns)


def simulate(config: CellConfig, progress: bool = False) -> pd.DataFrame:
    """Simulate all discharges of a grid.

    Args:
        config: The cell and the grid.
        progress: Whether to show a progress bar.
    Returns: One row per point: `INPUTS`, `OUTPUTS`, and the number of the discharge in `discharge`.
    Raises: CellError, if the cell or a discharge cannot be simulated.
    """
    cell = Cell(config)
    grid = list(product(cell.currents(), config.temperatures))
    bar = tqdm(grid, desc="discharges", disable=not progress)
    tables = [cell.table(*point).assign(discharge=number) for number, point in enumerate(bar)]
    return pd.concat(tables, ignore_index=True)


def import_pybamm() -> Any:
    """Load the module of PyBaMM with its telemetry switched off.

    Raises: MissingPackageError, if it is not installed.
    """
    os.environ.setdefault("PYBAMM_DISABLE_TELEMETRY", "true")
    try:
        import pybamm
    except ModuleNotFoundError as error:
        if error.name != "pybamm":
            raise
        raise MissingPackageError(MISSING) from None
    return pybamm


def pybamm_version() -> str:
    """Return the version of the installed PyBaMM, without importing it.

    Raises: MissingPackageError, if it is not installed.
    """
    try:
        return metadata.version("pybamm")
    except metadata.PackageNotFoundError:
        raise MissingPackageError(MISSING) from None
