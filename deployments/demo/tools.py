"""The programs of a simulated server: `python -m deployments.demo.tools npu-smi info`.

The server is the one that ASCEND_DEMO_SERVER names; engines of jobs lie beside ASCEND_ROOT (`state.py`).
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deployments.demo import answers, contents, fleet, physics, reboots, systems, tables
from deployments.demo.fleet import Chip, DemoServer, Engine
from deployments.demo.state import Engines


class Ask(NamedTuple):
    """One call of a program: the words behind its name, the server, the second, the engines that run."""

    words: list[str]
    server: DemoServer
    t: float
    engines: tuple[Engine, ...]

    def option(self, name: str) -> str | None:
        """The word behind an option, None when it is not given."""
        place = self.words.index(name) if name in self.words else len(self.words)
        return self.words[place + 1] if place + 1 < len(self.words) else None


Said = tuple[int, str]  # exit code and what is printed
NOT_FOUND: Said = (127, "command not found\n")


def npu_smi(ask: Ask) -> Said:
    words, server = ask.words, ask.server
    if server.driver is None:  # the tool is a part of the driver
        return NOT_FOUND
    if words[:1] == ["-v"]:
        return 0, f"npu-smi version: {server.spec.version}\n"
    if words[:1] != ["info"]:
        return 1, "Error parameter of the command. Try npu-smi info -h.\n"
    if (code := server.quirks.get("unreadable")) is not None:
        return 255, tables.FAILED.format(code)
    if len(words) == 1:
        return 0, tables.info(server, ask.t, ask.engines)
    if words[1] in ("-l", "-m"):
        return 0, answers.listing(server) if words[1] == "-l" else answers.mapping(server)
    kind = ask.option("-t")
    if kind == "topo":
        return 0, answers.topology(server)
    chip = _chip(ask)
    if chip is None:
        return 1, "Device ID is out of the valid range.\n"
    return _typed(ask, kind, chip)


def _chip(ask: Ask) -> Chip | None:
    npu, chip = ask.option("-i"), ask.option("-c") or "0"
    for one in tables.shown(ask.server):
        if str(one.npu) == npu and str(one.chip) == chip:
            return one
    return None


def _typed(ask: Ask, kind: str | None, chip: Chip) -> Said:
    server, t, engines = ask.server, ask.t, ask.engines
    if kind == "board":
        return 0, answers.board(server, chip.npu, chip.chip if "-c" in ask.words else None)
    if kind == "health":
        return 0, answers.health(server, chip)
    if kind == "ecc":
        return 0, answers.ecc(server, chip)
    makers = {
        "common": answers.common,
        "usages": answers.usages,
        "temp": answers.temperature,
        "proc-mem": answers.process_memory,
    }
    if kind not in makers:
        return 1, f"Error parameter of -t: {kind}\n"
    return 0, makers[kind](server, chip, t, engines)


def hccn_tool(ask: Ask) -> Said:
    device = ask.option("-i")
    if device is None or not device.isdecimal():
        return 0, "Usage: hccn_tool -i <device id> -link -g\n"
    question = next((word for word in ask.words if word not in ("-i", "-g", device)), "")
    if question in ("-ping", "-hccs_ping"):
        said = answers.ping(ask.server, int(device), ask.option("address") or "")
    else:
        said = answers.hccn(ask.server, int(device), question)
    return (1, "Command execute failed!\n") if said is None else (0, said)


def uname(ask: Ask) -> Said:
    known = {"-m": "aarch64", "-r": systems.of(ask.server).kernel, "-n": ask.server.name, "-s": "Linux"}
    return 0, " ".join(known.get(word, "Linux") for word in ask.words or ["-s"]) + "\n"


def root_helper(ask: Ask) -> Said:
    """The root helper of a simulated server: it plays the restart."""
    if ask.words[:1] != ["reboot"]:
        return 2, "root-helper: there is no such action; there are: reboot\n"
    reboots.begin(Path(os.environ.get("ASCEND_ROOT", "/nonexistent")).parent, ask.t)
    return 0, f"simulated: the server goes down and is back in {reboots.DOWN_S:g} s\n"


def hostname(ask: Ask) -> Said:
    return 0, f"{ask.server.name}\n"


def getconf(ask: Ask) -> Said:
    return (0, f"glibc {systems.of(ask.server).glibc}\n") if ask.words == ["GNU_LIBC_VERSION"] else (1, "")


def ldd(ask: Ask) -> Said:
    return 0, f"ldd (GNU libc) {systems.of(ask.server).glibc}\n"


def lscpu(ask: Ask) -> Said:
    return 0, systems.lscpu(ask.server)


def lspci(ask: Ask) -> Said:
    device = ask.server.spec.pci.lower()
    buses = dict.fromkeys(chip.bus_id.lower().removeprefix("0000:") for chip in ask.server.chips)
    line = "{} Processing accelerators: Huawei Technologies Co., Ltd. Device " + device + " (rev 20)\n"
    return 0, "".join(line.format(bus) for bus in sorted(buses))


def df(ask: Ask) -> Said:
    """`df -Pk FOLDER`: a system disk, a data disk at /models, and the shared memory."""
    folder, small = ask.words[-1] if ask.words else "/", ask.server.stack.system == "centos-7"
    host = physics.host(ask.server, ask.t, ask.engines)
    disks = {
        "/models": ("/dev/nvme1n1", int(host["disk_total_gb"] * 1e6), int(host["disk_used_gb"] * 1e6), "/models"),
        "/dev/shm": ("tmpfs", host["mem_total_mb"] * 512, 4096, "/dev/shm"),
    }
    name, size, used, mount = disks.get(folder, ("/dev/sda2", 450_000_000, 442_000_000 if small else 61_000_000, "/"))
    head = "Filesystem     1024-blocks      Used Available Capacity Mounted on\n"
    return 0, f"{head}{name} {size} {used} {size - used} {used * 100 // size}% {mount}\n"


def chronyc(ask: Ask) -> Said:
    if ask.server.stack.system == "centos-7":
        return 1, "506 Cannot talk to daemon\n"
    offset = (physics.noise(ask.server.index, int(ask.t // 64)) - 0.5) / 500
    if ask.server.index % 20 == 12:
        offset = 2.417
    return 0, (
        "Reference ID    : C6120001 (198.18.0.1)\nStratum         : 3\n"
        f"System time     : {abs(offset):.9f} seconds {'fast' if offset > 0 else 'slow'} of NTP time\n"
        "Leap status     : Normal\n"
    )


def ip(ask: Ask) -> Said:
    return (0, systems.addresses(ask.server)) if "addr" in ask.words else (1, "")


def docker(ask: Ask) -> Said:
    version = systems.of(ask.server).docker
    if version and ask.words[:1] == ["images"]:
        return 0, ""
    return (0, f"Docker version {version}, build 3b5f1c2\n") if version else NOT_FOUND


def systemctl(ask: Ask) -> Said:
    """No firewall runs; nothing else is asked."""
    return (3, "inactive\n" * len(ask.words[1:])) if ask.words[:1] == ["is-active"] else (1, "")


def modinfo(ask: Ask) -> Said:
    """`modinfo -k KERNEL -F vermagic MODULE`: the driver's are built for the kernel that runs."""
    return 0, f"{systems.of(ask.server).kernel} SMP mod_unload modversions aarch64\n"


def rpm(ask: Ask) -> Said:
    kernel = systems.of(ask.server).kernel.rpartition(".")[0]
    return 0, f"glibc.aarch64\nkernel.aarch64\nkernel-devel-{kernel}.aarch64\nbash.aarch64\n"


def python3(ask: Ask) -> Said:
    return (0, f"Python {systems.of(ask.server).python}\n") if ask.words in (["-V"], ["--version"]) else NOT_FOUND


def absent(ask: Ask) -> Said:
    return NOT_FOUND


PROGRAMS: dict[str, Callable[[Ask], Said]] = {
    "npu-smi": npu_smi,
    "hccn_tool": hccn_tool,
    "uname": uname,
    "hostname": hostname,
    "getconf": getconf,
    "ldd": ldd,
    "lscpu": lscpu,
    "lspci": lspci,
    "df": df,
    "chronyc": chronyc,
    "docker": docker,
    "systemctl": systemctl,
    "modinfo": modinfo,
    "rpm": rpm,
    "ip": ip,
    "python3": python3,
    "root-helper": root_helper,
}


def answer(server: DemoServer, argv: list[str], t: float, engines: tuple[Engine, ...] | None = None) -> Said:
    """What a program prints on that server at that second."""
    running = server.engines if engines is None else engines
    return PROGRAMS.get(argv[0], absent)(Ask(argv[1:], server, t, running))


def main(argv: list[str]) -> int:
    try:
        server = fleet.by_name(os.environ.get("ASCEND_DEMO_SERVER", ""))
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    state_dir = Path(os.environ.get("ASCEND_ROOT", "/nonexistent")).parent
    engines = Engines(server, state_dir / "engines").running()
    code, text = answer(contents.now(server, state_dir), argv, time.time(), engines)
    (sys.stderr if code == 127 else sys.stdout).write(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
