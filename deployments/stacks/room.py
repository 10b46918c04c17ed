"""`python -m deployments.stacks.room FOLDER GIB`: is there so much room where FOLDER lies, or will lie?"""

import shutil
import sys
from pathlib import Path, PurePath

from deployments.stacks.said import FINE, ended
from deployments.steps import Text


def free_gib(folder: Path) -> float:
    """GiB free on the file system of the folder, or of the nearest one above it that is there."""
    there = next(path for path in [folder, *folder.parents] if path.exists())
    return shutil.disk_usage(there).free / 2**30


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or not arguments[1].isascii() or not arguments[1].isdecimal():
        print("It takes FOLDER and GIB, a whole number.", file=sys.stderr)
        return 2
    folder, wanted = Path(arguments[0]), int(arguments[1])
    free = free_gib(folder)
    print(told(folder, free, wanted))
    return ended(problem(folder, free, wanted))


def told(folder: PurePath, free: float, wanted: int) -> str:
    return f"{folder}: {free:.1f} GiB free, {wanted} GiB wanted"


def problem(folder: PurePath, free: float, wanted: int) -> Text:
    """What is wrong with so much room, FINE where nothing is."""
    if free >= wanted:
        return FINE
    return Text(
        f"磁盘太小：{folder} 所在磁盘可用 {free:.1f} GiB，需要 {wanted} GiB。"
        "请清出空间，或把软件栈放到别的磁盘，再重试。",
        f"The disk is too small: {free:.1f} GiB are free where {folder} lies, {wanted} GiB are wanted. Make room, "
        "or put the stacks on another disk, then try again.",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
