"""Fit eight small seeded cases through the public face of the library and write everything that follows from them.

`benchmarks.net` runs this file as a script, once for each source tree, with that tree first on PYTHONPATH. It imports
nothing but `equipoise` and uses nothing but what README.md and docs/guide.md show, so that it runs on trees of any age.

For each case and seed it writes a folder with `arrays.npz` (numbers), `texts.json` (everything that is not a number),
`model.safetensors` and, where training is interrupted on purpose, `cut.ckpt`. Keys read "group: detail".
"""

import argparse
import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy

import equipoise as eq

N_FIT, N_NEW, N_SAMPLES = 120, 70, 40  # 70 rows are more than one block of 64, 40 draws more than one block of 32
INPUTS, FLOWS = ["u", "v"], ["total", "a", "b"]
PLANT = ["feed", "top", "bottom", "heat", "loss", "duty"]
LEDGER = ("aleatoric", "reduction", "epistemic", "shift", "interaction", "sensor", "total", "before", "tolerance_share")
LONG_ENOUGH = 40  # epochs, to be interrupted in the second phase
UNSTABLE = ("versions", "checksum")  # parts of a model file's header that depend on the machine


@dataclass(frozen=True)
class Case:
    """One of the eight cases.

    Args:
        equations: Balances as text; none for a network without balances.
        outputs: Names of the outputs.
        options: Called for the estimator's other parameters.
        noise: Standard deviation of the simulated meters.
        gaps: Share of outputs that are missing in the rows to fit.
        cut: Whether training is also interrupted and continued.
    """

    equations: dict[str, str]
    outputs: list[str] = field(default_factory=lambda: list(FLOWS))
    options: Callable[[], dict[str, Any]] = dict
    noise: float = 0.1
    gaps: float = 0.0
    cut: bool = False


SUM = {"sum": "total = a + b"}
CASES = {
    "marginal": Case(SUM, options=lambda: {"likelihood": "marginal", "tolerance": eq.TolerancePrior.paper()}),
    "learned sensors": Case(SUM),
    "given sensors": Case(SUM, options=lambda: {"sensor_std": [0.1, 0.1, 0.2]}, cut=True),
    "exact": Case(SUM, options=lambda: {"sensor_std": None, "tolerance": 0}, noise=0.0),
    "offset": Case({"sum": "total = a + b + 0.3"}, options=lambda: {"offset": True}, cut=True),
    "no balances": Case({}, options=lambda: {"activation": "tanh"}),
    "missing outputs": Case(SUM, options=lambda: {"sensor_std": {"a": 0.1}}, gaps=0.2),
    "coupled balances": Case(
        {"mass": "feed = top + bottom", "energy": "duty = heat + loss + 0.5*u", "split": "feed = 2*top + 0.1*heat - v"},
        outputs=PLANT,
        options=lambda: {"tolerance": {"mass": 0, "energy": 0.2}, "sensor_std": {"feed": 0.1, "top": 0.1}},
    ),
}


def main() -> None:
    """Fit what the command line asks for."""
    options = _options()
    print(eq.__file__)
    for seed in options.seeds:
        for name in options.cases:
            folder = options.out / str(seed) / name
            folder.mkdir(parents=True)
            earlier = folder if options.earlier is None else options.earlier / str(seed) / name
            write(folder, dict(everything(CASES[name], seed, options, folder, earlier)))
    if options.fixtures is not None:
        (folder := options.out / "fixtures").mkdir()
        write(folder, dict(of_fixtures(options.fixtures)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--earlier", type=Path, help="what the other tree wrote: open its models and checkpoints")
    parser.add_argument("--fixtures", type=Path, help="folder with model files that every version must open")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument(
        "--last-bit", action="store_true", help="change the inputs by about one bit of single precision"
    )
    parser.add_argument("--no-checkpoints", action="store_true", help="do not interrupt any training")
    return parser.parse_args()


# --- Data -------------------------------------------------------------------------------------------------------------


def table(case: Case, seed: int, n: int, part: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return inputs and measured outputs of `n` rows; the balances hold for the outputs before noise."""
    rng = np.random.default_rng([seed, part])
    u, v = rng.uniform(-1, 1, (2, n))
    a, b = 2 + np.sin(2 * u) + 0.2 * rng.normal(size=n), 1 + u * v
    truth = {"a": a, "b": b, "total": a + b + (0.3 if "0.3" in case.equations.get("sum", "") else 0.0)}
    top, loss = 1 + 0.5 * v**2, 0.2 + 0.05 * u
    heat = 3 + u + 0.1 * rng.normal(size=n)
    feed = 2 * top + 0.1 * heat - v
    truth |= {"top": top, "heat": heat, "loss": loss, "feed": feed, "bottom": feed - top, "duty": heat + loss + 0.5 * u}
    Y = pd.DataFrame({name: truth[name] for name in case.outputs})
    Y = Y + case.noise * rng.normal(size=Y.shape)
    return pd.DataFrame({"u": u, "v": v}), Y.mask(rng.uniform(size=Y.shape) < case.gaps)


def with_last_bit_changed(X: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return inputs that differ from X by one part in 2²³, up or down."""
    signs = np.random.default_rng([seed, 99]).choice([-1.0, 1.0], X.shape)
    return X * (1 + 2.0**-23 * signs)


# --- One case ---------------------------------------------------------------------------------------------------------


def everything(case: Case, seed: int, options: argparse.Namespace, folder: Path, earlier: Path) -> Iterator:
    """Yield names and values of all that follows from one fit."""
    (X, Y), (new_X, new_Y) = table(case, seed, N_FIT, 0), table(case, seed, N_NEW, 1)
    if options.last_bit:
        X, new_X = with_last_bit_changed(X, seed), with_last_bit_changed(new_X, seed + 1)
    model = estimator(case, seed, options.epochs).fit(X, Y)
    yield from predicted(model, new_X, new_Y)
    yield from learned(model)
    yield from reconciled(case, model, new_X, new_Y)
    model.save(folder / "model.safetensors")
    yield from stored(folder / "model.safetensors")
    yield from under("old file", predicted(eq.load(earlier / "model.safetensors"), new_X, new_Y))
    if case.cut and not options.no_checkpoints:
        epochs = max(options.epochs, LONG_ENOUGH)
        if earlier == folder:
            interrupt(estimator(case, seed, epochs), X, Y, folder / "cut.ckpt")
        shutil.copy(earlier / "cut.ckpt", folder / "continued.ckpt")
        again = estimator(case, seed, epochs).set_params(checkpoint=folder / "continued.ckpt").fit(X, Y)
        yield from under("checkpoint", predicted(again, new_X, new_Y))
        yield "checkpoint: epochs", np.array([len(again.history_.epochs)])


def estimator(case: Case, seed: int, epochs: int) -> Any:
    """Return the case's estimator, not fitted yet."""
    balances = None
    if case.equations:
        balances = eq.LinearConstraint.from_equations(case.equations, inputs=INPUTS, outputs=case.outputs)
    paper = {"training": eq.TrainingPlan(temperature=1)} if case is CASES["marginal"] else {}
    small = {"hidden": (16, 12), "max_epochs": epochs, "n_draws": 48, "random_state": seed}
    return eq.ConstrainedBNNRegressor(balances, **{**small, **paper, **case.options()})


def predicted(model: Any, X: pd.DataFrame, Y: pd.DataFrame) -> Iterator:
    """Yield what a fitted model says of new rows, true and measured values."""
    for name, p in (
        ("", model.predict_distribution(X)),
        (" of measured values", model.predict_distribution(X).measured()),
    ):
        lower, upper = p.interval(0.9)
        draws = p.sample(N_SAMPLES)
        yield f"mean: mean{name}", np.asarray(p.mean)
        yield f"std: std{name}", np.asarray(p.std)
        yield f"interval: 90 %{name}", np.stack([lower, upper])
        yield f"samples: draws{name}", draws
        yield f"moments of samples: mean{name}", draws.mean(axis=0)
        yield f"moments of samples: std{name}", draws.std(axis=0)
        yield f"covariance: covariance{name}", p.covariance()
        yield f"log density: log_prob{name}", p.log_prob(np.asarray(Y if name else p.mean))
        ledger = p.ledger()
        yield f"ledger: terms{name}", np.stack([getattr(ledger, term) for term in LEDGER])
        yield f"ledger: lost without{name}", ledger.lost_without
    yield "mean: predict", np.asarray(model.predict(X))


def learned(model: Any) -> Iterator:
    """Yield the tables of tolerances and sensors, and how training went."""
    for group, frame in (("tolerances", model.tolerances_), ("sensors", model.sensor_std_)):
        yield f"{group}: rows", [str(name) for name in frame.index]
        for column in frame.columns:
            numeric = frame[column].dtype.kind == "f"
            yield f"{group}: {column}", frame[column].to_numpy() if numeric else [str(value) for value in frame[column]]
    yield "history: held out", np.asarray(model.held_out_)
    records = ({name: value for name, value in epoch.items() if name != "seconds"} for epoch in model.history_.epochs)
    yield from under("history", flattened(list(records)))


def reconciled(case: Case, model: Any, X: pd.DataFrame, Y: pd.DataFrame) -> Iterator:
    """Yield what reconciliation makes of new readings, with the model and, where there are balances, without it."""
    readings = Y.mask(np.random.default_rng(5).uniform(size=Y.shape) < 0.2)
    result = model.reconcile(X, readings, 0.1)
    yield "reconcile: mean", np.asarray(result.mean)
    yield "reconcile: std", np.asarray(result.std)
    yield "reconcile: statistic", result.statistic
    yield "reconcile: effective draws", result.effective_draws
    yield "reconcile: likelihood ratios", np.asarray(result.likelihood_ratio_test().statistic)
    yield "reconcile: samples", result.sample(3)
    if case.equations:
        result = eq.reconcile(readings, 0.1, model.constraint, X)
        yield "reconcile without model: values", np.asarray(result.values)
        yield "reconcile without model: std", np.asarray(result.std)
        yield "reconcile without model: global test", np.asarray(result.global_test().statistic)


def interrupt(model: Any, X: pd.DataFrame, Y: pd.DataFrame, path: Path) -> None:
    """Train until the second phase has left a checkpoint, then stop as Ctrl-C would.

    A run writes its checkpoint after a second, and then every ten: each epoch waits until the file is a new one.
    """
    seen: list[int] = []

    def callback(record: dict) -> None:
        if record["phase"] == "elbo":
            seen.append(path.stat().st_mtime_ns if path.exists() else 0)
            if seen[-1] != seen[0]:
                raise KeyboardInterrupt
            time.sleep(1.2)

    with contextlib.suppress(KeyboardInterrupt):
        model.set_params(checkpoint=path).fit(X, Y, callback=callback)
        raise RuntimeError(f"The training should have been interrupted, but it ran all its epochs; {len(seen)} waited.")


# --- Files ------------------------------------------------------------------------------------------------------------


def stored(path: Path) -> Iterator:
    """Yield the tensors of a model file, its layout, and its header without versions and checksum."""
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    description = json.loads(header.pop("__metadata__")["equipoise"])
    yield "file: layout", json.dumps(header)
    for name, values in safetensors.numpy.load(raw).items():
        yield f"file: {name}", values
    yield from under("file header", flattened({k: v for k, v in description.items() if k not in UNSTABLE}))


def flattened(content: Any) -> Iterator:
    """Yield the numbers of nested JSON, gathered under the names that lead to them, and everything else as text."""
    numbers: dict[str, list[float]] = {}
    texts: dict[str, list[str]] = {}
    _gather(content, "", numbers, texts)
    yield from ((name, np.array(values)) for name, values in numbers.items())
    yield from ((f"{name} (text)", values) for name, values in texts.items())


def _gather(content: Any, path: str, numbers: dict[str, list[float]], texts: dict[str, list[str]]) -> None:
    if isinstance(content, dict) and content.keys() == {"$float"}:
        content = float(content["$float"])
    if isinstance(content, dict):
        for key, value in content.items():
            _gather(value, f"{path}.{key}".lstrip("."), numbers, texts)
    elif isinstance(content, list | tuple):
        for value in content:
            _gather(value, path, numbers, texts)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        numbers.setdefault(path, []).append(float(content))
    else:
        texts.setdefault(path, []).append(str(content))


def of_fixtures(folder: Path) -> Iterator:
    """Yield what each model file of earlier versions predicts for the inputs that are kept beside it."""
    for path in sorted(folder.glob("*.safetensors")):
        model = eq.load(path)
        if (rows := path.with_suffix(".json")).exists():
            X = np.array(json.loads(rows.read_text("utf-8"))["X"])
            X = pd.DataFrame(X, columns=model.feature_names_in_)
        else:
            X = pd.read_csv(path.with_suffix(".csv"))[list(model.feature_names_in_)][:70]
        Y = model.predict_distribution(X).mean
        yield from under(path.stem, predicted(model, X, Y))


def under(group: str, pairs: Any) -> Iterator:
    """Yield the pairs with the group in front of their names, whose own colon is replaced."""
    yield from ((f"{group}: {name.replace(': ', ', ')}", value) for name, value in pairs)


def write(folder: Path, values: dict[str, Any]) -> None:
    """Write arrays to one file and everything else to another."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    np.savez(folder / "arrays.npz", **arrays)
    texts = {name: value for name, value in values.items() if name not in arrays}
    (folder / "texts.json").write_text(json.dumps(texts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
