"""`python -m deployments.stacks.there PATH …`: are all there? A container engine makes empty folders of those that are
not."""

import sys
from pathlib import Path

from deployments.stacks.said import FINE, ended
from deployments.steps import Text


def look(paths: list[str]) -> Text:
    """What is missing, in a sentence; FINE where nothing is."""
    missing = [path for path in paths if not Path(path).exists()]
    if not missing:
        print(f"{len(paths)} are there")
        return FINE
    named = ", ".join(missing)
    return Text(
        f"本机缺少 {named}。容器要用它们：请先装好驱动，或看 NPU 是否掉卡（作业 check），再重试。",
        f"Missing here: {named}. The container needs them: install the driver first, or see by the job check whether "
        "an NPU was lost, then try again.",
    )


def main(arguments: list[str]) -> int:
    if not arguments or not all(Path(path).is_absolute() for path in arguments):
        print("It takes PATH …, whole paths.", file=sys.stderr)
        return 2
    return ended(look(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
