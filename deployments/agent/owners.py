"""Whose a process on an NPU is: its user, its command, and the attempt of ours that it belongs to."""

import pwd
from pathlib import Path
from typing import Any

from deployments.agent import processes, spool
from deployments.agent.config import Config

MAX_COMMAND = 500


class Owners:
    """Answers for pids of this server; what is not known is None.

    User and command come from the server's own /proc. The session of a pid that one of our runners leads
    is ours: steps run in the session of their runner.
    """

    def __init__(self, config: Config) -> None:
        self.proc = config.root / "proc"
        self.attempts = config.attempts
        self.past: set[str] = set()  # attempts whose runner is gone
        self.runners: dict[int, str] = {}

    def of(self, pid: int) -> dict[str, Any]:
        """{"user", "command", "attempt"} of one process; `attempt` names the engine where it belongs to one of ours."""
        attempt = self._attempt(pid)
        folder = (Path("/proc") if attempt else self.proc) / str(pid)
        return {"user": user_of(folder), "command": _command(folder), "attempt": attempt}

    def _attempt(self, pid: int) -> str | None:
        found = processes.stat(pid)
        return self.runners.get(found.sid) if found else None

    def refresh(self) -> None:
        """Learn which runners live; once a sample is enough."""
        self.runners = {}
        for folder in spool.folders(self.attempts):
            if folder.name in self.past:
                continue
            identity = spool.runner_identity(folder)
            if identity is None:
                if (folder / "lines").exists() or (folder / "shipped").exists():
                    self.past.add(folder.name)
                continue
            self.runners[identity.pid] = folder.name
            now = processes.stat(identity.pid)
            if now is None or now.started != identity.started:
                # Its steps may outlive it for a moment, so it counts once more.
                self.past.add(folder.name)


def user_of(folder: Path) -> str | None:
    """Whose a process of that folder of /proc is."""
    try:
        return pwd.getpwuid(folder.stat().st_uid).pw_name
    except OSError:
        return None
    except KeyError:
        return str(folder.stat().st_uid)


def _command(folder: Path) -> str | None:
    try:
        text = (folder / "cmdline").read_bytes()[: 4 * MAX_COMMAND].decode(errors="replace")
    except OSError:
        return None
    words = "".join(char if char.isprintable() else " " for char in text).strip()
    return words[:MAX_COMMAND] or None
