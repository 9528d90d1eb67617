"""`python -m benchmarks.linearised [--fit]`: epistemic uncertainty of posterior="laplace" beside that of NUTS.

`tests/reference_laplace.json` has small problems in standardized units: rows, the balances with their tolerances, the
sensors, and one network where its training stopped, with the precisions of its prior. Another script,
`tests/reference_laplace.py`, samples the weights of the same network under the same prior and likelihood with NUTS, and
adds moments of the means before and after conditioning at a few points. This module linearises the stored networks, and
prints both posteriors side by side; what it printed is in docs/defaults.md. With `--fit` it makes the problems again
and trains the networks; moments have to be sampled anew then.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

import equipoise as eq
from benchmarks.markdown import table
from equipoise.data import Rows
from equipoise.gaussian import ConditioningLayer, LogNormalVariance
from equipoise.network import (
    DRAW_BLOCK,
    BayesianMLP,
    ConstrainedBNN,
    LinearisedLaplace,
    PosteriorDraws,
    joint,
    starting_members,
)
from equipoise.training import TrainingPlan, train
from equipoise.training.modes import MODE_PHASES, ModesLearner, starting_modes
from equipoise.training.variance_posterior import LinearisedMember

Array = NDArray[np.float64]
TESTS = Path(__file__).parents[1] / "tests"
FILE = TESTS / "reference_laplace.json"
STORED_MOMENTS = TESTS / "reference_posterior.json"  # with uncertain variances, and the prior N(0, 1)
BANDS = {"data": (0.85, 1.2), "gap": (0.8, 1.35), "ends": (0.8, 1.35)}  # fixed before NUTS ran
MEAN_BAND = 0.3  # of an epistemic standard deviation, in the data
N_DRAWS = 4096  # sd to 1.1 %
REGIONS = ("data", "gap", "ends", "beyond")
UNIT_PRIOR = "reference, N(0, 1)"


@dataclass(frozen=True)
class Problem:
    """A small table in the user's units, and points at which posteriors are compared.

    Args:
        X, Y: Inputs and measured outputs, NaN where there is none.
        points: Inputs of the points.
        region: Region of each point.
        balances: What the outputs obey.
        options: Further parameters of the estimator.
    """

    X: Array
    Y: Array
    points: Array
    region: list[str]
    balances: eq.LinearConstraint
    options: Mapping[str, Any]


def balances_of(*equations: str, n_inputs: int = 1, outputs: tuple[str, ...] = ("a", "b", "total")):
    """Parse balances of outputs over nameless inputs."""
    inputs = [f"x{i}" for i in range(n_inputs)]
    return eq.LinearConstraint.from_equations(list(equations), inputs=inputs, outputs=list(outputs))


def around_a_gap(rng: np.random.Generator, n: int) -> Array:
    """Draw inputs between −1.5 and 1.5 of which none lies between 0.2 and 0.8."""
    x = rng.uniform(-1.5, 1.5, 4 * n)
    return np.sort(x[(x < 0.2) | (x > 0.8)][:n])


def line_points(gap: tuple[float, float] = (0.2, 0.8)) -> tuple[Array, list[str]]:
    """Return points along one input, and their regions: the ends are those of the data and a twentieth beyond."""
    low, high = gap
    places = {
        "data": [*np.linspace(-1.35, low - 0.05, 8), *np.linspace(high + 0.05, 1.35, 4)],
        "gap": list(np.linspace(low, high, 6)[1:-1]),
        "ends": [-1.65, -1.5, 1.5, 1.65],
        "beyond": [-2.1, 2.1],
    }
    x = np.concatenate([places[name] for name in REGIONS])
    return x[:, None], [name for name in REGIONS for _ in places[name]]


def curves(x: Array) -> tuple[Array, Array]:
    """Compute two curves over one input."""
    return 0.8 * np.sin(2 * x), 0.5 * x**2


def reference_rows() -> Problem:
    """Return the rows of the stored reference posterior, with a prior from the evidence."""
    stored = json.loads(STORED_MOMENTS.read_text())["data"]
    points, region = line_points((0.2, 0.7))
    options = {"hidden": (8,), "activation": "tanh", "tolerance": 0.0, "sensor_std": 0.15}
    return Problem(
        np.array(stored["x"]), np.array(stored["y_obs"]), points, region, balances_of("total = a + b"), options
    )


def loose_sum() -> Problem:
    """Return two curves that scatter and a total that misses their sum: r > 0 is learned, sensors are known."""
    rng = np.random.default_rng(1)
    x = around_a_gap(rng, 70)
    a, b = curves(x)
    a, b = a + 0.15 * rng.standard_normal(70), b + 0.1 * rng.standard_normal(70)
    Y = np.column_stack([a, b, a + b + 0.1 * rng.standard_normal(70)]) + 0.05 * rng.standard_normal((70, 3))
    options = {"hidden": (16,), "activation": "silu", "sensor_std": 0.05}
    return Problem(x[:, None], Y, *line_points(), balances_of("total = a + b"), options)


def loose_surface() -> Problem:
    """Return surfaces over two inputs: r > 0 is known, sensors are learned; no row is near one ray."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.5, 1.5, (400, 2))
    X = X[np.abs(X[:, 0] - 0.5) > 0.4][:90]
    a, b = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]), 0.6 * X[:, 1] + 0.2 * X[:, 0] ** 2
    Y = np.column_stack([a, b, a + b + 0.15 * rng.standard_normal(90)]) + 0.1 * rng.standard_normal((90, 3))
    inside = rng.uniform(-1.3, 1.3, (100, 2))
    inside = inside[np.abs(inside[:, 0] - 0.5) > 0.45][:12]
    gap = np.column_stack([np.linspace(0.3, 0.7, 6), rng.uniform(-1.2, 1.2, 6)])
    corners = 1.5 * np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    points, region = _joined(data=inside, gap=gap, ends=corners, beyond=1.4 * corners[[0, 3]])
    options = {"hidden": (8, 8), "activation": "tanh", "tolerance": 0.15}
    return Problem(X, Y, points, region, balances_of("total = a + b", n_inputs=2), options)


def coupled() -> Problem:
    """Return five outputs that two exact balances couple, since both contain s."""
    rng = np.random.default_rng(3)
    x = around_a_gap(rng, 60)
    a, b = curves(x)
    c = 0.3 * np.cos(3 * x)
    truth = np.column_stack([a, b, c, a + b, a + b + c])
    Y = truth + 0.1 * rng.standard_normal(truth.shape)
    balances = balances_of("s = a + b", "u = s + c", outputs=("a", "b", "c", "s", "u"))
    options = {"hidden": (16,), "activation": "silu", "tolerance": 0.0, "sensor_std": 0.1}
    return Problem(x[:, None], Y, *line_points(), balances, options)


def missing() -> Problem:
    """Return curves of which a third was not measured, and one of them nowhere above 0.9."""
    rng = np.random.default_rng(4)
    x = around_a_gap(rng, 90)
    a, b = curves(x)
    truth = np.column_stack([a, b, a + b])
    Y = truth + 0.1 * rng.standard_normal(truth.shape)
    Y[rng.uniform(size=Y.shape) < 0.33] = np.nan
    Y[x > 0.9, 0] = np.nan
    options = {"hidden": (16,), "activation": "silu", "tolerance": 0.0, "sensor_std": 0.1}
    return Problem(x[:, None], Y, *line_points(), balances_of("total = a + b"), options)


def ten_inputs() -> Problem:
    """Return functions of four of ten inputs; the gap is a slab of the first one, the ends are corners."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (300, 10))
    X = X[np.abs(X[:, 0] - 0.3) > 0.2][:100]
    a, b = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], X[:, 2] * X[:, 3] + 0.3 * X[:, 0]
    truth = np.column_stack([a, b, a + b])
    Y = truth + 0.1 * rng.standard_normal(truth.shape)
    inside, gap = rng.uniform(-1, 1, (100, 10)), rng.uniform(-1, 1, (6, 10))
    inside, gap[:, 0] = inside[np.abs(inside[:, 0] - 0.3) > 0.25][:12], np.linspace(0.15, 0.45, 6)
    corners = np.sign(rng.standard_normal((4, 10)))
    points, region = _joined(data=inside, gap=gap, ends=corners, beyond=1.4 * corners[:2])
    options = {"hidden": (16,), "activation": "silu", "tolerance": 0.0, "sensor_std": 0.1}
    return Problem(X, Y, points, region, balances_of("total = a + b", n_inputs=10), options)


def _joined(**places: Array) -> tuple[Array, list[str]]:
    return np.concatenate(list(places.values())), [name for name, points in places.items() for _ in points]


# ---------------------------------------------------------------- fits


def fitted(problem: Problem) -> dict[str, Any]:
    """Fit a problem with one member, and return what NUTS and tests need, in standardized units."""
    result: dict[str, Any] = {}
    draw = ModesLearner.posterior

    def record(learner: ModesLearner, rows: Rows, *arguments: Any) -> LinearisedLaplace:
        points = estimator.standardizer_.inputs(problem.points)
        result.update(stored(learner, rows, points, problem.region))
        return draw(learner, rows, *arguments)

    estimator = eq.ConstrainedBNNRegressor(problem.balances, posterior=eq.Laplace(1), random_state=0, **problem.options)
    with patch.object(ModesLearner, "posterior", record):
        estimator.fit(problem.X, problem.Y)
    return result


class UnitPriorLearner(ModesLearner):
    """Members whose prior stays N(0, 1)."""

    @torch.no_grad()
    def update_priors(self, rows: Any, key: int, joint: bool) -> None:
        """Update the variances of the first phase alone; arguments are those of `ModesLearner.update_priors`."""
        super().update_priors(rows, key, joint)
        self.modes.precisions.fill_(1.0)


def with_unit_prior() -> dict[str, Any]:
    """Fit the network of the stored reference posterior to its rows, under its prior and in its units."""
    reference = json.loads(STORED_MOMENTS.read_text())
    rows = Rows(
        torch.tensor(reference["data"]["x"]).reshape(-1, 1),
        torch.tensor(reference["data"]["y_obs"], dtype=torch.float64),
        torch.zeros(reference["data"]["n_rows"], 1, dtype=torch.float64),
    )
    problem = {"sizes": [1, 8, 6], "activation": "tanh", "B": [[-1.0, -1.0, 1.0]], "tol_var": [0.0]}
    model = model_of(problem | {"sensor_var": [0.15**2] * 3})
    trained = starting_modes(model, starting_members(model.network, [0]))
    trained.network.posterior.precisions.fill_(1.0)
    learner = partial(UnitPriorLearner, n_rows=len(rows))
    train(trained, rows, None, TrainingPlan(), seed=0, phases=MODE_PHASES, learner=learner)
    x_test = np.array(reference["x_test"])
    region = ["gap" if 0.2 < x < 0.7 else "ends" if abs(x) == 1.5 else "data" for x in x_test[:, 0]]
    return stored(learner(trained), rows, x_test, region)


def stored(learner: ModesLearner, rows: Rows, points: Array, region: list[str]) -> dict[str, Any]:
    """Collect a problem as the file has it."""
    model, network = learner.model, learner.model.network
    assert model.conditioning is not None
    assert model.sensor is not None
    assert rows.target is not None
    assert bool((rows.target == rows.target[0]).all())  # one target for all rows is stored
    return {
        "sizes": list(network.sizes),
        "activation": network.activation,
        "x": _rounded(rows.x, 6),
        "y": _rounded(rows.y, 5),
        "B": _rounded(torch.as_tensor(model.conditioning.B), 12),
        "target": _rounded(rows.target[0], 12),
        "tol_var": _significant(model.conditioning.tolerance.median()),
        "sensor_var": _significant(model.sensor.median()),
        "precisions": _significant(learner.modes.precisions[0]),
        "weights": _significant(learner.modes.weights[0]),
        "points": _rounded(torch.as_tensor(points), 6),
        "region": region,
    }


def _rounded(values: torch.Tensor, places: int) -> list:
    numbers = values.detach().double().numpy()
    cells = np.round(numbers, places).astype(object)
    cells[np.isnan(numbers)] = None
    return cells.tolist()


def _significant(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.7g}") for value in values.detach().double().tolist()]


FITS: Mapping[str, Callable[[], dict[str, Any]]] = {UNIT_PRIOR: with_unit_prior} | {
    name: lambda make=make: fitted(make())
    for name, make in {
        "reference": reference_rows,
        "r learned": loose_sum,
        "r known": loose_surface,
        "coupled": coupled,
        "missing": missing,
        "ten inputs": ten_inputs,
    }.items()
}


# ---------------------------------------------------------------- the linearised posterior


def model_of(problem: Mapping[str, Any]) -> ConstrainedBNN:
    """Make the model of a stored problem, with known tolerances and sensors."""
    n_x, *hidden, last = problem["sizes"]
    generator = torch.Generator().manual_seed(0)
    network = BayesianMLP(n_x, last // 2, hidden, problem["activation"], generator=generator)
    tol_var, sensor_var = (torch.tensor(problem[name], dtype=torch.float64) for name in ("tol_var", "sensor_var"))
    tolerance = LogNormalVariance(torch.zeros_like(tol_var), torch.ones_like(tol_var), tol_var)
    sensor = LogNormalVariance(torch.zeros_like(sensor_var), torch.ones_like(sensor_var), sensor_var)
    return ConstrainedBNN(network, ConditioningLayer(eq.LinearConstraint(problem["B"]), tolerance), joint, sensor)


def learner_of(problem: Mapping[str, Any]) -> tuple[ModesLearner, Rows]:
    """Return the stored network as a member where its training stopped, and the rows that it was trained on."""
    x, y = torch.tensor(problem["x"]), torch.tensor(np.array(problem["y"], dtype=float))
    target = torch.tensor(problem["target"], dtype=torch.float64)
    model = starting_modes(model_of(problem), torch.tensor([problem["weights"]]))
    model.network.posterior.precisions[0] = torch.tensor(problem["precisions"], dtype=torch.float64)
    return ModesLearner(model, n_rows=len(x)), Rows(x, y, target.expand(len(x), -1))


@dataclass(frozen=True)
class Moments:
    """Means and epistemic standard deviations at points, of a mean before or after conditioning.

    Args:
        mean, std: Moments, shape `(points, n_y)`.
    """

    mean: Array
    std: Array


def linearised(problem: Mapping[str, Any], n_draws: int = N_DRAWS) -> dict[str, Moments]:
    """Return moments of the linearised posterior at the points, before and after conditioning, at frozen variances."""
    learner, rows = learner_of(problem)
    weights, generator = learner.modes.weights.detach(), torch.Generator().manual_seed(0)
    member = LinearisedMember(learner.model, weights[0], learner.modes.prior(0), rows, 1.0)
    noise = torch.randn(n_draws, weights.shape[1], generator=generator, dtype=torch.float64)
    changes = member.basis.changes(member.draw_at_start(n_draws, generator), noise)
    posterior = LinearisedLaplace(weights, changes.to(weights), torch.zeros(n_draws, dtype=torch.long))
    tol_var = torch.tensor(problem["tol_var"], dtype=torch.float64)
    model = learner.model.variant(network=learner.model.network.with_posterior(posterior))
    x, target = torch.tensor(problem["points"]), torch.tensor(problem["target"], dtype=torch.float64)
    weights = torch.cat([posterior.draw_block(0, block) for block in range(math.ceil(n_draws / DRAW_BLOCK))])
    draws = PosteriorDraws(weights, tol_var.expand(len(weights), 1, -1))
    before, after = model.network.at_draws(weights, x), model.at(draws, x, target.expand(len(x), -1))
    means = {name: part.mean.detach().double().numpy() for name, part in (("before", before), ("after", after))}
    return {name: Moments(part.mean(0), part.std(0)) for name, part in means.items()}


@dataclass(frozen=True)
class Comparison:
    """A linearised posterior beside NUTS in one region.

    Args:
        ratio: Epistemic standard deviation over that of NUTS for each output, of root mean squares over the points.
        off: Differences of the means in epistemic standard deviations of NUTS, root mean square.
    """

    ratio: Array
    off: float


def compared(ours: Moments, nuts: Moments, points: NDArray[np.bool_]) -> Comparison:
    """Compare two posteriors.

    Args:
        ours: The linearised posterior.
        nuts: That of NUTS.
        points: Mask of the points.
    """
    sizes = [np.sqrt((each.std[points] ** 2).mean(0)) for each in (ours, nuts)]
    off = (ours.mean[points] - nuts.mean[points]) / nuts.std[points]
    return Comparison(sizes[0] / sizes[1], float(np.sqrt((off**2).mean())))


def nuts_moments(problem: Mapping[str, Any], name: str) -> Moments:
    """Return the stored moments of NUTS, `before` or `after` conditioning."""
    return Moments(*(np.array(problem["nuts"][name][part]) for part in ("mean", "std")))


def stored_moments() -> Moments:
    """Return the moments of the older reference, whose variances are uncertain, after conditioning."""
    moments = json.loads(STORED_MOMENTS.read_text())["moments"]
    return Moments(np.array(moments["mean"]), np.array(moments["epistemic_std"]))


def lines() -> Iterator[str]:
    """Yield the lines of the table: a row for each problem, before and after conditioning."""
    rows = []
    for name, problem in json.loads(FILE.read_text()).items():
        ours, region = linearised(problem), np.array(problem["region"])
        rows += [_cells(name, part, ours[part], nuts_moments(problem, part), region) for part in ("after", "before")]
        if name == UNIT_PRIOR:
            rows.append(_cells(f"{name}, v uncertain", "after", ours["after"], stored_moments(), region))
    header = ["problem", "mean", *(f"sd, {place}" for place in REGIONS), *(f"apart, {place}" for place in REGIONS)]
    yield table(header, rows)


def _cells(name: str, part: str, ours: Moments, nuts: Moments, region: NDArray[np.str_]) -> list[str]:
    """Return a row: ratios as a range over outputs, and differences of means; out of band with an asterisk."""
    ratios, apart = [], []
    for place in REGIONS:
        if not (region == place).any():
            ratios, apart = [*ratios, "–"], [*apart, "–"]
            continue
        result, (low, high) = compared(ours, nuts, region == place), BANDS.get(place, (0.0, np.inf))
        least, most = result.ratio.min(), result.ratio.max()
        ratios.append(f"{least:.2f}–{most:.2f}" + ("" if low <= least and most <= high else " *"))
        apart.append(f"{result.off:.2f}" + (" *" if place == "data" and result.off > MEAN_BAND else ""))
    return [name, part, *ratios, *apart]


def main() -> None:
    """Print the table, or make the problems again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="make the problems again, without moments")
    if parser.parse_args().fit:
        problems = {}
        for name, fit in FITS.items():
            problems[name] = fit()
            print(f"{name}: fitted", flush=True)
        FILE.write_text(json.dumps(problems) + "\n")
        return
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
