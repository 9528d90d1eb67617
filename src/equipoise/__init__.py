"""Bayesian neural networks that obey known balances."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.artifact import load as load
    from equipoise.cases import CaseError as CaseError
    from equipoise.checkpoint import TrainingError as TrainingError
    from equipoise.comparison import compare as compare
    from equipoise.conditioning import ConditioningLayer as ConditioningLayer
    from equipoise.conditioning import condition as condition
    from equipoise.constraints import ConstraintError as ConstraintError
    from equipoise.constraints import LinearConstraint as LinearConstraint
    from equipoise.description import ArtifactError as ArtifactError
    from equipoise.diagnosis import diagnose as diagnose
    from equipoise.diagnosis import propose as propose
    from equipoise.equations import EquationError as EquationError
    from equipoise.estimator import ConstrainedBNNRegressor as ConstrainedBNNRegressor
    from equipoise.gaussian import ConditionedGaussian as ConditionedGaussian
    from equipoise.gaussian import DiagonalGaussian as DiagonalGaussian
    from equipoise.job import Job as Job
    from equipoise.job import JobError as JobError
    from equipoise.job import Plant as Plant
    from equipoise.ledger import Ledger as Ledger
    from equipoise.methods.catalogue import MethodError as MethodError
    from equipoise.methods.regressor import MethodRegressor as MethodRegressor
    from equipoise.plan import TrainingPlan as TrainingPlan
    from equipoise.predictive import Predictive as Predictive
    from equipoise.reconciliation import Reconciliation as Reconciliation
    from equipoise.reconciliation import ReconciliationError as ReconciliationError
    from equipoise.reconciliation import reconcile as reconcile
    from equipoise.reconciliation.with_model import ModelReconciliation as ModelReconciliation
    from equipoise.tables import TableError as TableError
    from equipoise.tolerance import TolerancePrior as TolerancePrior

# Public names and where they live. They are imported when they are first used: torch takes seconds, and the command
# line must answer --help without it.
_HOMES = {
    "ArtifactError": "description",
    "CaseError": "cases",
    "ConditionedGaussian": "gaussian",
    "ConditioningLayer": "conditioning",
    "ConstrainedBNNRegressor": "estimator",
    "ConstraintError": "constraints",
    "DiagonalGaussian": "gaussian",
    "EquationError": "equations",
    "Job": "job",
    "JobError": "job",
    "Ledger": "ledger",
    "LinearConstraint": "constraints",
    "MethodError": "methods.catalogue",
    "MethodRegressor": "methods.regressor",
    "ModelReconciliation": "reconciliation.with_model",
    "Plant": "job",
    "Predictive": "predictive",
    "Reconciliation": "reconciliation",
    "ReconciliationError": "reconciliation",
    "TableError": "tables",
    "TolerancePrior": "tolerance",
    "TrainingError": "checkpoint",
    "TrainingPlan": "plan",
    "compare": "comparison",
    "condition": "conditioning",
    "diagnose": "diagnosis",
    "load": "artifact",
    "propose": "diagnosis",
    "reconcile": "reconciliation",
}

__all__ = [
    "ArtifactError",
    "CaseError",
    "ConditionedGaussian",
    "ConditioningLayer",
    "ConstrainedBNNRegressor",
    "ConstraintError",
    "DiagonalGaussian",
    "EquationError",
    "Job",
    "JobError",
    "Ledger",
    "LinearConstraint",
    "MethodError",
    "MethodRegressor",
    "ModelReconciliation",
    "Plant",
    "Predictive",
    "Reconciliation",
    "ReconciliationError",
    "TableError",
    "TolerancePrior",
    "TrainingError",
    "TrainingPlan",
    "compare",
    "condition",
    "diagnose",
    "load",
    "propose",
    "reconcile",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _HOMES:
        value = getattr(import_module(f"equipoise.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'equipoise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("equipoise")
    except PackageNotFoundError:  # a source tree that was never installed
        return "unknown"
