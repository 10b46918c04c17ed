"""Chunks of engines' logs into rows, with the guarantees of deployments/ingest.py, within its transaction.

On the wire a piece is called `e<replica>-<n>`. Only the servers of that replica may write it; its row is made with its
first chunk. Where a replica runs on several servers, the pieces of the others are rows of their own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deployments.chunks import EVENT, Chunk, events, exit_code
from deployments.models import EngineChunk, EngineLog, Replica
from deployments.services import reconcile_asking, remedy_asking, replica_events, replica_now

if TYPE_CHECKING:
    from deployments.ingest import Stored

PIECE = re.compile(r"e([1-9]\d{0,17})-([1-9]\d{0,5})", re.ASCII)
A_NODE = 1_000_000  # pieces of one server are fewer


def is_engine(chunk: Chunk) -> bool:
    return PIECE.fullmatch(chunk.attempt) is not None


def store(found: Mapping[int, Sequence[Chunk]], done: "Stored") -> None:
    """Store the chunks of each server (id); their rows are locked by the caller. Notes in `done` what was done."""
    wanted = {_numbers(chunk)[0] for chunks in found.values() for chunk in chunks}
    if not wanted:
        return
    rows = Replica.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=wanted).order_by("pk")
    replicas = {row.pk: row for row in rows.select_related("deployment", "serve_job", "stop_job")}
    heads: dict[tuple[int, str], EngineLog | None] = {}
    made: list[EngineChunk] = []
    for server_id, chunks in found.items():
        for chunk in chunks:
            key = (server_id, chunk.attempt)
            if key not in heads:
                heads[key] = _head(server_id, chunk, replicas)
            _take(done, key, chunk, heads[key], made)
    EngineChunk.objects.bulk_create(made)
    _save([head for head in heads.values() if head is not None], [replicas[pk] for pk in sorted(done.replicas)])


def _numbers(chunk: Chunk) -> tuple[int, int]:
    """(replica, n) of its piece."""
    match = PIECE.fullmatch(chunk.attempt)
    assert match is not None
    return int(match[1]), int(match[2])


def _head(server_id: int, chunk: Chunk, replicas: Mapping[int, Replica]) -> EngineLog | None:
    """The row of its piece, made where there is none yet; None where the server has no such replica."""
    pk, n = _numbers(chunk)
    replica = replicas.get(pk)
    if replica is None or server_id not in replica.server_ids:
        return None
    rank = replica.server_ids.index(server_id)
    name = f"{chunk.attempt}-s{server_id}" if rank else chunk.attempt
    values = {"replica": replica, "server_id": server_id, "n": n + rank * A_NODE}
    head, _made = EngineLog.objects.get_or_create(pk=name, defaults=values)
    head.replica = replica
    return head


def _take(done: "Stored", key: tuple[int, str], chunk: Chunk, head: EngineLog | None, made: list[EngineChunk]) -> None:
    if head is None:
        # Its replica is gone (or never was): let the server forget it, else it would send for ever.
        done.acked[key] = chunk.behind
        return
    if head.takes(chunk):
        head.touched = True  # type: ignore[attr-defined]
        made.append(EngineChunk(log=head, first=chunk.first, n=chunk.n, data=chunk.data))
        done.engines.append((head.replica_id, head.pk, chunk))
        done.lines += chunk.n
        if EVENT in chunk.raw:
            for _line, at, event in events(chunk):
                _fold(head, at, event, done)
    done.acked[key] = head.acknowledged


def _fold(head: EngineLog, at: datetime, event: dict[str, Any], done: "Stored") -> None:
    if event.get("e") == "started":
        head.started_at = at
    elif event.get("e") == "ended":
        head.done, head.ended_at = True, at
        head.exit_code = exit_code(event.get("exit"))
        head.reason = replica_now.pair(event.get("reason"))
        head.died = head.died or event.get("state") == "failed"
        done.pieces[head.pk] = head
    elif event.get("e") == "engine" and event.get("state") == "degraded":
        head.ill = True
        done.pieces[head.pk] = head
    if head.server_id == head.replica.server_id:
        changed = replica_events.fold(head, event, at)
    else:  # the first of its servers speaks for the whole replica, unless another one gives up for good
        gave_up = event.get("e") == "ended" and event.get("state") == "failed" and event.get("more") is False
        changed = gave_up and replica_events.node_failed(head.replica, head.server_id, head.reason)
    if changed:
        done.replicas[head.replica_id] = head.replica.deployment_id


def _save(heads: Iterable[EngineLog], changed: Iterable[Replica]) -> None:
    """Each row once, and each question once, however many events a log holds."""
    for head in heads:
        if getattr(head, "touched", False):
            head.save()
        if head.died or head.ill:
            remedy_asking.ask(head.pk, died=head.died)
    for replica in changed:
        replica.save(update_fields=replica_events.ROW)
        reconcile_asking.ask(replica.deployment_id)
