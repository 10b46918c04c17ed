"""Jobs that wait for a second person, from asking until it is decided: those of a kind with NEEDS_APPROVAL.

Such a job is in the state WAITING_APPROVAL and has its attempt already, but no entry in its server's queue, and holds
no locks. Who decides is in services/approving.py. All of it happens under the lock on the server's row.
"""

from datetime import timedelta
from types import ModuleType
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit, clock
from console.errors import Conflict
from console.language import pick
from console.models import User
from deployments import kinds
from deployments.models import Approval, Decision, Job, JobState
from deployments.steps import Text

VALID_DAYS = 7
ALERT = "job-approval"


def is_needed(module: ModuleType) -> bool:
    """Whether jobs of this kind wait for a second person."""
    return bool(getattr(module, "NEEDS_APPROVAL", False))


def check_not_many(module: ModuleType) -> None:
    """Raises Conflict for a kind whose jobs are approved one by one: in a batch nobody would."""
    if is_needed(module):
        raise Conflict(
            _("Each job “%(kind)s” needs approval by itself, so it goes to no batch.") % {"kind": pick(module.TITLE)},
            _("Queue it for one server after the other."),
            code="one_by_one",
        )


def check_not_lost(job: Job) -> None:
    """Raises Conflict for a job that may still run: while it waited for approval it would hold nothing."""
    if job.state == JobState.LOST:
        raise Conflict(
            _("Job #%(id)s may still run on its server, so it was not started again.") % {"id": job.pk},
            _("Cancel it first, then retry it."),
            code="under_way",
        )


def ask(job: Job, *, by: User) -> Approval:
    """`by` wants this job, which waits from now on. Within the transaction that has written its state."""
    now = timezone.now()
    made = Approval.objects.create(
        job=job, requester=by, asked_at=now, expires_at=now + timedelta(days=VALID_DAYS)
    )  # fmt: skip
    title, until = Text(*kinds.title(job.kind)), clock.words(made.expires_at, clock.LONG)
    alerts.fire(
        ALERT, f"job:{job.pk}", severity="info", link=f"/jobs/{job.pk}/",
        what=Text(
            f"作业 #{job.pk}（{title.zh}，{job.server.name}）等待批准，由 {by.username} 提出",
            f"Job #{job.pk} ({title.en} on {job.server.name}), asked for by {by.username}, waits for approval",
        ),
        do=Text(
            f"由另一人在作业页面上批准或驳回；{until} 之后失效。",
            f"Let another person approve or reject it on its page; it expires at {until}.",
        ),
    )  # fmt: skip
    audit.record(by, "job.approval_asked", job, until=made.expires_at.isoformat())
    return made


def latest(job: Job) -> Approval | None:
    """What was asked for last, decided or not; None for a job that needs no approval."""
    return job.approvals.select_related("requester", "decided_by").order_by("-pk").first()


def open_of(job: Job) -> Approval | None:
    """What waits for a decision; the caller holds the lock on the job, and so on this."""
    return job.approvals.select_related("requester").filter(decision=Decision.WAITING).first()


def close(job: Job, decision: Decision = Decision.WITHDRAWN, *, by: User | None = None, note: str = "") -> None:
    """What waits is decided so; nothing happens where nothing waits. Within a transaction that has locked the job."""
    waits = job.approvals.filter(decision=Decision.WAITING)
    if waits.update(decision=decision, decided_by=by, decided_at=timezone.now(), note=note):
        alerts.resolve(ALERT, f"job:{job.pk}")


def as_json(job: Job) -> dict[str, Any] | None:
    """The newest approval of one job as REST shows it, or None."""
    row = latest(job)
    if row is None:
        return None
    return {
        "decision": row.decision,
        "requester": row.requester.username if row.requester else None,
        "asked_at": row.asked_at.isoformat(timespec="milliseconds"),
        "expires_at": row.expires_at.isoformat(timespec="milliseconds"),
        "decided_by": row.decided_by.username if row.decided_by else None,
        "decided_at": row.decided_at.isoformat(timespec="milliseconds") if row.decided_at else None,
        "note": row.note,
    }
