"""Group `driver`: the driver's modules against this kernel and the next, its library, its nodes, its installer."""

import os
import re
import stat
from pathlib import Path

from deployments.kinds.check_probes.finding import Finding, Probe, failed, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.next_kernel import next_kernel
from deployments.kinds.check_probes.pci import npu_devices
from deployments.kinds.check_probes.stack import ASCEND, NO_NPU, NODES
from deployments.kinds.check_probes.system import DEBIAN_FAMILY, release
from deployments.steps import Text

MODULE_FOLDERS = ("updates", "updates/dkms", "extra", "weak-updates", "kernel/drivers/davinci")
MODULE = re.compile(r"(drv_\w+)\.ko(\.(xz|zst|gz))?")
HAL = "libascend_hal.so"
HAL_FOLDERS = tuple(f"{ASCEND}/driver/lib64{part}" for part in ("/driver", "", "/common"))
PROGRAM_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin")
INSTALLER_NEEDS = {"lspci": "pciutils", "ifconfig": "net-tools", "make": "make", "dkms": "dkms", "gcc": "gcc"}
NEWEST_GCC = 14  # 15 leaves out headers that the sources rely on
SMI = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")
ROOT_OWNED = ("/", "/usr", "/usr/local")


def has_driver(host: Host) -> bool:
    return host.exists(f"{ASCEND}/driver/version.info")


def modules_of(host: Host, kernel: str) -> list[str]:
    """The driver's modules that are built for a kernel."""
    folders = [f"/lib/modules/{kernel}/{name}" for name in MODULE_FOLDERS]
    return sorted({hit[1] for folder in folders for name in host.look(folder) if (hit := MODULE.fullmatch(name))})


def running_modules(host: Host) -> Finding:
    """Built for the running kernel, by their own word, and loaded."""
    kernel = host.tool("uname", "-r").strip()
    wanted = f"drv_*.ko · {kernel}"
    if not has_driver(host):
        return unknown(NO_NPU if not npu_devices(host) else NOT_INSTALLED, wanted=wanted)
    built, loaded = modules_of(host, kernel), loaded_modules(host)
    if not built and not loaded:
        return failed("—", wanted, rebuild(kernel), job=job("install"))
    if not loaded:
        remedy = Text(
            "驱动模块没有加载：查看 dmesg，重启服务器；仍不行则重装驱动。",
            "The driver's modules are not loaded: see dmesg and restart the server; else install the driver again.",
        )
        return failed(f"{len(built)} × drv_*.ko, lsmod: 0", wanted, remedy, job=job("reboot"))
    meant = made_for(host, kernel, (built or loaded)[0])
    if meant and meant != kernel:
        return failed(f"vermagic {meant}", wanted, rebuild(kernel), job=job("install"))
    return ok(f"{len(built) or '?'} × drv_*.ko, lsmod: {len(loaded)}", wanted)


NOT_INSTALLED = Text("没有安装 NPU 驱动，没有模块可查。", "No NPU driver is installed, so there are no modules.")


def loaded_modules(host: Host) -> list[str]:
    rows = (host.read("/proc/modules") or "").splitlines()
    return sorted(row.split()[0] for row in rows if row.startswith("drv_"))


def made_for(host: Host, kernel: str, module: str) -> str | None:
    """The kernel that a module says it is for; None where modinfo is missing or does not know it."""
    answer = host.run("modinfo", "-k", kernel, "-F", "vermagic", module)
    return answer.text.split()[0] if answer and answer.code == 0 and answer.text.split() else None


def rebuild(kernel: str) -> Text:
    return Text(
        f"没有给内核 {kernel} 编译的驱动模块：装好它的头文件与 dkms 后重装驱动（以 root），或启动原来的内核。",
        f"The driver has no modules for the kernel {kernel}: install its headers and dkms, then the driver again "
        "(as root), or boot the kernel of before.",
    )


def modules_of_next(host: Host) -> Finding:
    """Will the driver still load after the next restart?"""
    running = host.tool("uname", "-r").strip()
    coming = next_kernel(host, running)
    if coming.kernel is None:
        return unknown(coming.why, wanted=running)
    if not has_driver(host):
        return ok(coming.kernel) if coming.kernel == running else unknown(NO_NPU, coming.kernel)
    if coming.kernel == running:
        return ok(coming.kernel, running)
    if modules_of(host, coming.kernel):
        return ok(f"{coming.kernel}: drv_*.ko", running)
    zh, en = rebuild(coming.kernel)
    remedy = Text(f"下次重启会换内核（{coming.source}）。{zh}", f"The next restart changes the kernel. {en}")
    return warning(coming.kernel, running, remedy)


def loader(host: Host) -> Finding:
    """Does the loader find the driver's library?"""
    if not has_driver(host):
        return unknown(NO_NPU if not npu_devices(host) else NOT_INSTALLED, wanted=HAL)
    lies = [folder for folder in HAL_FOLDERS if host.exists(f"{folder}/{HAL}")]
    if not lies:
        remedy = Text("驱动缺少 libascend_hal.so：重装驱动。", "The driver lacks libascend_hal.so: install it again.")
        return failed("—", HAL, remedy, job=job("install"))
    searched = loader_folders(host)
    if found := next((folder for folder in lies if folder in searched), None):
        return ok(f"{found}/{HAL}", HAL)
    remedy = Text(
        f"加载器不搜索 {lies[0]}，torch_npu 会报找不到 libascend_hal.so。以 root 运行："
        f"echo {lies[0]} > /etc/ld.so.conf.d/ascend_driver_so.conf && ldconfig",
        f"The loader does not look into {lies[0]}, so torch_npu will not find {HAL}. As root run: "
        f"echo {lies[0]} > /etc/ld.so.conf.d/ascend_driver_so.conf && ldconfig",
    )
    return failed(f"{lies[0]}/{HAL}", "ld.so.conf, LD_LIBRARY_PATH", remedy)


def loader_folders(host: Host) -> set[str]:
    """LD_LIBRARY_PATH of the agent and the folders of ld.so.conf."""
    found = {part.rstrip("/") for part in host.env.get("LD_LIBRARY_PATH", "").split(":") if part}
    files = ["/etc/ld.so.conf", *(f"/etc/ld.so.conf.d/{name}" for name in host.look("/etc/ld.so.conf.d"))]
    for file in files[:200]:
        found |= {row.strip().rstrip("/") for row in host.peek(file).splitlines() if row.strip().startswith("/")}
    return found


def device_rights(host: Host) -> Finding:
    """May this account open the nodes? Whoever runs the probes is the agent's account."""
    nodes = [name for name in host.names("/dev") if re.fullmatch(r"davinci\d+", name) or name in NODES]
    wanted = "rw"
    if not nodes:
        why = NO_NPU if not npu_devices(host) else Text("没有设备节点，见“设备节点”。", "There are no device nodes.")
        return unknown(why, wanted=wanted)
    closed = [name for name in nodes if not os.access(host.path(f"/dev/{name}"), os.R_OK | os.W_OK)]
    odd = [name for name in nodes if host.root == Path("/") and not is_device(host, name)]
    if odd:
        remedy = Text(
            f"{'、'.join(odd)} 不是设备：以 root 删除这些文件，再重启或重装驱动。",
            f"These are no devices: {', '.join(odd)}. As root remove them, then restart or install the driver again.",
        )
        return failed(", ".join(odd), "c", remedy)
    if not closed:
        return ok(f"{len(nodes)} × rw", wanted)
    group = group_of(host, closed[0])
    remedy = Text(
        f"代理账号打不开这些设备。以 root 运行：usermod -aG {group} 代理账号，然后重启代理。",
        f"The agent's account may not open these devices. As root run: usermod -aG {group} and the account's name, "
        "then restart the agent.",
    )
    return failed(f"− {', '.join(closed)}", wanted, remedy)


def is_device(host: Host, name: str) -> bool:
    try:
        return stat.S_ISCHR(host.path(f"/dev/{name}").stat().st_mode)
    except OSError:
        return False


def group_of(host: Host, name: str) -> str:
    """The group of a node, by its name where /etc/group has one."""
    try:
        number = host.path(f"/dev/{name}").stat().st_gid
    except OSError:
        return "HwHiAiUser"
    rows = [row.split(":") for row in host.peek("/etc/group").splitlines()]
    return next((row[0] for row in rows if len(row) > 2 and row[2] == str(number)), str(number))


def smi_place(host: Host) -> Finding:
    """Containers mount npu-smi from where it usually lies."""
    if not has_driver(host):
        return unknown(NO_NPU if not npu_devices(host) else NOT_INSTALLED, wanted=SMI[0])
    found = [path for path in SMI if host.exists(path)]
    if SMI[0] in found:
        return ok(SMI[0], SMI[0])
    if found:
        remedy = Text(
            f"容器运行时从 {SMI[0]} 挂载它，会启动失败。以 root 运行：ln -s {found[0]} {SMI[0]}",
            f"Container runtimes mount it from {SMI[0]} and fail. As root run: ln -s {found[0]} {SMI[0]}",
        )
        return warning(found[0], SMI[0], remedy)
    remedy = Text("驱动装着而没有 npu-smi：重装驱动。", "There is a driver but no npu-smi: install the driver again.")
    return failed("—", SMI[0], remedy, job=job("install"))


def has_program(host: Host, name: str) -> bool:
    return any(host.exists(f"{folder}/{name}") for folder in PROGRAM_FOLDERS)


def is_debian(host: Host) -> bool:
    try:
        return release(host).get("ID", "").lower() in DEBIAN_FAMILY
    except Trouble:
        return False


def install_tools(host: Host) -> Finding:
    """What the driver's installer calls."""
    missing = [name for name in INSTALLER_NEEDS if not has_program(host, name)]
    wanted = ", ".join(INSTALLER_NEEDS)
    if not missing:
        return ok(wanted, wanted)
    command = ("apt-get" if is_debian(host) else "yum") + " install -y "
    command += " ".join(INSTALLER_NEEDS[name] for name in missing)
    remedy = Text(
        f"安装或升级驱动时会因缺少命令而失败。以 root 运行：{command}",
        f"The installer of the driver fails without them. As root run: {command}",
    )
    return warning(f"− {', '.join(missing)}", wanted, remedy)


def compiler(host: Host) -> Finding:
    """Only who builds vLLM-Ascend on the server needs it."""
    wanted = f"gcc, g++ ≤ {NEWEST_GCC}"
    missing = [name for name in ("gcc", "g++") if not has_program(host, name)]
    if missing:
        command = "apt-get install -y gcc g++ cmake libnuma-dev"
        command = command if is_debian(host) else "yum install -y gcc gcc-c++ cmake numactl-devel"
        remedy = Text(
            f"只有在本机编译 vLLM-Ascend 时才需要。以 root 运行：{command}",
            f"Only for building vLLM-Ascend here. As root run: {command}",
        )
        return warning(f"− {', '.join(missing)}", wanted, remedy)
    folders = [f"/usr/lib/gcc/{name}" for name in host.look("/usr/lib/gcc")]
    numbers = [int(name.split(".")[0]) for folder in folders for name in host.look(folder) if name[:1].isdecimal()]
    if numbers and min(numbers) > NEWEST_GCC:
        remedy = Text(
            "编译 vLLM-Ascend 自带的源码会失败：另装 gcc-13、g++-13，编译时设 CC 与 CXX。",
            "Sources that vLLM-Ascend brings do not compile with it: install gcc-13 and g++-13, and set CC and CXX.",
        )
        return warning(f"gcc {min(numbers)}", wanted, remedy)
    return ok(f"gcc {', '.join(map(str, sorted(set(numbers))))}".strip(), wanted)


def parents(host: Host) -> list[Finding]:
    """The driver's installer refuses folders that are not root's. On a simulated server owners say nothing."""
    if host.root != Path("/"):
        return []
    others = [path for path in ROOT_OWNED if os.stat(path).st_uid != 0]  # noqa: PTH116 - one word for the tests
    if not others:
        return [ok(", ".join(ROOT_OWNED), "root")]
    remedy = Text(
        f"驱动安装包会拒绝。以 root 运行：chown root:root {' '.join(others)}（不要递归）。",
        f"The driver's package refuses them. As root run: chown root:root {' '.join(others)} (not recursively).",
    )
    return [warning(", ".join(others), "root", remedy)]


def packages(host: Host) -> Finding:
    """Packages that an interrupted installation has left half configured."""
    answer = host.run("dpkg", "--audit")
    if answer and answer.code == 0 and host.exists("/var/lib/dpkg"):
        names = re.findall(r"^ (\S+) ", answer.text, re.MULTILINE)
        names += [f"updates/{name}" for name in host.look("/var/lib/dpkg/updates") if name.isdecimal()]
        command = "dpkg --configure -a && apt-get -f install"
    else:
        answer = host.run("rpm", "-qa", "--qf", "%{NAME}.%{ARCH}\\n")
        if answer is None or answer.code != 0:
            return unknown(Text("没有 dpkg 或 rpm 可以询问。", "There is no dpkg or rpm to ask."), wanted="0")
        names = twice(answer.text.split())
        names += [name for name in host.look("/var/lib/yum") if name.startswith("transaction-all")]
        command = "dnf remove --duplicates; yum-complete-transaction --cleanup-only"
    if not names:
        return ok("0", "0")
    remedy = Text(
        f"上次安装被打断，之后的安装都会失败。以 root 运行：{command}",
        f"An installation was cut off, and every later one fails. As root run: {command}",
    )
    return failed(", ".join(names[:12]), "0", remedy)


# Several versions of these lie beside each other by design.
MANY_VERSIONS = re.compile(r"kernel|gpg-pubkey|dkms-|kmod-")


def twice(names: list[str]) -> list[str]:
    """Packages that rpm has two versions of: an update was cut off between them."""
    seen: set[str] = set()
    return sorted({name for name in names if name in seen or seen.add(name) if not MANY_VERSIONS.match(name)})  # type: ignore[func-returns-value]


PROBES = [
    Probe("modules", Text("驱动模块与内核", "Driver's modules and kernel"), running_modules),
    Probe("next_kernel", Text("下次启动的内核", "Kernel of the next boot"), modules_of_next),
    Probe("loader", Text("libascend_hal.so", "libascend_hal.so"), loader),
    Probe("device_rights", Text("设备权限", "Rights on the devices"), device_rights),
    Probe("smi_place", Text("npu-smi 的位置", "Place of npu-smi"), smi_place),
    Probe("install_tools", Text("安装驱动所需的命令", "Commands of the driver's installer"), install_tools),
    Probe("compiler", Text("编译器", "Compiler"), compiler),
    Probe("parents", Text("安装目录的属主", "Owner of the folders above"), parents),
    Probe("packages", Text("未配置完的软件包", "Half-configured packages"), packages),
]
