"""Where things lie on a server. Each function fills a part, and notes what it lacks with the reason."""

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from deployments.agent.cleanup.places import Server, homes, server_of
from deployments.agent.config import Config
from deployments.agent.environment import passed_on
from deployments.agent.support import files, rooted
from deployments.agent.support.asked import Asked
from deployments.agent.support.part import Part
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.support_bundle import VARIABLE
from deployments.steps import Text

FILE_MB = 32  # of one file; of a longer one its end
NOT_THERE = Text("这台服务器上没有", "it is not there on this server")
NONE_THEN = Text("这段时间里没有写过文件", "no file of it was written in that time")
ENGINE = re.compile(r"e\d{1,18}")
HANGS = 2  # of one tool, after which it is not asked any more
SEVERAL = 64
VERSIONS = (
    "/etc/os-release", "/etc/ascend_install.info", "/usr/local/Ascend/driver/version.info",
    "/usr/local/Ascend/firmware/version.info", "/usr/local/Ascend/ascend-toolkit/latest/version.cfg",
    "/usr/local/Ascend/cann/version.cfg", "/usr/local/Ascend/nnal/atb/latest/version.info", "/proc/cmdline",
    "/proc/meminfo", "/proc/version",
)  # fmt: skip
LOOKS = (
    ("uname", "-a"), ("lscpu",), ("df", "-hP"), ("free", "-m"), ("lspci",), ("ip", "-br", "address"), ("lsmod",),
    ("uptime",),
)  # fmt: skip
SMI = (("info",), ("info", "-m"), ("info", "-l"), ("info", "-t", "topo"), ("-v",))
SMI_CHIP = ("board", "health", "ecc", "usages", "common", "memory", "temp", "proc-mem", "err-count")
HCCN = ("-link", "-link_stat", "-net_health", "-ip", "-gateway", "-netdetect", "-lldp", "-tls", "-stat", "-optical")


class Place(NamedTuple):
    """What every source needs."""

    part: Part
    config: Config
    asked: Asked
    host: Host
    server: Server


def place_of(part: Part, config: Config, asked: Asked, stacks: str) -> Place:
    server = server_of(config, stacks)
    return Place(part, config, asked, server.host, server)


# ---------- readings ----------


def readings(at: Place) -> None:
    """npu-smi and hccn_tool: states, fault codes, serial numbers, links."""
    ask = _Asker(at)
    for words in SMI:
        ask("npu-smi", *words)
    npus = sorted({(npu.npu, chip) for npu in at.host.npus for chip in [getattr(npu, "chip", 0) or 0]}, key=str)
    for npu in sorted({npu for npu, _chip in npus}, key=str)[:SEVERAL]:
        ask("npu-smi", "info", "-t", "board", "-i", str(npu))  # with a chip named it tells no serial number
    for npu, chip in npus[:SEVERAL]:
        for kind in SMI_CHIP:
            ask("npu-smi", "info", "-t", kind, "-i", str(npu), "-c", str(chip))
    for device in range(min(SEVERAL, len(npus))):
        for question in HCCN:
            ask("hccn_tool", "-i", str(device), question, "-g")


class _Asker:
    """Runs a tool for its output; one that is not there is noted once, one that hangs is left alone."""

    def __init__(self, at: Place) -> None:
        self.at, self.gone, self.hung = at, set[str](), dict[str, int]()

    def __call__(self, tool: str, *words: str) -> None:
        part = self.at.part
        part.check()
        if tool in self.gone or self.hung.get(tool, 0) >= HANGS:
            return
        command = " ".join([tool, *words])
        try:
            answer = self.at.host.run(tool, *words, timeout_s=min(15.0, max(1.0, part.until - time.monotonic())))
        except Trouble as trouble:
            self.hung[tool] = self.hung.get(tool, 0) + 1
            part.lacks(command, trouble.reason)
            return
        if answer is None:
            self.gone.add(tool)
            part.lacks(tool, NOT_THERE)
            return
        name = "_".join(word.strip("-") for word in words) or tool
        part.text(f"{tool}/{files.shown(name)}.txt", f"$ {command}\n{answer.text}\n(exit code {answer.code})\n")


# ---------- the system ----------


def system(at: Place) -> None:
    """Versions, environment, hccn.conf, the kernel's messages."""
    ask = _Asker(at)
    for words in LOOKS:
        ask(*words)
    for name in VERSIONS:
        if text := at.host.peek(name):
            at.part.text(files.shown("versions", *name.strip("/").split("/")), text)
    env = {**passed_on(), **at.config.env}
    env.pop(VARIABLE, None)  # it holds the salt: with it a replaced name could be guessed
    at.part.text("environment.txt", "".join(f"{name}={value}\n" for name, value in sorted(env.items())))
    _packages(at)
    _hccn(at)
    _dmesg(at)


def _packages(at: Place) -> None:
    """Names and versions of what is installed in the environments of stacks."""
    base = at.host.stacks
    for stack in at.host.look(base)[:20]:
        for lib in at.host.look(f"{base}/{stack}/venv/lib")[:3]:
            found = [name.removesuffix(".dist-info").replace("-", "==", 1)
                     for name in at.host.look(f"{base}/{stack}/venv/lib/{lib}/site-packages")
                     if name.endswith(".dist-info")]  # fmt: skip
            if found:
                at.part.text(files.shown("packages", f"{stack}.txt"), "\n".join(found) + "\n")


def _hccn(at: Place) -> None:
    name = "/etc/hccn.conf"
    try:
        text = at.host.read(name)
        if text is None:
            at.part.lacks(name, NOT_THERE)
        else:
            at.part.text("hccn.conf", text)
    except Trouble as trouble:
        _from_root(at, "support-hccn", "hccn", trouble.reason)


def _dmesg(at: Place) -> None:
    try:
        answer = at.host.run("dmesg", "-T")
    except Trouble as trouble:
        at.part.lacks("dmesg", trouble.reason)
        return
    if answer is not None and answer.code == 0 and answer.text.strip():
        at.part.text("dmesg.txt", answer.text)
        return
    try:
        rooted.run(at.part, at.config, "support-dmesg", [], "dmesg.txt")
    except rooted.NotHad as error:
        at.part.lacks("dmesg", NOT_THERE if answer is None else error.text)


# ---------- logs ----------


def plog(at: Place) -> None:
    """CANN's own logs: where the environment says, else in each home; those of root by the root helper."""
    count = 0
    for base in plog_folders(at):
        count += _folder(at, base, files.shown("plog", *base.strip("/").split("/")))
    if not at.config.simulated and os.geteuid():
        count += _from_root(at, "support-plog", "plog/root", None)
    if not count:
        at.part.lacks("plog", NONE_THEN)


def plog_folders(at: Place) -> list[str]:
    """Folders that are there, each once."""
    env = at.config.env | dict(os.environ)
    named = [env.get("ASCEND_PROCESS_LOG_PATH", "")]
    named += [f"{env['ASCEND_WORK_PATH']}/log"] if env.get("ASCEND_WORK_PATH") else []
    for spec in _specs(at):
        told = spec.get("env")
        if not isinstance(told, dict):
            continue
        named += [str(told.get("ASCEND_PROCESS_LOG_PATH", ""))]
        named += [f"{told['ASCEND_WORK_PATH']}/log"] if told.get("ASCEND_WORK_PATH") else []
    named += [f"{home}/ascend/log" for home in homes(at.server)]
    found: dict[str, str] = {}
    for base in named:
        full = at.host.path(base)
        if base.startswith("/") and full.is_dir():
            found.setdefault(os.path.realpath(full), base.rstrip("/"))
    return list(found.values())


def engines(at: Place) -> None:
    """What lies of our engines: what they were to start, how they are, their newest output; and MindIE's logs."""
    count = 0
    for folder in sorted(at.config.engines.glob("e*")):
        wanted = not at.asked.engines or folder.name in at.asked.engines
        if wanted and ENGINE.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            count += _take(at, folder, [one for one in files.listed(folder) if _is_told(one)], f"engines/{folder.name}")
    for home in homes(at.server):
        if at.host.path(f"{home}/mindie/log").is_dir():
            count += _folder(at, f"{home}/mindie/log", "engines/mindie")
    if not count:
        at.part.lacks("engines", NONE_THEN)


def _is_told(one: files.Found) -> bool:
    name = one.parts[-1]
    return len(one.parts) == 1 and (name.endswith(".json") or name in ("history", "failed") or ".log" in name)


def _specs(at: Place) -> list[dict[str, Any]]:
    found = []
    for path in sorted(at.config.engines.glob("e*/spec.json"))[:200]:
        try:
            told = json.loads(path.read_bytes()[: 256 * 1024])
        except (OSError, ValueError):
            continue
        found += [told] if isinstance(told, dict) else []
    return found


def device(at: Place) -> None:
    """Device logs, which msnpureport exports first."""
    why = Text("没有导出任何设备日志", "no device log was exported")
    if not _from_root(at, "support-device", "device", None, raw=True) and not at.part.missing:
        at.part.lacks("device", why)


def install(at: Place) -> None:
    """What the vendor's installers wrote."""
    base = "/var/log/ascend_seclog"
    if not at.host.path(base).is_dir():
        at.part.lacks(base, NOT_THERE)
    elif not _folder(at, base, "ascend_seclog", quiet=True, always=True):
        _from_root(at, "support-seclog", "ascend_seclog", NONE_THEN)


# ---------- how files come ----------


def _folder(at: Place, base: str, name: str, *, quiet: bool = False, always: bool = False) -> int:
    """Files of a folder into the part; how many. With `always` whenever they were written."""
    folder = at.host.path(base)
    try:
        found = list(files.listed(folder))
    except OSError as error:
        if not quiet:
            at.part.lacks(base, _words(error))
        return 0
    since = 0 if always else at.asked.since
    return _take(at, folder, files.in_order(found, since, at.asked.until), name, quiet=quiet)


def _take(at: Place, folder: Path, found: Iterable[files.Found], name: str, *, quiet: bool = False) -> int:
    count = 0
    for one in found:
        at.part.check()
        shown = f"{name}/{files.shown(*one.parts)}"
        try:
            at.part.file(shown, files.opened(folder, one.parts), most=FILE_MB << 20)
            count += 1
        except OSError as error:
            if not quiet:
                at.part.lacks(shown, _words(error))
    return count


def _words(error: OSError) -> Text:
    words = os.strerror(error.errno or 5)
    return Text(f"读不了（{words}）", f"it cannot be read ({words})")


def _from_root(at: Place, action: str, name: str, otherwise: "Text | None", *, raw: bool = False) -> int:
    """What root gives, below the name; how many files. `otherwise` is said where root gives nothing."""
    mb = max(1, min(9999, at.part.left >> 20))
    try:
        return rooted.take(at.part, at.config, action, [str(at.asked.since), str(mb)], name, raw=raw)
    except rooted.NotHad as error:
        at.part.lacks(name, error.text)
    return 0


Source = Callable[[Place], None]
BY_NAME: dict[str, Source] = {
    "readings": readings, "system": system, "plog": plog, "engines": engines, "device": device, "install": install,
}  # fmt: skip
