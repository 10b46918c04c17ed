"""What each server of a replica that spans several is told of the others."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from deployments.models import Server
from deployments.services import reserved
from deployments.serving.nodes import PEER, Peer

MOST_PEERS = 256


class Node(NamedTuple):
    """One server's part of a replica; `address` is '' where there is one node only."""

    server_id: int
    rank: int
    npus: list[str]
    address: str


def between(server: Server, parts: Sequence[Node]) -> dict[str, Any]:
    """`peers`, the addresses of the other nodes' NPUs; {} where there is one node only. An agent that tells no such
    addresses takes none either: it is of an older version."""
    if len(parts) < 2 or "npu_addresses" not in server.facts:
        return {}
    others = Server.objects.in_bulk([part.server_id for part in parts if part.server_id != server.pk])
    peers = [str(one) for part in parts if part.server_id in others for one in _of_node(others[part.server_id], part)]
    return {"peers": peers[:MOST_PEERS]}


def _of_node(server: Server, part: Node) -> Iterator[Peer]:
    """Within a super-pod first: that is the way HCCL takes there."""
    rows = server.facts.get("npu_addresses")
    told = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    by_device = {row.get("device"): row for row in told}
    index = _device_indexes(server)
    for position, name in enumerate(part.npus):
        row = by_device.get(index.get(name.upper(), -1), {})
        for way in ("hccs", "roce"):
            if isinstance(address := row.get(way), str) and PEER.fullmatch(address):
                yield Peer(part.rank, position, way, address)


def _device_indexes(server: Server) -> dict[str, int]:
    """By the names that reservations have; hccn_tool counts as they do."""
    there = reserved.present(server.npus.order_by("device_index"))
    return {reserved.name_of(npu, there).upper(): npu.device_index for npu in there}
