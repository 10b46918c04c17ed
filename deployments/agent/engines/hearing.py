"""What a keeper hears of its engine, and what it tells of it: engine.log, the pieces for the console, now.json."""

import contextlib
import os
import selectors
import signal
import time
from collections import deque

from deployments.agent.engines.folder import Folder
from deployments.agent.engines.logfile import Capture
from deployments.agent.engines.now import Now
from deployments.agent.engines.pieces import Pieces
from deployments.agent.engines.progress import Progress
from deployments.steps import Text

MOST_TAIL = 64 * 1024
MOST_PAUSE_S = 0.25
NEWS_S = 1.0


class Hearing:
    """One engine's. `turn` hears and waits a moment; `waker` is a descriptor that wakes it, from threads too."""

    def __init__(self, place: Folder, key: str) -> None:
        self.capture = Capture(place.path)
        self.pieces = Pieces(place, self.capture, key)
        self.now = Now(place, int(place.name[1:]))
        self.progress = Progress()
        self.tail: deque[bytes] = deque()
        self.tail_bytes = 0
        self.state = "loading"
        self.runs = False
        self.told = ""
        self.told_at = float("-inf")
        self.selector = selectors.DefaultSelector()
        self.wakeup, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        self.selector.register(self.wakeup, selectors.EVENT_READ)

    def turn(self, most_s: float = MOST_PAUSE_S) -> None:
        """Hear, tell, and wait for more."""
        busy = self.hear()
        self.news()
        self.now.tick()
        self.pieces.tick()
        due = [most_s, self.pieces.due_in(), self.now.due_in()]
        timeout = 0.0 if busy else max(0.0, min(one for one in due if one is not None))
        for key, _events in self.selector.select(timeout):
            if key.fd == self.wakeup:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wakeup, 4096)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self.waker, b"\0")

    # -- hearing

    def follow(self) -> None:
        """The FIFO is open: its engine runs."""
        assert self.capture.fifo is not None
        self.selector.register(self.capture.fifo, selectors.EVENT_READ)
        self.runs = True

    def let_go(self) -> None:
        """The engine is gone: all that it has printed becomes records."""
        self.catch_up()
        if self.capture.fifo is not None:
            with contextlib.suppress(KeyError):
                self.selector.unregister(self.capture.fifo)
            self.capture.drop()
        self.runs = False

    def forget(self) -> None:
        """What was heard of the engine before this start."""
        self.tail.clear()
        self.tail_bytes, self.progress = 0, Progress()

    @property
    def last(self) -> str:
        """The last output."""
        return b"".join(self.tail).decode(errors="replace")

    def hear(self) -> bool:
        """Move what the engine has printed, and make records of it; whether there may be more at once."""
        more = self._take()
        for _ in range(4):
            data = self.pieces.work()
            self._learn(data)
            more = more or bool(data)
        if self.capture.is_full and not self.pieces.is_behind and self.pieces.writer is not None:
            self.pieces.turn_over()
        return more

    def _take(self) -> bool:
        """Whether something was there. Of a log that is full nothing is taken until records were made of it, unless
        there is no room for those: the engine must not wait for that."""
        more = False
        for _ in range(8):
            if self.capture.is_full and self.pieces.is_behind and self.pieces.writer is not None:
                break
            count, dropped = self.capture.take(has_room=not self.capture.is_full)
            if not count:
                break
            self._learn(dropped)
            more = True
        return more

    def _learn(self, data: bytes) -> None:
        if not data:
            return
        self.tail.append(data)
        self.tail_bytes += len(data)
        while self.tail_bytes - len(self.tail[0]) > MOST_TAIL:
            self.tail_bytes -= len(self.tail.popleft())
        if self.state == "loading":
            self.progress.feed(data)

    def catch_up(self) -> None:
        while self.hear():
            pass
        self.capture.settle()
        while self.hear():
            pass

    # -- telling

    def put(self, state: str, reason: Text | None) -> None:
        """The state from now on; told at once."""
        self.state = state
        self.now.put(state=state, reason=list(reason) if reason else None)
        self.news(at_once=True)

    def news(self, *, at_once: bool = False) -> None:
        """Tell the console's log what has changed, progress at most once a second."""
        counted = self.progress.counted if self.state == "loading" and self.runs else None
        self.now.put(progress=counted, facts=dict(self.progress.facts))
        fields = self.now.fields
        event = {"state": self.state, "progress": counted, "reason": fields["reason"], "facts": fields["facts"]}
        if repr(event) == self.told or (not at_once and time.monotonic() - self.told_at < NEWS_S):
            return
        self.told, self.told_at = repr(event), time.monotonic()
        self.pieces.event("engine", **event)

    def end_piece(self, state: str, code: int | None, reason: Text | None, *, more: bool) -> None:
        """Where none is open, one is made for these last words."""
        if self.pieces.writer is None and self.pieces.next_begin is None:
            self.begin_piece()
        self.news(at_once=True)
        self.pieces.end(state, code, reason, more=more)

    def begin_piece(self) -> None:
        """A new piece, and in it how the engine is; one that is open ends."""
        self.pieces.end("succeeded", None, None, more=True)
        self.pieces.begin()
        self.pieces.mend()
        self.told = ""

    def close(self) -> None:
        self.now.tick(at_once=True)
        self.pieces.tick()
        self.capture.close()
