"""`python -m deployments.stacks.remove FOLDER`: take a stack's folder away, unless somebody works with it."""

import os
import shutil
import sys
import time
from pathlib import Path

SHOWN = 5


def users(folder: Path, proc: Path = Path("/proc")) -> list[str]:
    """Processes that run from the folder, "PID command" each: a name below it is their program, a word of their
    command, or a file that they have mapped."""
    inside = f"{folder}/".encode()
    found = []
    for one in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(one.name) in (os.getpid(), os.getppid()):
            continue
        try:
            words = (one / "cmdline").read_bytes()
            program = os.readlink(one / "exe").encode()  # noqa: PTH115
        except OSError:
            words, program = b"", b""
        if program.startswith(inside) or words.startswith(inside) or _maps(one, inside):
            found.append(f"{one.name} {words.replace(bytes(1), b' ').decode(errors='replace')[:120].strip()}")
    return found


def _maps(one: Path, inside: bytes) -> bool:
    try:
        return b" " + inside in (one / "maps").read_bytes()
    except OSError:
        return False


def remove(folder: Path) -> str:
    """Take it away. What went wrong, '' when nothing did."""
    if not folder.is_dir() or folder.is_symlink():
        print(f"{folder} is not there")
        return ""
    if not ((folder / "venv").is_dir() or (folder / "activate").is_file() or not any(folder.iterdir())):
        return f"{folder} does not look like a stack, and is left alone."
    if found := users(folder):
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        return f"In use by: {'; '.join(found[:SHOWN])}{more}. Stop them first."
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
