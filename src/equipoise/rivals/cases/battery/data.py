"""The table of the battery study: simulated discharges with measurement noise, split for training and testing."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, model_validator

from equipoise.balances import LinearConstraint
from equipoise.data import write_atomically
from equipoise.errors import EquipoiseError
from equipoise.rivals.cases.battery.cell import INPUTS, OUTPUTS, CellConfig, Config, pybamm_version, simulate

FORMAT = 1  # of the cache; to be raised when the result of `simulate` changes
BALANCES = {"voltage": "V = V_OCV - eta_p - eta_n - dV_IR", "heat": "Q_tot = Q_rev + Q_irr"}

log = logging.getLogger(__name__)

Integers = NDArray[np.intp]
Std = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]


class DataError(EquipoiseError, ValueError):
    """Rows were requested that the data do not have."""


class DataConfig(Config):
    """The configuration of simulation, noise and split.

    Attributes:
        cell: The cell and its discharges.
        seed: Seed of noise and split.
        voltage_noise: Standard deviation in V at the grid's lowest and highest current, linear in between.
        heat_noise: Likewise for the heats, in W/m³.
        split: Shares of rows for training, validation and test.
    Raises: ConfigError, if a value is out of its range.
    """

    cell: CellConfig = CellConfig()
    seed: Annotated[int, Field(ge=0)] = 0
    voltage_noise: tuple[Std, Std] = (0.002, 0.005)
    heat_noise: tuple[Std, Std] = (0.030, 0.050)
    split: tuple[Share, Share, Share] = (0.6, 0.2, 0.2)

    @model_validator(mode="after")
    def _check(self) -> DataConfig:
        if abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(f"split must add up to 1, but got {self.split}. Change one of the shares.")
        return self


@dataclass(frozen=True, eq=False)
class BatteryData:
    """A table of discharges, and which of its rows are for training, validation and testing.

    Attributes:
        X: Inputs, columns `INPUTS`.
        Y: Measured outputs, columns `OUTPUTS`.
        truth: Outputs without noise.
        noise_std: Standard deviation of the noise, of each row and output.
        discharge: Number of the discharge of each row.
        train: Numbers of the rows for training.
        validation: Numbers of the rows for stopping and tuning.
        test: Numbers of the rows for the final comparison.
    """

    X: pd.DataFrame
    Y: pd.DataFrame
    truth: pd.DataFrame
    noise_std: pd.DataFrame
    discharge: Integers
    train: Integers
    validation: Integers
    test: Integers

    def part(self, name: Literal["train", "validation", "test"]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Select inputs and measured outputs of one part; their index holds the numbers of the rows."""
        rows = getattr(self, name)
        return self.X.iloc[rows], self.Y.iloc[rows]

    def leave_out(self, current: float | None = None, temperature: float | None = None) -> BatteryData:
        """Test on all rows of the discharges with a current or temperature, and train without them.

        Args:
            current: In A; None for any.
            temperature: In K; None for any.
        Returns: The same table with other rows for training, validation and testing.
        Raises: DataError, if neither is given, or a value is not on the grid.
        """
        chosen = {"I [A]": current, "T [K]": temperature}
        if current is None and temperature is None:
            raise DataError("leave_out() must get a current or a temperature, but got neither. Give one of them.")
        out = np.zeros(len(self.X), bool)
        for column, value in chosen.items():
            if value is not None:
                out |= self._rows_with(column, value)
        train, validation = self.train[~out[self.train]], self.validation[~out[self.validation]]
        return replace(self, train=train, validation=validation, test=np.flatnonzero(out))

    def fewer(self, n_train: int, seed: int = 0) -> BatteryData:
        """Keep `n_train` training rows, and at most a third as many for validation; the test rows stay.

        With the same seed, the rows of a smaller number are among those of a larger one.

        Args:
            n_train: Number of training rows, from 3 to those there are.
            seed: Seed of the selection.
        Returns: The same table with fewer rows for training and validation.
        Raises: DataError, if there are not as many training rows.
        """
        most = len(self.train)
        if not 3 <= n_train <= most:
            raise DataError(f"n_train must be 3 to {most}, but got {n_train}. Take a number in this range.")
        rng = np.random.default_rng(seed)
        train, validation = rng.permutation(self.train), rng.permutation(self.validation)
        return replace(self, train=train[:n_train], validation=validation[: n_train // 3])

    def _rows_with(self, column: str, value: float) -> NDArray[np.bool_]:
        equal = np.isclose(self.X[column], value, rtol=1e-9, atol=0)
        if not equal.any():
            grid = ", ".join(f"{v:g}" for v in self.X[column].unique())
            raise DataError(f"{column!r} must be a value of the grid, but got {value}. Choose one of: {grid}.")
        return equal


def load(config: DataConfig, cache: Path | None = None, progress: bool = False) -> BatteryData:
    """Simulate the discharges, or read them from the cache, and add noise.

    Args:
        config: The configuration of simulation, noise and split.
        cache: Folder that keeps simulations, or None to keep nothing.
        progress: Whether to show a progress bar while simulating.
    Returns: The table of all discharges with noise, split into rows for training, validation and test.
    Raises: CellError, if the discharges cannot be simulated. MissingPackageError, if PyBaMM is needed and not
        installed.
    """
    table = _simulated(config.cell, cache, progress)
    X, truth = table.reindex(columns=list(INPUTS)), table.reindex(columns=list(OUTPUTS))
    noise_rng, split_rng = np.random.default_rng(config.seed).spawn(2)
    noise_std = _noise_std(config, table["I [A]"].to_numpy())
    Y = truth + noise_rng.standard_normal(truth.shape) * noise_std
    n, (train, validation, _) = len(table), config.split
    ends = [round(train * n), round((train + validation) * n)]
    parts = [np.sort(rows) for rows in np.split(split_rng.permutation(n), ends)]
    return BatteryData(X, Y, truth, noise_std, table["discharge"].to_numpy(np.intp), *parts)


def balances() -> LinearConstraint:
    """Return the balances of the outputs, 'voltage' and 'heat'.

    Example:
        >>> balances()
        LinearConstraint(2 balances, 3 inputs, 0 known, 8 outputs)
          'voltage' [V]: V = V_OCV - eta_p - eta_n - dV_IR
          'heat' [W.m-3]: Q_tot = Q_rev + Q_irr
    """
    return LinearConstraint.from_equations(BALANCES, inputs=INPUTS, outputs=OUTPUTS)


def _noise_std(config: DataConfig, current: NDArray) -> pd.DataFrame:
    low, high = current.min(), current.max()
    fraction = (current - low) / (high - low or 1.0)
    ranges = {name: config.voltage_noise if name.endswith("[V]") else config.heat_noise for name in OUTPUTS}
    return pd.DataFrame({name: first + (last - first) * fraction for name, (first, last) in ranges.items()})


def _simulated(config: CellConfig, cache: Path | None, progress: bool) -> pd.DataFrame:
    if cache is None:
        return simulate(config, progress)
    identity = f"format {FORMAT}, PyBaMM {pybamm_version()}, {config.model_dump_json()}"
    path = Path(cache) / f"battery-{_digest(identity)[:16]}.npz"
    table = _read(path, identity) if path.exists() else None
    if table is None:
        table = simulate(config, progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, identity, table)
    return table


def _write(path: Path, identity: str, table: pd.DataFrame) -> None:
    columns, values = np.array(table.columns, dtype=str), table.to_numpy(np.float64)
    checksum = _digest(identity, *columns, values.tobytes())
    content = {"identity": identity, "columns": columns, "values": values, "checksum": checksum}
    write_atomically(path, lambda file: np.savez(file, **content))


def _read(path: Path, identity: str) -> pd.DataFrame | None:
    """Read the table in a file; return None if the file is damaged or was written for another identity."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            content = {name: file[name] for name in ("identity", "columns", "values", "checksum")}
        columns, values = content["columns"].tolist(), content["values"]
        checksum = _digest(str(content["identity"]), *columns, values.tobytes())
        if (str(content["identity"]), str(content["checksum"])) != (identity, checksum):
            raise ValueError("its content does not match its checksum")
        return pd.DataFrame(values, columns=columns).astype({"discharge": int})
    except Exception as error:  # a damaged archive fails in many ways
        log.warning("The cached simulation '%s' is not usable (%s). It is simulated anew.", path, error)
        return None


def _digest(*parts: str | bytes) -> str:
    joined = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        joined.update(len(raw).to_bytes(8, "big") + raw)
    return joined.hexdigest()
