"""Which host this agent runs on: it tells two hosts with one config apart, as there are after a disk was cloned."""

import hashlib
import socket
from pathlib import Path
from typing import NamedTuple

from deployments.agent import processes

MACHINE_ID = ("etc/machine-id", "var/lib/dbus/machine-id")


class Host(NamedTuple):
    """`machine` is a hash: the id itself is to be kept secret. A clone may have the same, but never the same boot."""

    machine: str
    boot: str
    name: str


def host(root: Path = Path("/")) -> Host:
    """The host whose files lie below `root`; '' stands for unknown."""
    machine = next((text for name in MACHINE_ID if (text := _read(root / name))), "")
    digest = hashlib.sha256(f"ascend-console {machine}".encode()).hexdigest()[:16] if machine else ""
    boot = processes.boot_id() if root == Path("/") else _read(root / "proc/sys/kernel/random/boot_id")
    return Host(digest, boot, (_read(root / "etc/hostname") or socket.gethostname())[:255])


def _read(path: Path) -> str:
    """The first line of a small file, '' where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(512).decode(errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""
