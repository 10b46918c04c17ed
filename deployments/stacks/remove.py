"""`python -m deployments.stacks.remove FOLDER`: take a stack's folder away, unless somebody works with it."""

import os
import sys
import time
from pathlib import Path

from deployments.stacks.retire import used_by
from deployments.stacks.said import FINE, ended, tried
from deployments.steps import Text

TELL_S = 5.0  # tens of thousands of files take minutes where the disk has other work


def _delete(folder: Path) -> None:
    """Delete the folder with everything in it, and say now and then how far it is. Links are not followed."""
    files, told = 0, time.monotonic()
    for here, folders, names in os.walk(folder, topdown=False):
        for name in names:
            Path(here, name).unlink()
            files += 1
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                print(f"… 已删除 {files:,} 个文件。{files:,} files deleted.", flush=True)
        for name in folders:
            path = Path(here, name)
            path.unlink() if path.is_symlink() else path.rmdir()
    folder.rmdir()


def remove(folder: Path) -> Text:
    """Take it away. What went wrong, FINE when nothing did."""
    if not folder.is_dir() or folder.is_symlink():
        print(f"{folder} is not there")
        return FINE
    if not ((folder / "venv").is_dir() or (folder / "activate").is_file() or not any(folder.iterdir())):
        return Text(
            f"{folder} 不像软件栈的目录，没有改动。", f"{folder} does not look like a stack, and is left alone."
        )
    problem = used_by(folder)
    if problem != FINE:
        return problem
    for name in ("current", "before"):
        link = folder.parent / name
        if link.is_symlink() and str(link.readlink()) == folder.name:
            link.unlink()
            print(f"{name} points to no stack any more")
    gone = folder.parent / f".gone-{folder.name}-{time.time_ns()}"
    folder.rename(gone)  # from here on nobody can begin to use it
    _delete(gone)
    print(f"{folder} is gone")
    return FINE


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_absolute():
        print("It takes FOLDER, a whole path.", file=sys.stderr)
        return 2
    return ended(tried(lambda: remove(Path(arguments[0]))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
