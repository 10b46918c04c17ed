"""The agent of one server: a supervisor of worker, link and sampler.

python -m deployments.agent --config <config.json>
"""

import argparse
import sys
from pathlib import Path

from deployments.agent import ROOT
from deployments.agent.config import Config, ConfigError, load, spoken
from deployments.agent.environment import passed_on
from deployments.agent.supervisor import AlreadyRunning, Program, Supervisor

PARTS = ("sampler", "link", "worker")


def programs(config: Config) -> list[Program]:
    """The agent's processes, in the order they start."""
    env = {**passed_on(), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return [
        Program(part, [sys.executable, "-m", f"deployments.agent.{part}", "--config", str(config.path)], env=env)
        for part in PARTS
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--logs", type=Path, help="a folder for the parts' logs, instead of standard output")
    options = parser.parse_args(argv)
    try:
        config = load(options.config)
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Supervisor(programs(config), config.state_dir / "agent.lock", options.logs).run()
    except (ConfigError, AlreadyRunning) as error:
        print(spoken(error.text), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
