"""How a program of a step says why it fails: on the log, and in the job's verdict (the file $ASCEND_REASON)."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from deployments.steps import Text

FINE = Text("", "")


def ended(problem: Text) -> int:
    """The exit code: 0 where there is no problem, else 1, with the problem told."""
    if problem == FINE:
        return 0
    print(f"{problem.zh} {problem.en}", file=sys.stderr)
    if path := os.environ.get("ASCEND_REASON"):
        with contextlib.suppress(OSError):  # where the disk is full, the log has it
            Path(path).write_text(json.dumps(problem), encoding="utf-8")
    return 1


def tried(work: Callable[[], Text]) -> Text:
    """What the work tells; in words what the disk refused it."""
    try:
        return work()
    except OSError as error:
        where, why = error.filename or "—", error.strerror or type(error).__name__
        return Text(
            f"磁盘拒绝了改动：{where}（{why}）。请清出空间或检查权限，再重试。",
            f"The disk refused a change: {where} ({why}). Free some space or mend the rights, then try again.",
        )
