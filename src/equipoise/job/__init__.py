"""The job file: one small TOML text that says what to learn from which table, and the commented draft of one."""

from equipoise.job.complaints import JobError
from equipoise.job.drafting import draft
from equipoise.job.jobfile import Job
from equipoise.job.options import LearnedTolerance, ModelOptions
from equipoise.job.plant import Accuracy, Plant

__all__ = ["Accuracy", "Job", "JobError", "LearnedTolerance", "ModelOptions", "Plant", "draft"]
