from . import metrics as metrics, trust as trust
from .components import Components as Components
from .ledger import Ledger as Ledger
from .metrics import Magnitudes as Magnitudes, coverage_of_pit as coverage_of_pit, pit as pit
from .predictive import ROW_BLOCK as ROW_BLOCK, Predictive as Predictive
from .running_moments import (
    MixtureMoments as MixtureMoments,
    RunningMean as RunningMean,
    RunningWeights as RunningWeights,
    weighted_mean as weighted_mean,
)
from .sampling import selected_draws as selected_draws
