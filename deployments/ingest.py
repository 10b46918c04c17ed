"""Log chunks and events of jobs into rows: once each, in order, in one transaction with the reader's place.

A chunk is accepted only where it begins at the attempt's next line. A chunk seen before or one that
leaves a hole changes nothing; the acknowledgement tells its server where to go on. What a server
sends is untrusted: sizes are bounded, and it can only write to attempts of its own jobs.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from console import untrusted
from deployments import agent_ingest, engine_ingest
from deployments.chunks import EVENT, BadChunk, Chunk, events, exit_code, read_chunk
from deployments.models import Attempt, EngineLog, Job, JobState, LogChunk, Server, Step
from deployments.services import host_changes, serve_jobs, told

log = logging.getLogger(__name__)

MAX_REPORT_ITEMS = 2000
MAX_REMEDY_BYTES = 4096
REBOOT_S, MAX_REBOOT_S = 1800.0, 24 * 3600.0


@dataclass
class Stored:
    """What a batch did: acknowledgements {(server, attempt): [next line, byte, done]}, stored chunks, changed jobs."""

    acked: dict[tuple[int, str], list[int | bool]] = field(default_factory=dict)
    chunks: list[tuple[int, Chunk]] = field(default_factory=list)  # (job id, chunk)
    jobs: dict[int, Job] = field(default_factory=dict)
    batches: set[int] = field(default_factory=set)  # in which something has moved
    engines: list[tuple[int, str, Chunk]] = field(default_factory=list)  # (replica id, id of its log, chunk)
    replicas: dict[int, int] = field(default_factory=dict)  # replica of which something has changed: its deployment
    agents: list[tuple[int, str, Chunk]] = field(default_factory=list)  # (server, piece of its agent's log, chunk)
    pieces: dict[str, EngineLog] = field(default_factory=dict)  # of engines' logs, that ended or said that they are ill
    lines: int = 0

    def add(self, other: "Stored") -> None:
        """What a later batch did, too."""
        self.acked |= other.acked
        self.chunks += other.chunks
        self.jobs |= other.jobs
        self.engines += other.engines
        self.agents += other.agents
        self.replicas |= other.replicas
        self.pieces |= other.pieces
        self.lines += other.lines


Batch = dict[int, list[tuple[bytes, dict[bytes, bytes]]]]  # server id -> (stream id, fields) of each entry


def store(batch: Batch) -> Stored:
    """Store one batch and move the servers' cursors, all or nothing."""
    done = Stored()
    read = {pk: list(_readable(pk, entries)) for pk, entries in batch.items()}
    of_engines = {pk: [chunk for chunk in chunks if engine_ingest.is_engine(chunk)] for pk, chunks in read.items()}
    of_agents = {pk: [chunk for chunk in chunks if agent_ingest.is_agent(chunk)] for pk, chunks in read.items()}
    read = {pk: [chunk for chunk in chunks if not _is_no_job(chunk)] for pk, chunks in read.items()}
    wanted = {chunk.attempt for chunks in read.values() for chunk in chunks}
    with transaction.atomic():
        _move_cursors(batch)  # first, for it locks the servers: see row_locks.py
        # Also the fence between two ingests: the second waits here and then finds the lines taken.
        locked = Attempt.objects.select_for_update().filter(pk__in=wanted)
        attempts = {attempt.pk: attempt for attempt in locked.order_by("pk")}
        jobs = Job.objects.select_related("server", "requester").in_bulk({a.job_id for a in attempts.values()})
        for attempt in attempts.values():
            attempt.job = jobs[attempt.job_id]
        rows: list[LogChunk] = []
        for pk, chunks in read.items():
            for chunk in chunks:
                _take(done, pk, chunk, attempts.get(chunk.attempt), rows)
        LogChunk.objects.bulk_create(rows)
        _save(done, attempts.values())
        engine_ingest.store(of_engines, done)
        agent_ingest.store(of_agents, done)
    return done


def _is_no_job(chunk: Chunk) -> bool:
    return engine_ingest.is_engine(chunk) or agent_ingest.is_agent(chunk)


def skip(batch: Batch) -> Stored:
    """Move the cursors past entries that cannot be stored."""
    _move_cursors(batch)
    return Stored()


def _move_cursors(batch: Batch) -> None:
    for pk in sorted(batch):
        Server.objects.filter(pk=pk).update(logs_cursor=batch[pk][-1][0].decode())


def _readable(server_id: int, entries: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> Iterator[Chunk]:
    for entry_id, fields in entries:
        try:
            yield read_chunk(fields)
        except BadChunk as error:
            log.warning("server %s: log entry %s was dropped: %s", server_id, entry_id, error)


def _take(done: Stored, server_id: int, chunk: Chunk, attempt: Attempt | None, rows: list[LogChunk]) -> None:
    key = (server_id, chunk.attempt)
    if attempt is None or attempt.job.server_id != server_id:
        # Its row is gone (or never was): let the server forget it, else it would send for ever.
        done.acked[key] = chunk.behind
        return
    if attempt.takes(chunk):
        rows.append(LogChunk(attempt=attempt, first=chunk.first, n=chunk.n, data=chunk.data))
        done.chunks.append((attempt.job_id, chunk))
        done.lines += chunk.n
        attempt.touched = True  # type: ignore[attr-defined]
        if EVENT in chunk.raw:
            for number, at, event in events(chunk):
                fold(attempt, number, at, event, done)
    done.acked[key] = attempt.acknowledged


def _save(done: Stored, attempts: Iterable[Attempt]) -> None:
    for attempt in attempts:
        if getattr(attempt, "touched", False):
            attempt.save()
    for job in done.jobs.values():
        job.save(update_fields=["state", "reason", "started_at", "ended_at", "waiting", "reboot"])


def fold(attempt: Attempt, line: int, at: datetime, event: dict[str, Any], done: Stored) -> None:
    """Apply one event to its attempt, and to the job where the attempt is the job's newest."""
    act = FOLDS.get(str(event.get("e")))
    if act is None:
        return
    act(attempt, line, at, event)
    if attempt.job.batch_id is not None:
        done.batches.add(attempt.job.batch_id)
    if event["e"] in ("started", "ended", "cancelling", "waiting_reboot", "rebooted"):
        _fold_job(attempt, event, done)


def _fold_job(attempt: Attempt, event: dict[str, Any], done: Stored) -> None:
    job = done.jobs.get(attempt.job_id, attempt.job)
    newest = Attempt.objects.filter(job_id=job.pk).order_by("-n").values_list("pk", flat=True).first()
    if newest != attempt.pk:
        return
    job.state = attempt.state
    job.started_at = attempt.started_at
    job.ended_at = attempt.ended_at
    job.waiting = False  # its server has it
    job.reason = _pair(event.get("reason")) if event["e"] == "ended" else None
    if event["e"] != "cancelling":
        job.reboot = _reboot(event) if event["e"] == "waiting_reboot" else None
    if event["e"] == "ended":
        host_changes.ended(job, attempt)
        serve_jobs.ended(job, attempt)
    done.jobs[job.pk] = job


def _started(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    attempt.state, attempt.started_at = JobState.RUNNING, at


def _step(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    titles = _pair(event.get("title")) or ["", ""]
    argv = event.get("argv")
    values = {
        "title_zh": titles[0][:200],
        "title_en": titles[1][:200],
        "argv": [_words(word) or "" for word in argv[:200]] if isinstance(argv, list) else [],
        "state": "running",
        "first_line": line,
        "started_at": at,
    }
    Step.objects.update_or_create(attempt=attempt, n=_small(event.get("n")), defaults=values)


def _step_end(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    state = event.get("state") if event.get("state") in ("succeeded", "failed", "skipped", "cancelled") else "failed"
    values = {"state": state, "exit_code": exit_code(event.get("exit")), "last_line": line, "ended_at": at}
    # A runner that died between two steps leaves its adopter the number of the one that had ended.
    Step.objects.filter(attempt=attempt, n=_small(event.get("n")), state="running").update(**values)


def _item(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    if len(attempt.report) >= MAX_REPORT_ITEMS:
        return
    verdict, key = event.get("verdict"), (_words(event.get("key")) or "")[:60]
    attempt.report.append(
        {
            "key": key,
            "title": _pair(event.get("title")) or [key] * 2,
            "verdict": verdict if verdict in ("ok", "warning", "failed", "unknown") else "unknown",
            "found": _words(event.get("found")),
            "wanted": _words(event.get("wanted")),
            "remedy": _pair(event.get("remedy")),
            "job": _remedy_job(event.get("job")),
            "line": line,
        }
    )


def _told(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    what, data = event.get("told"), event.get("data")
    if isinstance(what, str) and isinstance(data, dict):
        told.hand_over(attempt, what, data)


def _cancelling(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    rung = event.get("rung")
    attempt.rung = rung if rung in ("interrupt", "terminate", "kill") else ""


def _waiting_reboot(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    attempt.state = JobState.WAITING_REBOOT


def _rebooted(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    attempt.state = JobState.RUNNING


def _reboot(event: dict[str, Any]) -> dict[str, Any]:
    """`Job.reboot`, by our own clock: that of a server which starts anew may be anywhere."""
    within_s, now = untrusted.number(event.get("within_s")), timezone.now()
    until = now + timedelta(seconds=min(max(0.0, REBOOT_S if within_s is None else within_s), MAX_REBOOT_S))
    by_hand = event.get("by_hand") is True
    return {"since": now.isoformat(), "until": until.isoformat(), "by_hand": by_hand, "step": _small(event.get("n"))}


def _ended(attempt: Attempt, line: int, at: datetime, event: dict[str, Any]) -> None:
    state = event.get("state")
    attempt.state = state if state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED) else JobState.FAILED
    attempt.exit_code = exit_code(event.get("exit"))
    attempt.ended_at = at
    attempt.done = True
    # Nothing runs in an attempt that has ended: its runner may have died as a step was about to begin.
    left = {
        "state": "cancelled" if attempt.state == JobState.CANCELLED else "failed",
        "last_line": line,
        "ended_at": at,
    }
    Step.objects.filter(attempt=attempt, state="running").update(**left)


FOLDS = {
    "started": _started,
    "step": _step,
    "step_end": _step_end,
    "item": _item,
    "told": _told,
    "cancelling": _cancelling,
    "waiting_reboot": _waiting_reboot,
    "rebooted": _rebooted,
    "ended": _ended,
}


def _remedy_job(value: Any) -> dict[str, Any] | None:
    """{"kind", "params"} of the job that applies a remedy, or None."""
    kept = untrusted.plain(value) if isinstance(value, dict) else None
    return kept if kept and len(json.dumps(kept)) <= MAX_REMEDY_BYTES else None


def _pair(value: Any) -> list[str] | None:
    """[zh, en] as stored, or None."""
    if isinstance(value, list) and len(value) == 2:
        return [_words(text) or "" for text in value]
    return None


def _words(value: Any) -> str | None:
    """A text, or a number as a text; None for anything else."""
    if isinstance(value, str):
        return untrusted.text(value, 2000)
    return None if (known := untrusted.number(value)) is None else str(known)


def _small(value: Any) -> int:
    return value if isinstance(value, int) and 0 < value < 1000 else 1
