"""The paper's battery cell: simulated discharges, their table with noise and split, and the settings of its fits."""

from equipoise.rivals.cases.battery.cell import (
    INPUTS,
    KEYS,
    OUTPUTS,
    Cell,
    CellConfig,
    CellError,
    pybamm_version,
    simulate,
)
from equipoise.rivals.cases.battery.data import BatteryData, DataConfig, DataError, balances, load
from equipoise.rivals.cases.battery.settings import OURS, Settings

__all__ = [
    "INPUTS",
    "KEYS",
    "OURS",
    "OUTPUTS",
    "BatteryData",
    "Cell",
    "CellConfig",
    "CellError",
    "DataConfig",
    "DataError",
    "Settings",
    "balances",
    "load",
    "pybamm_version",
    "simulate",
]
