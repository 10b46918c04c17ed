"""What a step's output says about how it went: words that it must print, words that have a meaning, questions."""

import re
import time
from collections.abc import Callable

from deployments.steps import Step, Text

KEPT = 8192  # bytes of each stream that are still looked at when more comes
QUESTION_S = 5.0  # a question stands for so long and nothing follows: it waits for an answer
MOST_QUESTION = 300
# The end of a line that nobody has ended: what installers, pip, ssh and sudo print before they read an answer.
QUESTION = re.compile(
    rb"(\[[yY](es)?\s*/\s*[nN]o?\]|\(\s*[yY](es)?\s*/\s*[nN]o?(/[^)]{0,30})?\)|password[^:]{0,60}:|"
    rb"press [^.\n]{0,40}to continue|\?)\s*[:>]?\s*$",
    re.IGNORECASE,
)


class Heard:
    """Listens to one step. `feed` the bytes of each stream as they come."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.tails: dict[int, bytes] = {}
        self.said = not step.says
        self.meaning: Text | None = None
        self.at = time.monotonic()  # of the last output

    def feed(self, stream: int, data: bytes) -> None:
        self.at = time.monotonic()
        tail = self.tails.get(stream, b"") + data
        self.tails[stream] = tail[-KEPT:]
        if not (self.step.says or self.step.means):
            return
        text = tail.decode(errors="replace")
        self.said = self.said or any(re.search(pattern, text, re.IGNORECASE) for pattern in self.step.says)
        for pattern, meaning in self.step.means:
            if self.meaning is None and re.search(pattern, text, re.IGNORECASE):
                self.meaning = meaning

    def question(self) -> str:
        """What it asks and waits for, '' when it waits for nothing."""
        if not self.step.unattended or time.monotonic() - self.at < QUESTION_S:
            return ""
        return self._last(lambda tail: tail.rpartition(b"\n")[2])

    def last_question(self) -> str:
        """A question as the last that it printed before its end; with an end of input for an answer it has failed."""
        return self._last(lambda tail: tail.strip().rpartition(b"\n")[2]) if self.step.unattended else ""

    def _last(self, end: Callable[[bytes], bytes]) -> str:
        for tail in self.tails.values():
            line = end(tail).rpartition(b"\r")[2].strip()
            if line and QUESTION.search(line):
                return line[-MOST_QUESTION:].decode(errors="replace")
        return ""
