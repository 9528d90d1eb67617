"""Tuning of the battery study: architecture and training, which the paper does not give, chosen for the plain BNN.

Trials are judged by the validation rows; the test rows are not used. All models of the study share what is chosen.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equipoise import ConstrainedBNNRegressor, battery, exit_code_of, tuning
from studies.battery.files import write_text

FOLDER = Path("runs/battery/tune")


@dataclass(frozen=True)
class TuneConfig:
    """The configuration of a search.

    Attributes:
        data: The discharges and their noise.
        space: Parameters to search, with their ranges.
        first: Values of the first trial.
        max_epochs: Number of epochs of every trial.
    """

    data: battery.DataConfig
    space: tuning.Space
    first: Mapping[str, Any]
    max_epochs: int


FULL = TuneConfig(
    data=battery.DataConfig(seed=1),
    space={
        "hidden": tuning.Choice([(64, 64), (32, 32, 32), (48, 48, 48), (64, 64, 64)]),
        "mean_learning_rate": tuning.Uniform(5e-3, 3e-2, log=True),
        "learning_rate": tuning.Uniform(1e-3, 1e-2, log=True),
        "std_rate": tuning.Choice([1.0, 3.0, 10.0]),
        "kl_warmup": tuning.Choice([0.1, 0.2, 0.4]),
    },
    first={
        "hidden": (48, 48, 48),
        "mean_learning_rate": 2e-2,
        "learning_rate": 3e-3,
        "std_rate": 3.0,
        "kl_warmup": 0.2,
    },
    max_epochs=600,
)
SMALL = TuneConfig(
    data=battery.DataConfig(
        cell=battery.CellConfig(currents=(1.0, 3.0), temperatures=(273, 313), soc_points=40), seed=1
    ),
    space={**FULL.space, "hidden": tuning.Choice([(8,), (16,)])},
    first={"hidden": (16,)},
    max_epochs=20,
)


def main(
    folder: Path = FOLDER,
    n_trials: int = 20,
    timeout: float | None = None,
    *,
    cache: Path | None = None,
    config: TuneConfig = FULL,
    verbose: bool = True,
) -> tuning.TuningResult:
    """Run or continue a search; write `trials.csv` and `best.json` beside the journal, and print the best trials.

    Args:
        folder: Folder for the journal and the results.
        n_trials: Number of finished trials, those of earlier starts included, at which the search ends.
        timeout: Seconds after which this start ends; None for no limit.
        cache: Folder of simulated discharges; None for `cache` in `folder`.
        config: The configuration of the search.
        verbose: Whether to show progress bars.
    Returns: All trials and the best parameters.
    """
    folder = Path(folder)
    data = battery.load(config.data, cache=folder / "cache" if cache is None else Path(cache), progress=verbose)
    X, Y, held_out = _rows(data)
    bnn = ConstrainedBNNRegressor(None, sensor_std=None, max_epochs=config.max_epochs, random_state=0)
    result = tuning.tune(
        bnn,
        X,
        Y,
        config.space,
        held_out=held_out,
        n_trials=n_trials,
        journal=folder / "journal.log",
        timeout=timeout,
        first=[config.first],
        verbose=verbose,
    )
    _write(folder, result, config)
    print(_summary(folder, result))
    return result


def _rows(data: battery.BatteryData) -> tuple[Any, Any, np.ndarray]:
    """Select rows for training, then those for validation, and return the positions of the latter too."""
    rows = np.concatenate([data.train, data.validation])
    return data.X.iloc[rows], data.Y.iloc[rows], np.arange(len(data.train), len(rows))


def _write(folder: Path, result: tuning.TuningResult, config: TuneConfig) -> None:
    best = {
        "parameters": result.parameters | {"max_epochs": config.max_epochs},
        "value": result.value,
        "n_trials": len(result.trials),
        "seconds": round(result.seconds, 1),
        "data": config.data.model_dump(mode="json"),
    }
    write_text(folder / "trials.csv", result.trials.to_csv())
    write_text(folder / "best.json", json.dumps(best, indent=2) + "\n")


def _summary(folder: Path, result: tuning.TuningResult) -> str:
    states = result.trials["state"].value_counts()
    counts = ", ".join(f"{states.get(state, 0)} {state}" for state in ("complete", "pruned", "failed"))
    table = result.trials.drop(columns="reason").head(10).to_string(float_format=lambda number: f"{number:.4g}")
    return (
        f"{len(result.trials)} trials in {result.seconds / 60:.1f} minutes ({counts}). Best first, value = expected "
        f"NLL per validation row in standardized units:\n\n{table}\n\nWritten: {folder / 'best.json'}, trials.csv"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies.battery.tune",
        description="Choose network and training of the battery study on its validation rows. "
        "Ctrl-C is safe: the next start continues.",
    )
    trials = "end at this many finished trials, those of earlier starts included (default: %(default)s)"
    folder = "where the journal and the results are kept (default: %(default)s)"
    parser.add_argument("--trials", type=int, default=20, help=trials)
    parser.add_argument("--minutes", type=float, help="end this start after so many minutes (default: no limit)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=folder)
    parser.add_argument("--cache", type=Path, help="folder of simulated discharges (default: cache in the folder)")
    parser.add_argument("--small", action="store_true", help="few rows, small networks and short fits, for tests")
    parser.add_argument("--debug", action="store_true", help="show where in the code an error came from")
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    timeout = None if options.minutes is None else 60 * options.minutes
    config = SMALL if options.small else FULL
    try:
        main(options.folder, options.trials, timeout, cache=options.cache, config=config)
    except KeyboardInterrupt:
        print(f"Stopped. Finished trials are kept in '{options.folder}'; start again to continue.", file=sys.stderr)
        return 130
    except Exception as error:
        words = sys.argv[1:] if arguments is None else arguments
        return exit_code_of(error, words, program="python -m studies.battery.tune", debug=options.debug)
    return 0


if __name__ == "__main__":
    sys.exit(run())
