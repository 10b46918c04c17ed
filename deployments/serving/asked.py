"""What the programs of `serve`, `stop` and `restart` are told: words that everybody may read, and by the environment
what is long or sealed. Both sides of the line are here: the kinds write it, the programs read it."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SETTINGS, SEALED = "SERVE_SETTINGS", "SERVE_SEALED"  # the revision's settings (JSON); base64 of what signing.seal made
READY_MIN = 30
ROUTES = ("process", "systemd", "podman", "docker")
CONTAINERS = ("podman", "docker")
# Why the route is `process` though nothing else was asked for: codes of services/serve_jobs.py, words of look.py.
WHY_PROCESS = ("", "no_systemd", "no_root", "old_helper")


@dataclass(frozen=True)
class Ask:
    """One node of one replica. `npus` are names as in reservations; `addresses` those of all its nodes, by rank, []
    where there is only one; `idle_mb` is 0 where it is not known; `peers` are addresses of the other nodes' NPUs, as
    `nodes.Peer` writes them."""

    replica: int
    deployment: str = ""
    revision: int = 0
    model: str = ""
    fingerprint: str = ""
    npus: tuple[str, ...] = ()
    device: str = "npu"
    address: str = "127.0.0.1"
    port: int = 0
    route: str = "process"
    why: str = ""
    stacks: str = ""
    family: str = ""
    idle_mb: int = 0
    rank: int = 0
    addresses: tuple[str, ...] = ()
    interface: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sealed: str = ""
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its folder, unit and container."""
        return f"e{self.replica}"

    @property
    def activate(self) -> str:
        return f"{self.stacks}/current/activate"

    @property
    def in_container(self) -> bool:
        return self.route in CONTAINERS

    @property
    def is_follower(self) -> bool:
        """Whether it only computes for the node of rank 0, and answers nobody itself."""
        return self.rank > 0

    @property
    def ready_s(self) -> float:
        return 60.0 * ready_min(self.settings)


def ready_min(settings: Mapping[str, Any]) -> int:
    value = settings.get("ready_min", READY_MIN)
    return value if type(value) is int and 1 <= value <= 24 * 60 else READY_MIN


def settings_of(text: str) -> dict[str, Any]:
    """The settings in a parameter's text; {} where there are none, or they cannot be read."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def words(ask: Ask) -> list[str]:
    """The arguments of each program; no secret is among them."""
    given = {
        "deployment": ask.deployment,
        "revision": str(ask.revision),
        "model": ask.model,
        "fingerprint": ask.fingerprint,
        "npus": ",".join(ask.npus),
        "device": ask.device,
        "address": ask.address,
        "port": str(ask.port or ""),
        "route": ask.route,
        "why": ask.why,
        "stacks": ask.stacks,
        "family": ask.family,
        "idle-mb": str(ask.idle_mb or ""),
        "rank": str(ask.rank or ""),
        "addresses": ",".join(ask.addresses),
        "interface": ask.interface,
        "ports": ",".join(f"{name}:{port}" for name, port in ask.ports.items()),
        "peers": ",".join(ask.peers),
    }
    return [ask.name, *(f"--{name}={value}" for name, value in given.items() if value)]


def environment(ask: Ask) -> dict[str, str]:
    found = {SETTINGS: json.dumps(ask.settings, ensure_ascii=False) if ask.settings else "", SEALED: ask.sealed}
    return {name: value for name, value in found.items() if value}


def read(arguments: Sequence[str], env: Mapping[str, str]) -> Ask:
    """What `words` and `environment` have written. Ends the program with 2 for anything else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    for name in ("deployment", "model", "fingerprint", "npus", "why", "stacks", "family", "addresses", "interface",
                 "ports", "peers"):  # fmt: skip
        parser.add_argument(f"--{name}", default="")
    for name in ("revision", "port", "idle-mb", "rank"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--device", choices=("npu", "cpu"), default="npu")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--route", choices=ROUTES, default="process")
    got = parser.parse_args(list(arguments))
    pairs = (one.partition(":") for one in _listed(got.ports))
    return Ask(
        int(got.name.removeprefix("e")), got.deployment, got.revision, got.model, got.fingerprint, _listed(got.npus),
        got.device, got.address, got.port, got.route, got.why, got.stacks, got.family, got.idle_mb, got.rank,
        _listed(got.addresses), got.interface, {name: int(port) for name, _colon, port in pairs},
        settings_of(env.get(SETTINGS, "")), env.get(SEALED, ""), _listed(got.peers),
    )  # fmt: skip


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)
