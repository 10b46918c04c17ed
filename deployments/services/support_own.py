"""What the console itself has for a support bundle: logs of the job and of engines, facts, NPUs, serial numbers."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from deployments.agent.support.masking import Masks
from deployments.agent.support.part import Full, Part, Read
from deployments.models import Attempt, EngineLog, PartState, Server, SupportBundle, SupportPart
from deployments.services import logs, support_bundles, support_parts
from deployments.steps import Text

MOST_MB, MOST_S = 512, 300.0
MOST_LOGS = 60
GONE = Text("日志已过保留期", "the log is past its time")


def fill(part_pk: int) -> None:
    """Make the console's own part; nothing for one that is there, or has been deleted."""
    part = SupportPart.objects.select_related("bundle").filter(pk=part_pk, state=PartState.WAITING).first()
    if part is None:
        return
    path = support_bundles.path_of(part)
    path.parent.mkdir(parents=True, exist_ok=True)
    bundle = part.bundle
    servers = list(Server.objects.filter(pk__in=bundle.parts.exclude(server=None).values("server")).order_by("name"))
    packed = Part(path.with_suffix(".coming"), masks_of(bundle, servers), MOST_MB << 20, time.monotonic() + MOST_S)
    try:
        _facts(packed, servers)
        _logs(packed, bundle)
    except Full as full:
        packed.lacks("console", full.text)
    try:
        packed.close().replace(path)
    except (Full, OSError) as error:
        packed.drop()
        why = error.text if isinstance(error, Full) else Text(str(error), str(error))
        SupportPart.objects.filter(pk=part.pk).update(state=PartState.MISSING, why=list(why))
        support_bundles.tell(bundle.pk)
        return
    support_parts.take(part, path)


def masks_of(bundle: SupportBundle, servers: Iterable[Server]) -> Masks:
    return Masks(bundle.salt, support_bundles.names_of(servers), hosts=bundle.hosts)


def tend() -> int:
    """Make what a worker that died has left; how many."""
    left = SupportPart.objects.filter(source=support_bundles.CONSOLE, state=PartState.WAITING)
    keys = list(left.order_by("pk").values_list("pk", flat=True)[:5])
    for pk in keys:
        fill(pk)
    return len(keys)


def _facts(packed: Part, servers: list[Server]) -> None:
    """One JSON for each server. Raises Full."""
    for server in servers:
        npus = list(server.npus.values("npu_id", "chip_id", "bus_id", "name", "memory_total_mb"))
        told: dict[str, Any] = {
            "server": server.name, "hostname": server.hostname, "simulated": server.simulated,
            "agent": server.agent_version, "last_seen_at": server.last_seen_at, "facts_at": server.facts_at,
            "facts": server.facts, "npus": npus,
        }  # fmt: skip
        text = json.dumps(told, indent=1, ensure_ascii=False, cls=DjangoJSONEncoder, default=str)
        packed.text(f"facts/{packed.masks.name(server.name)}.json", text + "\n")


def _logs(packed: Part, bundle: SupportBundle) -> None:
    """Raises Full."""
    for name in bundle.about.get("logs", [])[:MOST_LOGS]:
        if attempt := Attempt.objects.filter(pk=name, pruned_at=None).select_related("job").first():
            packed.add(f"jobs/{attempt.job_id}/attempt-{attempt.n}.log", _reader(logs.whole(attempt)))
        elif piece := EngineLog.objects.filter(pk=name, pruned_at=None).first():
            packed.add(f"engines/{piece.pk}.log", _reader(logs.whole(piece)))
        else:
            packed.lacks(name, GONE)


def _reader(pieces: Iterator[bytes]) -> Read:
    held = bytearray()

    def read(n: int) -> bytes:
        while len(held) < n:
            piece = next(pieces, None)
            if piece is None:
                break
            held.extend(piece)
        found = bytes(held[:n])
        del held[:n]
        return found

    return read
