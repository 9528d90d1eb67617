"""Writes `cell.safetensors` and `cell.csv`, a model of the battery study and some of its test rows.

Run by hand after `python -m studies.battery`, which keeps its fits in runs/battery; the arguments are that folder and
a seed of the study:

    python tests/models/make_cell.py runs/battery 1
"""

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.artifact import model_file as artifact
from equipoise.rivals.cases.battery.settings import Settings
from studies.battery.tasks import FitTask

HERE, ROWS = Path(__file__).parent, 240


def main(folder: Path, seed: int) -> None:
    settings = Settings.named("full")
    task = FitTask(settings, "equipoise", seed, folder / "fits" / f"seed-{seed}", folder / "cache")
    data = task.data()
    rows = np.concatenate([data.train, data.validation])
    with tempfile.TemporaryDirectory() as scratch:
        kept = shutil.copy(task._path(".ckpt"), Path(scratch) / "fit.ckpt")
        model = settings.estimator("equipoise", seed, checkpoint=kept)
        model.fit(data.X.iloc[rows], data.Y.iloc[rows], held_out=np.arange(len(data.train), len(rows)))
    model.checkpoint = None
    model.history_ = replace(model.history_, epochs=model.history_.epochs[-1:])  # most of the file, and of no use here
    artifact.save(model, HERE / "cell.safetensors")
    chosen = np.sort(np.random.default_rng(0).permutation(data.test)[:ROWS])
    noise = data.noise_std.iloc[chosen]
    stds = pd.DataFrame({"std of voltages": noise["V [V]"], "std of heats": noise["Q_tot [W.m-3]"]})
    table = pd.concat([data.X.iloc[chosen], data.truth.iloc[chosen], stds], axis=1)
    table.to_csv(HERE / "cell.csv", index=False, float_format="%.8g", lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
