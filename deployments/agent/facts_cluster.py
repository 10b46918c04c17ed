"""Whether Kubernetes gives this server's NPUs away: kubelet, and a device plugin for NPUs that has told kubelet of
itself."""

import re
from pathlib import Path
from typing import Any

from deployments.agent.facts_host import FactsHost

FOLDER = "/var/lib/kubelet/device-plugins"
# The sockets of Ascend's device plugin are called after its resource: Ascend910.sock, Ascend310P.sock.
PLUGIN = re.compile(r"(?:ascend|davinci|npu)[\w.-]*\.sock", re.IGNORECASE | re.ASCII)


def kubernetes(host: FactsHost) -> dict[str, Any]:
    """`kubernetes`: {"kubelet": it runs, "plugins": names of sockets}; where no kubelet runs, nothing more is read.

    Raises Trouble where the folder of plugins is not this account's to read.
    """
    if not any(name == "kubelet" for name in _names(host)):
        return {"kubernetes": {"kubelet": False, "plugins": []}}
    plugins = [name for name in host.names(FOLDER) if PLUGIN.fullmatch(name)]
    return {"kubernetes": {"kubelet": True, "plugins": sorted(plugins)[:8]}}


def _names(host: FactsHost) -> list[str]:
    """What the processes of the machine are called."""
    found = []
    for pid in host.names("/proc"):
        if pid.isdigit():
            try:
                found.append(host.path(f"/proc/{pid}/comm").read_text(errors="replace").strip())
            except OSError:  # it has ended meanwhile
                continue
    return found


def in_pod(proc: Path, pid: int) -> bool:
    """Whether a process is a pod's, by its cgroup."""
    try:
        return "kubepods" in (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return False
