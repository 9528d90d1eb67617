"""Job: job files, small TOML texts that describe which model to learn from which table.

In: the text of a job file, or columns and balances for the draft of one. Out: a checked `Job`, which builds constraint
and estimator, or a `Plant`, which has what reconciliation needs; the text of a draft; `JobError` with one sentence.

Calls: `estimator`, `training`, `gaussian`, `balances`.
"""

from equipoise.app.job.job_errors import JobError
from equipoise.app.job.job_file import TABLE_NAME, Job
from equipoise.app.job.options import LearnedTolerance, ModelOptions
from equipoise.app.job.plant import Accuracy, Plant
from equipoise.app.job.template import draft, toml_line

__all__ = [
    "TABLE_NAME",
    "Accuracy",
    "Job",
    "JobError",
    "LearnedTolerance",
    "ModelOptions",
    "Plant",
    "draft",
    "toml_line",
]
