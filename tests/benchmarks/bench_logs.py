"""Logs as on-call staff needs them: how late 200 viewers see a line, a burst of a million lines beside the telemetry of
other servers, and how fast a log of two million opens, each beside the least that the same run could do.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_logs`.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks import bench_hub, bench_ingest

BURST, BURST_S, CHUNK = 1_000_000, 20, 700
SERVERS, SAMPLES_HZ = 20, 2  # whose telemetry goes on meanwhile
LONG, OPENED = 2_000_000, 50
LATE_MS, OPEN_MS, LAG_MS = 500, 300, 1000


@contextlib.contextmanager
def ingest(redis: Any) -> Iterator[None]:
    """The ingest process as `make up` starts it, from when it reads on."""
    from console import streams

    redis.delete(streams.INGEST_ALIVE)
    process = subprocess.Popen([sys.executable, "manage.py", "ingest"], stderr=subprocess.DEVNULL)
    try:
        while not redis.exists(streams.INGEST_ALIVE):
            assert process.poll() is None, "ingest ended"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(20)


class Writer:
    """An agent's shipper: chunks of one attempt into its server's stream, each beginning where the last ended."""

    def __init__(self, redis: Any, server: int, attempt: str) -> None:
        self.redis, self.key, self.attempt = redis, f"h:{server}:logs", attempt
        self.line, self.byte = 1, 0

    def write(self, n: int) -> int:
        """The number of its last line."""
        now = int(time.time() * 1000)
        raw = "".join(f"{now}\to\t{bench_ingest.TEXT.format(n=self.line + k)}\n" for k in range(n)).encode()
        place = {"f": self.line, "n": n, "b0": self.byte, "b1": self.byte + len(raw)}
        self.redis.xadd(self.key, {"a": self.attempt, **place, "z": zlib.compress(raw, 1)})
        self.line, self.byte = self.line + n, self.byte + len(raw)
        return self.line - 1


def watched(redis: Any, cookie: str, server: int) -> None:
    """200 real websockets, an ingest of its own process, and a line from its stream to the socket."""

    async def write(_redis: Any, sent: dict[int, float]) -> None:
        writer, began = Writer(redis, server, "a1-1-bench"), time.perf_counter()
        for n in range(bench_hub.VIEWED_S * bench_hub.VIEWED_HZ):
            await asyncio.sleep(max(0.0, began + n / bench_hub.VIEWED_HZ - time.perf_counter()))
            sent[writer.line - 1 + bench_hub.VIEWED_LINES] = time.perf_counter()
            writer.write(bench_hub.VIEWED_LINES)

    least = bench_hub.run(bench_hub.view, cookie, redis, True)
    with ingest(redis):
        told = bench_hub.run(bench_hub.view, cookie, redis, True, write)
    lines = bench_hub.VIEWED_HZ * bench_hub.VIEWED_LINES
    print(f"200 viewers of one log of {lines:,} lines/s, from the server's stream to the socket: {told}")
    print(f"  (budget p99 {LATE_MS} ms; fan-out alone in the same run: {least})")


def burst(redis: Any, server: int, others: list[int], attempt: Any) -> None:
    """A million lines as fast as BURST_S asks, while others send samples, whose worst lag is read each second."""
    from django.db.models import Count, Max, Sum

    from console import streams
    from deployments.models import LogChunk

    writer, lags, told = Writer(redis, server, attempt.pk), [], 0.0
    with ingest(redis):
        next_sample = began = time.perf_counter()
        while True:
            passed = time.perf_counter() - began
            while writer.line <= min(BURST, passed / BURST_S * BURST):
                writer.write(min(CHUNK, BURST + 1 - writer.line))
            if time.perf_counter() >= next_sample:
                _samples(redis, others)
                next_sample += 1 / SAMPLES_HZ
            said = json.loads(redis.get(streams.INGEST_ALIVE) or "{}")
            if said.get("t", 0) != told:
                told = said["t"]
                lags.append(said["lag_ms"])
            rows = LogChunk.objects.filter(attempt=attempt)
            if writer.line > BURST and redis.xlen(writer.key) == 0:
                break
            assert passed < 90, f"{rows.count()} chunks stored after 90 s"
            time.sleep(0.01)
    took, found = time.perf_counter() - began, rows.aggregate(n=Sum("n"), last=Max("first"), count=Count("pk"))
    attempt.refresh_from_db()
    assert (found["n"], attempt.next_line) == (BURST, BURST + 1), found
    lag = sorted(lags)
    print(
        f"a burst of {BURST:,} lines in {BURST_S} s: all stored after {took:.1f} s ({BURST / took:,.0f} lines/s; none "
        f"lost); telemetry of {SERVERS} others meanwhile late by {lag[len(lag) // 2]:.0f} ms (median of each "
        f"second's worst), {lag[-1]:.0f} ms at most (budget {LAG_MS} ms)"
    )
    assert lag[-1] <= LAG_MS


def _samples(redis: Any, servers: list[int]) -> None:
    pipe = redis.pipeline(transaction=False)
    for pk in servers:
        pipe.xadd(f"h:{pk}:telemetry", {"d": json.dumps({"type": "sample", "seq": 1, "t": time.time(), "npus": []})})
    pipe.execute()


def opened(client: Any, attempt: Any, brief: Any, folder: Path) -> None:
    """Page and last 500 lines of a long log, beside SQLite's own reading of the same chunk."""
    from deployments.models import LogChunk

    raw = "".join(f"1764500000000\to\t{bench_ingest.TEXT.format(n=k)}\n" for k in range(CHUNK)).encode()
    data, rows = zlib.compress(raw, 1), []
    for first in range(1, LONG + 1, CHUNK):
        rows.append(LogChunk(attempt=attempt, first=first, n=CHUNK, data=data))
    LogChunk.objects.bulk_create(rows, batch_size=500)
    LogChunk.objects.create(attempt=brief, first=1, n=CHUNK, data=data)
    for one, total in ((attempt, rows[-1].first + CHUNK), (brief, 1 + CHUNK)):
        one.next_line, one.done = total, True
        one.save()
    short, long = (_open(client, one, OPENED) for one in (brief, attempt))
    least = _plainly(folder / "console.sqlite3", attempt.pk)
    print(
        f"a log of {LONG:,} lines, page and last 500 lines: median {long:.0f} ms (budget {OPEN_MS} ms; a log of "
        f"{CHUNK} lines {short:.0f} ms, ratio {long / short:.2f}; SQLite and zlib alone {least:.1f} ms)"
    )
    assert long <= OPEN_MS


def _open(client: Any, attempt: Any, times: int) -> float:
    """Median milliseconds, after a first time that imports and compiles."""
    took: list[float] = []
    for _ in range(times + 1):
        began = time.perf_counter()
        assert client.get(f"/jobs/{attempt.job_id}/").status_code == 200
        assert client.get(f"/jobs/{attempt.job_id}/lines?n=500").json()["n"] == 500
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took[1:])[times // 2]


def _plainly(path: Path, attempt: str) -> float:
    query = "SELECT data FROM deployments_logchunk WHERE attempt_id=? ORDER BY first DESC LIMIT 1"
    with contextlib.closing(sqlite3.connect(path)) as base:
        began = time.perf_counter()
        for _ in range(OPENED):
            zlib.decompress(base.execute(query, (attempt,)).fetchone()[0]).split(b"\n")
        return (time.perf_counter() - began) / OPENED * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"VAR_DIR": name, "LOG_LEVEL": "WARNING"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        _user, cookie = bench_hub.prepare()
        from django.conf import settings
        from django.test import Client
        from django.utils import timezone

        from deployments.models import Attempt, Job, Server
        from tests.conftest import Valkey

        valkey = Valkey(Path(name))
        settings.REDIS_URL = os.environ["REDIS_URL"] = valkey.url
        settings.ALLOWED_HOSTS = ["testserver", *settings.ALLOWED_HOSTS]
        server = Server.objects.get()
        others = [Server.objects.create(name=f"other-{n}").pk for n in range(SERVERS)]
        jobs = [Job.objects.create(server=server, kind="check", not_after=timezone.now()) for _ in range(3)]
        rows = [Attempt.objects.create(pk=f"a{job.pk}-1-bench", job=job, n=1) for job in jobs]
        client = Client()
        client.cookies[settings.SESSION_COOKIE_NAME] = cookie.partition("=")[2]
        try:
            watched(valkey.client(), cookie, server.pk)
            burst(valkey.client(), server.pk, others, rows[0])
            opened(client, rows[1], rows[2], Path(name))
        finally:
            valkey.kill()


if __name__ == "__main__":
    main()
