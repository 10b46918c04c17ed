"""Which processes belong to a scene, by a mark in their environment, and which part of it each is."""

from pathlib import Path

# part: what its command line holds, and whether it serves the far server
PARTS = {
    "console supervisor": ("-m console.parts", False),
    "valkey": ("valkey-server", False),
    "web": ("console.asgi:application", False),
    "ingest": ("manage.py ingest", False),
    "scheduler": ("manage.py scheduler", False),
    "console worker": ("manage.py rqworker", False),
    "own agent": ("-m deployments.agent --config", False),
    "own sampler": ("-m deployments.agent.sampler", False),
    "own link": ("-m deployments.agent.link", False),
    "own worker": ("-m deployments.agent.worker", False),
    "agent": ("-m deployments.agent --config", True),
    "sampler": ("-m deployments.agent.sampler", True),
    "link": ("-m deployments.agent.link", True),
    "worker": ("-m deployments.agent.worker", True),
}


class Processes:
    """Those of one scene: `mark` stands in the environment of each, `far_config` in the command lines of one agent."""

    def __init__(self, mark: str, far_config: Path, valkey_port: int) -> None:
        self.mark = f"ASCEND_FAULTS={mark}".encode()
        self.far_config = str(far_config)
        self.valkey = f"127.0.0.1:{valkey_port}"

    def all(self) -> dict[int, str]:
        """{pid: command line} of every living process of the scene."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                ours = self.mark in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            # Valkey overwrites its environment with where it listens. A zombie has no command line.
            if command and (ours or ("valkey-server" in command and self.valkey in command)):
                found[int(folder.name)] = command
        return found

    def of(self, part: str) -> list[int]:
        """Pids of a part, the oldest first: a work-horse has the command line of its worker."""
        return sorted(pid for pid, command in self.all().items() if self._part(command) == part)

    def missing(self) -> list[str]:
        """Parts of which no process lives."""
        living = {self._part(command) for command in self.all().values()}
        return [part for part in PARTS if part not in living]

    def strangers(self) -> dict[int, str]:
        """Processes of the scene that are none of its parts: runners, steps, and what should not be there."""
        return {pid: command for pid, command in self.all().items() if self._part(command) is None}

    def _part(self, command: str) -> str | None:
        words = command.replace("/manage.py", " manage.py")
        is_far = self.far_config in command
        return next((name for name, (held, far) in PARTS.items() if held in words and far == is_far), None)
