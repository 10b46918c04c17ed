"""Which NPUs there are to serve on, servers that are alike together: what plans are made for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deployments.models import Npu, Server
from deployments.services import resets, stacks

MOST_KINDS = 6


@dataclass(frozen=True)
class Hardware:
    """Servers with as many NPUs of the same kind. `group` is how many of them one HCCS group has."""

    chip: str
    family: str
    hbm_mb: float
    npus: int
    group: int
    servers: tuple[str, ...]


def of_fleet(*, simulated: bool, names: Sequence[str] = ()) -> list[Hardware]:
    """Of all present servers or those of `names`, most NPUs first. Facts are read of one of each kind."""
    servers = Server.objects.present().filter(simulated=simulated)
    if names:
        servers = servers.filter(name__in=names)
    alike: dict[tuple[str, float, int], list[Server]] = {}
    for server in servers.defer("facts").prefetch_related("npus"):
        if key := _kind(server):
            alike.setdefault(key, []).append(server)
    made = [_hardware(key, rows) for key, rows in alike.items()]
    return sorted(made, key=lambda one: -one.npus * len(one.servers))[:MOST_KINDS]


def _kind(server: Server) -> tuple[str, float, int] | None:
    npus = list(server.npus.all())
    names = Counter(npu.name for npu in npus if npu.name and npu.memory_total_mb)
    if not names:
        return None
    chip, many = names.most_common(1)[0]
    return chip, float(min(_mb(npu) for npu in npus if npu.name == chip and npu.memory_total_mb)), many


def _mb(npu: Npu) -> int:
    return npu.memory_total_mb or 0


def _hardware(key: tuple[str, float, int], servers: list[Server]) -> Hardware:
    chip, hbm_mb, npus = key
    one = servers[0]
    mine = [npu for npu in one.npus.all() if npu.name == chip]
    group = max(len([other for other in resets.together(one, npu) if other in mine]) for npu in mine)
    family = stacks.catalogue().family_of(chip) or ""
    return Hardware(chip, family, hbm_mb, npus, group, tuple(server.name for server in servers))
