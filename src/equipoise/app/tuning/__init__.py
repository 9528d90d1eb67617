"""Optuna around the estimator: a search that can be stopped and goes on, in any number of processes."""

from equipoise.app.tuning.journal_file import TuningError
from equipoise.app.tuning.search_space import Choice, Space, Uniform, Whole
from equipoise.app.tuning.tuning import TuningResult, configured, tune

__all__ = ["Choice", "Space", "TuningError", "TuningResult", "Uniform", "Whole", "configured", "tune"]
