"""How much has come onto the disk while a step prints nothing: pip unpacks for minutes without a word."""

import os
import time
from pathlib import Path

EVERY_S = 5.0


class Growth:
    """Tells every five seconds of silence what has come to the file system of `folder` since the step began.

    The whole file system is asked, which takes no time; what others write there meanwhile counts as well.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.began = self.told_at = time.monotonic()
        self.before = self._used()

    def words(self, heard_at: float) -> str:
        """A line for the log, '' while there is nothing to tell."""
        now = time.monotonic()
        if not self.folder.name or now - max(heard_at, self.told_at) < EVERY_S:
            return ""
        self.told_at = now
        used = self._used()
        if used is None or self.before is None:
            return ""
        mb, took = max(0, used - self.before) >> 20, round(now - self.began)
        return f"… {took} s，磁盘增加 {mb:,} MB。{mb:,} MB more on the disk after {took} s."

    def _used(self) -> int | None:
        """Bytes in use on the file system of the folder, or of the nearest one above it that is there."""
        for path in (self.folder, *self.folder.parents):
            try:
                found = os.statvfs(path)
            except OSError:
                continue
            return (found.f_blocks - found.f_bfree) * found.f_frsize
        return None
