"""What an operator changes: servers and their NPUs, joining, jobs with their attempts, steps and logs, batches."""

from deployments.models.batch import Batch, BatchState
from deployments.models.enrolment import Enrolment
from deployments.models.fleet import Npu, Server
from deployments.models.inventory import SavedFilter, ServerChange
from deployments.models.job import Attempt, Job, JobState, LogChunk, Step

__all__ = [
    "Attempt",
    "Batch",
    "BatchState",
    "Enrolment",
    "Job",
    "JobState",
    "LogChunk",
    "Npu",
    "SavedFilter",
    "Server",
    "ServerChange",
    "Step",
]
