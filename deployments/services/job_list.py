"""The list of jobs: filters from the address, pages by key, and what each row says. A fixed number of queries."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils.translation import gettext as _

from console.models import User
from deployments import kinds
from deployments.models import Attempt, Job, JobState, Server
from deployments.models.job import UNDER_WAY
from deployments.services import paging, waiting
from deployments.services.paging import FLEETS, PAGE

MOST_MATCHES = 500  # servers or users whose name holds the searched text


@dataclass(frozen=True)
class Filters(paging.Filters):
    """What the address asks for; '' or None: anything. `problems` are sentences about values that were left out."""

    PLACE = {"before": None, "after": None, "problems": []}

    state: str = ""
    kind: str = ""
    server: str = ""
    fleet: str = ""
    q: str = ""
    before: int | None = None
    after: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """One page, newest first. `newer` and `older` are ids for after= and before=, None at either end."""

    jobs: list[Job]
    newer: int | None
    older: int | None


def read_filters(query: Mapping[str, str]) -> Filters:
    """Filters from the address; a value that is none is left out and named in `problems`."""
    problems: list[str] = []

    def one_of(name: str, accepted: list[str]) -> str:
        value = query.get(name, "").strip()
        if value and value not in accepted:
            problems.append(
                _("%(name)s=%(value)s is not known and was left out. Known: %(known)s.")
                % {"name": name, "value": value[:60], "known": ", ".join(accepted)}
            )
        return value if value in accepted else ""

    return Filters(
        state=one_of("state", ["under_way", *JobState.values]),
        kind=one_of("kind", kinds.names()),
        fleet=one_of("fleet", list(FLEETS)),
        server=query.get("server", "").strip()[:63],
        q=query.get("q", "").strip()[:100],
        before=_id(query.get("before", "")),
        after=_id(query.get("after", "")),
        problems=problems,
    )


def page(filters: Filters) -> Page:
    """The jobs that match, PAGE at a time by id: the last page costs as little as the first."""
    jobs = matching(filters)
    if filters.after:
        found = list(jobs.filter(pk__gt=filters.after).order_by("pk")[: PAGE + 1])
        more, found = len(found) > PAGE, found[:PAGE][::-1]
        return _with_attempts(Page(found, found[0].pk if more else None, found[-1].pk if found else None))
    older = jobs.filter(pk__lt=filters.before) if filters.before else jobs
    found = list(older.order_by("-pk")[: PAGE + 1])
    more, found = len(found) > PAGE, found[:PAGE]
    return _with_attempts(
        Page(found, found[0].pk if filters.before and found else None, found[-1].pk if more else None)
    )


def matching(filters: Filters) -> QuerySet[Job]:
    """Jobs that match, with server and requester at hand."""
    jobs = Job.objects.select_related("server", "requester")
    if filters.state:
        jobs = jobs.filter(state__in=UNDER_WAY) if filters.state == "under_way" else jobs.filter(state=filters.state)
    if filters.kind:
        jobs = jobs.filter(kind=filters.kind)
    if filters.server:
        jobs = jobs.filter(server__in=list(Server.objects.filter(name=filters.server).values_list("pk", flat=True)))
    if filters.fleet:
        jobs = jobs.filter(server__simulated=filters.fleet == "simulated")
    return jobs.filter(_text(filters.q)) if filters.q else jobs


def _text(q: str) -> Q:
    """Number, kind, ticket, server or requester. Names become ids first: joins on 100,000 rows are not scanned."""
    if q.lstrip("#").isdecimal() and len(q) < 19:
        return Q(pk=int(q.lstrip("#"))) | Q(ticket__icontains=q)
    servers = list(Server.objects.filter(name__icontains=q).values_list("pk", flat=True)[:MOST_MATCHES])
    users = list(User.objects.filter(username__icontains=q).values_list("pk", flat=True)[:MOST_MATCHES])
    named = [name for name in kinds.names() if q.lower() in name]
    return Q(ticket__icontains=q) | Q(server__in=servers) | Q(requester__in=users) | Q(kind__in=named)


def _with_attempts(found: Page) -> Page:
    """Puts on each job its newest attempt as `newest`, the counts of the report as `counts` and what it waits for as
    `wait`; two queries at most."""
    newest: dict[int, Attempt] = {}
    wanted = [job.pk for job in found.jobs]
    waits = waiting.explain(found.jobs)
    for attempt in Attempt.objects.filter(job__in=wanted).order_by("n").only("job_id", "n", "report", "rung"):
        newest[attempt.job_id] = attempt
    for job in found.jobs:
        attempt_or_none = newest.get(job.pk)
        job.newest = attempt_or_none  # type: ignore[attr-defined]
        job.counts = verdict_counts(attempt_or_none.report if attempt_or_none else [])  # type: ignore[attr-defined]
        job.wait = waits.get(job.pk)  # type: ignore[attr-defined]
    return found


def verdict_counts(report: list[dict[str, Any]]) -> dict[str, int]:
    """{"ok", "warning", "failed", "unknown"} of a report, or {} where nothing was checked."""
    found = Counter(item["verdict"] for item in report)
    return {name: found[name] for name in ("ok", "warning", "failed", "unknown")} if report else {}


def under_way_counts() -> dict[str, int]:
    """How many jobs are queued, running, …: only states that do not last, so that the index is read for few rows."""
    rows = Job.objects.filter(state__in=(*UNDER_WAY, JobState.LOST)).order_by().values_list("state")
    return dict(rows.annotate(n=Count("pk")))


def every(filters: Filters) -> Iterator[Job]:
    """All jobs that match, newest first, read PAGE * 10 at a time by key."""
    last: int | None = None
    while True:
        jobs = matching(filters).order_by("-pk")
        batch = list((jobs.filter(pk__lt=last) if last else jobs)[: PAGE * 10])
        yield from batch
        if len(batch) < PAGE * 10:
            return
        last = batch[-1].pk


def _id(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
