"""Where a supervisor puts its programs' lines: standard output, with a name before each, or files that turn over."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

MAX_LINE = 64 * 1024
MAX_FILE = 5 * 1024 * 1024
KEPT_FILES = 3
LAST_LINES = 20


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


class LogFile:
    """Appends to `path`; at 5 MB it becomes `path.1`, and the oldest of three goes."""

    def __init__(self, path: Path, max_bytes: int = MAX_FILE) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(self.path, flags, 0o600)
        self.size = os.fstat(self.descriptor).st_size

    def write(self, data: bytes) -> None:
        if self.size and self.size + len(data) > self.max_bytes:
            os.close(self.descriptor)
            for n in range(KEPT_FILES - 1, 0, -1):
                older = self.path.with_name(f"{self.path.name}.{n}")
                if older.exists():
                    older.replace(self.path.with_name(f"{self.path.name}.{n + 1}"))
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            self._open()
        self.size += os.write(self.descriptor, data)

    def flush(self) -> None:
        pass


class Prefixer:
    """Whole lines of one program into a sink. A sink that breaks (closed terminal, full disk) stops nobody."""

    def __init__(
        self, prefix: str, sink: Sink, *, stamped: bool = False, also: Callable[[list[bytes]], None] | None = None
    ) -> None:
        self.prefix = prefix.encode()
        self.sink = sink
        self.stamped = stamped
        self.also = also  # is handed each line, too
        self.rest = b""
        self.count = 0  # bytes seen
        self.last: deque[str] = deque(maxlen=LAST_LINES)

    def feed(self, data: bytes) -> None:
        self.count += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > MAX_LINE:
            lines, self.rest = [*lines, self.rest], b""
        if lines:
            self._write(lines)

    def close(self) -> None:
        if self.rest:
            self._write([self.rest])
            self.rest = b""

    def _write(self, lines: list[bytes]) -> None:
        self.last.extend(line[:500].decode(errors="replace") for line in lines[-LAST_LINES:])
        head = self.prefix
        if self.stamped:
            head = time.strftime("%Y-%m-%dT%H:%M:%S%z ").encode() + head
        try:
            self.sink.write(b"".join(head + line + b"\n" for line in lines))
            self.sink.flush()
        except (OSError, ValueError):
            pass
        if self.also is not None:
            with contextlib.suppress(OSError, ValueError):
                self.also(lines)
