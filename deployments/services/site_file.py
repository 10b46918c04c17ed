"""A file in which a site keeps rows of its own: read when somebody asks for them, and anew when it has changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

Content = TypeVar("Content")


class SiteFile(Generic[Content]):
    """`read` makes the content of a path; it is called for a file that is not there, too."""

    def __init__(self, read: Callable[[Path], Content]) -> None:
        self.read = read
        self.kept: tuple[Any, Content] | None = None

    def content(self, path: Path) -> Content:
        try:
            found = path.stat()
            stamp: Any = (path, found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = (path, None)
        if self.kept is None or self.kept[0] != stamp:
            self.kept = (stamp, self.read(path))
        return self.kept[1]
