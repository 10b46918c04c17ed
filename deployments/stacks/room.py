"""`python -m deployments.stacks.room FOLDER GIB`: is there so much room where FOLDER lies, or will lie?"""

import shutil
import sys
from pathlib import Path


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
    print(f"{folder}: {free:.1f} GiB free, {wanted} GiB wanted")
    if free < wanted:
        print("The disk is too small. Make room, or put the stacks on another disk.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
