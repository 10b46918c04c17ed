"""A log of 2,000,000 lines: opened at its end, searched by a word and by an expression, levels counted; beside the
least that anyone has to do for it: unpack the same chunks and look for the word in each.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_log_search`.
"""

import os
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LINES, OPEN_MS = 2_000_000, 300


def begin(folder: Path) -> Any:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "console.settings", "VAR_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder / 'bench.sqlite3'}",
    }  # fmt: skip
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from datetime import timedelta

    from django.utils import timezone

    from deployments.models import Attempt, Job, Server
    from tests.browser.seeding_logs import long_log

    server = Server.objects.create(name="kp-01")
    job = Job.objects.create(server=server, kind="check", not_after=timezone.now() + timedelta(days=1))
    attempt = Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1)
    long_log(attempt.pk, LINES, {1_234_567: ["e", "RuntimeError: the needle of this haystack"]})
    return Attempt.objects.get(pk=attempt.pk)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def whole(name: str, least: float, search: Callable[[int], Any]) -> None:
    """A search that goes on until it is complete."""
    after = count = requests = 0
    longest = all_of_it = 0.0
    complete = False
    while not complete:
        took, found = timed(partial(search, after))
        all_of_it, longest, requests, after = all_of_it + took, max(longest, took), requests + 1, found.scanned_to
        count, complete = count + getattr(found, "count", 0), found.complete
    times = f"{all_of_it:.2f} s, {all_of_it / least:.1f} × the limit"
    print(f"{name}: {times}, {count:,} hits, {requests} requests, longest {longest:.2f} s")


def plainly(attempt: Any) -> int:
    rows = attempt.chunks.order_by("first").values_list("data", flat=True).iterator(chunk_size=16)
    return sum(zlib.decompress(bytes(data)).lower().count(b"needle of") for data in rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        attempt = begin(Path(folder))
        from deployments.services import log_search, logs
        from deployments.services.log_search import Query

        opened = min(timed(lambda: logs.tail(attempt, 500))[0] for _ in range(5))
        print(f"{LINES:,} lines: the last 500 in {1000 * opened:.1f} ms (budget {OPEN_MS})")
        least, _n = timed(lambda: plainly(attempt))
        print(f"plain limit (unpack, look for a word): {least:.2f} s")
        queries = {
            "a rare word": Query("needle of"),
            "a common word": Query("tokens"),
            "an expression": Query(r"needle .* hay\w+$", regex=True),
            "errors": Query(level="error"),
            "one process": Query(rank="Worker_TP3"),
        }
        for name, query in queries.items():
            whole(name, least, lambda after, query=query: log_search.search(attempt, query, after=after))
        whole("levels and processes", least, lambda after: log_search.facets(attempt, after))
        assert 1000 * opened < OPEN_MS


if __name__ == "__main__":
    main()
