"""Engines on this server that are not ours: vLLM and MindIE that somebody started by hand, found by their commands."""

import json
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deployments.agent import devices, processes
from deployments.agent.config import Config
from deployments.agent.engines import contained, folder, probe, scrape
from deployments.agent.owners import Owners, user_of

EVERY_S = 30.0
HEALTH_S = 1.0
MOST = 32
MOST_WORD = 500
MOST_FILE = 128 * 1024
# These name an engine's command in their own: what they start has a process of its own.
STARTERS = (
    "docker",
    "podman",
    "nerdctl",
    "ctr",
    "sudo",
    "su",
    "bash",
    "sh",
    "timeout",
    "nohup",
    "ssh",
    "srun",
    "watch",
)
CONTAINER = re.compile(r"([0-9a-f]{64})")
MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
PORTS = {"vllm": 8000}  # where none is named; MindIE's stands in its own file


def kind_of(words: Sequence[str]) -> str | None:
    """ "vllm" or "mindie"; None where the command is no engine's."""
    if not words:
        return None
    names = [word.rpartition("/")[2] for word in words[:8]]
    if names[0] in STARTERS:
        return None
    if names[0] == "mindieservice_daemon":
        return "mindie"
    for n, name in enumerate(names):
        if name == "vllm" and n + 1 < len(words) and words[n + 1] == "serve" and n < 3:
            return "vllm"
        if word_is_module(words, n):
            return "vllm"
    return None


def word_is_module(words: Sequence[str], n: int) -> bool:
    return words[n] in MODULES and n > 0 and words[n - 1] == "-m"


def option(words: Sequence[str], *names: str) -> str | None:
    """The value of `--name value` or `--name=value`; the last one counts."""
    found = None
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else (words[n + 1] if n + 1 < len(words) else None)
    return found[:MOST_WORD] if found else None


def model_of(words: Sequence[str]) -> str | None:
    if model := option(words, "--model", "--model-path"):
        return model
    place = next((n for n, word in enumerate(words) if word == "serve"), None)
    behind = words[place + 1] if place is not None and place + 1 < len(words) else ""
    return behind[:MOST_WORD] if behind and not behind.startswith("-") else None


def port_of(kind: str, words: Sequence[str]) -> int | None:
    said = option(words, "--port")
    if said is None:
        return PORTS.get(kind)
    return int(said) if said.isdecimal() and 0 < int(said) < 65536 else None


class Finder:
    """`take` gives a list now and then, None in between; looking is done in a thread, so that nobody waits for it."""

    def __init__(self, config: Config, owners: Owners) -> None:
        self.config = config
        self.proc = config.root / "proc"
        self.owners = owners
        self.found: list[dict[str, Any]] | None = None
        self.looked_at = float("-inf")
        self.thread: threading.Thread | None = None
        self.meters: dict[str, scrape.Meter] = {}  # by key
        self.containers: dict[str, contained.Container] = {}  # by id

    def take(self) -> list[dict[str, Any]] | None:
        """What was found since the last time; looks again after 30 s."""
        if self.thread is not None and not self.thread.is_alive():
            self.thread = None
        if self.thread is None and time.monotonic() - self.looked_at >= EVERY_S:
            self.looked_at = time.monotonic()
            self.thread = threading.Thread(target=self._look, name="external", daemon=True)
            self.thread.start()
        found, self.found = self.found, None
        return found

    def _look(self) -> None:
        try:
            self.found = self.look()
        except OSError:
            self.found = None

    def look(self) -> list[dict[str, Any]]:
        """[{"key", "kind", "pid", "user", "container", "image", "model", "port", "npus", "health", "metrics"}]; what is
        not known is None."""
        servers = self._servers()
        ours = folder.sessions(self.config.state_dir).keys() | self.owners.runners.keys()
        contained = self._contained()
        found = []
        for pid, (kind, words, stat) in servers.items():
            if stat.ppid in servers or stat.sid in ours or port_of(kind, words) in contained:
                continue
            found.append(self._describe(pid, kind, words, stat))
        self.meters = {one["key"]: self.meters[one["key"]] for one in found if one["key"] in self.meters}
        there = {one["container"] for one in found}
        self.containers = {name: about for name, about in self.containers.items() if name in there}
        return found[:MOST]

    def _contained(self) -> set[int]:
        """The ports of our own engines that are in containers, whose processes have sessions of their own."""
        specs = [place.spec or {} for place in folder.alive(self.config.state_dir)]
        return {spec["port"] for spec in specs if spec.get("container") and spec.get("port")}

    def _servers(self) -> dict[int, tuple[str, list[str], processes.Stat]]:
        found = {}
        for entry in self.proc.iterdir():
            if not entry.name.isdecimal():
                continue
            words = [word.decode(errors="replace") for word in _bytes(entry / "cmdline").split(b"\0") if word]
            kind = kind_of(words)
            stat = processes.stat(int(entry.name)) if kind else None
            if kind and stat and stat.state not in "ZX":
                found[int(entry.name)] = (kind, words, stat)
        return found

    def _describe(self, pid: int, kind: str, words: list[str], stat: processes.Stat) -> dict[str, Any]:
        own = self.proc / str(pid)
        port, container, key = port_of(kind, words), container_of(own), f"{pid}-{stat.started}"
        about = self._inspected(container) if container else contained.Container()
        apart = _namespace(own) != _namespace(self.proc / "self")
        port = about.ports.get(port or 0, port) if apart else port
        at = self._address(kind, words, port, bool(port in about.ports.values()) if apart else None)
        health = self._health(at) if at else None
        return {
            "key": key,
            "kind": kind,
            "pid": pid,
            "user": user_of(own),
            "container": container,
            "image": about.image,
            "model": option(words, "--served-model-name") or model_of(words),
            "port": port,
            "npus": self._npus(own, container),
            "health": health,
            "metrics": self._metrics(key, at) if at and health == "ok" else None,
        }

    def _inspected(self, container: str) -> contained.Container:
        """Asked once for each container."""
        if container not in self.containers:
            self.containers[container] = contained.inspect(container)
        return self.containers[container]

    def _npus(self, own: Path, container: str | None) -> list[str] | None:
        """Bus ids of the devices it may see. Those of a container are counted anew there: not known."""
        words = dict(word.partition(b"=")[::2] for word in _bytes(own / "environ").split(b"\0"))
        said = words.get(b"ASCEND_RT_VISIBLE_DEVICES", b"").decode(errors="replace")
        if container or not said:
            return None
        return bus_ids(self.config.state_dir, said)

    def _address(self, kind: str, words: Sequence[str], port: int | None, bound: bool | None) -> probe.Address | None:
        """Where it can be asked; None where it cannot. `bound`: whether its port of a network of its own is one of this
        server, too; None where it has no such network."""
        if kind != "vllm" or port is None or bound is False or option(words, "--ssl-certfile"):
            return None
        host = None if bound else option(words, "--host")
        return probe.address_of({"address": host, "port": port})

    def _health(self, at: probe.Address) -> str | None:
        """ "ok" or "failed"; None where nobody listens on its port: it may be loading."""
        answer = probe.health(at, HEALTH_S)
        if answer.status is None and answer.problem != "timeout":
            return None
        return "ok" if answer.status == probe.OK else "failed"

    def _metrics(self, key: str, at: probe.Address) -> dict[str, Any] | None:
        """The figures of scrape.NAMES, rates since the last look; None where it does not tell."""
        answer = probe.ask(at, "/metrics", within_s=HEALTH_S)
        if answer.status != probe.OK:
            return None
        return self.meters.setdefault(key, scrape.Meter()).take(answer.body.decode(errors="replace"))


def bus_ids(state_dir: Path, indexes: str) -> list[str] | None:
    """The bus ids behind a list of device indexes, by the newest reading; None where that does not list them all."""
    try:
        npus = json.loads((state_dir / devices.LAST).read_bytes())
        found = [npus[int(word)]["bus_id"] for word in indexes.split(",") if word.strip()]
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None
    return list(dict.fromkeys(str(one) for one in found))


def container_of(own: Path) -> str | None:
    """The first 12 digits of its container's id."""
    found = CONTAINER.search(_bytes(own / "cgroup").decode(errors="replace"))
    return found[1][:12] if found else None


def _namespace(own: Path) -> str | None:
    try:
        return str((own / "ns" / "net").readlink())
    except OSError:
        return None


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_FILE)
    except OSError:
        return b""
