"""Say what went wrong in a job, by its log: lines are looked at as they arrive, so the diagnosis is there when it ends.

Scanners live in the process that stores logs. Where one has not seen the whole log (the process began in its middle, or
there were too many at once), the stored log is read again when the job has failed.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict
from console.models import User
from deployments.chunks import Chunk
from deployments.models import Attempt, Job, JobState
from deployments.services import jobs, logs
from monitoring import diagnoses
from monitoring.models import Diagnosis
from monitoring.services import site_rules

log = logging.getLogger(__name__)

MOST_SCANNERS = 2000
MOST_FINDINGS = 5
SAID = "oes"  # kinds of records that hold what programs print: see services/logs.py


class Watch:
    """One scanner for each log that is being written."""

    def __init__(self) -> None:
        self.scanners: OrderedDict[str, tuple[diagnoses.Scanner, int]] = OrderedDict()  # with the line that comes next

    def take(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            scanner, following = self.scanners.pop(chunk.attempt, (diagnoses.Scanner(site_rules.signatures()), 1))
            if chunk.first != following:
                continue  # what is missing was not seen: the stored log is read at the end
            scanner.feed(said(chunk.raw[:-1].split(b"\n")), chunk.first)
            self.scanners[chunk.attempt] = (scanner, chunk.first + chunk.n)
        while len(self.scanners) > MOST_SCANNERS:
            self.scanners.popitem(last=False)

    def settle(self, ended: Iterable[Job]) -> None:
        """Keep what is known of those that failed; forget the others. A fault of ours stops nobody."""
        for job in ended:
            attempt = Attempt.objects.filter(job=job).order_by("-n").first()
            if attempt is None:
                continue
            scanner, following = self.scanners.pop(attempt.pk, (None, 0))
            if job.state != JobState.FAILED:
                continue
            try:
                whole = scanner if scanner is not None and following == attempt.next_line else scan(attempt)
                keep(attempt, whole.findings())
            except Exception:
                log.exception("job %s could not be diagnosed", job.pk)


def said(records: Iterable[bytes]) -> str:
    """What programs printed, a line for each record, so that numbers of lines stay; others are empty."""
    return "\n".join(_text(record) for record in records)


def _text(record: bytes) -> str:
    _stamp, kind, text = logs.split(record)
    return text.replace("\n", " ") if kind in SAID else ""


def scan(attempt: Attempt) -> diagnoses.Scanner:
    """A scanner that has seen the stored log, in bounded memory."""
    scanner = diagnoses.Scanner(site_rules.signatures())
    for first, records in _stored(attempt.pk):
        scanner.feed(said(records), first)
    return scanner


def _stored(attempt: str) -> Iterator[tuple[int, list[bytes]]]:
    line = 0
    while chunks := logs.chunks_after(attempt, line):
        for first, n, records in chunks:
            yield first, records
            line = first + n - 1


def keep(attempt: Attempt, findings: list[diagnoses.Finding]) -> Diagnosis:
    """Its diagnosis, made anew where there was one: what people said of the old one goes where it is another."""
    kept = [finding.as_json() for finding in findings[:MOST_FINDINGS]]
    best = findings[0].rule.id if findings else ""
    row, made = Diagnosis.objects.get_or_create(attempt=attempt, defaults={"found": best, "findings": kept})
    if not made:
        if row.found != best:
            row.right, row.said_by, row.note = None, None, ""
        row.found, row.findings = best, kept
        row.save()
    return row


def of(attempt: Attempt | None) -> Diagnosis | None:
    """What is known of a failed run; None of one that did not fail, or was not looked at."""
    if attempt is None or attempt.state != JobState.FAILED:
        return None
    return Diagnosis.objects.filter(attempt=attempt).select_related("said_by").first()


def judge(diagnosis: Diagnosis, right: bool, note: str = "", *, by: User) -> Diagnosis:
    """What somebody says of it. Raises NotAllowed, Conflict where there is nothing to judge."""
    jobs.check_may_operate(by)
    if not diagnosis.findings and right:
        raise Conflict(
            _("There is no diagnosis of this run."), _("Say what was wrong in a note instead."), code="no_diagnosis"
        )
    with transaction.atomic():
        diagnosis.right, diagnosis.said_by, diagnosis.note = right, by, note.strip()[:500]
        diagnosis.save(update_fields=["right", "said_by", "note"])
        audit.record(by, "diagnosis.judged", diagnosis.attempt.job, right=right, found=diagnosis.found)
    return diagnosis


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "attempt": diagnosis.attempt_id,
        "found": diagnosis.found,
        "findings": diagnosis.findings,
        "right": diagnosis.right,
        "note": diagnosis.note,
    }
