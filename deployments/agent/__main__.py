"""The agent of one server: a supervisor of worker, link and sampler.

python -m deployments.agent --config <config.json>
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from deployments.agent import ROOT, VERSION, chosen, code
from deployments.agent.config import Config, ConfigError, load, spoken
from deployments.agent.environment import passed_on
from deployments.agent.own_log import OwnLog
from deployments.agent.supervisor import AlreadyRunning, Program, Supervisor

PARTS = ("sampler", "link", "worker")


def programs(config: Config) -> list[Program]:
    """The agent's processes, in the order they start."""
    own = ROOT.parent
    path = chosen.path_of(own) if own.parent == chosen.home(config.state_dir) else str(ROOT)
    env = {**passed_on(), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return [
        Program(part, [sys.executable, "-m", f"deployments.agent.{part}", "--config", str(config.path)], env=env)
        for part in PARTS
    ]


def make_way(config: Config, argv: list[str]) -> None:
    """Go on as the code that was chosen, where this is what joining installed and another was; else return.

    Whatever is wrong with the choice, the agent starts.
    """
    if not code() or ROOT.parent.parent == chosen.home(config.state_dir):
        return
    with contextlib.suppress(OSError):
        chosen.note_start(config.state_dir)
        folder = chosen.pick(config)
        if folder is not None:
            env = {**os.environ, "PYTHONPATH": chosen.path_of(folder)}
            os.execve(sys.executable, [sys.executable, "-m", "deployments.agent", *argv], env)


def say_started(own: OwnLog) -> None:
    """The first line of its log: an agent that is well prints nothing, and silence could mean anything."""
    with contextlib.suppress(OSError):
        own.take("agent", [f"{VERSION} runs as process {os.getpid()}, Python {sys.version.split()[0]}".encode()])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--logs", type=Path, help="a folder for the parts' logs, instead of standard output")
    options = parser.parse_args(argv)
    try:
        config = load(options.config)
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        make_way(config, sys.argv[1:] if argv is None else argv)
        own = OwnLog(config.logs, config.masks)
        supervisor = Supervisor(programs(config), config.state_dir / "agent.lock", options.logs, own_log=own)
        supervisor.on_ready = lambda: say_started(own)
        return supervisor.run()
    except (ConfigError, AlreadyRunning) as error:
        print(spoken(error.text), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
