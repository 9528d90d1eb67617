"""The job file: one small TOML text that says what to learn from which table, and the commented draft of one."""

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
