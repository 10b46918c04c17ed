"""Try rules that are not saved yet on past logs: which they find, on which line, and in which nothing was wrong."""

import time
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from deployments.models import Attempt, EngineLog, JobState
from deployments.services import logs, logs_everywhere
from deployments.services.logs import Head
from monitoring import diagnoses
from monitoring.models import Diagnosis
from monitoring.services import diagnosing
from monitoring.services.site_rules import Site

NEWEST = 300  # of each sort
BUDGET_S = 4.0
SHOWN = 100


@dataclass(frozen=True)
class Row:
    """A log that the rules speak of. `before`: what it was diagnosed as, '' for nothing; `is_first`: whether the rule
    would be its diagnosis now."""

    head: Head
    failed: bool
    findings: tuple[diagnoses.Finding, ...]
    before: str
    is_first: bool

    @property
    def named(self) -> tuple[str, str, str]:
        """Title, server, address."""
        return logs_everywhere.named(self.head)


@dataclass(frozen=True)
class Trial:
    """`looked` logs of `of`; what is left was not looked at within BUDGET_S. Healthy logs first in `rows`."""

    rows: tuple[Row, ...]
    looked: int
    of: int

    @property
    def wrongly(self) -> int:
        return sum(not row.failed for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        return {"looked": self.looked, "of": self.of, "logs": [_json(row) for row in self.rows[:SHOWN]]}


def _json(row: Row) -> dict[str, Any]:
    title, server, url = row.named
    return {
        "log": row.head.pk,
        "title": title,
        "server": server,
        "link": url,
        "failed": row.failed,
        "before": row.before,
        "is_first": row.is_first,
        "findings": [{"id": one.rule.id, "line": one.line, "text": one.text} for one in row.findings],
    }


def on_past_logs(own: Site) -> Trial:
    """The newest logs in turn, of jobs that failed, jobs that succeeded and engines, until the time is over."""
    known, until = diagnoses.Signatures(own.rules), time.monotonic() + BUDGET_S
    heads = _newest()
    befores = _befores(heads)
    rows: list[Row] = []
    looked = 0
    for head in heads if own.rules else ():
        findings = _findings(head, known, until)
        if findings is None:
            break
        looked += 1
        if findings:
            rows.append(_row(head, findings, befores.get(head.pk)))
    rows.sort(key=lambda row: row.failed)
    return Trial(tuple(rows), looked, len(heads))


def _newest() -> list[Head]:
    attempts = Attempt.objects.filter(pruned_at=None).select_related("job__server").order_by("-job_id", "-n")
    pieces = EngineLog.objects.filter(pruned_at=None, done=True).select_related("replica__deployment", "server")
    found: list[list[Head]] = [
        list(attempts.filter(state=JobState.FAILED)[:NEWEST]),
        list(attempts.filter(state=JobState.SUCCEEDED)[:NEWEST]),
        list(pieces.order_by("-ended_at", "-pk")[:NEWEST]),
    ]
    longest = max(map(len, found))
    return [some[place] for place in range(longest) for some in found if place < len(some)]


def _befores(heads: list[Head]) -> dict[str, Diagnosis]:
    """By the id of the log."""
    attempts = [head.pk for head in heads if isinstance(head, Attempt)]
    pieces = [head.pk for head in heads if isinstance(head, EngineLog)]
    rows = Diagnosis.objects.filter(Q(attempt__in=attempts) | Q(piece__in=pieces))
    return {row.attempt_id or row.piece_id or "": row for row in rows}


def _findings(head: Head, known: diagnoses.Signatures, until: float) -> list[diagnoses.Finding] | None:
    """None where the time is over before its end."""
    scanner = diagnoses.Scanner(known)
    for first, records in logs.stored(head):
        if time.monotonic() > until:
            return None
        scanner.feed(diagnosing.said(records), first)
    return scanner.findings()


def _row(head: Head, findings: list[diagnoses.Finding], before: Diagnosis | None) -> Row:
    best = max((one["score"] for one in before.findings), default=0) if before else 0
    failed = _failed(head, before)
    is_first = failed and findings[0].score >= best
    return Row(head, failed, tuple(findings), before.found if before else "", is_first)


def _failed(head: Head, before: Diagnosis | None) -> bool:
    """An engine that is told to stop ends by a signal: only what was judged ill, or ended by itself with a code, is."""
    if isinstance(head, Attempt):
        return bool(head.state == JobState.FAILED)
    return before is not None or (head.exit_code or 0) > 0
