"""What the log of an engine says went wrong, best first, and what helps. Plain code.

One line at a time is held against the tables of `failures/`. A cause stands before what follows from it, and the words
by which an engine only says that it has failed ("see root cause above") are never an answer.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deployments.artifacts import engine_failures
from deployments.serving.failures import FOLLOWS, ROOT, Known, Remedy, memory, network, npu, settings
from deployments.steps import Text

TABLES: tuple[Known, ...] = (*memory.TABLE, *settings.TABLE, *npu.TABLE, *network.TABLE)
SIGNS = [(known, re.compile(known.sign)) for known in TABLES]
MOST = 5
MOST_LINES = 200_000
MOST_LINE, MOST_SHOWN = 4000, 400
LAST = FOLLOWS + 1
NAMELESS = ("unknown", "gone")  # ids of what says only that there was an error
ECHO = re.compile(
    r"Engine core initialization failed|See (root cause|stack trace)|Failed core proc|EngineDeadError|"
    r"Engine core proc \S+ died unexpectedly|EngineCore (failed to start|encountered a fatal error)|"
    r"AsyncLLM output_handler failed|Engine loop is not running|WorkerProc initialization failed|"
    r"Received request |Added request |non-default args|Initializing an? .{0,20}LLM engine"
)
RAISED = re.compile(r"(?:^|[\]|] |\) )((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Failed))\b: ?\S")
GONE = re.compile(r"Engine core proc \S+ died unexpectedly|EngineDeadError")
PREFIX = re.compile(r"^\((?:\w+[-_ ]?)+ pid=\d+\) ?(?:ERROR|WARNING|INFO)? ?[\d: -]*(?:\[[\w./]+:\d+\])? ?")


@dataclass(frozen=True)
class Finding:
    """`line` counts from 1 within what was looked at; `text` is that line. `numbers` are what its pattern has named."""

    id: str
    line: int
    text: str
    cause: Text
    remedies: tuple[Remedy, ...] = ()
    numbers: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        remedies = [
            {"text": list(one.text), "change": one.change, "job": one.job, "way": one.way} for one in self.remedies
        ]
        return {"id": self.id, "line": self.line, "text": self.text, "cause": list(self.cause), "remedies": remedies,
                "numbers": self.numbers}  # fmt: skip


def look(lines: Iterable[str], *, died: bool = False) -> list[Finding]:
    """The best MOST of what is known, none for a healthy log.

    With `died` the engine has ended against our will: then it has an answer even where no signature is known.
    """
    found: dict[str, tuple[int, Finding]] = {}
    rest = _Rest()
    for n, raw in enumerate(lines, 1):
        if n > MOST_LINES:
            break
        line = raw.rstrip("\r\n")[:MOST_LINE]
        if ECHO.search(line):
            rest.gone = rest.gone or (n if GONE.search(line) else 0)
            continue
        rest.take(n, line)
        for known, sign in SIGNS:
            if known.id not in found and (match := sign.search(line)):
                found[known.id] = (known.rank, _finding(known, match, n, line))
                break
    if died and not any(rank == ROOT for rank, _finding_ in found.values()):
        found |= {one.id: (rank, one) for rank, one in rest.findings(bool(found))}
    ranked = sorted(found.values(), key=lambda pair: (pair[0], pair[1].line))
    return [finding for _rank, finding in ranked[:MOST]]


def best(lines: Iterable[str], *, died: bool = True) -> Finding | None:
    """The first of them, for the reason of a job that failed."""
    return next(iter(look(lines, died=died)), None)


def _finding(known: Known, match: "re.Match[str]", n: int, line: str) -> Finding:
    numbers = {name: value.strip()[:200] for name, value in match.groupdict().items() if value}
    words = _Words(numbers)
    cause = Text(known.cause.zh.format_map(words), known.cause.en.format_map(words))
    return Finding(known.id, n, line[:MOST_SHOWN], cause, known.remedies, numbers)


class _Words(dict[str, str]):
    """A number that the line does not say stands as a dash."""

    def __missing__(self, name: str) -> str:
        return "—"


class _Rest:
    """What is left to say where no signature is known: the first error that an engine raised, or that it is gone."""

    def __init__(self) -> None:
        self.raised: tuple[int, str] | None = None
        self.inside: tuple[int, str] | None = None  # of a process of the engine itself: nearer to the cause
        self.meant: tuple[int, str, Text] | None = None
        self.gone = 0

    def take(self, n: int, line: str) -> None:
        if RAISED.search(line):
            self.raised = (n, line)
            if self.inside is None and re.match(r"\((EngineCore|Worker|VllmWorker)", line):
                self.inside = (n, line)
            if self.meant is None and (words := engine_failures.meaning(line)):
                self.meant = (n, line, words)

    def findings(self, has_more: bool) -> list[tuple[int, Finding]]:
        if self.meant:
            n, line, words = self.meant
            return [(ROOT, Finding("engine", n, line[:MOST_SHOWN], words))]
        if has_more:
            return []
        if chosen := self.inside or self.raised:
            n, line = chosen
            said = PREFIX.sub("", line).strip()[:200]
            return [(LAST, Finding("unknown", n, line[:MOST_SHOWN], unknown(said)))]
        return [(LAST, Finding("gone", self.gone, "", engine_failures.KILLED))] if self.gone else []


def unknown(said: str) -> Text:
    return Text(
        f"引擎报告了一个还没有收录的错误：{said}",
        f"The engine reports an error that is not known here yet: {said}",
    )
