"""MethodRegressor: every method of the catalogue as an estimator."""

from typing import Any

import numpy as np
import torch

from equipoise.balances import LinearConstraint
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.rivals.methods.boosting import BoostedTrees
from equipoise.rivals.methods.catalogue import IMPOSITIONS, INFERENCES, Method, MethodError
from equipoise.rivals.methods.dropout import Dropout
from equipoise.rivals.methods.gains import Completion, Projection
from equipoise.rivals.methods.gaussian_process import GaussianProcesses
from equipoise.rivals.methods.laplace import LastLayerLaplace
from equipoise.rivals.methods.outputwise import OutputwiseRecipe
from equipoise.rivals.methods.recipe import MethodRecipe
from equipoise.training import TrainingPlan


class MethodRegressor(ConstrainedBNNRegressor):
    """A network with one way to infer its weights and one way to impose the balances, for comparison.

    The network, its heads, its training plan and its methods are those of `ConstrainedBNNRegressor`, which is
    `inference="vi"` with `imposition="learned"`. Gaussian processes ("gp") and boosted trees ("boosting") have no
    network, and settings of network and training no effect on them.

    Args:
        constraint: `LinearConstraint` between the columns of X and Y; None only with imposition "none".
        inference: "vi", "deterministic", "ensemble", "dropout", "laplace", "gp" (a Gaussian process for each output, of
            at most 2,000 rows drawn at random) or "boosting" (gradient boosting of means and log-variances).
        imposition: "none", "penalty", "projection", "completion", "qp", "posthoc", "posthoc-scalar", "fixed", "paper"
            or "learned".
        tolerance, sensor_std: Tolerances of the balances and standard deviations of the sensors, in their units, as in
            `ConstrainedBNNRegressor`. "learned" uses both; "fixed" uses numbers among them, and takes balances without
            one as exact; other impositions ignore them.
        n_members: Number of networks in an ensemble.
        dropout: Probability that a hidden unit is left out; of several, the best on held-out rows is used.
        penalties: Strengths of the soft penalty, of which the best on held-out rows is used.
        offset: Whether each balance also has a learned offset; only "learned" uses it.
        hidden, activation, prior_std, max_epochs, n_draws, validation_fraction, training, random_state, device:
            As in `ConstrainedBNNRegressor`.

    Attributes:
        n_parameters_: Number of trained parameters.
        penalty_, dropout_: The strength and the probability that were used; 0 in methods that have none.
        step_seconds_: Seconds per training step by the QP layer and by the closed form; only with imposition "qp".

    Example:
        >>> import numpy as np, equipoise as eq
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> Y = np.hstack([np.sin(x), x**2, np.sin(x) + x**2])
        >>> balance = eq.LinearConstraint.from_equations("total = a + b", inputs=["x"], outputs=["a", "b", "total"])
        >>> model = MethodRegressor(balance, inference="ensemble", imposition="projection", hidden=(8,), max_epochs=10,
        ...                         random_state=0).fit(x, Y)
        >>> bool(abs(model.predict(x) @ [1, 1, -1]).max() < 1e-12)
        True
    """

    file_name = "MethodRegressor"
    checkpoint = None
    verbose = False
    posterior = "mean-field"  # where weights have one
    start = "residuals"

    n_parameters_: int
    penalty_: float
    dropout_: float

    def __init__(
        self,
        constraint: LinearConstraint | None = None,
        *,
        inference: str = "vi",
        imposition: str = "learned",
        tolerance: Any = None,
        sensor_std: Any = "learn",
        n_members: int = 5,
        dropout: float | tuple[float, ...] = (0.005, 0.02, 0.05, 0.1),
        penalties: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0),
        offset: bool = False,
        hidden: tuple[int, ...] = (64, 64),
        activation: str = "silu",
        prior_std: float = 1.0,
        max_epochs: int | None = None,
        n_draws: int = 256,
        validation_fraction: float = 0.1,
        training: TrainingPlan | None = None,
        random_state: Any = None,
        device: str | torch.device | None = None,
    ):
        self.constraint = constraint
        self.inference = inference
        self.imposition = imposition
        self.tolerance = tolerance
        self.sensor_std = sensor_std
        self.n_members = n_members
        self.dropout = dropout
        self.penalties = penalties
        self.offset = offset
        self.hidden = hidden
        self.activation = activation
        self.prior_std = prior_std
        self.max_epochs = max_epochs
        self.n_draws = n_draws
        self.validation_fraction = validation_fraction
        self.training = training
        self.random_state = random_state
        self.device = device

    @property
    def method(self) -> Method:
        """Inference and imposition together."""
        return Method(self.inference, self.imposition)

    @property
    def likelihood(self) -> str:  # type: ignore[override]
        """Likelihood in training, "joint" or "marginal", as the imposition determines it."""
        return IMPOSITIONS[self.method.imposition].likelihood

    def recipe(self, seed: int) -> MethodRecipe:
        """Return how the method builds its model from the data and trains it.

        Args:
            seed: Seed of all randomness.
        """
        settings = vars(super().recipe(seed))
        settings["offset"] &= IMPOSITIONS[self.method.imposition].tolerance == "learned"
        kind = OutputwiseRecipe if INFERENCES[self.method.inference].trains == "outputs" else MethodRecipe
        return kind(
            **settings,
            method=self.method,
            n_members=self.n_members,
            probabilities=tuple(self._probabilities),
            penalties=tuple(self.penalties),
        )

    def check_parameters(self) -> None:
        """Raise MethodError for the first parameter that cannot be used, as `fit` does at first."""
        method = self.method
        super().check_parameters()
        if self.offset and method.inference == "gp" and method.imposition == "learned":
            raise MethodError("offset must be False with Gaussian processes, but got True. Use another inference.")
        if self.constraint is None and method.imposition != "none":
            raise MethodError(f"imposition {method.imposition!r} must have balances, but got constraint=None.")
        if not (self.constraint is None or isinstance(self.constraint, LinearConstraint)):
            got = type(self.constraint).__name__
            raise MethodError(f"constraint must be a LinearConstraint for methods other than our own, but got {got}.")
        if not (isinstance(self.n_members, int) and self.n_members >= 1):
            raise MethodError(f"n_members must be a whole number of at least 1, but got {self.n_members!r}.")
        if not self._probabilities or not all(0 <= p < 1 for p in self._probabilities):
            raise MethodError(f"dropout must be a probability in [0, 1), or several, but got {self.dropout!r}.")
        if not self.penalties or not all(0 <= strength < np.inf for strength in self.penalties):
            raise MethodError(f"penalties must hold numbers ≥ 0, but got {self.penalties!r}.")

    @property
    def _probabilities(self) -> list[float]:
        return np.atleast_1d(self.dropout).tolist()


IMPLEMENTATIONS: tuple[type, ...] = (
    MethodRegressor,
    Dropout,
    LastLayerLaplace,
    GaussianProcesses,
    BoostedTrees,
    Projection,
    Completion,
)
"""What a model file of a `MethodRegressor` may name beside the parts of the core."""
