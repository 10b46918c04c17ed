"""A second person approves or rejects a job, or nobody does in time.

What was true when the job was asked for is looked at again: a week may lie between.
"""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotAllowed
from console.models import User
from deployments.models import Approval, Decision, Job, JobState
from deployments.row_locks import lock_job
from deployments.services import approvals, filling, jobs, root_access, speaking, waiting
from deployments.steps import Text

MOST_NOTE = 500
NOBODY = Text(
    f"{approvals.VALID_DAYS} 天内没有人批准", f"Nobody approved it within {approvals.VALID_DAYS} days"
)  # fmt: skip


def approve(job: Job, *, by: User, note: str = "") -> Job:
    """Let the job go, or wait for what holds it back. Raises NotAllowed, Invalid, and Conflict where it is decided
    already or could not be queued any more."""
    note = _checked(note)
    with transaction.atomic():
        row = lock_job(job.pk)
        _check_may_decide(row, _waiting(row), by)
        row.params, row.locks = _looked_at_again(row)
        row.waiting = waiting.must_wait(row.server, row.kind, row.locks, True)
        row.state, row.not_after = JobState.QUEUED, timezone.now() + timedelta(seconds=settings.JOB_VALID_S)
        row.save(update_fields=["params", "locks", "waiting", "state", "not_after"])
        approvals.close(row, Decision.APPROVED, by=by, note=note)
        audit.record(by, "job.approved", row, note=note)
        attempt = row.attempts.last()
        if attempt is not None and not row.waiting:
            transaction.on_commit(lambda: jobs.hand_over(attempt))
    jobs.tell(row)
    return row


def reject(job: Job, *, by: User, note: str) -> Job:
    """End the job; the note says why. Raises NotAllowed, Invalid without a note, Conflict where it is decided."""
    note = _checked(note)
    if not note:
        raise Invalid(_("Who rejects a job says why."), _("Write a note."), code="no_note")
    with transaction.atomic():
        row = lock_job(job.pk)
        _check_may_decide(row, _waiting(row), by)
        approvals.close(row, Decision.REJECTED, by=by, note=note)
        why = Text(f"被 {by.username} 驳回：{note}", f"Rejected by {by.username}: {note}")
        jobs.end_here(row, row.attempts.last(), JobState.CANCELLED, why)
        audit.record(by, "job.rejected", row, note=note)
    jobs.tell(row)
    return row


def expire(now: datetime) -> list[int]:
    """End the jobs about which nobody has decided in time; their ids. One query where there is none."""
    late = Approval.objects.filter(decision=Decision.WAITING, expires_at__lte=now)
    ended = []
    for pk in list(late.values_list("job_id", flat=True)):
        with transaction.atomic():
            row = lock_job(pk)
            if row.state != JobState.WAITING_APPROVAL or approvals.open_of(row) is None:
                continue
            approvals.close(row, Decision.EXPIRED)
            jobs.end_here(row, row.attempts.last(), JobState.CANCELLED, NOBODY)
            audit.record(None, "job.approval_expired", row)
        jobs.tell(row)
        ended.append(pk)
    return ended


def refusal(job: Job, asked: Approval, by: User) -> NotAllowed | None:
    """Why `by`, as the account is in this very moment, may not decide about the job; None where they may."""
    role = getattr(jobs.find_kind(job.kind), "ROLE", "operator")
    now = User.objects.filter(pk=by.pk).first()
    if now is None or not (now.may(role) and by.may(role)):
        words = (
            _("Only an administrator may approve or reject this job.")
            if role == "administrator"
            else _("Only an operator may approve or reject this job.")
        )
        return NotAllowed(words, _("Ask one to look at it."))
    if asked.requester_id == by.pk:
        return NotAllowed(
            _("Who asked for a job cannot decide about it."), _("Ask another person to look at it."), code="same_person"
        )
    return None


def _check_may_decide(row: Job, asked: Approval, by: User) -> None:
    if found := refusal(row, asked, by):
        raise found


def _waiting(row: Job) -> Approval:
    """What is to be decided. Raises Conflict where nothing is, or its time is over."""
    asked = approvals.open_of(row) if row.state == JobState.WAITING_APPROVAL else None
    if asked is None or asked.expires_at <= timezone.now():
        raise Conflict(
            _("Job #%(id)s no longer waits for approval.") % {"id": row.pk},
            _("Reload the page to see what can be done now."),
            code="wrong_state",
        )
    if asked.requester is None or not asked.requester.may(getattr(jobs.find_kind(row.kind), "ROLE", "operator")):
        raise Conflict(
            _("Who asked for job #%(id)s may no longer do so.") % {"id": row.pk},
            _("Cancel it, and let somebody else queue it anew."),
            code="requester_gone",
        )
    return asked


def _looked_at_again(row: Job) -> tuple[dict[str, Any], list[str]]:
    """The parameters and locks as of now. Raises what queueing raises, and Conflict where it would do other things."""
    module, server = jobs.find_kind(row.kind), row.server
    jobs.check_present(server)
    if server.is_offline:
        raise Conflict(
            _("%(server)s is silent, so the job was not approved.") % {"server": server.name},
            _("Start the agent on %(server)s, then try again.") % {"server": server.name},
            code="server_offline",
        )
    before = jobs.checked_params(module, row.params)
    params = filling.filled(server, row.kind, module, filling.asked(row))
    read = jobs.checked_params(module, params)
    if list(module.steps(read)) != list(module.steps(before)):
        raise Conflict(
            _("%(server)s has changed since: job #%(id)s would no longer do what was asked for.")
            % {"server": server.name, "id": row.pk},
            _("Reject it, and let it be queued anew."),
            code="changed",
        )
    root_access.check(server, module, read)
    speaking.check_speaks(server, row.kind)
    locks = list(module.locks(read))
    jobs.check_cordons(server, locks)
    return dict(params), locks


def _checked(note: str) -> str:
    if len(note) > MOST_NOTE:
        raise Invalid(
            _("The note is longer than %(most)s characters.") % {"most": MOST_NOTE}, _("Shorten it."), code="too_long"
        )
    return note.strip()
