"""The paper's battery cell.

It holds simulated discharges (`simulate`), the table of them with noise and split (`load`), the balances of its columns
and the settings of fits to it (`Settings`).
"""

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
