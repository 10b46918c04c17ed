"""The whole console with two servers: its own, and one of a network, disk and clock that can be broken."""

import contextlib
import dataclasses
import json
import os
import random
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from deployments.agent.processes import session_members
from tests.conftest import ROOT
from tests.faults.network import Network
from tests.faults.processes import Processes
from tests.waiting import until
from tests.whole import Whole

TREE = Path(__file__).with_name("tree")
PACKAGES = ("console", "deployments", "monitoring", "static", "templates")
TRUE_WITHIN_S = 90.0
SETTLED_WITHIN_S = 180.0  # supervisors wait up to 30 s before they start again what keeps ending
DISK_KB = 3072
NEW_SERVER = """
import json
from pathlib import Path
from deployments.models import Server
from deployments.services import enrol
from console.redis import client
from django.conf import settings
made = Server.objects.create(name="kp-far")
enrol.grant(client())
client().execute_command("ACL", "SAVE")
print("CONFIG " + json.dumps(enrol.agent_config(made, settings.REDIS_URL, Path({state!r}))))
"""


# What the console answers while something is away.
PASSING = ("unavailable", "server_offline")


class Refused(Exception):
    """The console has answered a call in words, and would answer it so again."""


@dataclasses.dataclass
class Told:
    """A job of ours: what it was told to do, and what was done to it."""

    id: int
    attempt: str
    server: str
    notes: Path
    lines: int
    steps: int
    is_cancelled: bool = False


@dataclasses.dataclass
class Tally:
    """What the summary says."""

    runs: int = 0
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    lines: int = 0
    gaps: int = 0
    slowest_s: float = 0.0
    moments: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, faults: list[str], moment: str, took_s: float) -> None:
        """One run that went well; `took_s` from the end of the fault until everything was true."""
        self.runs += 1
        for fault in faults:
            self.faults[fault] = self.faults.get(fault, 0) + 1
        self.moments[moment] = self.moments.get(moment, 0) + 1
        self.slowest_s = max(self.slowest_s, took_s)

    def words(self) -> list[str]:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        moments = ", ".join(f"{name} {count}" for name, count in sorted(self.moments.items()))
        return [
            f"faults: runs {self.runs}, faults {sum(self.faults.values())}, lines {self.lines}",
            f"lines lost to full disks, each marked: {self.gaps}",
            f"everything was true within {self.slowest_s:.1f} s after the faults",
            f"faults by kind: {kinds}",
            f"faults by moment: {moments}",
        ]


def copy_product(tree: Path) -> None:
    """The product as it is, with one job kind and the tests' settings beside its own."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(ROOT / "manage.py", tree)
    for name in ("faults_settings.py", "sitecustomize.py"):
        shutil.copy(TREE / name, tree)
    for name in ("numbered.py", "numbered_lines.py"):
        shutil.copy(TREE / name, tree / "deployments" / "kinds")


def quiet_port() -> int:
    """A free port that no outgoing connection is given: it must be free still when Valkey starts again."""
    for port in random.sample(range(20000, 32000), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Scene:
    """`hold_s` is how long a fault lasts; `close` ends and removes everything."""

    def __init__(self, folder: Path, *, hold_s: float, tally: Tally) -> None:
        self.folder, self.hold_s, self.tally = folder, hold_s, tally
        self.random = random.Random()
        self.mark = secrets.token_hex(8)
        self.killed: set[str] = set()  # attempts whose runner we killed
        self.tree = folder / "tree"
        self.tree.mkdir()
        copy_product(self.tree)
        self.far: subprocess.Popen[bytes] | None = None
        self.console: Whole | None = None
        self.network: Network | None = None
        self.processes: Processes | None = None
        self.disk_is_small = False
        self.state = folder / "far"
        self.config = folder / "far.json"
        self.clock = folder / "clock"
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        folder = self.folder
        self.redis_port = quiet_port()
        self.console = Whole(
            folder, demo_servers=0, root=self.tree, DJANGO_SETTINGS_MODULE="faults_settings", ASCEND_FAULTS=self.mark,
            REDIS_PORT=str(self.redis_port),
        )  # fmt: skip
        self.database = folder / "var" / "console.sqlite3"
        self.processes = Processes(self.mark, self.config, self.redis_port)
        self.token = self.console.token()
        self.state.mkdir()
        self.disk_is_small = _mount(self.state)
        self.network = Network(self.redis_port)
        self._enrol_far()
        self.start_far()
        self.here = next(name for name in self._servers() if name != "kp-far")
        until(lambda: all(state == "live" for state in self._servers().values()), SETTLED_WITHIN_S)

    # the far server

    def _enrol_far(self) -> None:
        printed = self.console.command("shell", "-c", NEW_SERVER.format(state=str(self.state)))
        config = json.loads(printed.partition("CONFIG ")[2])
        host, port = self.network.proxy.address
        config["redis_url"] = config["redis_url"].replace(f"127.0.0.1:{self.redis_port}", f"{host}:{port}")
        self.config.write_text(json.dumps(config))

    def start_far(self) -> None:
        """As a service manager would: what is left of the last start is gone."""
        env = {**os.environ, "ASCEND_FAULTS": self.mark, "ASCEND_FAULTS_CLOCK": str(self.clock)}
        logs = self.folder / "far-log"
        logs.mkdir(exist_ok=True)
        agent = [sys.executable, "-m", "deployments.agent", "--config", str(self.config), "--logs", str(logs)]
        with (self.folder / "far.txt").open("ab") as out:
            self.far = subprocess.Popen(
                [*self.network.inside, *agent],
                cwd=self.tree, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    def start_console(self) -> None:
        """As a service manager would: again when the start was refused, for a database that is locked for instance."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.console.start()
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def attempts(self, server: str) -> Path:
        return (self.folder / "var" / "agent" if server == self.here else self.state) / "attempts"

    # what an operator does

    def call(self, path: str, body: object = None, key: str = "") -> dict:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Accept-Language": "en"}
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.console.url}/api/v1{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def insist(self, path: str, body: object = None, within_s: float = TRUE_WITHIN_S) -> dict:
        """The answer of a call that is repeated, with one key, while the console is away or says that it is busy."""
        key, until_s = secrets.token_hex(8), time.monotonic() + within_s
        while True:
            try:
                return self.call(path, body, key)
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                assert error.code != 500, said
                code = json.loads(said)["error"]["code"]
                if code not in PASSING or time.monotonic() > until_s:
                    raise Refused(f"{path} {body}: {error.code} {said}") from error
            except OSError:
                if time.monotonic() > until_s:
                    raise
            time.sleep(0.2)

    def _servers(self) -> dict[str, str]:
        with contextlib.suppress(OSError):
            return {row["name"]: row["state"] for row in self.call("/servers")["servers"]}
        return {}

    def queue(
        self, server: str, *, lines: int, pause_s: float = 0.001, steps: int = 2, locks=(), held: bool = False
    ) -> Told:
        """A job of numbered lines; a held one does not end before `release`."""
        notes = self.folder / f"notes-{secrets.token_hex(4)}"
        if held:
            notes.with_name(f"{notes.name}.held").touch()
        params = {"notes": str(notes), "lines": lines, "pause_s": pause_s, "count": steps, "locks": list(locks)}
        made = self.insist("/jobs", {"kind": "numbered", "server": server, "params": params})
        return Told(made["id"], self.attempt_of(made["id"]), server, notes, lines, steps)

    def release(self, told: Told) -> None:
        told.notes.with_name(f"{told.notes.name}.held").unlink()

    def attempt_of(self, job: int) -> str:
        """The job's newest attempt."""
        return self.rows("select id from deployments_attempt where job_id=? order by n desc limit 1", job)[0][0]

    def cancel(self, told: Told) -> None:
        """Ask for it; a job that has ended meanwhile is no fault."""
        told.is_cancelled = True
        with contextlib.suppress(Refused):
            self.insist(f"/jobs/{told.id}/cancel", {})

    def newest(self, told: Told) -> Told:
        """The same job's newest attempt."""
        return dataclasses.replace(told, attempt=self.attempt_of(told.id), is_cancelled=False)

    def is_stored(self, told: Told) -> bool:
        """Whether the console has the attempt's end."""
        return bool(self.rows("select done from deployments_attempt where id=?", told.attempt)[0][0])

    def state_of(self, told: Told) -> dict:
        return self.insist(f"/jobs/{told.id}")

    def rows(self, query: str, *values: object) -> list[tuple]:
        """What stands in the console's database, read beside it."""
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute(query, values).fetchall()

    def await_running(self, told: Told) -> None:
        """Until the job has printed something on its server."""
        lines = self.attempts(told.server) / told.attempt / "lines"
        shipped = lines.with_name("shipped")
        until(lambda: shipped.exists() or (lines.exists() and b"\to\t" in lines.read_bytes()), TRUE_WITHIN_S)

    def await_ended(self, told: Told, within_s: float = TRUE_WITHIN_S) -> dict:

        def look() -> dict | None:
            found = self.state_of(told)
            return found if found["state"] in ("succeeded", "failed", "cancelled") else None

        return until(look, within_s, every=0.1)

    # processes

    def strike(self, part: str, number: int) -> int:
        """Send a signal to a part, which is awaited: its supervisor may pause before it starts it again. Its pid."""

        def hit() -> int | None:
            for pid in self.processes.of(part)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    return pid
            return None

        return until(hit, 60)

    def set_clock(self, seconds: float) -> None:
        """What is added to the far server's clock."""
        aside = self.clock.with_name(f"clock-{secrets.token_hex(4)}")  # two faults may set it at once
        aside.write_text(str(seconds))
        aside.replace(self.clock)

    def runner(self, told: Told) -> int | None:
        try:
            return json.loads((self.attempts(told.server) / told.attempt / "pid").read_text())["pid"]
        except (OSError, ValueError):
            return None

    def session(self, told: Told) -> list[int]:
        """The attempt's runner and what it has started."""
        runner = self.runner(told)
        return session_members(runner) if runner else []

    def settle(self) -> None:
        """Until every part runs and both servers are online."""
        until(lambda: not self.processes.missing(), SETTLED_WITHIN_S)
        until(lambda: list(self._servers().values()) == ["live"] * 2, SETTLED_WITHIN_S)

    def last_words(self) -> list[str]:
        """The ends of all logs, for who looks at a failure."""
        logs = [*self.folder.glob("var/log/*.log"), *self.folder.glob("far-log/*.log"), self.folder / "far.txt"]
        tails = [[f"== {path}", *path.read_text().splitlines()[-12:]] for path in logs]
        return [*(line for tail in tails for line in tail), "== processes", *map(str, self.processes.all().items())]

    def close(self) -> None:
        """End every process of the scene, then take down what they stood on."""
        if self.network:
            self.network.restore()
        self._signal_all(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.far and self.far.poll() is None:
                self.far.send_signal(signal.SIGTERM)
                self.far.wait(30)
            if self.console:
                self.console.stop()
        until(lambda: not self._signal_all(signal.SIGKILL), 30)
        if self.network:
            self.network.close()
        if self.disk_is_small:
            subprocess.run(["umount", "-l", str(self.state)], check=True)

    def _signal_all(self, number: int) -> int:
        """How many processes there were."""
        found = self.processes.all() if self.processes else {}
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)


def _mount(folder: Path) -> bool:
    """A small disk of its own where we may make one."""
    if os.geteuid() != 0:
        return False
    options = f"size={DISK_KB}k,mode=700"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "faults", str(folder)]).returncode == 0
