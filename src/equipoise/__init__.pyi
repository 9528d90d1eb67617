from . import testing as testing
from .app import report as report, tables as tables, tuning as tuning
from .app.bug_report import exit_code_of as exit_code_of
from .app.job import Job as Job, JobError as JobError, Plant as Plant
from .app.tables import TableError as TableError
from .artifact import ArtifactError as ArtifactError
from .balances import (
    ConstraintError as ConstraintError,
    Equality as Equality,
    EquationError as EquationError,
    LinearConstraint as LinearConstraint,
)
from .data import write_atomically as write_atomically
from .diagnosis import diagnose as diagnose, propose as propose
from .errors import EquipoiseError as EquipoiseError
from .estimator import ConstrainedBNNRegressor as ConstrainedBNNRegressor
from .export import export as export
from .gaussian import (
    ConditionedGaussian as ConditionedGaussian,
    ConditioningLayer as ConditioningLayer,
    DiagonalGaussian as DiagonalGaussian,
    Gaussian as Gaussian,
    TolerancePrior as TolerancePrior,
    VariancePosterior as VariancePosterior,
    VariancePrior as VariancePrior,
    condition as condition,
)
from .loading import load as load
from .network import Laplace as Laplace, Likelihood as Likelihood, WeightPosterior as WeightPosterior
from .prediction import Components as Components, Ledger as Ledger, Predictive as Predictive, metrics as metrics
from .reconciliation import (
    ModelReconciliation as ModelReconciliation,
    Reconciliation as Reconciliation,
    ReconciliationError as ReconciliationError,
    reconcile as reconcile,
)
from .rivals import (
    CaseError as CaseError,
    MethodError as MethodError,
    MethodRegressor as MethodRegressor,
    battery as battery,
    compare as compare,
)
from .training import (
    FleetError as FleetError,
    TrainingError as TrainingError,
    TrainingPlan as TrainingPlan,
    fit_means as fit_means,
    joined as joined,
    run_many as run_many,
)

__version__: str
