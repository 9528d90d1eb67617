from .checkpoint import TrainingError as TrainingError
from .distributed import LostProcessError as LostProcessError, current as current, joined as joined
from .errors_of_means import mean_rmse as mean_rmse, mean_squares as mean_squares
from .laplace_recipe import LaplaceRecipe as LaplaceRecipe
from .learners import Learner as Learner
from .loop import History as History, TrainingRun as TrainingRun, train as train
from .means_fit import FittedMeans as FittedMeans, fit_means as fit_means
from .optimizer import Adam as Adam
from .phases import (
    PHASES as PHASES,
    STARTS as STARTS,
    BoundPhase as BoundPhase,
    MeansPhase as MeansPhase,
    NoisePhase as NoisePhase,
    Phase as Phase,
    PhaseFactory as PhaseFactory,
    PriorStartPhase as PriorStartPhase,
    SteppedPhase as SteppedPhase,
    shuffled as shuffled,
)
from .plan import TrainingPlan as TrainingPlan, cosine as cosine, one_cycle as one_cycle
from .recipe import Callback as Callback, Fit as Fit, Recipe as Recipe
from .starting_variances import split_residuals as split_residuals
from .task_pool import FleetError as FleetError, Progress as Progress, Task as Task, run_many as run_many
