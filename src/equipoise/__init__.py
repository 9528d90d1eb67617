"""Bayesian neural networks that obey known balances."""

from importlib.metadata import PackageNotFoundError, version

from equipoise.checkpoint import TrainingError
from equipoise.conditioning import ConditioningLayer, condition
from equipoise.constraints import ConstraintError, LinearConstraint
from equipoise.equations import EquationError
from equipoise.estimator import ConstrainedBNNRegressor
from equipoise.gaussian import ConditionedGaussian, DiagonalGaussian
from equipoise.ledger import Ledger
from equipoise.predictive import Predictive
from equipoise.tolerance import TolerancePrior
from equipoise.training import TrainingPlan

try:
    __version__ = version("equipoise")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "unknown"

__all__ = [
    "ConditionedGaussian",
    "ConditioningLayer",
    "ConstrainedBNNRegressor",
    "ConstraintError",
    "DiagonalGaussian",
    "EquationError",
    "Ledger",
    "LinearConstraint",
    "Predictive",
    "TolerancePrior",
    "TrainingError",
    "TrainingPlan",
    "condition",
]
