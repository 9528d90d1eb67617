"""The job file: one small TOML text that says what to learn from which table, and the commented draft of one."""

from equipoise.app.job.complaints import JobError
from equipoise.app.job.drafting import draft
from equipoise.app.job.jobfile import TABLE_NAME, Job
from equipoise.app.job.options import LearnedTolerance, ModelOptions
from equipoise.app.job.plant import Accuracy, Plant

__all__ = ["TABLE_NAME", "Accuracy", "Job", "JobError", "LearnedTolerance", "ModelOptions", "Plant", "draft"]
