"""Log lines stored a second by one ingest process, beside a plain loop that reads the same stream into the same SQLite.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_ingest`.
"""

import os
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

LINES = 500_000
LINES_A_CHUNK = 700
TEXT = "(Worker_TP0 pid=52488) INFO 11-30 14:01:44 [loader.py:268] Loading weights took {n} ms on rank 0"


def entries(attempt: str, lines: int) -> Iterator[dict[str, bytes | int | str]]:
    """Stream entries as an agent's shipper makes them: `lines` lines in chunks below 64 kB raw."""
    byte = 0
    for first in range(1, lines + 1, LINES_A_CHUNK):
        n = min(LINES_A_CHUNK, lines + 1 - first)
        raw = "".join(f"1764500000000\to\t{TEXT.format(n=first + k)}\n" for k in range(n)).encode()
        yield {"a": attempt, "f": first, "n": n, "b0": byte, "b1": byte + len(raw), "z": zlib.compress(raw, 1)}
        byte += len(raw)


def fill(redis: object, key: str, attempt: str) -> None:
    pipe = redis.pipeline(transaction=False)  # type: ignore[attr-defined]
    for entry in entries(attempt, LINES):
        pipe.xadd(key, entry)
    pipe.execute()


def plain(redis: object, folder: Path) -> float:
    """Seconds of the least that can be done: XREAD, unpack, INSERT, commit every 100 chunks."""
    base = sqlite3.connect(folder / "plain.sqlite3", isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=NORMAL")
    base.execute("CREATE TABLE chunk (id INTEGER PRIMARY KEY, attempt TEXT, first INTEGER, n INTEGER, data BLOB)")
    cursor, started = "0", time.perf_counter()
    while answer := redis.xread({"plain": cursor}, count=100):  # type: ignore[attr-defined]
        found = (list(answer.items()) if isinstance(answer, dict) else answer)[0][1]
        base.execute("BEGIN IMMEDIATE")
        for entry_id, fields in found:
            cursor = entry_id
            zlib.decompress(fields[b"z"]).count(b"\n")
            base.execute(
                "INSERT INTO chunk (attempt, first, n, data) VALUES (?,?,?,?)",
                ("x", int(fields[b"f"]), int(fields[b"n"]), fields[b"z"]),
            )
        base.execute("COMMIT")
    return time.perf_counter() - started


def ours(redis: object, url: str, attempt: object) -> tuple[float, float]:
    """(seconds with the pauses between ticks, seconds of work) until every line is stored and acknowledged."""
    from console.ingest import TICK_S, Ingest
    from deployments.models import Attempt

    ingest = Ingest(url)
    ingest._load_servers()
    started, work = time.perf_counter(), 0.0
    while True:
        before = time.perf_counter()
        ingest._read_logs()
        took = time.perf_counter() - before
        work += took
        if Attempt.objects.values_list("next_line", flat=True).get(pk=attempt.pk) > LINES:  # type: ignore[attr-defined]
            return time.perf_counter() - started, work
        time.sleep(max(0.005, TICK_S - took))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["VAR_DIR"] = name
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        import django

        django.setup()
        from django.core.management import call_command
        from django.utils import timezone

        from deployments.models import Attempt, Job, Server
        from tests.conftest import Valkey

        call_command("migrate", verbosity=0)
        server = Server.objects.create(name="bench")
        job = Job.objects.create(server=server, kind="check", not_after=timezone.now())
        attempt = Attempt.objects.create(pk="a1-1-bench", job=job, n=1)
        valkey = Valkey(folder)
        try:
            redis = valkey.client()
            fill(redis, "plain", attempt.pk)
            fill(redis, f"h:{server.pk}:logs", attempt.pk)
            least = plain(redis, folder)
            total, work = ours(redis, valkey.url, attempt)
        finally:
            valkey.kill()
    print(
        f"log lines stored, one ingest process: {LINES / total:,.0f} lines/s (budget 50,000; "
        f"while working {LINES / work:,.0f}/s; "
        f"plain XREAD and INSERT {LINES / least:,.0f}/s, ratio {least / work:.2f})"
    )


if __name__ == "__main__":
    main()
