"""How ingest reads what servers write into Redis: its connection, the ids and fields of stream entries, beats."""

import json
from collections.abc import Iterator
from typing import Any

import redis

from deployments.ingest import Batch

MAX_BEAT_BYTES = 128 * 1024
MAX_ACTIVE = 1000  # attempts that one beat may name


def portions(batch: Batch, most: int) -> Iterator[Batch]:
    """The batch in parts of at most `most` entries: unpacked, an entry may be a hundred times as long."""
    part: Batch = {}
    count = 0
    for pk, entries in batch.items():
        for entry in entries:
            part.setdefault(pk, []).append(entry)
            count += 1
            if count == most:
                yield part
                part, count = {}, 0
    if part:
        yield part


def connect(url: str) -> Any:
    """Redis ends the connections that hold most when all of them together hold too much: never ours, which reads
    what was written while nobody read."""

    def stay(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "NO-EVICT", "ON")
        try:
            connection.read_response()
        except redis.ResponseError:
            pass  # a Redis before 7 ends none

    return redis.Redis.from_url(url, socket_timeout=10, health_check_interval=30, redis_connect_func=stay)


def server_of(key: bytes) -> int:
    """7 of `h:7:telemetry`; -1 for a channel that somebody made up."""
    part = key.split(b":")[1]
    return int(part) if part.isdigit() else -1


def fields_of(entries: list[tuple[bytes, dict[bytes, bytes] | None]]) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """[(id, fields)]; an entry that was trimmed under way has none."""
    return [(entry_id, fields or {}) for entry_id, fields in entries]


def is_before(entry_id: str, other: str) -> bool:
    """Whether the first stream id stands before the second."""
    return _order(entry_id) < _order(other)


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def is_place(entry_id: bytes) -> bool:
    """Whether Redis itself may have given this id: its clock is in this age, and one can be added to its number."""
    milliseconds, sequence = _order(entry_id.decode())
    return milliseconds < 2**48 and sequence < 2**63


def after(entry_id: str) -> str:
    """The first id that may stand behind it."""
    milliseconds, _, sequence = entry_id.partition("-")
    return f"{milliseconds}-{int(sequence) + 1}"


def beat(data: bytes) -> dict[str, Any]:
    """What a beat says, {} where it is not to be read."""
    try:
        said = json.loads(data) if len(data) <= MAX_BEAT_BYTES else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def active(said: dict[str, Any]) -> set[str]:
    """The attempts that a beat names as running."""
    active = said.get("active")
    return {name for name in active[:MAX_ACTIVE] if isinstance(name, str)} if isinstance(active, list) else set()
