"""Say what went wrong in a job or an engine, by its log: lines are looked at as they arrive, so the diagnosis is there
when it ends.

Scanners live in the process that stores logs. Where one has not seen the whole log (the process began in its middle, or
there were too many at once), the stored log is read again when the job or engine has failed.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict
from console.models import User
from deployments.chunks import Chunk
from deployments.models import Attempt, EngineLog, Job, JobState, Replica
from deployments.services import jobs, logs, replica_alerts
from monitoring import diagnoses
from monitoring.diagnoses import agreeing
from monitoring.models import Diagnosis
from monitoring.services import diagnosed_places, explaining, site_rules

log = logging.getLogger(__name__)

MOST_SCANNERS = 2000
MOST_FINDINGS = 5
Log = Attempt | EngineLog
SAID = "oes"  # kinds of records that hold what programs print: see services/logs.py


class Watch:
    """One scanner for each log that is being written."""

    def __init__(self) -> None:
        self.scanners: OrderedDict[str, tuple[diagnoses.Scanner, int]] = OrderedDict()  # with the line that comes next

    def take(self, chunks: Iterable[Chunk]) -> None:
        """Chunks of attempts."""
        self.take_engines((chunk.attempt, chunk) for chunk in chunks)

    def take_engines(self, found: Iterable[tuple[str, Chunk]]) -> None:
        """Chunks with the id of the log that they belong to: that of a piece is not always its name on the wire."""
        for name, chunk in found:
            scanner, following = self.scanners.pop(name, (diagnoses.Scanner(site_rules.signatures()), 1))
            if chunk.first != following:
                continue  # what is missing was not seen: the stored log is read at the end
            scanner.feed(said(chunk.raw[:-1].split(b"\n")), chunk.first)
            self.scanners[name] = (scanner, chunk.first + chunk.n)
        while len(self.scanners) > MOST_SCANNERS:
            self.scanners.popitem(last=False)

    def settle(self, ended: Iterable[Job], pieces: Iterable[EngineLog] = ()) -> None:
        """Keep what is known of those that failed, or serve badly; forget the others. A fault of ours stops nobody."""
        for job in ended:
            attempt = Attempt.objects.filter(job=job).order_by("-n").first()
            if attempt is not None:
                self._settle(attempt, job.state == JobState.FAILED, ended=True)
        for piece in pieces:
            self._settle(piece, piece.died or piece.ill, ended=piece.done)

    def _settle(self, head: Log, failed: bool, *, ended: bool) -> None:
        scanner, following = self.scanners.get(head.pk, (None, 0))
        if ended:
            self.scanners.pop(head.pk, None)
        if not failed:
            return
        try:
            whole = scanner if scanner is not None and following == head.next_line else scan(head)
            keep(head, whole.findings())
        except Exception:
            log.exception("%s could not be diagnosed", head.pk)


def said(records: Iterable[bytes]) -> str:
    """What programs printed, a line for each record, so that numbers of lines stay; others are empty."""
    return "\n".join(_text(record) for record in records)


def _text(record: bytes) -> str:
    _stamp, kind, text = logs.split(record)
    return text.replace("\n", " ") if kind in SAID else ""


def scan(head: Log) -> diagnoses.Scanner:
    """A scanner that has seen the stored log, in bounded memory."""
    scanner = diagnoses.Scanner(site_rules.signatures())
    for first, records in logs.stored(head):
        scanner.feed(said(records), first)
    return scanner


def keep(head: Log, findings: list[diagnoses.Finding]) -> Diagnosis:
    """Its diagnosis, made anew where there was one: what people said of the old one goes where it is another."""
    if isinstance(head, EngineLog):
        findings = diagnoses.named(findings)
    kept = [finding.as_json() for finding in findings[:MOST_FINDINGS]]
    if isinstance(head, EngineLog):
        row = write(head, agreeing.merged(kept, _of_tables(head)))
        transaction.on_commit(lambda: replica_alerts.renew(head.replica))
        return row
    return write(head, kept)


def _of_tables(piece: EngineLog) -> list[dict[str, Any]]:
    """What the console's worker has read in this piece, if it was quicker."""
    rows = Replica.objects.filter(pk=piece.replica_id).values_list("findings", flat=True).first()
    return [one for one in rows or [] if isinstance(one, dict) and one.get("piece") == piece.pk]


def write(head: Log, findings: list[dict[str, Any]]) -> Diagnosis:
    """Its diagnosis with these rows, and with what can be said of the devices, ranks and peers that they name."""
    best = findings[0]["id"] if findings else ""
    if any(one.get("details") for one in findings):
        places = explaining.places_of(head)
        findings = [{**one, "explained": explaining.explained(one, places)} for one in findings]
    which = {"piece" if isinstance(head, EngineLog) else "attempt": head}
    first = {"found": best, "findings": findings, **diagnosed_places.of(head)}
    row, made = Diagnosis.objects.get_or_create(**which, defaults=first)
    if not made:
        if row.found != best:
            row.right, row.said_by, row.note = None, None, ""
        row.found, row.findings = best, findings
        row.save()
    return row


def rows() -> QuerySet[Diagnosis]:
    """With all that says where each belongs."""
    return Diagnosis.objects.select_related("said_by", "attempt__job__server", "piece__replica__deployment")


def of(attempt: Attempt | None) -> Diagnosis | None:
    """What is known of a failed run; None of one that did not fail, or was not looked at."""
    if attempt is None or attempt.state != JobState.FAILED:
        return None
    return rows().filter(attempt=attempt).first()


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
        audit.record(by, "diagnosis.judged", diagnosed_places.subject(diagnosis), right=right, found=diagnosis.found)
    return diagnosis


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "id": diagnosis.pk,
        "attempt": diagnosis.attempt_id,
        "log": diagnosis.attempt_id or diagnosis.piece_id,
        "found": diagnosis.found,
        "findings": diagnosis.findings,
        "right": diagnosis.right,
        "note": diagnosis.note,
    }
