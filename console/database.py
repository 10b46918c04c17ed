"""How much the database takes on disk, and how SQLite gives space back.

SQLite reuses what was deleted, but its file keeps its size. Ours are made with auto_vacuum=INCREMENTAL, so that space
goes back a few pages at a time; a file that is older changes to that by one VACUUM (`manage.py compact`).
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils.translation import gettext as _

from console.errors import Conflict, ConsoleError

INCREMENTAL = 2
PAGES_AT_ONCE, PAUSE_S = 500, 0.01
RESERVE_BYTES = 64 * 1024**2  # stays free in the file: the next lines need it


@dataclass(frozen=True)
class Space:
    """Bytes of the whole database, and of them free to be used again; `free` is None where nobody knows.

    `shrinks` says whether the file gives free space back by itself.
    """

    total: int
    free: int | None
    shrinks: bool


def space() -> Space:
    if connection.vendor != "sqlite":
        return Space(int(_one("SELECT pg_database_size(current_database())")), None, True)
    size = _one("PRAGMA page_size")
    free, shrinks = size * _one("PRAGMA freelist_count"), _one("PRAGMA auto_vacuum") == INCREMENTAL
    return Space(size * _one("PRAGMA page_count"), free, shrinks)


def give_back() -> int:
    """Bytes that went back to the disk: what is free beyond a reserve. No turn holds the lock for long."""
    if connection.vendor != "sqlite" or _one("PRAGMA auto_vacuum") != INCREMENTAL:
        return 0
    size, given = _one("PRAGMA page_size"), 0
    while (spare := _one("PRAGMA freelist_count") - RESERVE_BYTES // size) > 0:
        count = min(spare, PAGES_AT_ONCE)
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA incremental_vacuum({count})")
            cursor.fetchall()
        given += count * size
        time.sleep(PAUSE_S)
    return given


def begin(**_signal: Any) -> None:
    """Before its first table: later only a VACUUM of everything could."""
    if (
        connection.vendor == "sqlite"
        and not _one("PRAGMA auto_vacuum")
        and not _one("SELECT count(*) FROM sqlite_master")
    ):
        _vacuum()


def compact() -> tuple[int, int]:
    """(bytes before, bytes after) of SQLite's file. Raises ConsoleError."""
    if connection.vendor != "sqlite":
        raise Conflict(_("PostgreSQL compacts itself (autovacuum)."), _("Nothing has to be done."))
    before = space().total
    room = shutil.disk_usage(Path(settings.DATABASES["default"]["NAME"]).parent).free
    if room < before:
        raise ConsoleError(
            _("Compacting needs as much free disk as the database takes."), _("Make room on its disk, then try again.")
        )
    _vacuum()
    return before, space().total


def _vacuum() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.fetchall()


def _one(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()[0][0]
