"""What pages hear of logs: what was stored, and the last line of each log that moved lately, said again each second, so
that a lost last message shows no hole."""

import time
from collections.abc import Container
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from console import live
from deployments.chunks import Chunk
from deployments.ingest import Stored
from deployments.models import AgentLog, Attempt, EngineLog, JobState
from deployments.services import jobs, replica_live

LATELY_S = 60.0
MOST_SEEDED = 1000


class Heads:
    """{topic: (attempt or piece of an engine's log, last line, time.monotonic() when it moved)}"""

    def __init__(self) -> None:
        self.heads: dict[str, tuple[str, int, float]] = {}

    def seed(self) -> None:
        """Those of what moved lately: a predecessor may have died between its commit and its messages."""
        lately = timezone.now() - timedelta(seconds=LATELY_S)
        for attempt in Attempt.objects.filter(Q(state=JobState.RUNNING) | Q(ended_at__gt=lately))[:MOST_SEEDED]:
            self.moved(f"job:{attempt.job_id}", attempt.pk, attempt.next_line - 1)
        for piece in EngineLog.objects.filter(done=False)[:MOST_SEEDED]:
            self.moved(f"replica:{piece.replica_id}", piece.pk, piece.next_line - 1)
        for own in AgentLog.objects.filter(done=False)[:MOST_SEEDED]:
            self.moved(f"agent:{own.server_id}", own.pk, own.next_line - 1)

    def moved(self, topic: str, attempt: str, last: int) -> None:
        self.heads[topic] = (attempt, last, time.monotonic())

    def news(self, stored: Stored) -> list[tuple[str, bytes]]:
        """(channel, message) for each chunk of a log, job, replica and batch that has moved."""
        made = [self._lines(f"job:{job_id}", chunk.attempt, chunk) for job_id, chunk in stored.chunks]
        made += [self._lines(f"replica:{replica}", piece, chunk) for replica, piece, chunk in stored.engines]
        made += [self._lines(f"agent:{server}", piece, chunk) for server, piece, chunk in stored.agents]
        made += replica_live.replica_messages(stored.replicas)
        for job in stored.jobs.values():
            data = jobs.as_json(job)
            made.append(live.message(f"job:{job.pk}", "state", data, 0))
            made.append(live.message("jobs", "job", data, 0))
        return made + [live.message(f"batch:{pk}", "moved", {"id": pk}) for pk in stored.batches]

    def _lines(self, topic: str, attempt: str, chunk: Chunk) -> tuple[str, bytes]:
        text = chunk.raw[:-1].decode("utf-8", "replace")
        last = chunk.first + chunk.n - 1
        self.moved(topic, attempt, last)
        return live.message(topic, "log", {"attempt": attempt, "first": chunk.first, "n": chunk.n, "text": text}, last)

    def messages(self, open_topics: Container[str]) -> list[tuple[str, bytes]]:
        """(channel, message) for each log that somebody looks at."""
        old = time.monotonic() - LATELY_S
        self.heads = {topic: head for topic, head in self.heads.items() if head[2] > old}
        return [
            live.message(topic, "head", {"attempt": attempt}, last)
            for topic, (attempt, last, _) in self.heads.items()
            if topic in open_topics
        ]
