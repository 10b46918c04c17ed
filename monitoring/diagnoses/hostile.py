"""Try signatures on lines that are made to hurt them, in a process of its own.

Logs of all servers are looked at by one process: a signature that takes a second for one line would stop them all. What
a signature costs cannot be read off it, so it is tried, on lines that nearly fit; the process can be ended where one
does not come back. `python -m monitoring.diagnoses.hostile` reads rules as TOML and names each signature before it.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from monitoring.diagnoses.lines import MOST as MOST_LINE
from monitoring.diagnoses.rules import Rule, read
from monitoring.diagnoses.templates import Template

LIMIT_S = 0.05  # for one line; an ordinary one takes microseconds
END_S = 0.3  # when a line is given up
TIME_S = 30.0  # for all of them


def slow(text: str, stage: str = "runtime", time_s: float = TIME_S) -> list[str]:
    """“rule: signature” of those that some line of MOST_LINE characters keeps longer than LIMIT_S; of one that does not
    come back, and of nothing behind it. `text` is one that `rules.read` takes."""
    command = [sys.executable, "-m", "monitoring.diagnoses.hostile", stage]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(text, timeout=time_s)
            is_over = True
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            is_over = False
    lines = said.splitlines()
    found = [line.removeprefix("slow ") for line in lines if line.startswith("slow ")]
    if not is_over or process.returncode:
        found += [line.removeprefix("try ") for line in lines[-1:] if line.startswith("try ")]
    return found


def signatures(rules: list[Rule]) -> Iterator[tuple[str, Template]]:
    for rule in rules:
        for template in (*rule.says, *rule.needs, *rule.unless, *rule.apart):
            yield f"{rule.id}: {template.text}", template


def lines(template: Template) -> Iterator[str]:
    """Lines of MOST_LINE characters that hold what the signature looks for again and again, and then do not fit."""
    pieces = template.pieces
    whole = "1".join(pieces)
    for filling in (" ", "a", "1", "1.", "a ", "=", *pieces, "1".join(pieces[:-1]), whole[:-1], whole):
        if filling:
            for head in ("", whole, *pieces):
                yield (head + filling * (MOST_LINE // len(filling) + 1))[:MOST_LINE]


def main() -> None:
    stage = sys.argv[1]
    signal.signal(signal.SIGALRM, _give_up)
    for name, template in signatures(read(sys.stdin.read(), stage)):
        print("try", " ".join(name.split()), flush=True)
        if any(_took(template, line) > LIMIT_S for line in dict.fromkeys(lines(template))):
            print("slow", " ".join(name.split()), flush=True)


class _GivenUp(Exception):
    pass


def _give_up(_signal: int, _frame: object) -> None:
    raise _GivenUp


def _took(template: Template, line: str) -> float:
    """Seconds, END_S where it does not come back: while it searches, `re` looks for signals."""
    began = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, END_S)
        template.regex.search(line)
    except _GivenUp:
        return END_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
