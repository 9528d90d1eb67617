"""The paper's battery cell.

It holds simulated discharges (`simulate`), the table of them with noise and split (`load`), the balances of its columns
and the settings of fits to it (`Settings`). Users, and the paper's study, call it `equipoise.battery`.
"""

from equipoise.rivals.cases.battery.cell import (
    INPUTS,
    KEYS,
    OUTPUTS,
    Cell,
    CellConfig,
    CellError,
    ConfigError,
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
    "ConfigError",
    "DataConfig",
    "DataError",
    "Settings",
    "balances",
    "load",
    "pybamm_version",
    "simulate",
]
