"""What an operator changes: servers and their NPUs, jobs with their attempts, steps and logs."""

from deployments.models.enrolment import Enrolment
from deployments.models.fleet import Npu, Server
from deployments.models.job import Attempt, Job, JobState, LogChunk, Step

__all__ = ["Attempt", "Enrolment", "Job", "JobState", "LogChunk", "Npu", "Server", "Step"]
