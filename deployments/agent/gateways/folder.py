"""The folder of one gateway: `<state_dir>/gateways/g<pk>/`.

`spec.json` (what it is to be: serving/gateway_conf.Spec, and `programs`: where router, nginx and njs are), `wish`
("run" or "stop"), `lock` (held by its keeper for life), `router` and `nginx` (identities of the two programs),
`now.json` (how it is), `instance` (a word of this folder alone), `keys/` (a file for each key), `usage.log` and
`usage.json`.
"""

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments import locks
from deployments.agent import processes, spool
from deployments.agent.config import Config
from deployments.serving import gateway_conf
from deployments.serving.gateway_conf import Spec

NAME = re.compile(r"g\d{1,18}")


@dataclass(frozen=True)
class Programs:
    """`python` is that of the router's environment; `nginx` "" where the router answers alone."""

    python: str
    nginx: str = ""
    module: str = ""


def root(config: Config) -> Path:
    return config.state_dir / "gateways"


def of(config: Config, gateway: int) -> Path:
    return root(config) / f"g{gateway}"


def all_of(config: Config) -> list[Path]:
    try:
        return sorted(path for path in root(config).iterdir() if NAME.fullmatch(path.name) and path.is_dir())
    except FileNotFoundError:
        return []


def write(folder: Path, spec: Mapping[str, Any], programs: Mapping[str, str] | None = None) -> None:
    """Put a spec there; without `programs` those of the spec before stay. Raises BadSpec, OSError."""
    gateway_conf.read(spec)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = dict(programs) if programs is not None else read_raw(folder).get("programs", {})
    text = json.dumps({**spec, "programs": kept}, ensure_ascii=False)
    spool.write_synced(folder / "spec.json", text.encode())


def read_raw(folder: Path) -> dict[str, Any]:
    """{} where there is none, or none that can be read."""
    try:
        found = json.loads((folder / "spec.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read(folder: Path) -> tuple[Spec, Programs] | None:
    """None where it is missing or cannot be used."""
    raw = read_raw(folder)
    try:
        programs = Programs(**{name: str(value) for name, value in raw.pop("programs").items()})
        return gateway_conf.read(raw), programs
    except (KeyError, AttributeError, TypeError, gateway_conf.BadSpec):
        return None


def wish(folder: Path) -> str:
    try:
        return (folder / "wish").read_text().strip()
    except OSError:
        return ""


def set_wish(folder: Path, word: str) -> None:
    spool.write_synced(folder / "wish", f"{word}\n".encode())


def is_kept(folder: Path) -> bool:
    """Whether its keeper lives."""
    return locks.is_locked(folder / "lock")


def instance(folder: Path) -> str:
    """Made once: totals of another folder of the same gateway are other totals."""
    path = folder / "instance"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        spool.write_synced(path, secrets.token_hex(8).encode())
        return path.read_text().strip()


def note_identity(folder: Path, name: str, pid: int, about: Mapping[str, Any]) -> None:
    found = processes.identity(pid)
    if found is not None:
        spool.write_synced(folder / name, json.dumps({**about, **found._asdict()}).encode())


def noted(folder: Path, name: str) -> dict[str, Any]:
    """What was noted of the process that was started as `name`; {} where that cannot be read."""
    try:
        fields = json.loads((folder / name).read_bytes())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _who(folder: Path, name: str) -> processes.Identity | None:
    fields = noted(folder, name)
    try:
        return processes.Identity(int(fields["pid"]), int(fields["started"]), str(fields["boot_id"]))
    except (ValueError, KeyError, TypeError):
        return None


def identity(folder: Path, name: str) -> processes.Identity | None:
    """The process that was started as `name`, where it lives still."""
    who = _who(folder, name)
    return who if who is not None and processes.lives(who) else None


def left(folder: Path, name: str) -> list[int]:
    """Pids of that process and of its session, also where it is gone itself: nginx's workers outlive a killed master,
    and hold its port."""
    who = _who(folder, name)
    return processes.left_of(who) if who is not None else []


def now(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "now.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
