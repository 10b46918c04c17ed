"""The board of a campaign: rings as columns, servers as cards. A fixed number of queries, however many servers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.language import pick
from console.models import Alert
from deployments.models import BatchState, Campaign, CampaignPlan, CampaignServer, CampaignState, Job, JobState, Step
from deployments.services import campaign_plan, campaign_soak, waiting

MOST_CARDS = 60  # of a ring
# What a card's state is shown as, the most pressing first.
ORDER = (
    JobState.WAITING_APPROVAL, JobState.FAILED, JobState.LOST, JobState.RUNNING, JobState.WAITING_REBOOT,
    JobState.QUEUED, JobState.DRAFT, JobState.CANCELLED, JobState.SUCCEEDED,
)  # fmt: skip
LABELS: dict[str, Any] = {
    "stack": gettext_lazy("stack"), "driver": gettext_lazy("driver"), "firmware": gettext_lazy("firmware"),
    "cann": "CANN", "vllm_ascend": "vLLM-Ascend", "vllm": "vLLM", "torch_npu": "torch-npu",
}  # fmt: skip


@dataclass(frozen=True)
class Version:
    """One version that changes, or will: '—' where it is not known or there is none."""

    label: str
    before: str
    after: str


@dataclass(frozen=True)
class Card:
    """One server. `does` is satisfied | runs | reboots | ''; `done` of `of` steps while its job runs; `fits` is
    whether it matches the stack afterwards, None where that was not looked at."""

    name: str
    rack: str
    simulated: bool
    job: Job | None
    state: str
    does: str
    steps: int
    done: int
    versions: list[Version]
    fits: bool | None
    alerts: int
    wait: str
    words: str

    @property
    def percent(self) -> int:
        return min(100, round(100 * self.done / self.steps)) if self.steps else 0


@dataclass(frozen=True)
class Column:
    """One ring. `state` is passed | now | held | watched | stopped | cancelled | draft; `until` when its time of
    watching is over."""

    ring: int
    title: str
    state: str
    until: datetime | None
    counts: list[tuple[str, int]]
    total: int
    cards: list[Card] = field(default_factory=list)

    @property
    def more(self) -> int:
        return max(0, self.total - len(self.cards))


def board(campaign: Campaign, show: str = "") -> list[Column]:
    """The rings in order; with `show` only cards in that state. `batch` is at hand."""
    rings = campaign_soak.members(campaign)
    if not rings:
        return []
    plans = {plan.pk: plan for plan in campaign.plans.defer("warnings", "addresses")}
    jobs = [row.job for rows in rings.values() for row in rows if row.job]
    for row in (row for rows in rings.values() for row in rows):
        if row.job:
            row.job.server = row.server
    goes_on = campaign.batch is not None and campaign.batch.state in (BatchState.RUNNING, BatchState.PAUSED)
    known = Known(plans, _done(campaign), waiting.explain(jobs), _alerts(rings), goes_on)
    return [_column(campaign, ring, rings[ring], known, show) for ring in sorted(rings)]


@dataclass(frozen=True)
class Known:
    """What all cards are made from: plans by id, steps done and waits by job, open alerts by server, and whether the
    campaign has neither ended nor been stopped."""

    plans: Mapping[int, CampaignPlan]
    done: Mapping[int, Sequence[str]]
    waits: Mapping[int, waiting.Wait]
    alerts: Mapping[int, int]
    goes_on: bool


def _done(campaign: Campaign) -> dict[int, list[str]]:
    """{job id: English titles of the steps before the one that its newest attempt is at} of what runs."""
    running = (JobState.RUNNING, JobState.WAITING_REBOOT)
    rows = Step.objects.filter(attempt__job__batch=campaign.batch_id, attempt__job__state__in=running)
    begun: dict[int, dict[int, list[str]]] = {}
    for job, attempt, title in rows.order_by("n").values_list("attempt__job_id", "attempt__n", "title_en"):
        begun.setdefault(job, {}).setdefault(attempt, []).append(title)
    return {job: attempts[max(attempts)][:-1] for job, attempts in begun.items()}


def _alerts(rings: Mapping[int, Sequence[CampaignServer]]) -> dict[int, int]:
    subjects = {f"server:{row.server_id}": row.server_id for rows in rings.values() for row in rows}
    found = Alert.objects.filter(subject__in=list(subjects), ended_at=None).order_by().values_list("subject")
    return {subjects[subject]: n for subject, n in found.annotate(n=Count("pk"))}


def _column(campaign: Campaign, ring: int, rows: list[CampaignServer], known: Known, show: str) -> Column:
    counts = Counter(row.job.state for row in rows if row.job)
    open_ = sum(counts[state] for state in JobState if state not in campaign_soak.SETTLED)
    if campaign_soak.passed(campaign, ring):
        state = "passed"
    elif counts[JobState.DRAFT] == len(rows):
        state = "draft"
    elif open_:
        state = "held" if open_ == counts[JobState.WAITING_APPROVAL] else "now"
    elif counts[JobState.CANCELLED] == len(rows):
        state = "cancelled"
    else:
        state = "watched" if known.goes_on else "stopped"
    until = campaign_soak.until(campaign, rows) if state == "watched" else None
    wanted = [row for row in rows if row.job and (not show or row.job.state == show)]
    wanted.sort(key=lambda row: (ORDER.index(JobState(row.job.state)) if row.job else 0, row.server.name))
    cards = [_card(row, known) for row in wanted[:MOST_CARDS]]
    told = [(str(state), counts[state]) for state in ORDER if counts[state]]
    return Column(ring, pick(campaign.titles.get(str(ring))), state, until, told, len(wanted), cards)


def _card(row: CampaignServer, known: Known) -> Card:
    job, plan = row.job, known.plans.get(row.plan_id or 0)
    assert job is not None
    wait = known.waits.get(job.pk)
    counted = {step["title"][1] for step in plan.steps} if plan else set()  # those that are satisfied are not
    fits = row.after.get("matches") if row.after else None
    return Card(
        name=row.server.name, rack=row.server.rack, simulated=row.server.simulated, job=job, state=job.state,
        does=plan.word if plan else "", steps=len(plan.steps) if plan else 0,
        done=sum(title in counted for title in known.done.get(job.pk, ())),
        versions=changes(row.before, row.after) if row.after or known.goes_on else [],
        fits=fits if isinstance(fits, bool) else None,
        alerts=known.alerts.get(row.server_id, 0), wait=wait.words() if wait else "",
        words=pick(job.reason) if job.state in NEEDS_WORDS else "",
    )  # fmt: skip


NEEDS_WORDS = (JobState.WAITING_APPROVAL, JobState.FAILED, JobState.LOST, JobState.CANCELLED)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Version]:
    """Versions that are other ones afterwards; before that is known, the few that an operator looks for."""
    names = [name for name in LABELS if name in before]
    if not after:
        names = [name for name in names if name in ("stack", "vllm_ascend", "vllm") and before[name]]
    else:
        names = [name for name in names if before[name] != after.get(name)]
    return [Version(str(LABELS[name]), before[name] or "—", after.get(name) or "—" if after else "…") for name in names]


def counts(campaign: Campaign) -> dict[str, int]:
    """{job state: n} of the servers that have a job. One query."""
    rows = campaign.members.filter(job__isnull=False).order_by().values_list("job__state")
    return dict(rows.annotate(n=Count("pk")))


def shown_state(campaign: Campaign) -> str:
    """The state of the whole: that of its batch once it has begun."""
    return campaign.batch.state if campaign.batch and not waits(campaign) else campaign.state


def waits(campaign: Campaign) -> bool:
    """Whether somebody has to approve it: before it begins, or again before it goes on."""
    open_ = campaign.batch is None or campaign.batch.state in (BatchState.PAUSED, BatchState.RUNNING)
    return campaign.state == CampaignState.WAITING and open_


def headline(campaign: Campaign, of: Mapping[str, int], columns: Sequence[Column]) -> dict[str, str]:
    """{title, text, look, shape} of the verdict card."""
    batch, total = campaign.batch, sum(of.values())
    assert batch is not None
    settled = sum(of.get(state, 0) for state in campaign_soak.SETTLED)
    text = _("%(n)s of %(total)s servers have settled.") % {"n": settled, "total": total}
    reason = pick(batch.reason)
    if batch.state == BatchState.RUNNING:
        look, shape = ("warning", "state-warning") if of.get(JobState.WAITING_APPROVAL) else ("info", "state-running")
        return {"title": _now(columns, of), "text": text, "look": look, "shape": shape}
    if batch.state == BatchState.SUCCEEDED:
        unlike = [card.name for column in columns for card in column.cards if card.fits is False]
        if unlike:
            title = _("Installed on all %(n)s servers, but some do not match the stack") % {"n": total}
            text = ", ".join(unlike[:10])
            return {"title": title, "text": text, "look": "warning", "shape": "state-warning"}
        title = _("Installed on all %(n)s servers") % {"n": total}
        return {"title": title, "text": "", "look": "ok", "shape": "state-succeeded"}
    look, shape = ("critical", "state-failed") if batch.state == BatchState.FAILED else ("warning", "state-warning")
    return {"title": reason or str(batch.get_state_display()), "text": text, "look": look, "shape": shape}


def _now(columns: Sequence[Column], of: Mapping[str, int]) -> str:
    if n := of.get(JobState.WAITING_APPROVAL, 0):
        return _("Held back: %(n)s. The rings that follow wait for a decision.") % {"n": n}
    for column in columns:
        if column.state == "now":
            return _("%(ring)s is under way") % {"ring": column.title}
        if column.state == "watched":
            return _("%(ring)s is being watched") % {"ring": column.title}
    return _("The next ring begins in a moment")


# ---------- the plan, before and after the approval ----------


@dataclass
class Group:
    """Servers that do the same."""

    word: str
    steps: list[dict[str, Any]]
    warnings: list[Sequence[str]]
    because: Sequence[str] | None
    names: list[str]
    addresses: list[str]


def groups(campaign: Campaign) -> list[Group]:
    """What the servers do, those that do the same together: what reboots first, what cannot last. Two queries."""
    plans = {plan.pk: plan for plan in campaign.plans.all()}
    found: dict[str, Group] = {}
    rows = campaign.members.order_by("server__name").values_list("server__name", "plan_id", "because")
    for name, pk, because in rows:
        plan = plans.get(pk or 0)
        word = "cannot" if plan is None else plan.word
        steps = [] if plan is None else plan.steps
        warnings, addresses = ([], []) if plan is None else (plan.warnings, plan.addresses)
        key = repr((word, steps, warnings, addresses, _nameless(because, name)))
        group = found.setdefault(key, Group(word, steps, warnings, _nameless(because, name), [], addresses))
        group.names.append(name)
    rank = ("reboots", "runs", "satisfied", "cannot")
    return sorted(found.values(), key=lambda group: (rank.index(group.word), -len(group.names)))


def _nameless(because: Sequence[str] | None, name: str) -> list[str] | None:
    """So that servers with the same reason stand together though it names each."""
    return [text.replace(name, "…") for text in because] if because else None


def table(campaign: Campaign, word: str = "") -> list[CampaignServer]:
    """Every server with its plan, by ring; with `word` only those that do that."""
    rows = campaign.members.select_related("server", "plan").defer("server__facts", "plan__addresses")
    every = sorted(rows, key=lambda row: (row.ring is None, row.ring or 0, row.wave or 0, row.server.name))
    return [row for row in every if not word or does(row) == word]


def does(row: CampaignServer) -> str:
    """One of campaign_plan.WORDS."""
    return "cannot" if row.ring is None else row.plan.word if row.plan else "cannot"


def word_counts(rows: Sequence[CampaignServer]) -> list[tuple[str, int]]:
    tally = Counter(does(row) for row in rows)
    return [(word, tally[word]) for word in campaign_plan.WORDS if tally[word]]
