"""What seldom changes on a server: its system, its CPU, its Ascend software, the links between its NPUs."""

import os
import platform
import socket
from pathlib import Path
from typing import Any

from deployments.agent import VERSION, as_root, processes
from deployments.agent.config import Config
from deployments.agent.tools import Run
from monitoring.parsers import ParseError, cann_install_info, failures, lscpu, npu_smi_topo, os_release, version_info
from monitoring.parsers.failures import values_of

TOOL_S = 15.0
ASCEND = "usr/local/Ascend"
CANN = (
    "ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info",
    "cann/latest/{arch}-linux/ascend_toolkit_install.info",
    "cann/{arch}-linux/ascend_toolkit_install.info",
    "ascend-toolkit/latest/version.cfg",
    "nnae/latest/{arch}-linux/ascend_nnae_install.info",
)


def collect(config: Config, env: dict[str, str], run: Run) -> dict[str, Any]:
    """All facts; None stands for unknown. Files are read below the server's root."""
    root = config.root
    cpu = values_of(lscpu, run(["lscpu"], env={**env, "LC_ALL": "C"}, timeout_s=TOOL_S).text)
    release = values_of(os_release, _read(root / "etc/os-release"))
    arch = cpu.get("Architecture") or platform.machine()
    return {
        "hostname": _read(root / "etc/hostname").strip()[:255] or socket.gethostname(),
        "arch": arch,
        "os": release.get("PRETTY_NAME") or release.get("NAME"),
        "kernel": _read(root / "proc/sys/kernel/osrelease").strip() or os.uname().release,
        "cpu_model": cpu.get("Model name") or cpu.get("BIOS Model name"),
        "cpus": cpu.get("CPU(s)") or os.cpu_count(),
        "sockets": cpu.get("Socket(s)"),
        "numa_nodes": cpu.get("NUMA node(s)"),
        "mem_total_mb": _mem_total_mb(root),
        "python": platform.python_version(),
        "glibc": platform.libc_ver()[1] or None,
        **versions(root, str(arch)),
        "agent": VERSION,
        "topology": topology(env, run),
        "root": as_root.state(config),
        "boot_id": processes.boot_id() or None,
    }


def versions(root: Path, arch: str) -> dict[str, str | None]:
    """Versions of driver, firmware and CANN as their files name them."""
    found: dict[str, str | None] = {}
    for part in ("driver", "firmware"):
        values = values_of(version_info, _read(root / ASCEND / part / "version.info"))
        found[part] = _first(values, "Version", "package_version")
    candidates = [root / ASCEND / name.format(arch=arch) for name in CANN]
    texts = [text for path in candidates if (text := _read(path))]
    found["cann"] = _first(values_of(cann_install_info, texts[0]), "version", "Version") if texts else None
    return found


def topology(env: dict[str, str], run: Run) -> dict[str, Any] | None:
    """{"npus": names, "matrix": rows of link words, "X" on the diagonal}; None where npu-smi does not tell."""
    output = run(npu_smi_topo.COMMAND, env=env, timeout_s=TOOL_S)
    if output.problem:
        return None
    try:
        found = npu_smi_topo.parse(output.text)
    except ParseError:
        return None
    if isinstance(found, failures.Unreadable):
        return None
    names = [*found.links]
    matrix = [["X" if a == b else found.links[a].get(b) for b in names] for a in names]
    return {"npus": names, "matrix": matrix, "cpu_affinity": found.cpu_affinity}


def _read(path: Path) -> str:
    """At most 64 KB of a file, '' where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(65536).decode(errors="replace")
    except OSError:
        return ""


def _first(values: dict[str, Any], *names: str) -> str | None:
    return next((str(values[name]) for name in names if values.get(name)), None)


def _mem_total_mb(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:") and line.split()[1:2]:
            return int(line.split()[1]) // 1024
    return None
