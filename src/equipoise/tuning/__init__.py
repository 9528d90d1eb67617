"""Optuna around the estimator: a search that can be stopped and goes on, in any number of processes."""

from equipoise.tuning.journal_file import TuningError
from equipoise.tuning.space import Choice, Space, Uniform, Whole
from equipoise.tuning.tuning import TuningResult, configured, tune

__all__ = ["Choice", "Space", "TuningError", "TuningResult", "Uniform", "Whole", "configured", "tune"]
