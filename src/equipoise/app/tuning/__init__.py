"""Tuning: hyperparameters of the estimator by Optuna, in a search that can be stopped, continued and shared.

In: an estimator, a table with held-out rows, and a search space. Out: a `TuningResult`, and a journal file that keeps
every trial, so that a later start continues the search and several processes share it.

Calls: `estimator`, `training`, `network`, `data`, `balances`.
"""

from equipoise.app.tuning.journal_file import TuningError
from equipoise.app.tuning.search_space import Choice, Space, Uniform, Whole
from equipoise.app.tuning.tuning import TuningResult, configured, tune

__all__ = ["Choice", "Space", "TuningError", "TuningResult", "Uniform", "Whole", "configured", "tune"]
