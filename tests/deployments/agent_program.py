"""Starts a part of the agent as it is, with the kinds of the tests beside its own.

python agent_program.py runner|worker|supervisor …
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

import deployments.kinds  # noqa: E402

deployments.kinds.__path__.append(str(HERE / "agent_kinds"))

RUNNER = [sys.executable, str(Path(__file__).resolve()), "runner"]


def main():
    part, arguments = sys.argv[1], sys.argv[2:]
    if part == "runner":
        from deployments.agent import execution, runner

        execution.RUNG_S = float(os.environ.get("TEST_RUNG_S", execution.RUNG_S))
        return runner.main(arguments)
    if part == "worker":
        from deployments.agent import worker

        return worker.main(arguments, runner=RUNNER)
    raise SystemExit(f"no such part: {part}")


if __name__ == "__main__":
    sys.exit(main())
