"""One replica over several servers: which place each node has, and what stands before an engine that uses Ray.

vLLM's own ways (data parallel, `--nnodes`) need nothing before: each node's engine waits for the others. With Ray, the
head begins a cluster and the others join it; a node that comes first tries until the head is there.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deployments.serving import command
from deployments.serving.asked import Ask
from deployments.serving.command import RAY_PORT, Place
from deployments.serving.fields import Settings
from deployments.steps import Text

WAYS = {"roce": "-ping", "hccs": "-hccs_ping"}  # the options of hccn_tool
PEER = re.compile(r"[0-9A-Fa-f.:]{2,45}", re.ASCII)
JOIN_S = 900  # how long a node tries to join the head
# The head: Ray's own processes in the group of the engine, so that they end with it. head PORT ADDRESS COMMAND …
HEAD = (
    'ray start --head --block --disable-usage-stats --port="$1" --node-ip-address="$2" & ray=$!; shift 2; '
    "until ray status >/dev/null 2>&1; do kill -0 $ray 2>/dev/null || exit 1; sleep 1; done; "
    '"$@" & engine=$!; trap "kill -TERM $engine" TERM INT; wait $engine; code=$?; '
    "while kill -0 $engine 2>/dev/null; do wait $engine; code=$?; done; kill -TERM $ray 2>/dev/null; exit $code"
)
# The others: the head may not listen yet. join SECONDS COMMAND …
JOIN = (
    'until=$(($(date +%s) + $1)); shift; while :; do began=$(date +%s); "$@"; code=$?; [ $code = 0 ] && exit 0; '
    '[ $(($(date +%s) - began)) -lt 30 ] && [ "$(date +%s)" -lt $until ] || exit $code; sleep 2; done'
)


class Peer(NamedTuple):
    """How to reach one NPU of another node: `position` is its place among that node's NPUs, `way` is `roce`, or `hccs`
    within a super-pod. On its way to a server: `1/0/roce/198.18.1.10`."""

    rank: int
    position: int
    way: str
    address: str

    def __str__(self) -> str:
        return "/".join(map(str, self))


def peer(text: str) -> Peer | None:
    """None for what is none."""
    words = text.split("/", 3)
    if len(words) < 4 or not (words[0].isdecimal() and words[1].isdecimal() and PEER.fullmatch(words[3])):
        return None
    return Peer(int(words[0]), int(words[1]), words[2], words[3]) if words[2] in WAYS else None


def place(ask: Ask, devices: int) -> Place:
    return Place(
        ask.model, ask.address, ask.port, devices, ask.rank, tuple(ask.addresses), ask.interface, dict(ask.ports)
    )


def argv(settings: Settings, where: Place) -> list[str]:
    """The command of this node, with what Ray needs around it. The texts of the shell are fixed."""
    words = command.argv(settings, where)
    if settings.nodes < 2 or settings.backend != "ray":
        return words
    if where.node_rank == 0:
        port = str(where.ports.get("ray", RAY_PORT))
        return ["bash", "-c", HEAD, "ray-head", port, where.head, *words]
    return ["bash", "-c", JOIN, "ray-join", str(JOIN_S), *words]


def problems(nodes: Sequence[Mapping[str, Any]], settings: Settings) -> list[Text]:
    """What keeps these nodes ({"server", "name", "npus", "rank", "address"}) from being one replica."""
    found = []
    addresses = [str(one.get("address") or "") for one in nodes]
    if len(nodes) != settings.nodes:
        found.append(
            Text(
                f"副本需要 {settings.nodes} 台服务器，而只安排了 {len(nodes)} 台。",
                f"The replica needs {settings.nodes} servers, and {len(nodes)} were placed.",
            )
        )
    if [one.get("rank") for one in nodes] != list(range(len(nodes))):
        found.append(Text("节点序号须从 0 起连续。", "The ranks of the nodes must count from 0."))
    if "" in addresses or len(set(addresses)) != len(addresses) or any(map(_is_loopback, addresses)):
        found.append(
            Text(
                "每个节点需要一个不同的、其他节点能连到的地址。",
                "Each node needs an address of its own that the others can reach.",
            )
        )
    if len({len(one.get("npus") or []) for one in nodes}) > 1:
        found.append(Text("每个节点的 NPU 数须相同。", "Each node must have as many NPUs as the others."))
    if (
        settings.data_parallel_size > 1
        and settings.backend == "mp"
        and settings.data_parallel_size % max(1, len(nodes))
    ):
        found.append(
            Text(
                f"数据并行 {settings.data_parallel_size} 不能平均分到 {len(nodes)} 个节点。",
                f"Data parallel {settings.data_parallel_size} cannot be divided by {len(nodes)} nodes.",
            )
        )
    return found


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")
