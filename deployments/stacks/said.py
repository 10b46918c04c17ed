"""How a program of a step says why it fails: on the log, and in the job's verdict (the file $ASCEND_REASON)."""

import json
import os
import sys
from pathlib import Path

from deployments.steps import Text

FINE = Text("", "")


def ended(problem: Text) -> int:
    """The exit code: 0 where there is no problem, else 1, with the problem told."""
    if problem == FINE:
        return 0
    print(f"{problem.zh} {problem.en}", file=sys.stderr)
    if path := os.environ.get("ASCEND_REASON"):
        Path(path).write_text(json.dumps(problem), encoding="utf-8")
    return 1
