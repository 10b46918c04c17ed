"""Servers of a campaign that were held back at their turn: the approver decides about them once more."""

import hashlib
from collections.abc import Iterable, Sequence

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict
from console.models import User
from deployments.models import Campaign, CampaignServer, Job, JobState
from deployments.services import batches, campaign_gate, campaign_plan, jobs
from deployments.services.campaigns import changed, check_may_decide, go_on, locked
from deployments.steps import Text


def held(campaign: Campaign) -> list[CampaignServer]:
    """Those that wait for a decision, with server, plan and job."""
    rows = campaign.members.filter(job__state=JobState.WAITING_APPROVAL)
    rows = rows.select_related("server", "plan", "job").defer("job__params", "server__facts")
    return list(rows.order_by("server__name"))


def held_digest(rows: Iterable[CampaignServer]) -> str:
    """Names exactly these servers with these plans."""
    told = ",".join(f"{row.server_id}:{row.plan.digest if row.plan else ''}" for row in sorted(rows, key=_by_server))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _by_server(row: CampaignServer) -> int:
    return row.server_id


def approve_held(campaign: Campaign, *, by: User, seen: str) -> int:
    """Approve the new plans of all that are held back and can go; how many. They go at their ring's turn.

    Raises NotAllowed, Conflict where what is held back is not what was shown, or none of them can go.
    """
    check_may_decide(campaign, by)
    if _look_again(campaign) or held_digest(held(campaign)) != seen:
        raise changed()
    with locked(campaign) as row:
        check_may_decide(row, by)
        rows = held(row)
        if held_digest(rows) != seen:
            raise changed()
        able = [one for one in rows if one.plan]
        if not able:
            raise Conflict(
                _("None of the servers that are held back can be brought there now."),
                _("Mend what their cards say, or leave them out."),
                code="none_can",
            )
        _free(row, able)
        names = [one.server.name for one in able]
        audit.record(by, "campaign.held_approved", row, servers=names, digest=seen)
        transaction.on_commit(lambda: _told_of_held(row))
    return len(able)


def _free(campaign: Campaign, rows: Sequence[CampaignServer]) -> None:
    for row in rows:
        row.held, row.approved = [], row.plan.digest if row.plan else ""
    CampaignServer.objects.bulk_update(rows, ["held", "approved"], batch_size=200)
    ids = [row.job_id for row in rows if row.job_id]
    Job.objects.filter(pk__in=ids, state=JobState.WAITING_APPROVAL).update(state=JobState.DRAFT, reason=None)


def _look_again(campaign: Campaign) -> bool:
    """Plan those that are held back as they are now; whether any plan has changed, which is then written down."""
    rows = held(campaign)
    servers = {server.pk: server for server in campaign_plan.by_ids(row.server_id for row in rows)}
    moved = []
    for row in rows:
        before = (row.plan_id, row.held)
        words, row.plan = campaign_gate.changed(campaign, servers[row.server_id], row.plan)
        if (row.plan_id is None) != (before[0] is None) or row.plan_id != before[0]:
            row.held = list(words)
            moved.append(row)
    CampaignServer.objects.bulk_update(moved, ["held", "plan"], batch_size=200)
    return bool(moved)


def leave_out(campaign: Campaign, *, by: User) -> int:
    """Cancel the jobs of all that are held back; how many. Raises NotAllowed, Conflict."""
    jobs.check_may_operate(by)
    rows = held(campaign)
    if not rows:
        raise Conflict(_("No server is held back."), _("There is nothing to leave out."), code="nothing_left")
    reason = Text(f"由 {by.username} 从发布活动中去掉", f"Left out of the campaign by {by.username}")
    with locked(campaign) as row:
        ids = [one.job_id for one in rows if one.job_id]
        there = Job.objects.filter(pk__in=ids, state=JobState.WAITING_APPROVAL)
        n = there.update(state=JobState.CANCELLED, reason=list(reason), ended_at=timezone.now())
        audit.record(by, "campaign.left_out", row, servers=[one.server.name for one in rows])
        transaction.on_commit(lambda: _told_of_held(row))
    return n


def _told_of_held(row: Campaign) -> None:
    if row.batch:
        batches.tell(row.batch)
    go_on(row)
