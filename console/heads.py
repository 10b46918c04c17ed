"""The last line of each job whose log moved lately, said again each second: a lost last message shows no hole."""

import time
from collections.abc import Container
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from console import live
from deployments.models import Attempt, JobState

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

    def messages(self, open_topics: Container[str]) -> list[tuple[str, bytes]]:
        """(channel, message) for each job that somebody looks at."""
        old = time.monotonic() - LATELY_S
        self.heads = {pk: head for pk, head in self.heads.items() if head[2] > old}
        return [
            live.message(f"job:{pk}", "head", {"attempt": attempt}, last)
            for pk, (attempt, last, _) in self.heads.items()
            if f"job:{pk}" in open_topics
        ]
