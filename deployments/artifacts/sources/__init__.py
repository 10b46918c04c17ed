"""Where models come from: a hub, a folder on the web, a shared path, the console, another server. Plain code.

Each is a `Source`; fetch.py brings its files in, and knows nothing of where they are from.
"""

from dataclasses import dataclass
from typing import Protocol


class Broken(Exception):
    """It did not work this time, and may the next; `after_s` is how long its other end wants to be left alone."""

    def __init__(self, words: str, after_s: float = 0.0) -> None:
        super().__init__(words)
        self.after_s = after_s


class OutOfRange(Broken):
    """More lies here than there is."""


@dataclass(frozen=True)
class File:
    """One file as its source lists it. `size` is None and `sha256` '' where it tells none; `git` is the SHA-1 that git
    makes of it, `tag` what tells this state of it from a later one."""

    name: str
    size: int | None
    url: str = ""
    sha256: str = ""
    git: str = ""
    tag: str = ""

    @property
    def digest(self) -> str:
        """What names its content, '' where nothing does."""
        return self.sha256 or self.git

    @property
    def mark(self) -> str:
        """What is noted of a file that has come, so that another state of it is noticed."""
        return self.digest or self.tag


class Stream(Protocol):
    """A file's bytes from `begins` on. `total` is how long the whole file is, `tag` what tells it from a later one."""

    begins: int
    total: int | None
    tag: str

    def read(self) -> bytes:
        """The next bytes, b'' at the end. Raises Broken, OSError."""

    def close(self) -> None: ...


class Source(Protocol):
    """`said` is what a person calls it; `revision` is the state that `files` has listed, '' where there is no such."""

    said: str
    revision: str

    def files(self) -> list[File]:
        """Raises Broken, BadModel."""

    def open(self, file: File, begin: int, tag: str) -> Stream:
        """From `begin` where it is still the file of that tag, else from 0. Raises Broken, BadModel."""

    def sha256(self, file: File) -> str:
        """Of a file that has come, '' where the source cannot tell. Raises Broken, BadModel."""
