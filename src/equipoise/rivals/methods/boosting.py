"""Gradient boosting with an uncertainty of its own: for each output, trees for the mean and for the log-variance.

Means minimise squared errors. Log-variances `F` minimise `mean_i (e_i² exp(−F(x_i)) + F(x_i))`, which is the likelihood
of normal errors and scikit-learn's gamma loss, on errors `e` of rows that the trees of the mean were not grown on, by
cross-validation. The trees are scikit-learn's; they are kept as arrays, so that a model file holds no code.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from equipoise.data import Rows
from equipoise.network import DRAW_BLOCK, LOG_VAR_BOUND, ForwardPass, NetworkGaussian, WeightDraws

MOST_TREES = 500
WITHOUT_HELD_OUT = 100  # trees, where no held-out rows say when to stop
PATIENCE = 20  # trees without improvement on held-out rows
FOLDS = 5
LEAST_SQUARE = 1e-12  # of an error, in standardized units; the gamma loss needs positive numbers
FIELDS = {  # of a node; the first one tells the type of inputs
    "threshold": torch.float64,
    "feature": torch.int64,
    "left": torch.int64,
    "right": torch.int64,
    "value": torch.float64,
}


class BoostedTrees(WeightDraws):
    """Boosted trees in the place of a network; they have no weights, and one "draw".

    Args:
        threshold, feature, left, right, value: Nodes of all trees, shape `(n_trees, n_nodes)`: a row goes left where
            its feature is at most the threshold; a leaf is its own child on both sides.
        n_trees: Numbers of trees by unit: first the means of all outputs, then their log-variances.
        baseline: What the trees' values are added to, by unit.
        depth: Largest number of decisions in a tree.
        prior_std: No effect.
    """

    name = "boosted trees"
    threshold: Tensor
    left: Tensor
    value: Tensor
    baseline: Tensor

    def __init__(
        self,
        threshold: Float[Tensor, "n_trees n_nodes"],
        feature: Int64[Tensor, "n_trees n_nodes"],
        left: Int64[Tensor, "n_trees n_nodes"],
        right: Int64[Tensor, "n_trees n_nodes"],
        value: Float[Tensor, "n_trees n_nodes"],
        *,
        n_trees: Sequence[int],
        baseline: Float[Tensor, " n_units"],
        depth: int,
        prior_std: float = 1.0,
    ):
        super().__init__(prior_std)
        self.n_trees, self.depth = list(n_trees), depth
        for name, part in zip(FIELDS, (threshold, feature, left, right, value), strict=True):
            self.register_buffer(name, part)
        self.register_buffer("baseline", baseline)

    @classmethod
    def fit(cls, rows: Rows, validation: Rows | None, seed: int) -> "BoostedTrees":
        """Fit the trees of all outputs.

        Args:
            rows: Training rows.
            validation: Held-out rows, which decide how many trees there are; None without any.
            seed: Seed of the folds.
        """
        x, Y = _arrays(rows)
        x_held, Y_held = (x[:0], Y[:0]) if validation is None else _arrays(validation)
        means, log_vars = [], []
        for j in range(Y.shape[1]):
            seen, held = ~np.isnan(Y[:, j]), ~np.isnan(Y_held[:, j])
            fitted = x[seen], Y[seen, j]
            mean, log_var = _grow_output(*fitted, x_held[held], Y_held[held, j], seed)
            means.append(mean)
            log_vars.append(log_var)
        return cls(**_packed([*means, *log_vars]))

    @property
    def n_leaves(self) -> int:
        """Number of leaves, each of which has one number that was fitted."""
        nodes = torch.arange(self.left.shape[1], device=self.left.device)
        return int(torch.eq(self.left, nodes).sum())

    @property
    def n_distinct(self) -> int:
        """One: there are no weights that could differ."""
        return 1

    def draw_block(self, seed: int, block: int, generator: torch.Generator | None = None) -> Float[Tensor, "n_draws 1"]:
        """Return zeros; arguments are those of `WeightDraws.draw_block`, without effect."""
        return self.threshold.new_zeros(DRAW_BLOCK, 1)

    @torch.no_grad()
    def evaluate(
        self, network: Any, weights: Float[Tensor, "n_draws 1"], x: Float[Tensor, "n n_x"], forward: ForwardPass
    ) -> NetworkGaussian:
        """Add up the trees' values for each row, the same for all draws.

        Args:
            network: No effect.
            weights: Draws, whose number counts.
            x: Standardized inputs.
            forward: No effect.
        """
        parts = zip(*(part.split(self.n_trees) for part in self._nodes()), self.baseline, strict=True)
        units = torch.stack([self._added_up(x.double(), *trees) for trees in parts], -1)
        mean, log_var = units.expand(len(weights), *units.shape).chunk(2, -1)
        return NetworkGaussian(mean, log_var.clamp(-LOG_VAR_BOUND, LOG_VAR_BOUND).exp())

    def settings(self) -> dict[str, Any]:
        """Return the numbers of trees by unit, the number of nodes, and the depth."""
        return {"n_trees": list(self.n_trees), "n_nodes": self.value.shape[1], "depth": self.depth}

    @classmethod
    def blank(cls, sizes: Sequence[int], prior_std: float, **settings: Any) -> "BoostedTrees":
        """Make trees of zeros; arguments are those of `WeightDraws.blank`."""
        n_trees, shape = settings["n_trees"], (sum(settings["n_trees"]), settings["n_nodes"])
        nodes = [torch.zeros(shape, dtype=kind) for kind in FIELDS.values()]
        baseline = torch.zeros(len(n_trees), dtype=torch.float64)
        return cls(*nodes, n_trees=n_trees, baseline=baseline, depth=settings["depth"])

    def _nodes(self) -> list[Tensor]:
        return [getattr(self, name) for name in FIELDS]

    def _added_up(
        self,
        x: Float[Tensor, "n n_x"],
        threshold: Tensor,
        feature: Tensor,
        left: Tensor,
        right: Tensor,
        value: Tensor,
        baseline: Tensor,
    ) -> Float[Tensor, " n"]:
        """Add up the values of the trees of one unit."""
        tree = torch.arange(len(value), device=x.device)
        node = torch.zeros_like(x[:, :1], dtype=torch.int64).expand(-1, len(tree))
        for _ in range(self.depth):
            goes_left = x.gather(1, feature[tree, node]) <= threshold[tree, node]
            node = torch.where(goes_left, left[tree, node], right[tree, node])
        return baseline + value[tree, node].sum(-1)


def _arrays(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return rows.x.double().cpu().numpy(), rows.y.double().cpu().numpy()


def _grow_output(
    x: NDArray[np.float64], y: NDArray[np.float64], x_held: NDArray[np.float64], y_held: NDArray[np.float64], seed: int
) -> tuple[Any, Any]:
    """Return scikit-learn's boosted regressors of one output's mean and of its log-variance."""
    from sklearn.model_selection import KFold

    mean = _boosted("squared_error", MOST_TREES, seed, x, y, x_held, y_held)
    error = np.empty_like(y)
    for rest, fold in KFold(min(FOLDS, len(y)), shuffle=True, random_state=seed).split(x):
        error[fold] = y[fold] - _boosted("squared_error", mean.n_iter_, seed, x[rest], y[rest]).predict(x[fold])
    squares = np.maximum(error**2, LEAST_SQUARE)
    if not len(y_held):
        return mean, _boosted("gamma", MOST_TREES, seed, x, squares)
    squares_held = np.maximum((y_held - mean.predict(x_held)) ** 2, LEAST_SQUARE)
    return mean, _boosted("gamma", MOST_TREES, seed, x, squares, x_held, squares_held)


def _boosted(loss: Any, n_trees: int, seed: int, x: Any, y: Any, x_held: Any = None, y_held: Any = None) -> Any:
    """Fit trees until held-out rows have not improved for `PATIENCE` of them; without these rows a fixed number."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    if x_held is None or not len(x_held):
        few: dict[str, Any] = {"max_iter": min(n_trees, WITHOUT_HELD_OUT), "early_stopping": False}
        return HistGradientBoostingRegressor(loss=loss, random_state=seed, **few).fit(x, y)
    many: dict[str, Any] = {"max_iter": n_trees, "early_stopping": True, "n_iter_no_change": PATIENCE}
    return HistGradientBoostingRegressor(loss=loss, random_state=seed, **many).fit(x, y, X_val=x_held, y_val=y_held)


def _packed(regressors: Sequence[Any]) -> dict[str, Any]:
    """Collect the nodes of the trees of all regressors, one for each unit."""
    trees = [[tree.nodes for (tree,) in each._predictors] for each in regressors]
    flat = [nodes for each in trees for nodes in each]
    shape = len(flat), max((len(nodes) for nodes in flat), default=1)
    packed: dict[str, Any] = {name: torch.zeros(shape, dtype=kind) for name, kind in FIELDS.items()}
    for row, nodes in enumerate(flat):
        leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        columns = {
            "threshold": np.where(leaf, 0.0, nodes["num_threshold"]),
            "feature": np.where(leaf, 0, nodes["feature_idx"]),
            "left": np.where(leaf, own, nodes["left"]),
            "right": np.where(leaf, own, nodes["right"]),
            "value": np.where(leaf, nodes["value"], 0.0),
        }
        for name, column in columns.items():
            packed[name][row, : len(nodes)] = torch.as_tensor(column)
    baseline = torch.tensor([np.ravel(each._baseline_prediction)[0] for each in regressors], dtype=torch.float64)
    depth = max((int(nodes["depth"].max()) for nodes in flat), default=0)
    return {**packed, "n_trees": [len(each) for each in trees], "baseline": baseline, "depth": depth}
