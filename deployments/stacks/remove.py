"""`python -m deployments.stacks.remove FOLDER`: take a stack's folder away, unless somebody works with it."""

import shutil
import sys
import time
from pathlib import Path

from deployments.stacks.retire import used_by


def remove(folder: Path) -> str:
    """Take it away. What went wrong, '' when nothing did."""
    if not folder.is_dir() or folder.is_symlink():
        print(f"{folder} is not there")
        return ""
    if not ((folder / "venv").is_dir() or (folder / "activate").is_file() or not any(folder.iterdir())):
        return f"{folder} does not look like a stack, and is left alone."
    if problem := used_by(folder):
        return problem
    for name in ("current", "before"):
        link = folder.parent / name
        if link.is_symlink() and str(link.readlink()) == folder.name:
            link.unlink()
            print(f"{name} points to no stack any more")
    gone = folder.parent / f".gone-{folder.name}-{time.time_ns()}"
    folder.rename(gone)  # from here on nobody can begin to use it
    shutil.rmtree(gone)
    print(f"{folder} is gone")
    return ""


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_absolute():
        print("It takes FOLDER, a whole path.", file=sys.stderr)
        return 2
    problem = remove(Path(arguments[0]))
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
