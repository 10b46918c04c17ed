"""What an operator changes: servers and their NPUs, joining, jobs with their attempts, steps and logs, batches,
orders to agents, keys that change."""

from deployments.models.batch import Batch, BatchState
from deployments.models.enrolment import Enrolment
from deployments.models.fleet import Npu, Server
from deployments.models.job import Attempt, Job, JobState, LogChunk, Step
from deployments.models.order import Order, OrderState
from deployments.models.rotation import Phase, Rotation

__all__ = [
    "Attempt",
    "Batch",
    "BatchState",
    "Enrolment",
    "Job",
    "JobState",
    "LogChunk",
    "Npu",
    "Order",
    "OrderState",
    "Phase",
    "Rotation",
    "Server",
    "Step",
]
