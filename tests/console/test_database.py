"""SQLite's file gives back what was deleted, and an older one does after one VACUUM."""

import sqlite3

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from console import database

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL does that by itself"),
]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A database of its own in a file; what is said of "connection" is said of it."""
    path = tmp_path / "console.sqlite3"
    own = connection.copy()
    own.settings_dict = {**own.settings_dict, "NAME": str(path)}
    monkeypatch.setattr(database, "connection", own)
    monkeypatch.setattr(database, "RESERVE_BYTES", 64 * 1024)
    monkeypatch.setitem(database.settings.DATABASES, "default", {"NAME": str(path)})
    yield path
    own.close()


def fill_and_delete(path):
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE IF NOT EXISTS chunk (data BLOB)")
        base.executemany("INSERT INTO chunk VALUES (?)", [(bytes(10_000),) for _ in range(1000)])
        base.commit()
        base.execute("DELETE FROM chunk")
    base.close()


def test_a_new_file_shrinks_a_little_at_a_time_down_to_its_reserve(file, monkeypatch):
    database.begin()
    fill_and_delete(file)
    before = database.space()
    assert before.shrinks and before.free > 9_000_000
    assert database.give_back() > 9_000_000
    after = database.space()
    assert 0 < after.free <= 64 * 1024 and after.total < 500_000 < before.total
    assert database.give_back() == 0


def test_an_older_file_is_left_alone_until_it_is_compacted(file, capsys):
    fill_and_delete(file)
    database.begin()
    assert not database.space().shrinks and database.give_back() == 0
    call_command("compact")
    assert "MB after" in capsys.readouterr().out
    assert database.space().shrinks and database.space().total < 100_000 and file.stat().st_size < 100_000


def test_compacting_says_what_keeps_it(file, monkeypatch):
    fill_and_delete(file)
    with database.connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout=10")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CommandError, match="make down"):
        call_command("compact")
    other.close()
    monkeypatch.setattr(database.shutil, "disk_usage", lambda _path: type("Disk", (), {"free": 10}))
    with pytest.raises(CommandError, match="as much free disk"):
        call_command("compact")


def test_the_console_s_own_file_is_made_so_that_it_shrinks():
    assert database.space().shrinks
