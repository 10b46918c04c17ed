"""How far long work is, on the job's log: one line now and then, with speed and time left."""

import time
from collections.abc import Callable

EVERY_S = 2.0
UNITS = ("B", "kB", "MB", "GB", "TB")


def amount(count: float) -> str:
    """Bytes as people read them, in thousands."""
    for unit in UNITS:
        if count < 1000 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("not reached")


def clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Counts bytes of `total` (0: nobody knows how many) and prints a line every two seconds."""

    def __init__(self, total: int, *, done: int = 0, say: Callable[[str], None] | None = None) -> None:
        self.total, self.done, self.began_with = total, done, done
        self.began = self.said_at = time.monotonic()
        self.say = say or (lambda text: print(text, flush=True))

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.said_at >= EVERY_S:
            self.said_at = now
            self.say(self.line(now))

    def line(self, now: float) -> str:
        took = now - self.began
        speed = (self.done - self.began_with) / took if took > 0 else 0.0
        words = amount(self.done) if not self.total else f"{amount(self.done)} / {amount(self.total)}"
        if self.total:
            words += f" ({100 * self.done // self.total} %)"
        if speed > 0:
            words += f", {amount(speed)}/s"
        if speed > 0 and self.total > self.done:
            words += f", {clock((self.total - self.done) / speed)} left 剩余"
        return words

    def end(self) -> None:
        """The last line, with the average speed."""
        took = time.monotonic() - self.began
        speed = f", {amount((self.done - self.began_with) / took)}/s" if took > 0.5 else ""
        self.say(f"{amount(self.done)}, {clock(took)}{speed}")
