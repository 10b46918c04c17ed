"""Group `system`: the machine and its operating system."""

import re
from typing import Any

from deployments.kinds.check_probes.finding import Finding, Probe, failed, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.textfiles import meminfo
from deployments.stacks import catalogue
from deployments.stacks.versions import at_least
from deployments.steps import Text
from monitoring.parsers import lscpu, os_release
from monitoring.parsers.failures import values_of

GIB = 1024 * 1024  # in kB, as /proc/meminfo and df count
LEAST_GLIBC = catalogue.built_in().default.glibc_min or "2.17"
MODEL_FOLDERS = ("/models", "/data/models", "/home/models", "/data", "/home", "/")

# Operating systems with an aarch64 package list (ascend-deployer 26.0.0): ID of os-release -> pattern of VERSION.
SYSTEMS = {
    "openeuler": r"20\.03 \(LTS\)|22\.03 \(LTS(-SP[14])?\)|24\.03 \(LTS-SP1\)",
    "ubuntu": r"(18|20|22|24)\.04",
    "kylin": r"V10|V11",
    "euleros": r"2\.0 \(SP(8|9|10|12)",
    "uos": r"20",
    "ctyunos": r"2(2\.06|3\.01)",
    "bclinux": r"21\.10",
    "culinux": r"3\.0",
    "centos": r"7",
    "debian": r"10",
    "mtos": r"22\.03",
    "vesselos": r"[12]\.0",
    "velinux": r"1\.3",
}
DEBIAN_FAMILY = ("debian", "ubuntu", "velinux")


def architecture(host: Host) -> Finding:
    found = host.tool("uname", "-m").strip()
    if found == "aarch64":
        return ok(found, "aarch64")
    remedy = Text(
        f"这是 {found} 机器：鲲鹏（aarch64）的离线包与镜像在此不能用，须用 {found} 的软件包。",
        f"This is a {found} machine: bundles and images for Kunpeng (aarch64) do not run here; "
        f"use packages for {found}.",
    )
    return warning(found, "aarch64", remedy)


def cpu(host: Host) -> Finding:
    told = values_of(lscpu, host.tool("lscpu"))
    model = told.get("BIOS Model name") or told.get("Model name") or told.get("Vendor ID") or "?"
    cores, nodes = told.get("CPU(s)"), told.get("NUMA node(s)") or "?"
    found = f"{model}, {cores} CPU, {nodes} NUMA"
    if not isinstance(cores, int):
        return unknown(Text("lscpu 没有给出核数。", "lscpu gives no number of cores."), found, "≥ 32 CPU")
    if cores >= 32:
        return ok(found, "≥ 32 CPU")
    remedy = Text(
        "核数偏少：每张 NPU 约需 4 个以上的核来下发算子，吞吐会受限。",
        "Few cores: each NPU wants four or more to be kept busy, so throughput will suffer.",
    )
    return warning(found, "≥ 32 CPU", remedy)


def release(host: Host) -> dict[str, Any]:
    """The values of os-release. Raises Trouble when the file is missing or says nothing."""
    text = host.read("/etc/os-release") or host.read("/usr/lib/os-release")
    told = values_of(os_release, text or "")
    if "ID" not in told and "NAME" not in told:
        raise Trouble(Text("没有可读的 /etc/os-release", "there is no readable /etc/os-release"))
    return told


def operating_system(host: Host) -> Finding:
    told = release(host)
    found = told.get("PRETTY_NAME") or f"{told.get('NAME', '')} {told.get('VERSION', '')}".strip()
    version = told.get("VERSION") or told.get("VERSION_ID", "")
    pattern = SYSTEMS.get(told.get("ID", "").lower())
    if pattern and re.match(pattern, version):
        return ok(found, "openEuler, Kylin, Ubuntu, …")
    remedy = Text(
        "厂商的软件包清单里没有这个系统版本：驱动可能装不上。换用清单内的版本，或用容器方式部署上层软件。",
        "The vendor lists no packages for this version: the driver may not build. "
        "Use a listed version, or run everything above the driver in a container.",
    )
    return warning(found, "openEuler 22.03 LTS-SP4, …", remedy)


def kernel(host: Host) -> Finding:
    found = host.tool("uname", "-r").strip()
    if at_least(found.split("-")[0], "4.19"):
        return ok(found, "≥ 4.19")
    return failed(
        found,
        "≥ 4.19",
        Text("内核太旧，驱动编译不过：升级操作系统。", "The kernel is too old for the driver: upgrade the system."),
    )


def kernel_headers(host: Host) -> Finding:
    running = host.tool("uname", "-r").strip()
    folder = f"/lib/modules/{running}/build"
    if host.exists(folder):
        return ok(folder, folder)
    try:
        debian = release(host).get("ID", "").lower() in DEBIAN_FAMILY
    except Trouble:
        debian = False
    command = (
        f"apt-get install -y make dkms gcc linux-headers-{running}"
        if debian
        else f"yum install -y make dkms gcc kernel-headers-{running} kernel-devel-{running}"
    )
    remedy = Text(
        f"没有与内核匹配的头文件，安装驱动时 DKMS 会失败：{command}",
        f"The kernel's headers are missing, so the driver's DKMS build will fail: {command}",
    )
    return warning("—", folder, remedy)


def glibc(host: Host) -> Finding:
    answer = host.run("getconf", "GNU_LIBC_VERSION") or host.run("ldd", "--version")
    hit = re.search(r"(\d+\.\d+)", answer.text) if answer and answer.code == 0 else None
    if hit is None:
        return unknown(
            Text(
                "读不到 glibc 版本（可能不是 glibc）。",
                "The version of glibc cannot be read (maybe it is another libc).",
            )
        )
    wanted = f"≥ {LEAST_GLIBC}"
    if at_least(hit[1], LEAST_GLIBC):
        return ok(hit[1], wanted)
    if at_least(hit[1], "2.17"):
        remedy = Text(
            f"vLLM-Ascend 0.23 的 wheel 需要 glibc {LEAST_GLIBC}，这里加载不了：用容器方式部署，或升级操作系统。",
            f"The wheels of vLLM-Ascend 0.23 need glibc {LEAST_GLIBC} and do not load here: "
            "use the container, or upgrade.",
        )
        return warning(hit[1], wanted, remedy)
    return failed(
        hit[1],
        wanted,
        Text("连 NNAL 也需要 glibc 2.17：升级操作系统。", "Even NNAL needs glibc 2.17: upgrade the system."),
    )


def free_gib(host: Host, folder: str) -> float:
    """GiB free where the folder lies. Raises Trouble."""
    rows = host.tool("df", "-Pk", folder).strip().splitlines()
    cells = rows[-1].split() if len(rows) > 1 else []
    if len(cells) < 6 or not cells[3].isdecimal():
        raise Trouble(Text(f"看不懂 df {folder} 的输出", f"df {folder} printed what cannot be read"))
    return int(cells[3]) / GIB


def disk_usr_local(host: Host) -> Finding:
    free = free_gib(host, "/usr/local")
    if free >= 10:
        return ok(f"{free:.0f} GiB", "≥ 10 GiB")
    remedy = Text(
        "CANN 至少要 10 GiB：清理或扩容 /usr/local 所在磁盘。", "CANN takes 10 GiB: make room where /usr/local lies."
    )
    return failed(f"{free:.1f} GiB", "≥ 10 GiB", remedy, job=job("cleanup_look"))


def disk_models(host: Host) -> Finding:
    folder = next(name for name in MODEL_FOLDERS if name == "/" or host.exists(name))
    free = free_gib(host, folder)
    found = f"{folder}: {free:.0f} GiB"
    if free >= 200:
        return ok(found, "≥ 200 GiB")
    remedy = Text(
        "放不下几个大模型（32B 的 bf16 权重约 64 GiB）：为模型目录挂一块数据盘。",
        "Little room for models (the bf16 weights of a 32B one take 64 GiB): mount a data disk for them.",
    )
    return warning(found, "≥ 200 GiB", remedy, job=job("cleanup_look"))


def memory(host: Host) -> Finding:
    told = meminfo(host)
    total, free = told["MemTotal"] / GIB, told.get("MemAvailable", 0) / GIB
    found = f"{free:.0f} / {total:.0f} GiB"
    if total < 60:
        remedy = Text(
            "内存偏小：加载权重时会先读进主机内存。只部署小模型，或加内存。",
            "Little memory: weights pass through it when they are loaded. Serve small models only, or add memory.",
        )
        return warning(found, "≥ 64 GiB", remedy)
    if free < total * 0.1:
        return warning(
            found,
            "≥ 10 %",
            Text("可用内存不足一成：看看谁占用了内存。", "Less than a tenth is free: see what uses it."),
        )
    return ok(found, "≥ 64 GiB")


def swap(host: Host) -> Finding:
    told = meminfo(host)
    total, free = told.get("SwapTotal", 0), told.get("SwapFree", 0)
    used = (total - free) / GIB
    found = f"{used:.1f} / {total / GIB:.1f} GiB"
    if used < 1:
        return ok(found, "≤ 1 GiB")
    remedy = Text(
        "推理服务换页后延迟会剧烈抖动：找出占用内存的进程，然后 swapoff -a && swapon -a。",
        "An engine that is swapped out answers in jerks: find what uses the memory, then swapoff -a && swapon -a.",
    )
    return warning(found, "≤ 1 GiB", remedy)


def hugepages(host: Host) -> Finding:
    told = meminfo(host)
    pages, size = told.get("HugePages_Total", 0), told.get("Hugepagesize", 0)
    found = f"{pages} × {size} kB"
    if pages * size <= told["MemTotal"] / 2:
        return ok(found, "≤ 50 %")
    remedy = Text(
        "大页占去一半以上的内存，别的程序用不到：调小 vm.nr_hugepages。",
        "Huge pages hold more than half of the memory, out of reach for others: lower vm.nr_hugepages.",
    )
    return warning(found, "≤ 50 %", remedy)


PROBES = [
    Probe("architecture", Text("架构", "Architecture"), architecture),
    Probe("cpu", Text("CPU", "CPU"), cpu),
    Probe("os", Text("操作系统", "Operating system"), operating_system),
    Probe("kernel", Text("内核", "Kernel"), kernel),
    Probe("kernel_headers", Text("内核头文件", "Kernel headers"), kernel_headers),
    Probe("glibc", Text("glibc", "glibc"), glibc),
    Probe("disk_usr_local", Text("磁盘 /usr/local", "Disk /usr/local"), disk_usr_local),
    Probe("disk_models", Text("模型磁盘", "Disk for models"), disk_models),
    Probe("memory", Text("内存（可用 / 总量）", "Memory (free / total)"), memory),
    Probe("swap", Text("交换区（已用 / 总量）", "Swap (used / total)"), swap),
    Probe("hugepages", Text("大页", "Huge pages"), hugepages),
]
