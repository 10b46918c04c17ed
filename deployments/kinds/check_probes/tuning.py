"""Group `tuning`: settings of the kernel that slow inference down. All can be undone."""

from deployments.kinds.check_probes.finding import Finding, Probe, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.textfiles import first_line, number
from deployments.steps import Text

MISSING = Text(
    "内核没有提供这个设置（虚拟机或容器里常见），无需处理。",
    "The kernel does not offer this setting (common in virtual machines); nothing to do.",
)
GOVERNORS = "/sys/devices/system/cpu"


def swappiness(host: Host) -> Finding:
    found = number(host, "/proc/sys/vm/swappiness")
    if found is None:
        return unknown(MISSING, wanted="0–1")
    if found <= 1:
        return ok(str(found), "0–1")
    if not number_of_swaps(host):
        return ok(f"{found}, swap 0", "0–1")
    return warning(
        str(found),
        "0–1",
        Text("会把推理进程换出：sysctl -w vm.swappiness=0", "Engines may be swapped out: sysctl -w vm.swappiness=0"),
    )


def number_of_swaps(host: Host) -> int:
    return max(0, len((host.read("/proc/swaps") or "").strip().splitlines()) - 1)


def numa_balancing(host: Host) -> Finding:
    found = number(host, "/proc/sys/kernel/numa_balancing")
    if found is None:
        return unknown(MISSING, wanted="0")
    if found == 0:
        return ok("0", "0")
    return warning(
        str(found),
        "0",
        Text(
            "自动 NUMA 均衡会搬动内存、造成抖动：sysctl -w kernel.numa_balancing=0",
            "Automatic NUMA balancing moves memory and causes jitter: sysctl -w kernel.numa_balancing=0",
        ),
    )


def governor(host: Host) -> Finding:
    found = first_line(host, f"{GOVERNORS}/cpu0/cpufreq/scaling_governor")
    if found is None:
        return unknown(MISSING, wanted="performance")
    if found == "performance":
        return ok(found, "performance")
    return warning(
        found,
        "performance",
        Text(
            "CPU 会降频：cpupower frequency-set -g performance",
            "The CPU slows down when idle: cpupower frequency-set -g performance",
        ),
    )


PROBES = [
    Probe("swappiness", Text("swappiness", "Swappiness"), swappiness),
    Probe("numa_balancing", Text("NUMA 均衡", "NUMA balancing"), numa_balancing),
    Probe("governor", Text("CPU 调频策略", "CPU governor"), governor),
]
