"""What an operator changes: servers and their NPUs, joining, jobs with their attempts, steps and logs, batches,
campaigns, orders to agents, keys that change, packages of the vendor, models."""

from deployments.models.approval import Approval, Decision
from deployments.models.artifact import Artifact, ArtifactPlace, Via
from deployments.models.batch import Batch, BatchState
from deployments.models.campaign import Campaign, CampaignPlan, CampaignServer, CampaignState
from deployments.models.enrolment import Enrolment
from deployments.models.evaluation import Evaluation, EvaluationAnswer
from deployments.models.fleet import Npu, Server
from deployments.models.inventory import SavedFilter, ServerChange
from deployments.models.job import Attempt, Job, JobState, LogChunk, Step
from deployments.models.join_many import HostKey, JoinMany, JoinRow
from deployments.models.order import Order, OrderState
from deployments.models.package import VendorPackage
from deployments.models.rotation import Phase, Rotation

__all__ = [
    "Approval",
    "Artifact",
    "ArtifactPlace",
    "Attempt",
    "Batch",
    "BatchState",
    "Campaign",
    "CampaignPlan",
    "CampaignServer",
    "CampaignState",
    "Decision",
    "Enrolment",
    "Evaluation",
    "EvaluationAnswer",
    "HostKey",
    "Job",
    "JobState",
    "JoinMany",
    "JoinRow",
    "LogChunk",
    "Npu",
    "Order",
    "OrderState",
    "Phase",
    "Rotation",
    "SavedFilter",
    "Server",
    "ServerChange",
    "Step",
    "VendorPackage",
    "Via",
]
