"""What people do about campaigns: ask for one, approve or reject it, withdraw it.

Pause, go on, stop and retry are those of its batch (services/batches.py), which services/campaign_gate.py guards;
what that holds back is decided about in services/campaign_held.py.
"""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import redis
from django.conf import settings
from django.db import OperationalError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, live
from console.errors import Conflict, Invalid, NotAllowed, NotFound
from console.models import User
from deployments.models import Batch, BatchState, Campaign, CampaignPlan, CampaignServer, CampaignState, Job, JobState
from deployments.services import batch_gates, batches, campaign_gate, campaign_plan, jobs, selection, stacks
from deployments.services.campaign_plan import KIND, Table
from deployments.services.campaign_rings import Order

VALID = timedelta(days=7)
MOST_NOTE = 500


def find(pk: int) -> Campaign:
    """With requester, decider and batch at hand. Raises NotFound."""
    rows = Campaign.objects.select_related("requester", "decided_by", "batch", "batch__requester")
    found = rows.filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise NotFound(
            _("There is no campaign #%(id)s.") % {"id": pk},
            _("Look for it in the list of campaigns."),
            code="no_such_campaign",
        )
    return found


def batch_of(campaign: Campaign) -> Batch:
    """Its batch. Raises Conflict where it has not begun."""
    if campaign.batch is None:
        raise Conflict(
            _("Campaign #%(id)s has not begun.") % {"id": campaign.pk},
            _("It begins when another operator approves it."),
            code="not_begun",
        )
    return campaign.batch


# ---------- asking for one ----------


def planned(
    stack: str, params: Mapping[str, Any], asked: selection.Asked, order: Order
) -> tuple[Table, dict[str, Any]]:
    """What it would do, and the parameters of its jobs; nothing is written. Raises ConsoleError in words."""
    row, chosen = stacks.find(stack), _chosen(params)
    table = campaign_plan.make(row, chosen, campaign_plan.find(asked), order)
    return table, {"stack": row.name, **chosen}


def _chosen(params: Mapping[str, Any]) -> dict[str, str]:
    """The choices that are given. Raises Invalid for one that is none, or does not fit the kind."""
    given = {name: value for name, value in params.items() if value not in ("", None)}
    if unknown := sorted(set(given) - set(campaign_plan.param_names())):
        raise Invalid(
            _("A campaign has no choice %(names)s.") % {"names": ", ".join(name[:40] for name in unknown[:5])},
            _("Use those of: %(names)s.") % {"names": ", ".join(campaign_plan.param_names())},
            code="unknown_choice",
        )
    jobs.checked_params(jobs.find_kind(KIND), {"stack": "x", **given})
    return given


def ask(
    stack: str, params: Mapping[str, Any], asked: selection.Asked, order: Order, *, by: User, ticket: str = "",
    why: str = "", seen: str | None = None,
) -> Campaign:  # fmt: skip
    """Write down the campaign with the plan of each server; it begins when somebody else approves it.

    `seen` is the digest of what was shown, where it was. Raises NotAllowed, NotFound, Invalid, Conflict.
    """
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    _check_length(why)
    table, made = planned(stack, params, asked, order)
    _must_do_something(table)
    if seen is not None and seen != table.digest:
        raise Conflict(
            _("The plan is another one than was shown."),
            _("Look at it below, then send it again."),
            code="plan_changed",
        )
    now = timezone.now()
    with transaction.atomic():
        campaign = Campaign.objects.create(
            stack=table.stack.name, params=made, order=order.as_json(), requester=by, ticket=ticket, why=why,
            created_at=now, expires_at=now + VALID, digest=table.digest,
            selection={"asked": asked.as_json(), "servers": [line.server.name for line in table.lines]},
        )  # fmt: skip
        _write(campaign, table)
        audit.record(by, "campaign.asked", campaign, stack=table.stack.name, servers=table.hit, digest=table.digest)
        transaction.on_commit(lambda: tell(campaign))
    return campaign


def _must_do_something(table: Table) -> None:
    """Raises Conflict where no server can be brought there, or all are there already."""
    counts = table.counts()
    if counts["runs"] or counts["reboots"]:
        return
    if counts["satisfied"]:
        raise Conflict(
            _("Every server that can have %(stack)s has it already.") % {"stack": table.stack.name},
            _("There is nothing to do."),
            code="nothing_to_do",
        )
    raise Conflict(
        _("None of the %(n)s servers can be brought to %(stack)s.")
        % {"n": len(table.lines), "stack": table.stack.name},
        _("The table says why for each; choose others, or another stack."),
        code="none_can",
    )


def _write(campaign: Campaign, table: Table) -> None:
    """The table into rows, in place of those there are."""
    campaign.members.all().delete()
    campaign.plans.all().delete()
    campaign.titles = {str(ring): list(title) for ring, title in table.placed.titles.items()}
    campaign.digest, campaign.planned_at = table.digest, timezone.now()
    campaign.save(update_fields=["titles", "digest", "planned_at"])
    made = {line.digest: line.made for line in table.lines if line.made}
    rows = [CampaignPlan(campaign=campaign, digest=digest, **campaign_plan.told(plan)) for digest, plan in made.items()]
    plans = {row.digest: row for row in CampaignPlan.objects.bulk_create(rows, batch_size=200)}
    members = []
    for line in table.lines:
        place = table.placed.places.get(line.server.pk)
        members.append(
            CampaignServer(
                campaign=campaign, server=line.server, plan=plans.get(line.digest),
                ring=place and place.ring, wave=place and place.wave,
                because=list(line.because or ()),
            )
        )  # fmt: skip
    CampaignServer.objects.bulk_create(members, batch_size=200)


# ---------- deciding ----------


def _check_length(text: str) -> None:
    if len(text) > MOST_NOTE:
        raise Invalid(
            _("The note is longer than %(most)s characters.") % {"most": MOST_NOTE}, _("Shorten it."), code="too_long"
        )


def check_may_decide(campaign: Campaign, by: User) -> None:
    """Raises NotAllowed: it takes a second person, who is an operator in this very moment."""
    now = User.objects.filter(pk=by.pk).first()
    if now is None or not (now.may("operator") and by.may("operator")):
        raise NotAllowed(_("Only an operator may approve campaigns."), _("Ask one, or an administrator for the role."))
    if campaign.requester_id == by.pk:
        raise NotAllowed(
            _("Who asked for a campaign cannot approve it."),
            _("Ask another operator to look at it."),
            code="same_person",
        )


@contextlib.contextmanager
def locked(campaign: Campaign) -> Iterator[Campaign]:
    """The campaign's row under its lock, that of its batch before it."""
    with transaction.atomic():
        if campaign.batch:
            Batch.objects.select_for_update().get(pk=campaign.batch.pk)
        rows = Campaign.objects.select_for_update(no_key=True, of=("self",)).select_related("requester", "batch")
        yield rows.get(pk=campaign.pk)


def _must_wait(row: Campaign) -> None:
    if row.state == CampaignState.WAITING and (row.batch_id or row.expires_at > timezone.now()):
        return
    state = row.state if row.state != CampaignState.WAITING else CampaignState.EXPIRED
    by = row.decided_by.username if row.decided_by else "—"
    raise Conflict(
        _("Campaign #%(id)s does not wait for approval: %(state)s (%(by)s).")
        % {"id": row.pk, "state": CampaignState(state).label, "by": by},
        _("Reload the page to see what can be done now."),
        code="wrong_state",
    )


def approve(campaign: Campaign, *, by: User, seen: str, note: str = "") -> Campaign:
    """Approve what `seen` names, and begin. Raises NotAllowed, Conflict where it is no longer what would run."""
    _check_length(note)
    check_may_decide(campaign, by)
    if campaign.batch_id is None:
        _plan_again(campaign, seen)
    with locked(campaign) as row:
        check_may_decide(row, by)
        _must_wait(row)
        if seen != row.digest:
            raise changed()
        row.state, row.decided_by, row.decided_at, row.note = CampaignState.APPROVED, by, timezone.now(), note
        if row.batch is None:
            row.batch = _begin(row)
        elif row.batch.state == BatchState.PAUSED:
            Batch.objects.filter(pk=row.batch.pk).update(state=BatchState.RUNNING, reason=None)
        row.save(update_fields=["state", "decided_by", "decided_at", "note", "batch"])
        audit.record(by, "campaign.approved", row, digest=row.digest, note=note)
        transaction.on_commit(lambda: go_on(row))
    return row


def changed() -> Conflict:
    """The refusal where what was seen is no longer what is."""
    return Conflict(
        _("The plan has changed since it was shown: servers tell other things of themselves now."),
        _("Look at the new plan below, then decide again."),
        code="plan_changed",
    )


def _plan_again(campaign: Campaign, seen: str) -> None:
    """Plan all servers as they are now; where that is another plan, write it down and raise Conflict."""
    ids = list(campaign.members.values_list("server_id", flat=True))
    servers = campaign_plan.by_ids(ids)
    params = {name: value for name, value in campaign.params.items() if name != "stack"}
    table = campaign_plan.make(stacks.find(campaign.stack), params, servers, Order.of(campaign.order))
    if table.digest == campaign.digest == seen:
        return
    with locked(campaign) as row:
        if row.state == CampaignState.WAITING and row.batch_id is None and row.digest != table.digest:
            _write(row, table)
            audit.record(None, "campaign.planned_again", row, digest=table.digest)
            transaction.on_commit(lambda: tell(row))
    _must_wait(row)
    _must_do_something(table)
    raise changed()


def _begin(row: Campaign) -> Batch:
    """The batch with a draft for each server that has a ring."""
    order, now = Order.of(row.order), timezone.now()
    batch = Batch.objects.create(
        kind=KIND, params=row.params, canary=order.canary, wave_size=order.at_once, stop_after=order.stop_after,
        spread=order.spread, requester=row.requester, ticket=row.ticket, created_at=now,
        selection={"asked": row.selection.get("asked", {}), "servers": row.selection.get("servers", [])},
    )  # fmt: skip
    found = row.members.filter(ring__isnull=False).select_related("plan")
    members = list(found.order_by("ring", "wave", "server__name"))
    until = now + timedelta(seconds=settings.JOB_VALID_S)
    made = Job.objects.bulk_create(
        [
            Job(server_id=member.server_id, kind=KIND, params=row.params, locks=[], requester=row.requester,
                ticket=row.ticket, state=JobState.DRAFT, batch=batch, wave=member.wave, created_at=now, not_after=until)
            for member in members
        ],
        batch_size=200,
    )  # fmt: skip
    for member, job in zip(members, made, strict=True):
        member.job, member.approved = job, member.plan.digest if member.plan else ""
    CampaignServer.objects.bulk_update(members, ["job", "approved"], batch_size=200)
    audit.record(row.requester, "batch.started", batch, kind=KIND, servers=len(made), campaign=row.pk)
    return batch


def go_on(row: Campaign) -> None:
    """After the commit of what somebody decided."""
    tell(row)
    if row.batch_id:
        with contextlib.suppress(OperationalError):  # ingest does it within five seconds
            batches.advance(row.batch_id)


def reject(campaign: Campaign, *, by: User, note: str) -> Campaign:
    """Raises NotAllowed, Invalid without a note, Conflict."""
    _check_length(note)
    check_may_decide(campaign, by)
    if not note.strip():
        raise Invalid(_("A rejection needs a note."), _("Say what must be other, then reject it."), code="no_note")
    with locked(campaign) as row:
        check_may_decide(row, by)
        _must_wait(row)
        if row.batch_id:
            raise Conflict(
                _("Campaign #%(id)s has begun already.") % {"id": row.pk}, _("Stop it instead."), code="wrong_state"
            )
        row.state, row.decided_by, row.decided_at, row.note = CampaignState.REJECTED, by, timezone.now(), note
        row.save(update_fields=["state", "decided_by", "decided_at", "note"])
        audit.record(by, "campaign.rejected", row, note=note)
        transaction.on_commit(lambda: tell(row))
    return row


def withdraw(campaign: Campaign, *, by: User) -> Campaign:
    """Who asked for it, or an administrator, takes it back before it has begun. Raises NotAllowed, Conflict."""
    jobs.check_may_operate(by)
    if campaign.requester_id != by.pk and not by.may("administrator"):
        raise NotAllowed(_("Only who asked for a campaign may withdraw it."), _("Reject it instead, with a note."))
    with locked(campaign) as row:
        if row.state != CampaignState.WAITING or row.batch_id:
            raise Conflict(
                _("Campaign #%(id)s no longer waits for approval.") % {"id": row.pk},
                _("Reload the page to see what can be done now."),
                code="wrong_state",
            )
        row.state, row.decided_by, row.decided_at = CampaignState.WITHDRAWN, by, timezone.now()
        row.save(update_fields=["state", "decided_by", "decided_at"])
        audit.record(by, "campaign.withdrawn", row)
        transaction.on_commit(lambda: tell(row))
    return row


def expire(now: datetime) -> list[int]:
    """End requests that nobody has decided about in time; their ids. One query where there is none."""
    late = Campaign.objects.filter(state=CampaignState.WAITING, batch=None, expires_at__lte=now)
    ended = []
    for campaign in late:
        with locked(campaign) as row:
            if row.state == CampaignState.WAITING and row.batch_id is None:
                row.state, row.decided_at = CampaignState.EXPIRED, now
                row.save(update_fields=["state", "decided_at"])
                audit.record(None, "campaign.expired", row)
                ended.append(row.pk)
        tell(campaign)
    return ended


def tell(campaign: Campaign) -> None:
    """Pages of the campaign and the list read it again."""
    with contextlib.suppress(redis.RedisError):
        live.publish(f"campaign:{campaign.pk}", "moved", {"id": campaign.pk})
        live.publish("campaigns", "moved", {"id": campaign.pk})


batch_gates.GATES[KIND] = campaign_gate.CampaignGate()
