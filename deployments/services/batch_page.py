"""What the pages of batches show: whom a selection hits, and the server × step matrix. A fixed number of queries."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from console.errors import ConsoleError, Invalid
from console.language import pick
from deployments.models import Attempt, Batch, BatchState, Campaign, Job, JobState, Server
from deployments.services import selection, waiting
from deployments.services.batches import BROKEN, NOT_BEGUN, SETTLED, Plan, counts_of
from deployments.services.job_list import verdict_counts
from deployments.services.job_page import planned_steps
from deployments.steps import Text

MOST_ROWS = 300
# what the counts above the matrix show, each with the job states that it holds
SHOWS: dict[str, tuple[str, ...]] = {
    "succeeded": (JobState.SUCCEEDED,),
    "failed": (JobState.FAILED,),
    "lost": (JobState.LOST,),
    "running": (JobState.RUNNING, JobState.WAITING_REBOOT),
    "queued": (JobState.QUEUED,),
    "draft": (JobState.DRAFT,),
    "waiting_approval": (JobState.WAITING_APPROVAL,),
    "cancelled": (JobState.CANCELLED,),
}


# ---------- the form ----------


def read_asked(given: QueryDict) -> selection.Asked:
    """The selection of a sent form; names stand one a line, or with commas or spaces between."""
    names = given.get("names", "").replace(",", " ").split()
    return selection.Asked(
        names=list(dict.fromkeys(name[:63] for name in names))[: selection.MOST_SERVERS],
        racks=[rack[:63] for rack in given.getlist("rack") if rack][:200],
        families=[family[:40] for family in given.getlist("family") if family][:50],
        find=given.get("find", "").strip()[:100],
        fleet=given.get("fleet") or "real",
    )


def read_plan(given: QueryDict) -> Plan:
    """Raises Invalid where a number is none."""
    plain = Plan()
    spread = "spread" in given if "full" in given else plain.spread
    return Plan(
        whole(given, "canary", plain.canary), whole(given, "wave", plain.size),
        whole(given, "stop_after", plain.stop_after), spread,
    )  # fmt: skip


def whole(given: QueryDict, name: str, default: int) -> int:
    """The whole number of that field, or `default` where it is empty. Raises Invalid where it is none."""
    text = given.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Invalid(
            _("“%(text)s” is not a whole number from 0 up.") % {"text": text[:40]},
            _("Mend it and look again."),
            code="bad_plan",
        )
    return int(text)


@dataclass(frozen=True)
class Preview:
    """Whom a batch would hit; `digest` names exactly these servers, so that what is confirmed is what was seen."""

    servers: list[Server] = field(default_factory=list)
    groups: list[tuple[int, list[Server]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    refusal: ConsoleError | None = None

    @property
    def digest(self) -> str:
        ids = ",".join(str(pk) for pk in sorted(server.pk for server in self.servers))
        return hashlib.sha256(ids.encode()).hexdigest()[:16]

    @property
    def real(self) -> int:
        return sum(not server.simulated for server in self.servers)

    @property
    def simulated(self) -> int:
        return sum(server.simulated for server in self.servers)

    @property
    def silent(self) -> list[Server]:
        return [server for server in self.servers if server.is_offline]

    @property
    def held(self) -> list[Server]:
        return [server for server in self.servers if waiting.standstill(server, "")]

    @property
    def waves(self) -> int:
        return sum(number > 0 for number, _part in self.groups)


def preview(asked: selection.Asked, plan: Plan) -> Preview:
    try:
        plan.check()
        servers, problems = selection.find(asked)
    except ConsoleError as error:
        return Preview(refusal=error)
    placed = selection.waves(servers, canary=plan.canary, size=plan.size, spread=plan.spread)
    return Preview(servers, selection.grouped(servers, placed), problems)


def choices() -> dict[str, list[tuple[str, int]]]:
    """Racks and families that servers have, with how many."""
    rows = list(Server.objects.present().values_list("rack", "family").order_by())
    racks, families = Counter(rack for rack, _f in rows if rack), Counter(family for _r, family in rows if family)
    return {"racks": sorted(racks.items()), "families": sorted(families.items())}


# ---------- one batch ----------


@dataclass(frozen=True)
class Row:
    """One server of a batch; `cells` are the states of its steps in the order of the columns."""

    job: Job
    cells: list[str]
    counts: dict[str, int]
    wait: waiting.Wait | None
    silent: bool

    @property
    def result(self) -> dict[str, Any]:
        """As _job_result.html reads a job."""
        return {"counts": self.counts, "reason": self.job.reason}


def shown(batch: Batch, show: str = "") -> dict[str, Any]:
    """What the templates of a batch page read."""
    counts = counts_of([batch])[batch.pk]
    jobs = list(_jobs(batch, show)[: MOST_ROWS + 1])
    more, jobs = len(jobs) > MOST_ROWS, jobs[:MOST_ROWS]
    newest = {attempt.job_id: attempt for attempt in _attempts(jobs)}
    columns = _columns(batch, list(newest.values()))
    waits = waiting.explain(jobs)
    waves: dict[int, list[Row]] = {}
    for job in jobs:
        waves.setdefault(job.wave or 0, []).append(_row(job, newest.get(job.pk), columns, waits.get(job.pk)))
    total = sum(counts.values())
    return {
        "batch": batch,
        "campaign": Campaign.objects.filter(batch=batch).values_list("pk", flat=True).first(),
        "show": show,
        "waves": sorted(waves.items()),
        "columns": columns,
        "more": more,
        "total": total,
        "most_rows": MOST_ROWS,
        "counts": [(name, n) for name, states in SHOWS.items() if (n := sum(counts.get(s, 0) for s in states))],
        "parts": parts(counts, total),
        "head": _headline(batch, counts, total),
        "simulated": [row.job for rows in waves.values() for row in rows if row.job.server.simulated],
        **may(batch, counts),
    }


def _jobs(batch: Batch, show: str) -> Any:
    rows = batch.jobs.select_related("server", "requester").defer("server__facts", "params")
    rows = rows.filter(state__in=SHOWS[show]) if show else rows
    return rows.order_by("wave", "server__name")


def _attempts(jobs: Sequence[Job]) -> Any:
    """Attempts in order of number, so that the newest is read last; a draft's old ones say nothing of it."""
    ids = [job.pk for job in jobs if job.state != JobState.DRAFT]
    return Attempt.objects.filter(job__in=ids).prefetch_related("steps").order_by("n")


def _columns(batch: Batch, attempts: Sequence[Attempt]) -> list[tuple[int, Text]]:
    planned = {n: step.title for n, step in enumerate(planned_steps(batch.kind, batch.params), start=1)}
    for attempt in attempts:
        for step in attempt.steps.all():
            planned.setdefault(step.n, Text(step.title_zh, step.title_en))
    return sorted(planned.items())


def _row(job: Job, attempt: Attempt | None, columns: Sequence[tuple[int, Text]], wait: waiting.Wait | None) -> Row:
    states = {step.n: step.state for step in attempt.steps.all()} if attempt else {}
    rest = "skipped" if job.is_ended else "waiting"
    cells = [states.get(n, rest) for n, _title in columns]
    return Row(job, cells, verdict_counts(attempt.report if attempt else []), wait, job.server.is_offline)


def parts(counts: Mapping[str, int], total: int) -> list[dict[str, Any]]:
    """The bar of progress: what has settled and what runs, in hundredths."""
    made, start = [], 0.0
    for name in ("succeeded", "failed", "lost", "cancelled", "running"):
        width = 100 * sum(counts.get(state, 0) for state in SHOWS[name]) / max(1, total)
        made.append({"css": name, "start": round(start, 2), "width": round(width, 2)})
        start += width
    return made


def _headline(batch: Batch, counts: Mapping[str, int], total: int) -> dict[str, str]:
    """{title, text, look, shape}."""
    settled = sum(counts.get(state, 0) for state in SETTLED)
    text = _("%(n)s of %(total)s servers have settled.") % {"n": settled, "total": total}
    reason = pick(batch.reason)
    if batch.state == BatchState.RUNNING:
        return {"title": _now(batch), "text": text, "look": "info", "shape": "state-running"}
    if batch.state == BatchState.SUCCEEDED:
        title = _("Succeeded on all %(n)s servers") % {"n": total}
        return {"title": title, "text": "", "look": "ok", "shape": "state-succeeded"}
    if batch.state == BatchState.FAILED:
        return {"title": reason, "text": "", "look": "critical", "shape": "state-failed"}
    return {
        "title": reason or str(batch.get_state_display()),
        "text": text,
        "look": "warning",
        "shape": "state-warning",
    }


def _now(batch: Batch) -> str:
    under_way = batch.jobs.exclude(state__in=(*SETTLED, *NOT_BEGUN))
    wave = under_way.order_by("wave").values_list("wave", flat=True).first()
    last = batch.jobs.order_by("-wave").values_list("wave", flat=True).first()
    if wave is None:
        return _("The next wave begins in a moment")
    return _("The canary goes first") if wave == 0 else _("Wave %(n)s of %(of)s") % {"n": wave, "of": last}


def may(batch: Batch, counts: Mapping[str, int]) -> dict[str, Any]:
    open_ = sum(n for state, n in counts.items() if state not in SETTLED)
    again = sum(counts.get(state, 0) for state in (*BROKEN, JobState.CANCELLED))
    return {
        "may_pause": batch.state == BatchState.RUNNING,
        "may_resume": batch.state == BatchState.PAUSED
        or (batch.state == BatchState.STOPPED and any(counts.get(state, 0) for state in NOT_BEGUN)),
        "may_stop": open_ > 0,
        "may_retry": again if batch.state != BatchState.RUNNING else 0,
    }


@dataclass(frozen=True)
class Listed:
    """One line of the list of batches."""

    batch: Batch
    total: int
    settled: int
    failed: int
    parts: list[dict[str, Any]]


def listed(found: Sequence[Batch]) -> list[Listed]:
    counts = counts_of(found)
    lines = []
    for batch in found:
        of = counts[batch.pk]
        total, settled = sum(of.values()), sum(of.get(state, 0) for state in SETTLED)
        failed = sum(of.get(state, 0) for state in BROKEN)
        lines.append(Listed(batch, total, settled, failed, parts(of, total)))
    return lines
