"""Writes `format_N.safetensors` and `format_N.json`, a model file of the present format N and what it predicts.

And `format_N_ensemble`, likewise, of another method.

Run by hand when format N is new, and not again: what was written then must open in all later versions.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

import equipoise as eq
from equipoise.artifact import model_file as artifact
from equipoise.artifact.header import FORMAT_VERSION

HERE = Path(__file__).parent
JOB = '# a distillation column\ndata = "column.csv"\n'


def table(n: int = 160, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A column that splits a feed: inputs and known purge, and measured outputs with gaps."""
    rng = np.random.default_rng(seed)
    feed, reflux, purge = rng.uniform(5, 9, n), rng.uniform(1, 3, n), rng.uniform(0, 0.5, n)
    top = feed * (0.3 + 0.1 * np.tanh(reflux - 2))
    bottom, heat = feed - top - purge, 2.0 * reflux * top
    Y = np.stack([top, bottom, heat, heat + 0.5], 1) + rng.normal(size=(n, 4)) * [0.02, 0.02, 0.1, 0.1]
    Y[rng.uniform(size=Y.shape) < 0.05] = np.nan
    X = pd.DataFrame({"feed [kg/s]": feed, "reflux": reflux, "purge [kg/s]": purge})
    return X, pd.DataFrame(Y, columns=["top [kg/s]", "bottom [kg/s]", "duty [kW]", "cooling [kW]"])


def model() -> eq.ConstrainedBNNRegressor:
    """Something of all that can be stored."""
    X, Y = table()
    balances = eq.LinearConstraint.from_equations(
        {"mass": "feed = top + bottom + purge", "energy": "cooling = duty + 0.5"},
        inputs=["feed [kg/s]", "reflux"],
        known=["purge [kg/s]"],
        outputs=list(Y),
    )
    regressor = eq.ConstrainedBNNRegressor(
        balances,
        tolerance={"mass": 0, "energy": eq.TolerancePrior(-5.0, 2.0)},
        sensor_std={"duty [kW]": 0.1},
        offset=True,
        hidden=(8, 6),
        activation="tanh",
        n_draws=40,
        training=eq.TrainingPlan(max_epochs=20, batch_size=32),
        random_state=3,
    )
    return regressor.fit(X, Y)


def ensemble() -> eq.MethodRegressor:
    """Three networks whose means are projected onto the balances."""
    X, Y = table()
    balances = eq.LinearConstraint.from_equations(
        {"mass": "feed = top + bottom + purge", "energy": "cooling = duty + 0.5"},
        inputs=["feed [kg/s]", "reflux"],
        known=["purge [kg/s]"],
        outputs=list(Y),
    )
    settings = {"n_members": 3, "hidden": (6,), "n_draws": 40, "random_state": 3}
    plan = eq.TrainingPlan(max_epochs=20, batch_size=32)
    return eq.MethodRegressor(balances, inference="ensemble", imposition="projection", training=plan, **settings).fit(
        X, Y
    )


def write(name: str, fitted: eq.ConstrainedBNNRegressor) -> None:
    X = table(6, seed=2)[0]
    artifact.save(fitted, HERE / f"{name}.safetensors", job=JOB, notes={"data": "column.csv", "rows": 160})
    p = fitted.predict_distribution(X)
    lower, upper = p.interval(0.9)
    predictions = {"mean": p.mean, "std": p.std, "lower": lower, "upper": upper, "measured std": p.measured().std}
    content = {"X": X.to_numpy().tolist()} | {name: values.to_numpy().tolist() for name, values in predictions.items()}
    content |= {"sample": p.sample(3).tolist(), "log_prob": p.measured().log_prob(p.mean).tolist()}
    (HERE / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    write(f"format_{FORMAT_VERSION}", model())
    write(f"format_{FORMAT_VERSION}_ensemble", ensemble())


if __name__ == "__main__":
    main()
