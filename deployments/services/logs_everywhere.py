"""Search all logs of a server or a deployment (or of everything) by text and time, the newest log first.

A second or two at a time: an answer names the log behind which to go on. Logs whose time lies outside what was asked
for are not opened; within one, lines count by their own time, which is that of the server.
"""

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils.translation import gettext as _

from console.errors import Invalid
from console.language import pick
from deployments import log_levels
from deployments.models import AgentLog, Attempt, EngineLog
from deployments.services import log_search, logs
from deployments.templatetags.jobs import kind_title

BUDGET_S = 1.5
MOST_HITS = 20  # of one log
MOST_LOGS = 30  # with hits, of one answer
KINDS = ("jobs", "engines", "agents")
READ = 100
GATEWAYS = ("gateway", "gateway_stop")
LONGEST = 400  # characters of a line that are shown


@dataclass(frozen=True)
class Asked:
    """'' and None exclude nothing. `before`: where to go on, `Result.following` of the answer before."""

    query: log_search.Query
    server: str = ""
    deployment: str = ""
    kind: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: str = ""


@dataclass(frozen=True)
class Line:
    n: int
    ms: int
    text: str


@dataclass(frozen=True)
class Log:
    """One that holds it: what it is called, its page, the first lines, and whether there may be more."""

    id: str
    title: str
    server: str
    at: datetime
    url: str
    lines: list[Line]
    more: bool


@dataclass
class Result:
    """`looked` logs; `following` is '' where all were looked at."""

    found: list[Log] = field(default_factory=list)
    looked: int = 0
    following: str = ""

    def as_json(self) -> dict[str, Any]:
        rows = [
            {**vars(one), "at": one.at.isoformat(), "lines": [vars(line) for line in one.lines]} for one in self.found
        ]
        return {"logs": rows, "looked": self.looked, "following": self.following or None}


def search(asked: Asked, budget_s: float = BUDGET_S) -> Result:
    """Raises Invalid."""
    if not asked.query.text:
        raise Invalid(_("There is nothing to search for."), _("Write a word or an expression."))
    log_search.Matcher(asked.query)  # an expression that cannot be used is refused, however many logs there are
    result, until = Result(), time.monotonic() + budget_s
    for at, head in heads(asked):
        if result.looked and (time.monotonic() > until or len(result.found) >= MOST_LOGS):
            return result
        lines, more = _lines(head, asked, max(0.2, until - time.monotonic()))
        result.looked += 1
        result.following = f"{at.timestamp():.6f}_{head.pk}"
        if lines:
            result.found.append(_told(head, at, lines, more))
    result.following = ""
    return result


def _lines(head: logs.Head, asked: Asked, budget_s: float) -> tuple[list[Line], bool]:
    """The first lines of that time, and whether the rest of the log was not looked at."""
    since = asked.since.timestamp() * 1000 if asked.since else 0
    until = asked.until.timestamp() * 1000 if asked.until else float("inf")
    lines: list[Line] = []
    after, end = 0, time.monotonic() + budget_s
    while True:
        found = log_search.search(
            head, asked.query, after=after, n=200, stop=True, budget_s=max(0.1, end - time.monotonic())
        )
        for hit in found.hits:
            if since <= hit.ms < until:
                lines.append(Line(hit.line, hit.ms, _text(hit.record)))
                if len(lines) >= MOST_HITS:
                    return lines, True
        after = found.scanned_to
        if found.complete or time.monotonic() > end:
            return lines, not found.complete


def _text(record: bytes) -> str:
    _stamp, kind, text = logs.split(record)
    if kind == "v":
        return _words(log_levels.read_event(text.encode("utf-8", "replace")))[:LONGEST]
    return log_search.shown(record).decode("utf-8", "replace")[:LONGEST]


def _words(event: dict[str, Any]) -> str:
    """What an event says, in the reader's language."""
    values = [event.get(name) for name in log_search.SAID]
    words = [pick((str(one[0]), str(one[1]))) if isinstance(one, list) and len(one) == 2 else one for one in values]
    return " · ".join(one for one in words if isinstance(one, str) and one)


def heads(asked: Asked) -> Iterator[tuple[datetime, logs.Head]]:
    """(when it began, the log), the newest first, behind `before`."""
    sources = [_each(rows, asked) for kind, rows in _sources(asked).items() if asked.kind in ("", kind)]
    yield from heapq.merge(*sources, key=lambda pair: (pair[0], pair[1].pk), reverse=True)


def _sources(asked: Asked) -> dict[str, QuerySet[Any]]:
    """Rows with `began`, of each kind of log."""
    attempts = Attempt.objects.select_related("job__server").annotate(began=Coalesce("started_at", "job__created_at"))
    engines = EngineLog.objects.select_related("replica__deployment", "server").annotate(
        began=Coalesce("started_at", "replica__created_at")
    )
    agents = AgentLog.objects.select_related("server").annotate(began=F("started_at")).exclude(started_at=None)
    if asked.server:
        attempts = attempts.filter(job__server__name=asked.server)
        engines, agents = engines.filter(server__name=asked.server), agents.filter(server__name=asked.server)
    if asked.deployment:
        mine = Q(job__benchmark__deployment__name=asked.deployment)
        mine |= Q(job__serves__deployment__name=asked.deployment) | Q(job__stops__deployment__name=asked.deployment)
        mine |= Q(job__kind__in=GATEWAYS, job__params__deployment=asked.deployment)  # its row names only its last job
        attempts = attempts.filter(mine).distinct()
        engines, agents = engines.filter(replica__deployment__name=asked.deployment), agents.none()
    return {"jobs": attempts, "engines": engines, "agents": agents}


def _each(rows: QuerySet[Any], asked: Asked) -> Iterator[tuple[datetime, logs.Head]]:
    rows = rows.filter(next_line__gt=1, pruned_at=None).order_by("-began", "-pk")
    if asked.until:
        rows = rows.filter(began__lt=asked.until)
    if asked.since:
        rows = rows.filter(Q(ended_at=None) | Q(ended_at__gte=asked.since))
    place = _place(asked.before)
    while True:
        if place is not None:
            at, pk = place
            page = rows.filter(Q(began__lt=at) | Q(began=at, pk__lt=pk))[:READ]
        else:
            page = rows[:READ]
        found = list(page)
        for row in found:
            yield row.began, row
        if len(found) < READ:
            return
        place = found[-1].began, found[-1].pk


def _place(before: str) -> tuple[datetime, str] | None:
    if not before:
        return None
    stamp, _sign, pk = before.partition("_")
    try:
        return datetime.fromtimestamp(float(stamp), UTC), pk[:40]
    except (ValueError, OverflowError, OSError) as error:
        raise Invalid(
            _("The place to go on from cannot be read."), _("Search anew from the newest log."), code="bad_place"
        ) from error


def _told(head: logs.Head, at: datetime, lines: list[Line], more: bool) -> Log:
    title, server, url = named(head)
    return Log(head.pk, title, server, at, url, lines, more)


def named(head: logs.Head) -> tuple[str, str, str]:
    """What a log is called, its server, and the address of its page."""
    if isinstance(head, Attempt):
        url = reverse("deployments:job-detail", args=[head.job_id]) + f"?attempt={head.n}"
        return f"#{head.job_id} {kind_title(head.job.kind)}", head.job.server.name, url
    if isinstance(head, EngineLog):
        name, n = head.replica.deployment.name, head.replica.n
        url = reverse("deployments:replica-log", args=[name, n]) + f"?piece={head.pk}"
        title = _("%(name)s, replica %(n)s, start %(start)s") % {"name": name, "n": n, "start": head.n}
        return title, head.server.name, url
    url = reverse("deployments:agent-log", args=[head.server.name]) + f"?piece={head.pk}"
    return _("Agent of %(name)s") % {"name": head.server.name}, head.server.name, url
