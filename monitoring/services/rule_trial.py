"""Try rules that are not saved yet on past logs: which they find, on which line, and in which nothing was wrong."""

import time
from dataclasses import dataclass
from typing import Any

from deployments.models import Attempt, JobState
from deployments.services import logs
from monitoring import diagnoses
from monitoring.models import Diagnosis
from monitoring.services import diagnosing
from monitoring.services.site_rules import Site

NEWEST = 300  # of those that failed, and of those that succeeded
BUDGET_S = 4.0
SHOWN = 100


@dataclass(frozen=True)
class Row:
    """A log that the rules speak of. `before`: what it was diagnosed as, '' for nothing; `is_first`: whether the rule
    would be its diagnosis now."""

    attempt: Attempt
    failed: bool
    findings: tuple[diagnoses.Finding, ...]
    before: str
    is_first: bool


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
    return {
        "job": row.attempt.job_id,
        "attempt": row.attempt.pk,
        "failed": row.failed,
        "before": row.before,
        "is_first": row.is_first,
        "findings": [{"id": one.rule.id, "line": one.line, "text": one.text} for one in row.findings],
    }


def on_past_logs(own: Site) -> Trial:
    """The newest logs in turn, one that failed after one that succeeded, until the time is over."""
    known, until = diagnoses.Signatures(own.rules), time.monotonic() + BUDGET_S
    attempts = _newest()
    befores = {one.attempt_id: one for one in Diagnosis.objects.filter(attempt__in=attempts)}
    rows: list[Row] = []
    looked = 0
    for attempt in attempts if own.rules else ():
        findings = _findings(attempt, known, until)
        if findings is None:
            break
        looked += 1
        if findings:
            rows.append(_row(attempt, findings, befores.get(attempt.pk)))
    rows.sort(key=lambda row: row.failed)
    return Trial(tuple(rows), looked, len(attempts))


def _newest() -> list[Attempt]:
    kinds = (JobState.FAILED, JobState.SUCCEEDED)
    found = [
        list(Attempt.objects.filter(state=state).select_related("job__server").order_by("-job_id", "-n")[:NEWEST])
        for state in kinds
    ]
    longest = max(map(len, found))
    return [some[place] for place in range(longest) for some in found if place < len(some)]


def _findings(attempt: Attempt, known: diagnoses.Signatures, until: float) -> list[diagnoses.Finding] | None:
    """None where the time is over before its end."""
    scanner = diagnoses.Scanner(known)
    for first, records in logs.stored(attempt):
        if time.monotonic() > until:
            return None
        scanner.feed(diagnosing.said(records), first)
    return scanner.findings()


def _row(attempt: Attempt, findings: list[diagnoses.Finding], before: Diagnosis | None) -> Row:
    best = max((one["score"] for one in before.findings), default=0) if before else 0
    failed = attempt.state == JobState.FAILED
    is_first = failed and findings[0].score >= best
    return Row(attempt, failed, tuple(findings), before.found if before else "", is_first)
