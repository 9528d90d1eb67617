"""Data of the battery study: discharges of a lithium-ion cell, simulated with PyBaMM, and measured with noise."""

from equipoise.battery.cell import INPUTS, KEYS, OUTPUTS, Cell, CellConfig, CellError, simulate
from equipoise.battery.data import BatteryData, DataConfig, DataError, balances, load

__all__ = [
    "INPUTS",
    "KEYS",
    "OUTPUTS",
    "BatteryData",
    "Cell",
    "CellConfig",
    "CellError",
    "DataConfig",
    "DataError",
    "balances",
    "load",
    "simulate",
]
