"""Campaigns as REST shows them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from console.language import pick
from deployments.models import Campaign, CampaignPlan, CampaignServer
from deployments.services import campaign_board, campaign_held, campaign_soak
from deployments.services.campaign_plan import Line, Table
from deployments.services.campaign_rings import Order


def _pair(words: Sequence[str] | None) -> dict[str, str] | None:
    return dict(zip(("zh", "en"), words, strict=True)) if words else None


def _time(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None


def brief(campaign: Campaign) -> dict[str, Any]:
    """One campaign of a list; needs requester, decider and batch at hand."""
    batch = campaign.batch
    return {
        "id": campaign.pk,
        "stack": campaign.stack,
        "state": campaign_board.shown_state(campaign),
        "reason": (pick(batch.reason) or None) if batch else None,
        "requester": campaign.requester.username if campaign.requester else None,
        "why": campaign.why,
        "ticket": campaign.ticket,
        "decided_by": campaign.decided_by.username if campaign.decided_by else None,
        "decided_at": _time(campaign.decided_at),
        "note": campaign.note,
        "batch": campaign.batch_id,
        "created_at": _time(campaign.created_at),
        "expires_at": _time(campaign.expires_at) if batch is None else None,
        "ended_at": _time(batch.ended_at) if batch else None,
    }


def whole(campaign: Campaign) -> dict[str, Any]:
    """One campaign with every server. `digest` is what an approval names, `held_digest` what one of those held back
    does."""
    rows = campaign_board.table(campaign)
    jobs = campaign_soak.members(campaign)
    known = {row.pk: row for part in jobs.values() for row in part}
    held = campaign_held.held(campaign)
    return {
        **brief(campaign),
        "params": {name: value for name, value in campaign.params.items() if name != "stack"},
        "select": campaign.selection.get("asked", {}),
        "order": campaign.order,
        "digest": campaign.digest,
        "planned_at": _time(campaign.planned_at),
        "held_digest": campaign_held.held_digest(held) if held else None,
        "rings": [_ring(campaign, int(ring), jobs.get(int(ring), [])) for ring in sorted(campaign.titles, key=int)],
        "plans": [_plan(plan) for plan in campaign.plans.all()],
        "servers": [_server(row, known.get(row.pk)) for row in rows],
    }


def _ring(campaign: Campaign, ring: int, rows: Sequence[CampaignServer]) -> dict[str, Any]:
    return {
        "ring": ring,
        "title": _pair(campaign.titles[str(ring)]),
        "passed_at": campaign.progress.get(str(ring), {}).get("passed"),
        "watched_until": _time(campaign_soak.until(campaign, rows)) if rows else None,
    }


def _plan(plan: CampaignPlan) -> dict[str, Any]:
    steps = [{**step, "title": _pair(step["title"])} for step in plan.steps]
    warnings = [_pair(text) for text in plan.warnings]
    return {"digest": plan.digest, "does": plan.word, "steps": steps, "warnings": warnings, "addresses": plan.addresses}


def _server(row: CampaignServer, known: CampaignServer | None) -> dict[str, Any]:
    job = known.job if known else None
    return {
        "server": row.server.name,
        "simulated": row.server.simulated,
        "ring": row.ring,
        "wave": row.wave,
        "does": campaign_board.does(row),
        "plan": row.plan.digest if row.plan else None,
        "because": _pair(row.because),
        "held": _pair(row.held),
        "job": job.pk if job else None,
        "state": job.state if job else None,
        "before": row.before,
        "after": row.after,
    }


def dry(table: Table, params: Mapping[str, Any], order: Order) -> dict[str, Any]:
    """What a campaign would do, with the digest that names it; nothing was made."""
    return {
        "stack": table.stack.name,
        "params": {name: value for name, value in params.items() if name != "stack"},
        "order": order.as_json(),
        "digest": table.digest,
        "counts": table.counts(),
        "rings": [{"ring": ring, "title": title._asdict()} for ring, title in sorted(table.placed.titles.items())],
        "servers": [_line(line, table) for line in table.lines],
    }


def _line(line: Line, table: Table) -> dict[str, Any]:
    place = table.placed.places.get(line.server.pk)
    steps = line.made.to_run if line.made else ()
    return {
        "server": line.server.name,
        "simulated": line.server.simulated,
        "silent": line.server.is_offline,
        "ring": place.ring if place else None,
        "wave": place.wave if place else None,
        "does": line.word,
        "because": line.because._asdict() if line.because else None,
        "steps": [step.title._asdict() for step in steps],
        "reboots": line.made.reboots if line.made else False,
        "plan": line.digest or None,
    }
