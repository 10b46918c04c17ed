"""Facts of the machine and its system. Each function raises Trouble where it cannot tell."""

import os
import platform
import re
import socket
from typing import Any

from deployments.agent import identity, processes
from deployments.agent.facts_host import FactsHost
from deployments.kinds.check_probes.host import Trouble
from deployments.kinds.check_probes.system import release
from deployments.kinds.check_probes.textfiles import first_line, meminfo
from deployments.steps import Text
from monitoring.parsers import lscpu
from monitoring.parsers.failures import values_of

Facts = dict[str, Any]
MOST_ADDRESSES = 64
MOST_DISKS = 24
# `2: eth0    inet 192.0.2.7/24 brd 192.0.2.255 scope global eth0\       valid_lft forever`
ADDRESS = re.compile(r"\d+:\s+(\S+)\s+inet6?\s+([0-9a-fA-F.:]+)/(\d+)\s.*?\bscope\s+(\S+)")
INNER = re.compile(r"lo|docker\d+|virbr\d+|br-[0-9a-f]{6,}|veth.*|cni\d+|flannel.*|cali.*|podman\d+")


def machine(host: FactsHost) -> Facts:
    """Host name, kernel, boot. The time of the boot is kept to the minute: it wanders with the clock."""
    btime = re.search(r"^btime (\d{1,12})$", host.peek("/proc/stat"), re.MULTILINE)
    return {
        "hostname": (first_line(host, "/etc/hostname") or socket.gethostname())[:255],
        "kernel": first_line(host, "/proc/sys/kernel/osrelease") or os.uname().release,
        "boot_id": identity.host(host.root).boot or processes.boot_id() or None,
        "boot_at": (int(btime[1]) + 30) // 60 * 60 if btime else None,
    }


def cpu(host: FactsHost) -> Facts:
    """`numa`: [{node, cpus, mem_total_mb}], cpus as the kernel writes them ("0-23")."""
    told = values_of(lscpu, host.tool("lscpu"))
    return {
        "arch": told.get("Architecture") or platform.machine(),
        "cpu_model": told.get("Model name") or told.get("BIOS Model name"),
        "cpus": told.get("CPU(s)") or os.cpu_count(),
        "sockets": told.get("Socket(s)"),
        "numa_nodes": told.get("NUMA node(s)"),
        "numa": _numa(host, told) or None,
    }


def _numa(host: FactsHost, told: Facts) -> list[Facts]:
    nodes = []
    for name, cpus in told.items():
        if match := re.fullmatch(r"NUMA node(\d{1,3}) CPU\(s\)", name):
            text = host.peek(f"/sys/devices/system/node/node{match[1]}/meminfo")
            total = re.search(r"MemTotal:\s+(\d{1,15}) kB", text)
            nodes.append(
                {"node": int(match[1]), "cpus": str(cpus), "mem_total_mb": int(total[1]) // 1024 if total else None}
            )
    return sorted(nodes, key=lambda node: node["node"])


def system(host: FactsHost) -> Facts:
    told = release(host)
    return {"os": told.get("PRETTY_NAME") or told.get("NAME")}


def memory(host: FactsHost) -> Facts:
    told = meminfo(host)
    pages, size = told.get("HugePages_Total"), told.get("Hugepagesize")
    swap = told.get("SwapTotal")
    return {
        "mem_total_mb": told["MemTotal"] // 1024,
        "swap_total_mb": None if swap is None else swap // 1024,
        "hugepages": None if pages is None else {"total": pages, "size_kb": size},
    }


def addresses(host: FactsHost) -> Facts:
    """[{interface, address, prefix, default, local}] in the order of the interfaces.

    `default` is that its interface has the default route; `local` that no other machine reaches it.
    """
    answer = host.run("ip", "-o", "addr", "show")
    if answer is None:
        raise Trouble(Text("没有 ip 命令", "there is no command ip"))
    default = _default_interface(host)
    found = []
    for line in answer.text.splitlines():
        if match := ADDRESS.match(line):
            name, address, prefix, scope = match.groups()
            name = name.partition("@")[0][:32]
            local = scope in ("host", "link") or INNER.fullmatch(name) is not None
            row: Facts = {"interface": name, "address": address, "prefix": int(prefix)}
            found.append({**row, "default": name == default and not local, "local": local})
    # The kernel of a busy container host makes and drops addresses of its own all day: those are no facts.
    kept = [row for row in found if not (row["local"] and row["interface"].startswith(("veth", "cali")))]
    return {"addresses": kept[:MOST_ADDRESSES]}


def _default_interface(host: FactsHost) -> str:
    """The interface of the IPv4 default route, the cheapest where there are several."""
    rows = [line.split() for line in host.peek("/proc/net/route").splitlines()[1:]]
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == "00000000" and row[6].isdecimal()]
    return min(routes)[1] if routes else ""


def disks(host: FactsHost) -> Facts:
    """[{device, mount, fs, total_gb}] of file systems on disks; GB are 2^30 bytes. Each device once."""
    found: dict[str, Facts] = {}
    for line in (host.read("/proc/mounts") or "").splitlines():
        cells = line.split()
        if len(cells) < 3 or not cells[0].startswith("/dev/") or cells[0].startswith("/dev/loop"):
            continue
        device, mount, fs = cells[0][:100], cells[1].replace("\\040", " ")[:200], cells[2][:20]
        if device not in found and len(found) < MOST_DISKS:
            found[device] = {"device": device, "mount": mount, "fs": fs, "total_gb": _size_gb(host, mount)}
    return {"disks": sorted(found.values(), key=lambda disk: disk["mount"])}


def _size_gb(host: FactsHost, mount: str) -> float | None:
    try:
        cells = host.tool("df", "-Pk", mount, timeout_s=5.0).strip().splitlines()[-1].split()
        return round(int(cells[1]) / 2**20, 1)
    except (Trouble, IndexError, ValueError):
        return None
