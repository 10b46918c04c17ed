"""What an operator changes: servers and their NPUs, joining, jobs with their attempts, steps and logs, batches,
campaigns, orders to agents, keys that change, packages of the vendor, models, deployments."""

from deployments.models.approval import Approval, Decision
from deployments.models.artifact import Artifact, ArtifactPlace, Via
from deployments.models.batch import Batch, BatchState
from deployments.models.benchmark import Benchmark
from deployments.models.campaign import Campaign, CampaignPlan, CampaignServer, CampaignState
from deployments.models.deployment import (
    GONE,
    SERVING,
    Deployment,
    EngineChunk,
    EngineLog,
    ExternalEngine,
    Replica,
    ReplicaState,
    Revision,
    Spread,
)
from deployments.models.enrolment import Enrolment
from deployments.models.evaluation import Evaluation, EvaluationAnswer
from deployments.models.fleet import Npu, Server
from deployments.models.gateway import Gateway, GatewayKey, KeyUsage
from deployments.models.inventory import SavedFilter, ServerChange
from deployments.models.job import Attempt, Job, JobState, LogChunk, Step
from deployments.models.join_many import HostKey, JoinMany, JoinRow
from deployments.models.log_share import LogShare
from deployments.models.order import Order, OrderState
from deployments.models.package import VendorPackage
from deployments.models.reservation import Hold, PortLease, Reservation
from deployments.models.rotation import Phase, Rotation

__all__ = [
    "GONE",
    "SERVING",
    "Approval",
    "Artifact",
    "ArtifactPlace",
    "Attempt",
    "Batch",
    "BatchState",
    "Benchmark",
    "Campaign",
    "CampaignPlan",
    "CampaignServer",
    "CampaignState",
    "Decision",
    "Deployment",
    "EngineChunk",
    "EngineLog",
    "Enrolment",
    "Evaluation",
    "EvaluationAnswer",
    "ExternalEngine",
    "Gateway",
    "GatewayKey",
    "Hold",
    "HostKey",
    "Job",
    "JobState",
    "JoinMany",
    "JoinRow",
    "KeyUsage",
    "LogChunk",
    "LogShare",
    "Npu",
    "Order",
    "OrderState",
    "Phase",
    "PortLease",
    "Replica",
    "ReplicaState",
    "Reservation",
    "Revision",
    "Rotation",
    "SavedFilter",
    "Server",
    "ServerChange",
    "Spread",
    "Step",
    "VendorPackage",
    "Via",
]
