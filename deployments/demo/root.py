"""The files of a simulated server below its own root folder, and the tools on its PATH."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from deployments.agent import ROOT
from deployments.demo import systems
from deployments.demo.fleet import DemoServer

VERSION = "2"  # of what this module writes; a new one writes every root again
STAMP = ".demo"
LINK = "-> "
# Those that a server does not have are here too, so that a job never finds this machine's.
PROGRAMS = (
    *("npu-smi", "hccn_tool", "uname", "hostname", "getconf", "ldd", "lscpu", "lspci", "df", "chronyc", "timedatectl"),
    "root-helper",
    *("systemctl", "modinfo", "dpkg", "rpm", "getent"),
    *("docker", "podman", "nerdctl", "isula", "ip", "python3", "python3.10", "python3.11", "python3.12"),
)
ASCEND = "usr/local/Ascend"
OPERATORS = {"D802": "ascend910b", "D803": "ascend910_93", "D500": "ascend310p", "D806": "ascend950"}
MODULES = ("drv_pcie_host", "drv_devmng_host", "drv_davinci_intf_host")  # some of the driver's
BOOTED = 1_790_000_000  # epoch seconds, of the first server


def write_tools(folder: Path) -> None:
    """One small script for each program in PROGRAMS; all end in `deployments.demo.tools`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        script = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -S -m deployments.demo.tools {name} "$@"\n'
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != script:
            path.write_text(script, encoding="utf-8")
            path.chmod(0o755)


def environment(server: DemoServer, root: Path, tools: Path) -> dict[str, str]:
    """What makes a program see the simulated server instead of this machine."""
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    lang = "C" if server.stack.system == "centos-7" else "en_US.UTF-8"
    return {"PATH": path, "ASCEND_ROOT": str(root), "ASCEND_DEMO_SERVER": server.name, "LANG": lang, "LC_ALL": lang}


def ensure(server: DemoServer, root: Path) -> bool:
    """Write the server's files unless they are there already; True when it wrote."""
    made = files(server)
    digest, stamp = _digest(made), root / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return False
    shutil.rmtree(root, ignore_errors=True)
    for name, text in made.items():
        _write(root / name, text, is_folder=name.endswith("/"))
        if name.startswith(LEFT_OVER) and not name.endswith("/"):
            os.utime(root / name, (BOOTED, BOOTED))
    stamp.write_text(digest, encoding="utf-8")
    return True


def change(root: Path, before: dict[str, str], after: dict[str, str]) -> None:
    """Bring a root that holds `before` to `after`, and touch nothing else there."""
    for name in before.keys() - after.keys():
        path = root / name.rstrip("/")
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # other files have come into it
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
        _prune(path.parent, root)
    for name, text in after.items():
        if before.get(name) != text:
            _write(root / name, text, is_folder=name.endswith("/"))
    (root / STAMP).write_text(_digest(after), encoding="utf-8")


def _prune(folder: Path, root: Path) -> None:
    """Take away folders in which nothing is left."""
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _write(path: Path, text: str, *, is_folder: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_folder:
        path.mkdir(exist_ok=True)
    elif text.startswith(LINK):
        path.unlink(missing_ok=True)
        path.symlink_to(text.removeprefix(LINK))
    else:
        path.write_text(text, encoding="utf-8")


def _digest(made: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps([VERSION, made], sort_keys=True).encode()).hexdigest()


def files(server: DemoServer) -> dict[str, str]:
    """Path below the root -> text; a path that ends in a slash is an empty folder, a text `-> target` a link."""
    made = _made(server)
    if server.gone:
        made = {name: text for name, text in made.items() if not is_below(name, server.gone)}
    return {**made, **server.files}


def is_below(name: str, folders: Iterable[str]) -> bool:
    """Whether a file is one of these, or lies in one of them."""
    return any(name.rstrip("/") == folder or name.startswith(f"{folder}/") for folder in folders)


def _made(server: DemoServer) -> dict[str, str]:
    """As the fleet makes it."""
    return {
        **_system(server),
        **_kernel(server),
        **_numa(server),
        **_devices(server),
        **_ascend(server),
        **_pythons(server),
        **_left_over(server),
    }


def _system(server: DemoServer) -> dict[str, str]:
    system = systems.of(server)
    user = "HwHiAiUser:x:1000:1000::/home/HwHiAiUser:/bin/bash\n" if server.stack.user else ""
    group = "HwHiAiUser:x:1000:\n" if server.stack.user else ""
    made = {
        "etc/os-release": system.os_release,
        "etc/hostname": f"{server.name}\n",
        "etc/passwd": f"root:x:0:0:root:/root:/bin/bash\n{user}",
        "etc/group": f"root:x:0:\n{group}",
        "etc/hccn.conf": "".join(
            f"address_{chip.index}=198.18.{server.index % 250}.{chip.index + 10}\n" for chip in server.chips
        ),
        "etc/hosts": f"127.0.0.1 localhost\n{systems.address(server)} {server.name}\n",
        "etc/ld.so.conf.d/ascend_driver_so.conf": f"/{ASCEND}/driver/lib64/driver\n",
        f"boot/vmlinuz-{system.kernel}": "",
        f"lib/modules/{system.kernel}/build/": "",
        **{f"lib/modules/{system.kernel}/updates/{name}.ko": "" for name in MODULES},
        **{f"usr/bin/{name}": "" for name in ("lspci", "ifconfig", "make", "dkms", "gcc", "g++")},
        "usr/local/bin/npu-smi": "",
        "models/": "",
        "dev/shm/": "",
    }
    if system.id == "centos":
        del made[f"lib/modules/{system.kernel}/build/"]
    if system.docker and server.index % 3 == 0:
        made["etc/docker/daemon.json"] = json.dumps(
            {"runtimes": {"ascend": {"path": "/usr/bin/ascend-docker-runtime"}}}
        )
    return made


LISTENING = "   {}: 00000000:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {}\n"


def _ports(server: DemoServer) -> str:
    """/proc/net/tcp: sshd, and one engine of ours after the other from 8000 on."""
    ports = [22, *range(8000, 8000 + sum(1 for engine in server.engines if engine.attempt))]
    rows = [LISTENING.format(n, port, 20113 + n) for n, port in enumerate(ports)]
    return (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        + "".join(rows)
    )


def _meminfo(server: DemoServer, swap: int) -> str:
    total = systems.memory_mb(server) * 1024
    rows = {
        "MemTotal": total,
        "MemFree": total // 2,
        "MemAvailable": total * 3 // 4,
        "SwapTotal": swap,
        "SwapFree": swap,
    }
    sizes = "".join(f"{name + ':':<16}{value} kB\n" for name, value in rows.items())
    return sizes + "HugePages_Total:       0\nHugepagesize:       2048 kB\n"


def _kernel(server: DemoServer) -> dict[str, str]:
    swap = 4 * 1024 * 1024 if server.index % 4 == 2 else 0
    tuned = server.stack.cann == "9.1.0"
    files, locked = 1024 if server.stack.system == "centos-7" else 1048576, "unlimited" if tuned else "65536"
    return {
        "proc/sys/kernel/osrelease": f"{systems.of(server).kernel}\n",
        "proc/meminfo": _meminfo(server, swap),
        "proc/stat": f"cpu  1 0 1 1 0 0 0 0 0 0\nbtime {BOOTED + server.index * 3600}\n",
        "proc/mounts": "/dev/sda2 / xfs rw,relatime 0 0\n/dev/nvme1n1 /models xfs rw,relatime 0 0\n"
        "tmpfs /dev/shm tmpfs rw 0 0\n",
        "proc/net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        f"{systems.INTERFACES[0]}\t00000000\t010013C6\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
        "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n" + ("/dev/dm-1 partition 4194304 0 -2\n" if swap else ""),
        "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max processes             {1545000:<21}{1545000:<21}processes \n"
        f"Max open files            {files:<21}{files:<21}files     \n"
        f"Max locked memory         {locked:<21}{locked:<21}bytes     \n",
        "proc/self/status": "Name:\tpython3\nUmask:\t0022\n",
        "proc/modules": "".join(f"{name} 65536 1 - Live 0x0000000000000000 (OE)\n" for name in MODULES),
        "proc/net/tcp": _ports(server),
        "proc/sys/vm/swappiness": "0\n" if tuned else "30\n",
        "proc/sys/kernel/numa_balancing": "0\n" if tuned else "1\n",
        "proc/sys/kernel/random/boot_id": f"{hashlib.sha256(server.name.encode()).hexdigest()[:32]}\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n" if tuned else "ondemand\n",
    }


def _numa(server: DemoServer) -> dict[str, str]:
    nodes = systems.cpus(server) // 24
    total = systems.memory_mb(server) * 1024 // nodes
    return {
        f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal:       {total} kB\n"
        for node in range(nodes)
    }


def _devices(server: DemoServer) -> dict[str, str]:
    made = {}
    for bus_id in dict.fromkeys(chip.bus_id for chip in server.chips):
        made[f"sys/bus/pci/devices/{bus_id.lower()}/uevent"] = (
            f"PCI_CLASS=120000\nPCI_ID=19E5:{server.spec.pci}\nPCI_SUBSYS_ID={server.spec.subsystem}\n"
            f"PCI_SLOT_NAME={bus_id.lower()}\n"
        )
    if "unreadable" in server.quirks or server.driver is None:
        return made
    lost = server.quirks.get("lost")
    made |= {f"dev/davinci{chip.index}": "" for chip in server.chips if chip.index != lost}
    return made | {f"dev/{name}": "" for name in ("davinci_manager", "devmm_svm", "hisi_hdc")}


def _ascend(server: DemoServer) -> dict[str, str]:
    stack = server.stack
    made = _driver(server) if stack.driver is not None else {}
    if stack.firmware:
        made[f"{ASCEND}/firmware/version.info"] = (
            f"Version={stack.firmware}\nfirmware_version=1.0\npackage_version={stack.driver or stack.firmware}\n"
        )
    if stack.cann:
        made[f"{ASCEND}/cann"] = f"{LINK}cann-{stack.cann}"
        made[f"{ASCEND}/cann-{stack.cann}/set_env.sh"] = f"export ASCEND_HOME_PATH=/{ASCEND}/cann-{stack.cann}\n"
        made[f"{ASCEND}/cann-{stack.cann}/aarch64-linux/ascend_toolkit_install.info"] = toolkit_info(
            stack.cann, f"/{ASCEND}/cann-{stack.cann}"
        )
        if chip := OPERATORS.get(server.spec.pci):
            made[f"{ASCEND}/cann-{stack.cann}/opp/built-in/op_impl/ai_core/tbe/kernel/{chip}/"] = ""
    if stack.nnal:
        made[f"{ASCEND}/nnal/atb/set_env.sh"] = "export ATB_HOME_PATH=/usr/local/Ascend/nnal/atb/latest/atb/cxx_abi_0\n"
    return made


def toolkit_info(version: str, home: str) -> str:
    """The install info of a CANN toolkit."""
    return (
        f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=V100R001C25SPC001B231\narch=aarch64\n"
        f"os=linux\npath={home}/aarch64-linux\n"
    )


def _driver(server: DemoServer) -> dict[str, str]:
    stack = server.stack
    made = {
        f"{ASCEND}/driver/version.info": f"Version={stack.driver}\nascendhal_version=7.35.23\naicpu_version=1.0\n"
        f"tdt_version=1.0\nlog_version=1.0\nprof_version=2.0\ndvppkernels_version=1.1\ntsfw_version=1.0\n"
        f"compatible_version_fw={stack.accepts}\npackage_version={stack.driver}\n",
        f"{ASCEND}/driver/tools/hccn_tool": "",
        f"{ASCEND}/driver/lib64/driver/libascend_hal.so": "",
        "etc/ascend_install.info": "UserName=HwHiAiUser\nUserGroup=HwHiAiUser\nDriver_Install_Type=full\n"
        "Driver_Install_Path_Param=/usr/local/Ascend\nFirmware_Install_Type=full\n"
        "Firmware_Install_Path_Param=/usr/local/Ascend\n",
    }
    if stack.whole:
        made[f"{ASCEND}/driver/tools/upgrade-tool"] = ""
    return made


LEFT_OVER = ("root/ascend/", "opt/ascend-console/stacks/", "models/")  # old files, so that a clean-up may take them


def _left_over(server: DemoServer) -> dict[str, str]:
    """What years leave on a server: logs of CANN, on some a stack that nothing points to, half a download, a model
    to try stacks with."""
    line = "[ERROR] RUNTIME(21000,python3):2026-09-20 stream synchronize failed, stream_id=2\n"
    base = "root/ascend/log/debug"
    made = {f"{base}/plog/plog-{9_000_000 + n}_2026092{n}.log": line * 40 * (n + 1) for n in range(3)}
    made |= {f"{base}/device-{chip.index}/device-{9_000_000 + chip.index}.log": line for chip in server.chips}
    if server.index % 2 == 0:
        old = "opt/ascend-console/stacks/vllm-ascend-0.13.0"
        made[f"{old}/activate"] = f"export ASCEND_CONSOLE_STACK={old.rpartition('/')[2]}\n"
        made[f"{old}/venv/pyvenv.cfg"] = "home = /usr/bin\nversion = 3.11.6\n" + "# \n" * 900
    if server.index % 4 == 0:
        made["models/smoke-model/config.json"] = '{"architectures": ["Qwen2ForCausalLM"]}\n'
    if server.index % 3 == 0:
        made["models/qwen3-8b/.cache/huggingface/download/model-2.safetensors.6f1a.incomplete"] = "0" * 3000
    return made


def _pythons(server: DemoServer) -> dict[str, str]:
    """The system's Python, and where vLLM-Ascend is set up an environment with it."""
    minor = systems.of(server).python.rpartition(".")[0]
    made = {f"usr/bin/python{minor}": ""}
    row = systems.VLLM.get(server.stack.cann or "")
    if row:
        home = "opt/vllm-ascend"
        made[f"{home}/bin/python3.11"] = ""
        made[f"{home}/pyvenv.cfg"] = "home = /usr/local/python3.11.10/bin\nversion = 3.11.10\n"
        site = f"{home}/lib/python3.11/site-packages"
        for name, version in {**row, **systems.CANN_NEEDS}.items():
            made[f"{site}/{name}-{version}.dist-info/METADATA"] = (
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            made |= {f"{site}/{name}-{version}.dist-info/{file}": "" for file in ("RECORD", "INSTALLER")}
        made |= {f"{site}/vllm_ascend/{name}/": "" for name in ("attention", "ops", "worker")}
        made[f"{site}/vllm_ascend/vllm_ascend_C.cpython-311-aarch64-linux-gnu.so"] = ""
    return made
