"""Starts a part of the agent as it is, with the kinds of the tests beside its own.

python agent_program.py runner|worker|supervisor …
"""

import errno
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

import deployments.kinds  # noqa: E402

deployments.kinds.__path__.append(str(HERE / "agent_kinds"))

RUNNER = [sys.executable, str(Path(__file__).resolve()), "runner"]


def die_at(place):
    """Have the runner killed at this place of a restart; "no-room" lets its mark meet a full disk instead."""
    from deployments.agent import execution, reboots, runner
    from deployments.agent.writer import SpoolWriter

    def around(owner, name, *, before=lambda *a: False, after=lambda *a: False):
        real = getattr(owner, name)

        def called(*args, **named):
            if before(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            answer = real(*args, **named)
            if after(*args):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        setattr(owner, name, called)

    def full(*_args, **_named):
        raise OSError(errno.ENOSPC, "no room")

    always, tells = lambda *a: True, lambda word: lambda _writer, *texts: any(f'"e":"{word}"' in t for t in texts)
    {
        "no-room": lambda: setattr(reboots, "leave", full),
        "before the mark": lambda: around(reboots, "leave", before=always),
        "mark left": lambda: around(reboots, "leave", after=always),
        "waiting written": lambda: around(SpoolWriter, "sync", after=always),
        "command began": lambda: around(execution.StepRun, "_follow", before=always),
        "command ended": lambda: around(execution.StepRun, "run", after=always),
        "identity written": lambda: around(runner, "take_up", after=always),
        "rebooted written": lambda: around(SpoolWriter, "events", after=tells("rebooted")),
        "heading written": lambda: around(SpoolWriter, "event", after=lambda _writer, name: name == "step"),
        "mark cleared": lambda: around(reboots, "clear", after=always),
    }[place]()


def main():
    part, arguments = sys.argv[1], sys.argv[2:]
    if part == "runner":
        from deployments.agent import execution, runner

        execution.RUNG_S = float(os.environ.get("TEST_RUNG_S", execution.RUNG_S))
        runner.TELL_S = float(os.environ.get("TEST_TELL_S", runner.TELL_S))
        if place := os.environ.get("TEST_DIE"):
            die_at(place)
        return runner.main(arguments)
    if part == "worker":
        from deployments.agent import worker

        return worker.main(arguments, runner=RUNNER)
    raise SystemExit(f"no such part: {part}")


if __name__ == "__main__":
    sys.exit(main())
