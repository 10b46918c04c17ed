"""A log being written as ingest does it, and a reader who follows it as the page does."""

import asyncio
import zlib

from channels.db import database_sync_to_async

from console import live
from deployments.models import Attempt, LogChunk


class Log:
    """What ingest does to one attempt: commit, then publish, or not."""

    def __init__(self, job, redis, n=1):
        self.job, self.redis = job, redis
        self.attempt = f"a{job.pk}-{n}-0000000{n:x}"
        self.total = 0
        self.n = n

    def create(self):
        Attempt.objects.create(pk=self.attempt, job=self.job, n=self.n)
        return self

    def commit(self, n, width=20):
        first = self.total + 1
        text = "\n".join(f"{line}\to\t{'x' * width}" for line in range(first, first + n))
        data = zlib.compress(text.encode() + b"\n", 1)
        LogChunk.objects.create(attempt_id=self.attempt, first=first, n=n, data=data)
        Attempt.objects.filter(pk=self.attempt).update(next_line=first + n)
        self.total += n
        return {"attempt": self.attempt, "first": first, "n": n, "text": text}

    async def write(self, n, *, lost=False, width=20):
        data = await database_sync_to_async(self.commit)(n, width)
        if not lost:
            self.redis.publish(*live.message(f"job:{self.job.pk}", "log", data, seq=self.total))

    def head(self):
        self.redis.publish(*live.message(f"job:{self.job.pk}", "head", {"attempt": self.attempt}, seq=self.total))


class Reader:
    """Follows a log as the page does; remembers every number in the order in which it was told."""

    def __init__(self, page):
        self.page, self.numbers, self.messages = page, {}, []

    def take(self, message):
        self.messages.append(message)
        data = message["data"]
        if message["type"] == "behind":
            self.numbers.setdefault(data["attempt"], []).extend(range(data["first"], data["total"] + 1))
        elif message["type"] == "log":
            found = [int(record.split("\t")[0]) for record in data["text"].split("\n")]
            assert (found[0], len(found), found[-1]) == (data["first"], data["n"], message["seq"])
            self.numbers.setdefault(data["attempt"], []).extend(found)

    async def until(self, log, timeout=10):
        async with asyncio.timeout(timeout):
            while self.numbers.get(log.attempt, [0])[-1:] != [log.total] or log.total == 0:
                self.take(await self.page.hear(timeout))
        return self.numbers[log.attempt]

    async def follow(self):
        while True:
            self.take(await self.page.hear(60))
