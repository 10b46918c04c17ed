"""Which device, rank and peer a line of a log speaks of: the NPU with its bus id, the server of the peer, and what to
look at on both ends. In words, [{"zh", "en"}], with `server` where a sentence is about one.

Engines and jobs count devices from 0 among the NPUs that they were given (ASCEND_RT_VISIBLE_DEVICES); `phy_id` and
`NPU` of a line are the server's own numbers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.models import Attempt, EngineLog, Npu, Server
from deployments.services import reserved

PHYSICAL = re.compile(r"phy_id\(|on NPU |\(NPU ", re.IGNORECASE)
LINK_STAGES = ("network",)


@dataclass(frozen=True)
class Place:
    """One server's part: `npus` are names of those it was given, in order."""

    server: Server
    npus: Sequence[str]
    rank: int = 0
    address: str = ""


def places_of(head: Attempt | EngineLog) -> list[Place]:
    """The server of this log first. Two queries where there are several."""
    if isinstance(head, Attempt):
        npus = head.job.params.get("npus")
        return [Place(head.job.server, [str(one) for one in npus] if isinstance(npus, list) else [])]
    replica = head.replica
    if not replica.nodes:
        return [Place(head.server, replica.npus)]
    servers = Server.objects.in_bulk(replica.server_ids)
    parts = [
        Place(servers[node["server"]], node.get("npus") or [], int(node.get("rank") or 0), node.get("address") or "")
        for node in replica.nodes
        if node["server"] in servers
    ]
    return sorted(parts, key=lambda one: one.server.pk != head.server_id)


def explained(finding: Mapping[str, Any], places: Sequence[Place]) -> list[dict[str, str]]:
    """Nothing where its line names neither device nor rank nor peer."""
    told = finding.get("details")
    if not isinstance(told, Mapping) or not places:
        return []
    return [*_own(told, finding, places), *_peer(told, finding, places)]


def _own(told: Mapping[str, str], finding: Mapping[str, Any], places: Sequence[Place]) -> Iterator[dict[str, str]]:
    here = places[0]
    device = _number(told.get("device"))
    if device is not None:
        physical = bool(PHYSICAL.search(str(finding.get("text", "")))) or not here.npus
        npu = _npu(here.server, device) if physical else _named(here, device)
        yield _of_npu(f"设备 {device}", f"Device {device}", npu, here.server)
    rank = _number(told.get("rank"))
    if rank is not None and (at := _of_rank(rank, places)):
        yield _of_npu(f"rank {rank}", f"Rank {rank}", _named(at[0], at[1]), at[0].server)


def _peer(told: Mapping[str, str], finding: Mapping[str, Any], places: Sequence[Place]) -> Iterator[dict[str, str]]:
    rank, address = _number(told.get("peer")), told.get("peer_ip", "")
    at = _of_rank(rank, places) if rank is not None else None
    server, npu = (at[0].server, _named(at[0], at[1])) if at else (None, None)
    if server is None and address:
        server, npu = _by_address(address, places)
    name = f"rank {rank}" if rank is not None else address
    if server is not None:
        yield _of_npu(f"对端 {name}", f"The peer, {name},", npu, server)
    elif name:
        yield {
            "zh": f"对端 {name} 不在控制台已知的服务器上。",
            "en": f"The peer, {name}, is on no server that the console knows.",
        }
    if name or finding.get("stage") in LINK_STAGES:
        yield _both_ends(places[0].server.name, server.name if server else "", npu, address)


def _both_ends(here: str, there: str, npu: Npu | None, address: str) -> dict[str, str]:
    """What to look at, as hccn_tool is asked."""
    ping = f"hccn_tool -i N -ping -g address {address}" if address else "hccn_tool -i N -ping -g address <IP>"
    index = str(npu.device_index) if npu else "N"
    other_zh = f"在 {there} 上（-i {index}）" if there else "在对端"
    other_en = f"On {there} (-i {index})" if there else "On the peer"
    return {
        "zh": f"两端都要查：在 {here} 上看 hccn_tool -i N -link -g 与 {ping}；{other_zh}看 -link、-ip、-net_health 与 "
        "-tls -g，并看那边同一时刻的日志：先报错的一端才是原因。",
        "en": f"Check both ends: on {here} ask hccn_tool -i N -link -g and {ping}. {other_en} look at -link, -ip, "
        "-net_health and -tls -g, and at its log of the same minute: the end that failed first is the cause.",
    }


def _of_npu(zh: str, en: str, npu: Npu | None, server: Server) -> dict[str, str]:
    bus_id = (npu.bus_id or "") if npu else ""
    if npu is not None:
        words = (
            f"NPU {npu.npu_id} 芯片 {npu.chip_id}（总线号 {npu.bus_id or '—'}）",
            f"NPU {npu.npu_id}, chip {npu.chip_id} (bus id {npu.bus_id or '—'})",
        )
    else:
        return {
            "zh": f"{zh} 在服务器 {server.name} 上。",
            "en": f"{en} is on server {server.name}.",
            "server": server.name,
        }
    return {
        "zh": f"{zh} 是服务器 {server.name} 的 {words[0]}。",
        "en": f"{en} is {words[1]} of server {server.name}.",
        "server": server.name,
        **({"npu": bus_id} if bus_id else {}),
    }


def _npu(server: Server, index: int) -> Npu | None:
    return server.npus.filter(device_index=index).first()


def _named(place: Place, position: int) -> Npu | None:
    """The NPU that stands at this position of those that were given, by its bus id as it was when it was given."""
    if not place.npus:
        return _npu(place.server, position)
    if position >= len(place.npus):
        return None
    rows = list(place.server.npus.order_by("-seen_at"))  # one that is lost is mostly the one in question
    wanted = str(place.npus[position]).upper()
    return next((npu for npu in rows if reserved.name_of(npu, rows).upper() == wanted), None)


def _of_rank(rank: int, places: Sequence[Place]) -> tuple[Place, int] | None:
    """The place and position of a rank: nodes in their order, each with as many ranks as NPUs."""
    for place in sorted(places, key=lambda one: one.rank):
        if rank < len(place.npus):
            return place, rank
        rank -= len(place.npus)
    return None


def _by_address(address: str, places: Sequence[Place]) -> tuple[Server | None, Npu | None]:
    """Whose address it is: that of a server, or of one of its NPUs' ports."""
    for place in places:
        if address == place.address:
            return place.server, None
    for pk, rows in Server.objects.present().values_list("pk", "facts__npu_addresses"):
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and address in (row.get("roce"), row.get("hccs")):
                server = Server.objects.get(pk=pk)
                return server, _npu(server, int(row.get("device") or 0))
    return Server.objects.present().filter(address_roles__has_key=address).first(), None


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 6 else None
