"""What pages hear of logs: what was stored, and the last line of each log that moved lately, said again each second, so
that a lost last message shows no hole."""

import time
from collections.abc import Container
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from console import live
from deployments.ingest import Stored
from deployments.models import Attempt, JobState
from deployments.services import jobs

LATELY_S = 60.0
MOST_SEEDED = 1000


class Heads:
    """{job id: (attempt, last line, time.monotonic() when it moved)}"""

    def __init__(self) -> None:
        self.heads: dict[int, tuple[str, int, float]] = {}

    def seed(self) -> None:
        """Those of what moved lately: a predecessor may have died between its commit and its messages."""
        lately = timezone.now() - timedelta(seconds=LATELY_S)
        for attempt in Attempt.objects.filter(Q(state=JobState.RUNNING) | Q(ended_at__gt=lately))[:MOST_SEEDED]:
            self.moved(attempt.job_id, attempt.pk, attempt.next_line - 1)

    def moved(self, job_id: int, attempt: str, last: int) -> None:
        self.heads[job_id] = (attempt, last, time.monotonic())

    def news(self, stored: Stored) -> list[tuple[str, bytes]]:
        """(channel, message) for each chunk of a log, job and batch that has moved."""
        made = []
        for job_id, chunk in stored.chunks:
            text = chunk.raw[:-1].decode("utf-8", "replace")
            data = {"attempt": chunk.attempt, "first": chunk.first, "n": chunk.n, "text": text}
            last = chunk.first + chunk.n - 1
            made.append(live.message(f"job:{job_id}", "log", data, last))
            self.moved(job_id, chunk.attempt, last)
        for job in stored.jobs.values():
            data = jobs.as_json(job)
            made.append(live.message(f"job:{job.pk}", "state", data, 0))
            made.append(live.message("jobs", "job", data, 0))
        return made + [live.message(f"batch:{pk}", "moved", {"id": pk}) for pk in stored.batches]

    def messages(self, open_topics: Container[str]) -> list[tuple[str, bytes]]:
        """(channel, message) for each job that somebody looks at."""
        old = time.monotonic() - LATELY_S
        self.heads = {pk: head for pk, head in self.heads.items() if head[2] > old}
        return [
            live.message(f"job:{pk}", "head", {"attempt": attempt}, last)
            for pk, (attempt, last, _) in self.heads.items()
            if f"job:{pk}" in open_topics
        ]
