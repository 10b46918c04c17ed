"""`python -m deployments.agent.serving.await_npus FOLDER`: before a unit starts its engine, wait until npu-smi answers
and lists the NPUs that spec.json names. After a restart the driver takes minutes to bring them up."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from deployments.agent.serving import npus
from deployments.agent.serving.npus import Seen
from deployments.agent.serving.program import Stopped

PATIENCE_S, EVERY_S = 600.0, 2.0


def missing(wanted: list[str], look: Callable[[], list[Seen]]) -> str:
    """What is not there yet, '' for nothing."""
    try:
        there = {one.name for one in look()}
    except Stopped as stopped:
        return stopped.text.en
    return ", ".join(name for name in wanted if name not in there)


def wait(wanted: list[str], look: Callable[[], list[Seen]], patience_s: float, every_s: float) -> str:
    until, told = time.monotonic() + patience_s, ""
    while left := missing(wanted, look):
        if time.monotonic() >= until:
            return left
        if left != told:
            told = left
            print(f"waits for {left}", flush=True)
        time.sleep(every_s)
    return ""


def main(arguments: list[str], patience_s: float = PATIENCE_S, every_s: float = EVERY_S) -> int:
    try:
        spec = json.loads((Path(arguments[0]) / "spec.json").read_bytes())
        wanted = [str(name) for name in spec["npus"]] if spec.get("device") != "cpu" else []
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        print(f"{arguments[0] if arguments else 'FOLDER'}: {error}", file=sys.stderr)
        return 1
    left = wait(wanted, npus.look, patience_s, every_s) if wanted else ""
    if left:
        print(f"still missing after {patience_s:g} s: {left}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
