"""The parts of the console under one supervisor. Plain code: `manage.py up` writes the plan, then becomes this process.

`python -m console.parts PLAN`. SIGTERM, SIGINT and SIGHUP end every part; the runners of jobs go on and are named.
"""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from console import runners
from deployments.agent import processes
from deployments.agent.config import spoken
from deployments.agent.supervisor import NotReady, Program, Supervisor

READY_S = 60.0


@dataclass(frozen=True)
class Part:
    """One process: its name, which is also that of its log, and its argument list.

    With `listens` (host, port) the next parts wait until something listens there and, with `greet` (said, answer),
    answers so: another console's part may have taken the port first. With `may_finish` exit code 0 is its end, not a
    fault.
    """

    name: str
    argv: list[str]
    listens: tuple[str, int] | None = None
    greet: tuple[str, str] | None = None
    may_finish: bool = False


@dataclass(frozen=True)
class Plan:
    """What is to run, in the order of starting; `var` holds logs and the spools of runners."""

    address: str
    var: str
    parts: list[Part] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def read_plan(path: Path) -> Plan:
    fields = json.loads(path.read_text())
    return Plan(fields["address"], fields["var"], [Part(**part) for part in fields["parts"]])


def main() -> int:
    started = time.monotonic()
    plan = read_plan(Path(sys.argv[1]))
    die_with_make()

    def say_ready() -> None:
        print(f"Ready after {time.monotonic() - started:.1f} s. 已就绪  {plan.address}", flush=True)
        print(f"Logs 日志: {plan.var}/log   Stop 停止: Ctrl-C, make down", flush=True)

    var = Path(plan.var)
    try:
        return Supervisor(programs(plan), lock=None, log_folder=var / "log", on_ready=say_ready).run()
    except NotReady as error:
        print(spoken(error.text), file=sys.stderr)
        return 1
    finally:
        left = runners.farewell(runners.alive(var), runners.engines(var))
        print("\n".join(["Ascend Console has ended. 已停止。", *left]), flush=True)


def programs(plan: Plan) -> list[Program]:
    """The parts as the supervisor takes them, with this environment."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "LOG_STAMPED": "1"}
    return [
        Program(part.name, part.argv, env=env, ready=readiness(part), ready_s=READY_S, may_finish=part.may_finish)
        for part in plan.parts
    ]


def readiness(part: Part) -> Callable[[], bool] | None:
    if part.listens is None:
        return None
    host, port = part.listens
    said, answer = part.greet or ("", "")
    return lambda: answers(host, port, said.encode(), answer.encode())


def answers(host: str, port: int, said: bytes = b"", answer: bytes = b"") -> bool:
    """Whether something listens there and, where something is said to it, answers as wanted."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.settimeout(1)
            connection.sendall(said)
            return not answer or connection.recv(len(answer)) == answer
    except OSError:
        return False


def die_with_make() -> None:
    """Under `make up`, end when make is killed: nobody would be left to hear Ctrl-C."""
    parent = os.getppid()
    try:
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return
    if name == "make":
        dying = processes.DieWithParent(signal.SIGTERM)
        dying.parent = parent
        dying()


if __name__ == "__main__":
    sys.exit(main())
