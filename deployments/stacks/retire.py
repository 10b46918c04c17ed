"""`python -m deployments.stacks.retire FOLDER`: a stack that is about to be made anew is not in use any more.

Refuses while a process works with it. Its activate file goes, so that nothing half-made is used if that fails.
"""

import os
import sys
from pathlib import Path

from deployments.stacks.said import FINE, ended
from deployments.steps import Text

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


def used_by(folder: Path) -> Text:
    """Who uses it, in a sentence; FINE where nobody does."""
    found = users(folder)
    if not found:
        return FINE
    named = "; ".join(found[:SHOWN])
    left = len(found) - SHOWN
    zh, en = (f" 等 {len(found)} 个", f" and {left} more") if left > 0 else ("", "")
    return Text(
        f"{folder} 正被使用：{named}{zh}。请先停下它们，再重试。",
        f"{folder} is in use by: {named}{en}. Stop them first, then try again.",
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_absolute():
        print("It takes FOLDER, a whole path.", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    problem = used_by(folder)
    if problem == FINE:
        (folder / "activate").unlink(missing_ok=True)
    return ended(problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
