"""The host layer and CANN acted out: the vendor's packages, the packages of the system, the driver's account."""

import re
import time

from deployments.agent.holders import words
from deployments.demo import contents, root, systems
from deployments.demo.scene import ARCH, DONE, Act, Bare, Ended, Scene
from deployments.stacks.cann_layer import INFO, NEW_LAYOUT
from deployments.stacks.installed import ASCEND
from deployments.stacks.versions import at_least

SECLOG = "/var/log/ascend_seclog/ascend_install.log"
OCCUPIED = (
    "The davinci nodes are occupied by some processes, please stop processes and install or uninstall again, "
    f"details in : {SECLOG}"
)
LATER = "Reboot needed for installation/upgrade to take effect!"
QUESTION = (
    "rebuild ko has something wrong, details in : /var/log/ascend_seclog/ascend_rebuild.log. "
    "Do you want to try build driver after input kernel absolute path? [y/n]"
)
PARTS = {
    "driver": re.compile(r"-driver_(?P<version>.+?)_linux[^/]*\.run$"),
    "firmware": re.compile(r"-firmware_(?P<version>[^/]+)\.run$"),
    "toolkit": re.compile(r"-toolkit_(?P<version>.+?)_linux[^/]*\.run$"),
    "nnal": re.compile(r"-nnal_(?P<version>.+?)_linux[^/]*\.run$"),
    "ops": re.compile(r"(-cann-(?P<chip>\w+)-ops|-kernels-(?P<old>\w+)|(?P<a3>A3)-cann-kernels)_(?P<version>.+?)_lin"),
}


def part_of(path: str) -> tuple[str, str, str]:
    """(part, version, chip) of a package by the name of its file; ('', '', '') for another one."""
    for part, form in PARTS.items():
        if found := form.search(path):
            groups = found.groupdict()
            chip = groups.get("chip") or groups.get("old") or groups.get("a3") or ""
            return part, groups["version"], chip
    return "", "", ""


def says(part: str, level: str, words: str) -> str:
    """One line of an installer."""
    return f"[{part}] [{time.strftime('%Y-%m-%d %H:%M:%S')}] [{level}]{words}"


def unpack(path: str, fault: str) -> Act:
    """What every package prints first; a damaged one ends there."""
    yield Bare("Verifying archive integrity...  ")
    yield 1.5
    if fault == "digest_mismatch":
        yield "Error in SHA256 checksums: 5e0c81a4 is different from 9b27d3f6"
        return Ended(2)
    yield "100%   SHA256 checksums are OK. All good."
    return DONE


def check(path: str, fault: str) -> Act:
    """`bash PACKAGE --check`"""
    return (yield from unpack(path, fault))


def package(scene: Scene, path: str, prefix: str, fault: str, *, over: bool) -> Act:
    """A package of the vendor is installed, `over` what is there, into `prefix`."""
    part, version, chip = part_of(path)
    ended = yield from unpack(path, "")
    yield f"Uncompressing ASCEND {part.upper() or 'RUN'} RUN PACKAGE  100%"
    if fault == "wrong_chip":
        yield says(part.capitalize(), "ERROR", f"This package is for another chip than {scene.server.spec.chip}.")
        return Ended(1)
    if part in ("driver", "firmware") and scene.running():
        yield says(part.capitalize(), "ERROR", OCCUPIED)
        return Ended(1)
    if part == "driver":
        ended = yield from _driver(scene, version, fault, over=over)
    elif part == "firmware":
        ended = yield from _firmware(scene, version)
    elif part:
        ended = yield from _cann(scene, path, part, version, chip, prefix, fault)
    else:
        yield "Unknown package"
        ended = Ended(1)
    return ended


def holders(scene: Scene) -> Act:
    """`deployments.agent.holders`: nobody, or each process that npu-smi shows."""
    # A number as text: no process of this machine is looked up by it.
    held = [
        {"pid": str(next(iter(engine.pids), "?")), "user": engine.user, "name": engine.program,
         "devices": [f"davinci{chip}" for chip in engine.chips]}
        for engine in scene.running()
    ]  # fmt: skip
    yield str(len(held))
    return Ended(1, words(held)) if held else DONE


def _driver(scene: Scene, version: str, fault: str, *, over: bool) -> Act:
    name, version = "Driver", version.lower()
    yield says(name, "INFO", f"Start time: {time.strftime('%Y-%m-%d %H:%M:%S')}")
    yield says(name, "INFO", f"LogFile: {SECLOG}")
    yield says(name, "INFO", "OperationLogFile: /var/log/ascend_seclog/operation.log")
    if fault == "lspci_missing":
        yield says(name, "ERROR", "The list of missing tools: lspci,")
        return Ended(1)
    if over and scene.has.driver:
        yield says(name, "INFO", f"base version is {scene.has.driver}.")
    yield says(name, "WARNING", "Do not power off or restart the system during the installation/upgrade")
    yield says(name, "INFO", "set username and usergroup, HwHiAiUser:HwHiAiUser")
    yield 1.0
    yield says(name, "INFO", "driver install type: DKMS")
    for percent in (10, 30, 40):
        yield says(name, "INFO", f"upgradePercentage:{percent}%")
        yield 2.0
    if fault in ("dkms_fails", "prompt"):
        # From here on the old driver's modules are gone, and the new ones are not there.
        scene.change(driver=version, loaded=None, whole=False, accepts=contents.accepts(version))
        if fault == "prompt":
            yield Bare(says(name, "WARNING", QUESTION))
            yield 86400.0
        yield says(name, "ERROR", f"Dkms install failed, details in : {SECLOG}")
        return Ended(1)
    yield says(name, "INFO", "upgradePercentage:90%")
    yield says(name, "INFO", "Waiting for device startup...")
    yield 3.0
    scene.change(driver=version, whole=True, accepts=contents.accepts(version))
    yield says(name, "INFO", "upgradePercentage:100%")
    yield says(name, "INFO", f"Driver package installed successfully! {LATER}")
    yield says(name, "INFO", f"End time: {time.strftime('%Y-%m-%d %H:%M:%S')}")
    return DONE


def _firmware(scene: Scene, version: str) -> Act:
    name = "Firmware"
    yield says(name, "INFO", f"Start time: {time.strftime('%Y-%m-%d %H:%M:%S')}")
    yield says(name, "WARNING", "Do not power off or restart the system during the installation/upgrade")
    for percent in (0, 30, 60, 90):
        yield says(name, "INFO", f"upgradePercentage: {percent}%")
        yield 2.0
    scene.change(firmware=version)
    yield says(name, "INFO", "upgradePercentage: 100%")
    yield says(name, "INFO", f"The firmware of [{len(scene.server.chips)}] chips are successfully upgraded.")
    yield says(
        name, "INFO",
        "Firmware package installed successfully! Reboot now or after driver installation for the "
        "installation/upgrade to take effect.",
    )  # fmt: skip
    return DONE


def uninstall(scene: Scene, part: str) -> Act:
    """The uninstall.sh of driver or firmware."""
    name = part.capitalize()
    if scene.running():
        yield says(name, "ERROR", OCCUPIED)
        return Ended(1)
    yield says(name, "INFO", f"uninstall {part} start")
    yield 3.0
    if part == "driver":
        scene.change(driver=None, loaded=None, whole=False)
    else:
        scene.change(firmware=None)
    yield says(name, "INFO", f"{name} package uninstalled successfully! {LATER}")
    return DONE


# ---------- CANN ----------


def _cann(scene: Scene, path: str, part: str, version: str, chip: str, base: str, fault: str) -> Act:
    name, file = {"toolkit": "Toolkit", "ops": "Ops", "nnal": "Nnal"}[part], path.rsplit("/", 1)[-1]
    stamp = time.strftime("%Y%m%d-%H:%M:%S")
    yield f"[{name}] [{stamp}] [INFO] LogFile:/var/log/ascend_seclog/ascend_{part}_install.log"
    yield f"[{name}] [{stamp}] [INFO] install package {file} start"
    yield {"toolkit": 6.0, "ops": 4.0, "nnal": 2.0}[part]
    if part == "toolkit" and fault == "disk_full":
        yield f"tar: {base}/tools: Cannot write: No space left on device"
        return Ended(1)
    home, link, first = home_of(base, version)
    env = f"{base}/ascend-toolkit" if not link else home
    put = {f"{first}": link} if link else {}
    drop: list[str] = []
    if part == "toolkit":
        drop = [first] if link else []
        put |= {
            f"{env}/set_env.sh": f"export ASCEND_HOME_PATH={home}\n",
            f"{home}/{ARCH}-linux/{INFO}": root.toolkit_info(version, home),
        }
    elif part == "ops":
        info = f"package_name=Ascend-cann-{chip}-ops\nversion={version}\narch={ARCH}\n"
        put = {f"{home}/{ARCH}-linux/ascend_{chip}_ops_install.info": info}
    else:
        drop = [f"{base}/nnal"]
        put = {
            f"{base}/nnal/atb/set_env.sh": f"export ATB_HOME_PATH={base}/nnal/atb/latest/atb/cxx_abi_0\n",
            f"{base}/nnal/atb/{version}/atb/set_env.sh": f"export ATB_HOME_PATH={base}/nnal/atb/{version}/atb\n",
        }
    scene.change(put, drop)
    yield f"[{name}] [{time.strftime('%Y%m%d-%H:%M:%S')}] [INFO] {file.removesuffix('.run')} install success"
    yield f"{name}:  {file.removesuffix('.run')} install success, installed in {base}."
    return DONE


def home_of(base: str, version: str) -> tuple[str, str, str]:
    """(folder of a CANN, text of the link to it, path of that link); without a link where the layout is the old one."""
    if at_least(version, f"{NEW_LAYOUT[:3]}.X"):
        return f"{base}/cann-{version}", f"{root.LINK}cann-{version}", f"{base}/cann"
    return f"{base}/ascend-toolkit/latest", "", f"{base}/ascend-toolkit"


def cann_uninstall(scene: Scene, path: str) -> Act:
    """`PACKAGE --uninstall` of a part of the shared CANN."""
    part, version, chip = part_of(path)
    yield 2.0
    home, _link, link = home_of(ASCEND, version)
    away = {
        "toolkit": [home, link],
        "ops": [f"{home}/{ARCH}-linux/ascend_{chip}_ops_install.info"],
        "nnal": [f"{ASCEND}/nnal"],
    }
    if part not in away:
        yield "Unknown package"
        return Ended(1)
    scene.change(drop=away[part])
    yield f"[INFO] {path.rsplit('/', 1)[-1].removesuffix('.run')} uninstall success"
    return DONE


# ---------- what goes before ----------


def driver_tools(scene: Scene, manager: str, kernel: str, fault: str) -> Act:
    """apt or yum with the tools and headers of the driver's build."""
    wanted = ["make", "dkms", "gcc", "net-tools", "pciutils", f"kernel-devel-{kernel}"]
    if manager == "apt":
        wanted[-1] = f"linux-headers-{kernel}"
    if fault == "lspci_missing":
        wanted.remove("pciutils")
        yield "No match for argument: pciutils"
    yield "Last metadata expiration check: 0:03:12 ago."
    yield 2.0
    for name in wanted:
        yield f"Package {name} is installed."
    scene.change({f"/lib/modules/{kernel}/build/": ""})
    yield "Complete!"
    return DONE


def run_account(scene: Scene) -> Act:
    """groupadd and useradd of the driver's account print nothing."""
    yield 0.5
    scene.change(user=True)
    return DONE


def kernel_of(scene: Scene) -> str:
    return systems.of(scene.server).kernel
