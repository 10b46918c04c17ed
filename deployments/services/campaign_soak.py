"""Whether a ring has ended well: its jobs, then a time in which none of its servers has an alert and all of them still
match the stack. A fixed number of queries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.utils import timezone

from console.models import Alert
from deployments.models import Campaign, CampaignServer, JobState, Server
from deployments.models.job import ENDED
from deployments.services import campaign_plan, campaign_rings, stacks
from deployments.stacks import verdict
from deployments.steps import Text

# An agent reads its facts anew when the job ends; until then, and for so long, the facts may be those from before.
SETTLE = timedelta(seconds=180)
FRESH = timedelta(seconds=60)
BROKEN = (JobState.FAILED, JobState.LOST)
SETTLED = (*ENDED, JobState.LOST)


@dataclass(frozen=True)
class Judged:
    """`state`: passed | waits | trouble, which `why` tells; `who` are the servers (ids) in trouble."""

    state: str
    why: Text | None = None
    who: tuple[int, ...] = ()


PASSED, WAITS = Judged("passed"), Judged("waits")


def members(campaign: Campaign) -> dict[int, list[CampaignServer]]:
    """{ring: its servers that have a job}. One query; facts are left out."""
    rows = campaign.members.filter(ring__isnull=False, job__isnull=False).select_related("job", "server")
    rows = rows.defer("job__params", "server__facts").order_by("ring", "server__name")
    rings: dict[int, list[CampaignServer]] = {}
    for row in rows:
        rings.setdefault(row.ring or 0, []).append(row)
    return rings


def passed(campaign: Campaign, ring: int) -> bool:
    return bool(campaign.progress.get(str(ring), {}).get("passed"))


def forgiven(campaign: Campaign, ring: int) -> set[int]:
    return set(campaign.progress.get(str(ring), {}).get("forgiven", []))


def until(campaign: Campaign, ring: Sequence[CampaignServer]) -> datetime | None:
    """When the ring's time of watching is over; None while a job of it has not ended, or none ran."""
    jobs = [member.job for member in ring if member.job]
    if any(job.state not in SETTLED for job in jobs):
        return None
    settled = [member.settled_at for member in ring if member.settled_at]
    soak = timedelta(minutes=campaign_rings.Order.of(campaign.order).soak_min)
    return max(settled) + soak if settled else None


def judge(campaign: Campaign, ring: int, rows: Sequence[CampaignServer], now: datetime) -> Judged:
    """The ring as it is now."""
    spared = forgiven(campaign, ring)
    if any(row.job.state not in SETTLED for row in rows if row.job):
        return WAITS
    broken = [row for row in rows if row.job and row.job.state in BROKEN and row.server_id not in spared]
    if broken:
        title = Text(*campaign.titles[str(ring)])
        words = Text(
            f"{title.zh}没有顺利结束：{_names(broken)}", f"{title.en} did not end well: {_names(broken)}"
        )  # fmt: skip
        return Judged("trouble", words, tuple(row.server_id for row in broken))
    good = [
        row
        for row in rows
        if row.job and row.job.state == JobState.SUCCEEDED and row.server_id not in spared and not row.server.is_gone
    ]
    over = until(campaign, rows)
    if not good or over is None:
        return PASSED
    return _alerted(good) or _matching(campaign, good, now, now >= over) or (PASSED if now >= over else WAITS)


def _names(rows: Iterable[CampaignServer]) -> str:
    names = [row.server.name for row in rows]
    return ", ".join(names[:5]) + (f" … (+{len(names) - 5})" if len(names) > 5 else "")


def _alerted(good: Sequence[CampaignServer]) -> Judged | None:
    """An alert that began since the ring did and is open, or that began after the job had ended."""
    began = min(row.begun_at for row in good if row.begun_at)
    subjects = {f"server:{row.server_id}": row for row in good}
    found = Alert.objects.filter(subject__in=list(subjects), started_at__gte=began).order_by("started_at")
    told = []
    for alert in found:
        row = subjects[alert.subject]
        if alert.ended_at is None or (row.settled_at and alert.started_at >= row.settled_at):
            told.append((row, alert))
    if not told:
        return None
    (row, alert), more = told[0], len(told) - 1
    name, rest = row.server.name, f" (+{more})" if more else ""
    words = Text(f"{name} 有告警：{alert.what[0]}{rest}", f"{name} has an alert: {alert.what[1]}{rest}")
    return Judged("trouble", words, tuple(row.server_id for row, _alert in told))


def _matching(campaign: Campaign, good: Sequence[CampaignServer], now: datetime, over: bool) -> Judged | None:
    """Trouble where a server no longer matches, a wait where it may not have told yet. At the end all are looked at,
    before that those whose facts are new."""
    known = {row.server_id: row for row in good}
    rows = Server.objects.filter(pk__in=list(known))
    if not over:
        rows = rows.filter(facts_at__gte=now - FRESH)
    stack = stacks.catalogue().stacks.get(campaign.stack)
    unlike = []
    for server in rows:
        if stack is None or stacks.verdict_of(stacks.row_of(server), stack).word != verdict.MATCHES:
            unlike.append(known[server.pk])
    late = [row for row in unlike if row.settled_at and now - row.settled_at > SETTLE]
    if late:
        names = _names(late)
        words = Text(
            f"不再符合 {campaign.stack}：{names}", f"No longer {campaign.stack} as wanted: {names}"
        )  # fmt: skip
        return Judged("trouble", words, tuple(row.server_id for row in late))
    return WAITS if unlike else None


def settle(campaign: Campaign, now: datetime) -> bool:
    """Note when jobs have ended, then what their servers have, once they have told; whether anybody did."""
    campaign.members.filter(settled_at=None, begun_at__isnull=False, job__state__in=SETTLED).update(settled_at=now)
    rows = campaign.members.filter(after={}, begun_at__isnull=False, job__state__in=ENDED)
    told = Q(server__facts_at__gte=F("begun_at")) | Q(settled_at__lt=now - SETTLE)
    stack = stacks.catalogue().stacks.get(campaign.stack)
    noted = []
    for row in rows.filter(told).select_related("server"):
        has, facts_at, settled = stacks.row_of(row.server), row.server.facts_at, row.settled_at or now
        fits = stack is not None and stacks.verdict_of(has, stack).word == verdict.MATCHES
        if fits or (facts_at is not None and facts_at >= settled) or now - settled > SETTLE:
            row.after = {**campaign_plan.versions(has.has), "matches": fits}
            noted.append(row)
    CampaignServer.objects.bulk_update(noted, ["after"], batch_size=200)
    return bool(noted)


def may_end(campaign: Campaign) -> bool:
    """Whether nobody is held back and every server has told what it has now."""
    open_ = Q(job__state=JobState.WAITING_APPROVAL)
    open_ |= Q(job__state__in=(JobState.SUCCEEDED, JobState.FAILED), after={}, begun_at__isnull=False)
    return not campaign.members.filter(open_).exists()


def now_is() -> datetime:
    """The moment by which rings are judged."""
    return timezone.now()
