"""Group `stack`: driver, firmware, CANN, NNAL, device nodes, container runtime."""

import re

from deployments.kinds.check_probes.finding import Finding, Probe, failed, job, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.pci import npu_devices
from deployments.stacks import catalogue
from deployments.stacks.versions import at_least, in_range, key
from deployments.steps import Text
from monitoring.parsers import cann_install_info, version_info
from monitoring.parsers.failures import values_of

STACKS = catalogue.built_in()
DEFAULT_CANN = STACKS.default.cann
DEFAULT_DRIVER = STACKS.driver_min(STACKS.default) or ""
ASCEND = "/usr/local/Ascend"
WHOLE = f"{ASCEND}/driver/tools/upgrade-tool"  # its last part: without it the driver is half installed
RUNTIMES = ("docker", "podman", "nerdctl")
ARCHES = ("aarch64-linux", "x86_64-linux")
NODES = ("davinci_manager", "devmm_svm", "hisi_hdc")
RANGE = re.compile(r"\[\s*([^,\[\]]+)\s*,\s*([^,\[\]]+)\s*\]")
NO_NPU = Text(
    "这台服务器的 PCI 总线上没有昇腾 NPU，暂不需要它。",
    "There is no Ascend NPU on this server's PCI bus, so it is not needed yet.",
)


def version_of(host: Host, part: str) -> dict[str, str]:
    """The values of the version file of `driver` or `firmware`, empty where there is none."""
    return values_of(version_info, host.read(f"{ASCEND}/{part}/version.info") or "")


def absent(host: Host, wanted: str, remedy: Text) -> Finding:
    """What a missing part means: `failed` beside an NPU, `unknown` where there is none."""
    if npu_devices(host):
        return failed("—", wanted, remedy, job=job("install"))
    return unknown(NO_NPU, wanted=wanted)


def driver(host: Host) -> Finding:
    version, wanted = version_of(host, "driver").get("Version"), f"≥ {DEFAULT_DRIVER}"
    if version is None:
        return absent(
            host,
            wanted,
            Text(
                "没有安装 NPU 驱动：先装驱动，再装固件。", "No NPU driver is installed: install it, then the firmware."
            ),
        )
    if at_least(version, DEFAULT_DRIVER):
        return ok(version, wanted)
    remedy = Text(
        f"CANN {DEFAULT_CANN} 需要 {DEFAULT_DRIVER} 以上的驱动：升级时先固件、后驱动，或改用较旧的 vLLM-Ascend。",
        f"CANN {DEFAULT_CANN} needs driver {DEFAULT_DRIVER} or later: upgrade (firmware first, then driver), "
        "or use an older vLLM-Ascend.",
    )
    return (warning if at_least(version, "24.1.rc1") else failed)(version, wanted, remedy, job=job("install"))


def driver_whole(host: Host) -> Finding:
    tool = WHOLE
    if not host.exists(f"{ASCEND}/driver/version.info"):
        return absent(host, tool, Text("没有安装 NPU 驱动。", "No NPU driver is installed."))
    if host.exists(tool):
        return ok(tool, tool)
    remedy = Text(
        "驱动只装了一半（缺 upgrade-tool）：重新安装驱动。",
        "The driver is half installed (no upgrade-tool): install it again.",
    )
    return failed("—", tool, remedy, job=job("install"))


def firmware(host: Host) -> Finding:
    version = version_of(host, "firmware").get("Version")
    if version is None:
        return absent(
            host,
            "version.info",
            Text("没有固件的版本文件：安装固件，然后重启。", "No firmware is recorded: install it, then restart."),
        )
    return ok(version)


def pairing(host: Host) -> Finding:
    """Driver and firmware: the driver's version.info names the firmware it accepts."""
    found_driver, found_firmware = version_of(host, "driver"), version_of(host, "firmware").get("Version")
    if "Version" not in found_driver or found_firmware is None:
        return absent(
            host,
            "—",
            Text(
                "驱动与固件没有装齐，无法核对配套。",
                "Driver and firmware are not both installed, so nothing can be paired.",
            ),
        )
    accepted = firmware_ranges(found_driver)
    found = f"{found_driver['Version']} + {found_firmware}"
    if not accepted:
        return unknown(
            Text(
                "驱动没有写明它接受的固件版本：查厂商配套表。",
                "The driver does not say which firmware it accepts: see the vendor's table.",
            ),
            found,
        )
    wanted = ", ".join(f"{low}–{high}" for low, high in accepted)
    if any(in_range(found_firmware, low, high) for low, high in accepted):
        return ok(found, wanted)
    remedy = Text(
        "固件不在驱动接受的范围内：先升级固件，再升级驱动，然后重启。",
        "The firmware is outside what the driver accepts: upgrade the firmware, then the driver, then restart.",
    )
    return failed(found, wanted, remedy, job=job("install"))


def firmware_ranges(driver_values: dict[str, str]) -> list[tuple[str, str]]:
    """[(lowest, highest)] firmware that a driver accepts, as its version file says; [] where it does not."""
    return RANGE.findall(driver_values.get("compatible_version_fw", ""))


def run_user(host: Host) -> Finding:
    name = "HwHiAiUser"
    has_user = any(line.startswith(f"{name}:") for line in (host.read("/etc/passwd") or "").splitlines())
    has_group = any(line.startswith(f"{name}:") for line in (host.read("/etc/group") or "").splitlines())
    if has_user and has_group:
        return ok(name, name)
    command = f"groupadd {name}; useradd -g {name} -d /home/{name} -m {name} -s /bin/bash"
    return absent(host, name, Text(f"没有驱动的运行用户：{command}", f"The driver's user is missing: {command}"))


def toolkit_version(host: Host, folder: str) -> str | None:
    """The version of the CANN toolkit in that folder, None where there is none."""
    for arch in ARCHES:
        text = host.read(f"{folder}/{arch}/ascend_toolkit_install.info")
        version = values_of(cann_install_info, text or "").get("version")
        if version:
            return str(version)
    return None


def cann_versions(host: Host) -> dict[str, str]:
    """Version -> folder of each CANN toolkit below /usr/local/Ascend."""
    folders = [name for name in host.names(ASCEND) if name.startswith("cann")]
    folders += [f"ascend-toolkit/{name}" for name in host.names(f"{ASCEND}/ascend-toolkit")]
    found: dict[str, str] = {}
    for folder in folders[:64]:
        if version := toolkit_version(host, f"{ASCEND}/{folder}"):
            found.setdefault(version, folder)
    return found


def cann(host: Host) -> Finding:
    versions = sorted(cann_versions(host), key=key, reverse=True)
    if not versions:
        return absent(
            host,
            DEFAULT_CANN,
            Text(
                "没有安装 CANN toolkit：依次装 toolkit、ops、NNAL。",
                "No CANN toolkit is installed: install toolkit, then ops, then NNAL.",
            ),
        )
    found = ", ".join(versions)
    row = next(filter(None, map(STACKS.row_for, versions)), None)
    if row:
        return ok(f"{found} → vLLM-Ascend {row.vllm_ascend}", DEFAULT_CANN)
    remedy = Text(
        f"没有一个 vLLM-Ascend 版本是配这个 CANN 的：旁边再装一套 CANN {DEFAULT_CANN}。",
        f"No vLLM-Ascend release is pinned to this CANN: install CANN {DEFAULT_CANN} beside it.",
    )
    return warning(found, DEFAULT_CANN, remedy, job=job("install"))


def cann_driver(host: Host) -> Finding:
    """CANN and driver: each CANN names the oldest driver it works with."""
    versions, found_driver = sorted(cann_versions(host), key=key), version_of(host, "driver").get("Version")
    if not versions or found_driver is None:
        return absent(
            host,
            "—",
            Text(
                "CANN 与驱动没有装齐，无法核对配套。",
                "CANN and driver are not both installed, so nothing can be paired.",
            ),
        )
    newest = versions[-1]
    least = STACKS.cann_driver_min(newest)
    found = f"CANN {newest} + {found_driver}"
    if least is None:
        return unknown(
            Text(
                "没有这个 CANN 的配套资料：查发布说明。",
                "Nothing is known of this CANN's drivers: see its release notes.",
            ),
            found,
        )
    if at_least(found_driver, least):
        return ok(found, f"≥ {least}")
    remedy = Text(
        f"CANN {newest} 需要 {least} 以上的驱动：升级固件与驱动。",
        f"CANN {newest} needs driver {least} or later: upgrade firmware and driver.",
    )
    return failed(found, f"≥ {least}", remedy, job=job("install"))


def nnal(host: Host) -> Finding:
    script = f"{ASCEND}/nnal/atb/set_env.sh"
    if host.exists(script):
        return ok(script, script)
    return absent(
        host,
        script,
        Text(
            "没有 NNAL，vLLM-Ascend 会报缺 libatb.so：装完 toolkit 与 ops 后安装 NNAL。",
            "NNAL is missing, so vLLM-Ascend will not find libatb.so: install it after toolkit and ops.",
        ),
    )


def device_nodes(host: Host) -> Finding:
    names = host.names("/dev")
    cards = [name for name in names if re.fullmatch(r"davinci\d+", name)]
    missing = [f"/dev/{name}" for name in NODES if name not in names]
    found = f"{len(cards)} × /dev/davinciN" + (f", − {', '.join(missing)}" if missing else "")
    wanted = f"{len(host.npus) or 'N'} × /dev/davinciN, {', '.join(NODES)}"
    if not cards and not npu_devices(host):
        return unknown(NO_NPU, wanted=wanted)
    if missing or not cards or len(cards) < len(host.npus):
        remedy = Text(
            "设备节点不全：驱动没有加载好，查看 dmesg 与 lsmod | grep drv_，重装驱动或重启。",
            "Device nodes are missing: the driver is not fully loaded. See dmesg and lsmod | grep drv_; "
            "install the driver again or restart.",
        )
        return failed(found, wanted, remedy)
    return ok(found, wanted)


def runtime_version(host: Host, name: str) -> str | None:
    """What a container runtime calls itself, None where it is not there."""
    answer = host.run(name, "--version")
    if not answer or answer.code != 0:
        return None
    return answer.text.strip().splitlines()[0] if answer.text.strip() else name


def has_ascend_runtime(host: Host) -> bool:
    return "ascend" in (host.read("/etc/docker/daemon.json") or "").lower()


def container_runtime(host: Host) -> Finding:
    for name in RUNTIMES:
        if version := runtime_version(host, name):
            return ok(f"{version}{' + ascend-docker-runtime' if has_ascend_runtime(host) else ''}", "docker / podman")
    remedy = Text(
        "没有容器运行时：只能用 venv 方式部署。需要容器方式时安装 docker 或 podman。",
        "There is no container runtime, so engines can run from an environment only. "
        "Install docker or podman for containers.",
    )
    return warning("—", "docker / podman", remedy)


PROBES = [
    Probe("driver", Text("NPU 驱动", "NPU driver"), driver),
    Probe("driver_whole", Text("驱动完整性", "Driver is whole"), driver_whole),
    Probe("firmware", Text("固件", "Firmware"), firmware),
    Probe("pairing", Text("驱动与固件配套", "Driver and firmware pairing"), pairing),
    Probe("run_user", Text("驱动运行用户", "Driver's user"), run_user),
    Probe("cann", Text("CANN", "CANN"), cann),
    Probe("cann_driver", Text("CANN 与驱动配套", "CANN and driver pairing"), cann_driver),
    Probe("nnal", Text("NNAL", "NNAL"), nnal),
    Probe("device_nodes", Text("设备节点", "Device nodes"), device_nodes),
    Probe("container_runtime", Text("容器运行时", "Container runtime"), container_runtime),
]
