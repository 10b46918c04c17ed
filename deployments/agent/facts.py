"""What seldom changes on a server: its system, CPU and memory, its Ascend software, cards, addresses, disks.

Every part is read for itself: what cannot be read is None, and `unknown` says why, {name: [zh, en]}. Read by the
readers of the job kind `check`, below the server's root, without root's rights, and never longer than each tool's
deadline.
"""

import hashlib
import json
import platform
from collections.abc import Callable
from typing import Any

from deployments.agent import (
    VERSION,
    as_root,
    facts_cluster,
    facts_ports,
    facts_software,
    facts_system,
    install,
    stack_root,
)
from deployments.agent.config import Config
from deployments.agent.facts_host import FactsHost
from deployments.agent.models import root as models_root
from deployments.agent.tools import Run
from deployments.kinds.check_probes.host import Trouble
from deployments.steps import Text
from monitoring.parsers import ParseError, failures, npu_smi_topo

TOOL_S = 15.0
Facts = dict[str, Any]

# Names and who finds them; a part that fails leaves its names None.
PARTS: list[tuple[tuple[str, ...], Callable[[FactsHost], Facts]]] = [
    (("hostname", "kernel", "boot_id", "boot_at"), facts_system.machine),
    (("arch", "cpu_model", "cpus", "sockets", "numa_nodes", "numa"), facts_system.cpu),
    (("os",), facts_system.system),
    (("mem_total_mb", "swap_total_mb", "hugepages"), facts_system.memory),
    (("addresses",), facts_system.addresses),
    (("disks",), facts_system.disks),
    (("driver", "driver_whole", "firmware", "firmware_range", "paired"), facts_software.host_layer),
    (("cann", "cann_all", "ops", "nnal"), facts_software.cann),
    (("pythons",), facts_software.pythons),
    (("containers",), facts_software.containers),
    (("pci",), facts_software.cards),
    (("kubernetes",), facts_cluster.kubernetes),
    (("npu_addresses",), facts_ports.addresses),
]


def collect(config: Config, env: dict[str, str], run: Run) -> Facts:
    """All facts of the server that `config` belongs to."""
    host = FactsHost(config.root, env, run)
    host.stacks = stack_root.of(config)
    return gather(host, config)


def gather(host: FactsHost, config: Config) -> Facts:
    found: Facts = {}
    unknown: dict[str, list[str]] = {}
    for names, part in PARTS:
        found |= _ask(names, part, host, unknown)
    found |= {
        "python": platform.python_version(),
        "glibc": platform.libc_ver()[1] or None,
        "agent": VERSION,
        "install": installation(config),
        "topology": topology(host.env, host.run_tool),
        "root": as_root.state(config),
        "systemd": has_units(host, config),
        "stacks_root": host.stacks,
        "models_root": models_root.of(config),
        **(stack_root.UNKNOWN if config.simulated else stack_root.links(host.stacks)),
    }
    return {**found, "unknown": unknown}


def _ask(
    names: tuple[str, ...], part: Callable[[FactsHost], Facts], host: FactsHost, unknown: dict[str, list[str]]
) -> Facts:
    try:
        made = part(host)
    except Trouble as trouble:
        made, reason = {}, trouble.reason
    except Exception as error:  # one odd file must not take the other facts along
        words = f"{type(error).__name__}: {error}"[:200]
        made, reason = {}, Text(f"读取出错（{words}）", f"reading it failed ({words})")
    else:
        reason = Text("没有找到", "not found")
    for name in names:
        if made.get(name) is None:
            unknown[name] = list(made.get(f"{name}_unknown") or reason)
    return {name: made.get(name) for name in names}


def digest(facts: Facts) -> str:
    """Differs when any fact does."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def installation(config: Config) -> Facts | None:
    """Where the agent lies and whether it can take itself away; None where it was not joined by the command."""
    found = install.at(config)
    return {"prefix": str(found.prefix), "removes_itself": install.removable(config) is not None} if found else None


def has_units(host: FactsHost, config: Config) -> bool:
    """Whether engines of this agent could have units of systemd, as far as the server goes; root must put them."""
    try:
        return host.exists("/run/systemd/system") and install.at(config) is not None
    except Trouble:
        return False


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
