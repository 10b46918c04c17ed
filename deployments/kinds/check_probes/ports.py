"""Ports that engines and HCCL want, and who listens there."""

import os
import re
from typing import NamedTuple

from deployments.kinds.check_probes.finding import Finding, ok, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.steps import Text

ENGINE_PORTS = range(8000, 8016)
HCCL_PORTS = range(60000, 60016)  # what HCCL takes on the host unless HCCL_IF_BASE_PORT says otherwise
NPU_PORT = 16666  # of each NPU, and of the host where HCCL runs over its own network
LISTEN = "0A"  # the state column of /proc/net/tcp
ROW = re.compile(
    r"\s*\d+: [0-9A-F]+:(?P<port>[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} (?P<state>[0-9A-F]{2})"
    r"(?:\s+\S+){3}\s+(?P<uid>\d+)\s+\d+\s+(?P<inode>\d+)"
)
MOST_PROCESSES = 20_000


class Listener(NamedTuple):
    uid: int
    inode: str


def listeners(host: Host) -> dict[int, Listener]:
    """Who listens on each TCP port, over IPv4 and IPv6. Raises Trouble when the kernel's table is missing."""
    tables = [text for text in (host.read("/proc/net/tcp"), host.read("/proc/net/tcp6")) if text]
    if not tables:
        raise Trouble(Text("读不到 /proc/net/tcp", "/proc/net/tcp cannot be read"))
    found: dict[int, Listener] = {}
    for line in "\n".join(tables).splitlines():
        hit = ROW.match(line)
        if hit and hit["state"] == LISTEN:
            found.setdefault(int(hit["port"], 16), Listener(int(hit["uid"]), hit["inode"]))
    return found


def listening(host: Host) -> set[int]:
    return set(listeners(host))


def holders(host: Host, wanted: dict[int, Listener]) -> dict[int, str]:
    """Port -> who holds it: `pid 312 python` where we may look into the process, else its user alone."""
    owners = {one.inode: port for port, one in wanted.items() if one.inode != "0"}
    found = {port: f"uid {user_name(host, one.uid)}" for port, one in wanted.items()}
    for pid in [name for name in host.look("/proc") if name.isdecimal()][:MOST_PROCESSES] if owners else []:
        for inode in _sockets(host, pid) & owners.keys():
            name = host.peek(f"/proc/{pid}/comm").strip()[:40] or "?"
            found[owners[inode]] = f"pid {pid} {name}, {found[owners[inode]]}"
            del owners[inode]
        if not owners:
            break
    return found


def _sockets(host: Host, pid: str) -> set[str]:
    """Inodes of a process' sockets; none where it is another's."""
    found = set()
    folder = host.path(f"/proc/{pid}/fd")
    for name in host.look(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(folder / name)  # noqa: PTH115 - the text as it stands
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def user_name(host: Host, uid: int) -> str:
    rows = (row.split(":") for row in host.peek("/etc/passwd").splitlines())
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(uid)), str(uid))


def ports(host: Host) -> Finding:
    taken = listeners(host)
    engine = {port: taken[port] for port in ENGINE_PORTS if port in taken}
    hccl = {port: taken[port] for port in (*HCCL_PORTS, NPU_PORT) if port in taken}
    by = holders(host, {**engine, **hccl})
    found = "; ".join(f"{port} ({by[port]})" for port in (*hccl, *engine)) or "0"
    wanted = f"{ENGINE_PORTS[0]}–{ENGINE_PORTS[-1]}, {HCCL_PORTS[0]}–{HCCL_PORTS[-1]}, {NPU_PORT}"
    if hccl:
        remedy = Text(
            "HCCL 的端口被占：停掉占用者，或设 HCCL_IF_BASE_PORT（16666：HCCL_NPU_SOCKET_PORT_RANGE）换一段端口。",
            "Ports of HCCL are taken: stop what listens there, or move HCCL with HCCL_IF_BASE_PORT "
            "(16666: HCCL_NPU_SOCKET_PORT_RANGE).",
        )
        return warning(found, wanted, remedy)
    if len(engine) == len(ENGINE_PORTS):
        return warning(
            found,
            wanted,
            Text("常用的服务端口全被占：部署时另选端口。", "All the usual ports are taken: choose another one."),
        )
    return ok(found, wanted)
