"""Chunks of agents' own logs into rows, with the guarantees of deployments/ingest.py, within its transaction.

On the wire a piece is called `g<n>`, in rows `g<server>-<n>`: a server can write no log but its own. Its row is made
with its first chunk.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deployments.chunks import EVENT, Chunk, events
from deployments.models import AgentChunk, AgentLog

if TYPE_CHECKING:
    from deployments.ingest import Stored

PIECE = re.compile(r"g([1-9]\d{0,8})", re.ASCII)


def is_agent(chunk: Chunk) -> bool:
    return PIECE.fullmatch(chunk.attempt) is not None


def store(found: Mapping[int, Sequence[Chunk]], done: "Stored") -> None:
    """Store the chunks of each server (id); their rows are locked by the caller. Notes in `done` what was done."""
    heads: dict[tuple[int, str], AgentLog] = {}
    made: list[AgentChunk] = []
    for server_id, chunks in found.items():
        for chunk in chunks:
            key = (server_id, chunk.attempt)
            if key not in heads:
                heads[key] = _head(server_id, chunk)
            head = heads[key]
            if head.takes(chunk):
                made.append(AgentChunk(log=head, first=chunk.first, n=chunk.n, data=chunk.data))
                done.lines += chunk.n
                done.agents.append((server_id, head.pk, chunk))
                _fold(head, chunk)
            done.acked[key] = head.acknowledged
    AgentChunk.objects.bulk_create(made)
    for head in heads.values():
        head.save()


def _head(server_id: int, chunk: Chunk) -> AgentLog:
    n = int(chunk.attempt[1:])
    values = {"server_id": server_id, "n": n}
    return AgentLog.objects.get_or_create(pk=f"g{server_id}-{n}", defaults=values)[0]


def _fold(head: AgentLog, chunk: Chunk) -> None:
    if EVENT not in chunk.raw:
        return
    for _line, at, event in events(chunk):
        if event.get("e") == "started":
            head.started_at = at
        elif event.get("e") == "ended":
            head.done, head.ended_at = True, at
