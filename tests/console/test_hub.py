"""The hub on a real Valkey: joining in the middle of a log, slow sockets, a Redis that goes away."""

import asyncio
import json
import random
import signal
import time
from contextvars import Context

import pytest
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.conf import settings

from console import hub as hubs
from console import live
from console.models import User
from console.outbox import KEPT, LINES_BYTES, LINES_KEPT
from console.subscriptions import Client
from deployments import topics
from deployments.models import Job, Server
from tests.console.logs import Log, Reader
from tests.console.pages import Page

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def viewer(db):
    return User.objects.create(username="wei", role="viewer", language="en")


@pytest.fixture
def job(db):
    return Job.objects.create(
        server=Server.objects.create(name="kp-07"), kind="check", not_after="2030-01-01T00:00:00Z"
    )


@pytest.mark.parametrize("seed", range(4))
async def test_nobody_misses_or_doubles_a_line_however_they_join(viewer, job, valkey, seed):
    """Readers come, go and come back in the middle of a log of which 2 % of the messages are lost."""
    chance = random.Random(seed)
    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    complete = []

    async def write():
        for n in range(250):
            await log.write(chance.randint(1, 3), lost=chance.random() < 0.02)
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.006]))
            if n % 20 == 0:
                log.head()
        await log.write(1, lost=True)

    async def read(delay):
        await asyncio.sleep(delay)
        after = start = chance.choice([0, log.total, max(0, log.total - 5)])
        for stay in (chance.uniform(0, 0.5), chance.uniform(0, 0.5), None):
            async with Page(viewer) as page:
                reader = Reader(page)
                reader.numbers[log.attempt] = [after]
                await page.subscribe(f"job:{job.pk}", after=after, attempt=log.attempt)
                if stay is None:
                    await writing
                    log.head()
                    complete_to = await reader.until(log)
                else:
                    following = asyncio.create_task(reader.follow())
                    await asyncio.sleep(stay)
                    following.cancel()
                    await asyncio.wait({following})
                    complete_to = reader.numbers[log.attempt]
                assert complete_to == list(range(after, complete_to[-1] + 1))
                after = complete_to[-1]
        complete.append((start, after))

    writing = asyncio.create_task(write())
    await asyncio.gather(*(read(chance.uniform(0, 0.8)) for _ in range(10)))
    assert [last for _, last in complete] == [log.total] * 10
    assert log.total > 300


async def test_lines_written_while_the_subscription_is_being_made_are_neither_missed_nor_doubled(
    viewer, job, valkey, monkeypatch
):
    """The worst moments one by one: between listening, acknowledgement, reading and sending."""
    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    await log.write(3)
    join, ask, read, loop = hubs.LiveHub.join, hubs.LiveHub._ask, topics.logs.after, asyncio.get_running_loop()

    async def ask_late(self, *command):
        loop.call_later(0.05, lambda: asked.append(asyncio.create_task(ask(self, *command))))

    async def join_late(self, subscription):
        await log.write(2)
        acknowledged = await join(self, subscription)
        await log.write(2)
        return acknowledged

    def read_and_let_more_come(*arguments):
        found = read(*arguments)
        if not written:
            written.append(True)
            loop.call_soon_threadsafe(lambda: written.append(asyncio.create_task(log.write(2))), context=Context())
        return found

    written, asked = [], []
    async with Page(viewer) as first, Page(viewer) as page:
        await first.subscribe("jobs")  # the connection is there, so the next topic is asked for on its own
        monkeypatch.setattr(hubs.LiveHub, "_ask", ask_late)
        monkeypatch.setattr(hubs.LiveHub, "join", join_late)
        monkeypatch.setattr(topics.logs, "after", read_and_let_more_come)
        reader = Reader(page)
        await page.subscribe(f"job:{job.pk}")
        while log.total < 9:
            reader.take(await page.hear())
        assert await reader.until(log) == list(range(1, 10))
        assert await page.silent()


async def test_a_reading_serves_only_those_who_asked_before_it_began():
    reads, answers = hubs.SharedReads(), iter(["first", "second"])

    def read():
        answer = next(answers)
        time.sleep(0.1)
        return answer

    early = [asyncio.create_task(reads.read("place", read)) for _ in range(2)]
    await asyncio.sleep(0.05)
    late = asyncio.create_task(reads.read("place", read))
    assert [await one for one in (*early, late)] == ["first", "first", "second"]


async def test_a_reader_who_is_far_behind_is_told_how_far_and_gets_what_is_new(viewer, job, valkey):
    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    await log.write(topics.MOST_LINES + 1)
    async with Page(viewer) as page:
        await page.subscribe(f"job:{job.pk}")
        assert (await page.hear_type("behind"))["data"] == {"attempt": log.attempt, "first": 1, "total": 501}
        await log.write(2)
        assert (await page.hear())["data"]["first"] == 502


async def test_a_page_resumes_its_attempt_and_hears_of_the_next(viewer, job, valkey):
    one = await database_sync_to_async(Log(job, valkey.client(), 1).create)()
    two = await database_sync_to_async(Log(job, valkey.client(), 2).create)()
    await one.write(6)
    await two.write(3)
    async with Page(viewer) as page:
        reader = Reader(page)
        await page.subscribe(f"job:{job.pk}", after=4, attempt=one.attempt)
        assert await reader.until(one) == [5, 6]
        assert await reader.until(two) == [1, 2, 3]
        three = await database_sync_to_async(Log(job, valkey.client(), 3).create)()
        await three.write(2)
        assert await reader.until(three) == [1, 2]


async def test_readers_in_the_same_place_share_one_reading(viewer, job, valkey, monkeypatch):
    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    await log.write(5)
    readings, read = [], topics.logs.after
    monkeypatch.setattr(topics.logs, "after", lambda *place: readings.append(place) or read(*place))
    pages = [Page(viewer) for _ in range(30)]
    for page in pages:
        await page.__aenter__()
        await page.subscribe(f"job:{job.pk}")
    await asyncio.gather(*(Reader(page).until(log) for page in pages))
    readings.clear()
    await log.write(2, lost=True)
    await log.write(2)
    for page in pages:
        assert (await page.hear_type("log"))["data"]["first"] == 6
    assert len(readings) == 1
    for page in pages:
        await page.__aexit__()


async def test_a_slow_socket_holds_little_and_ends_with_the_truth(viewer, job, valkey):
    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    redis = valkey.client()
    async with Page(viewer, room=2) as page:
        await page.say(op="subscribe", topic=f"job:{job.pk}")
        assert [(await page.hear())["type"] for _ in range(2)] == ["subscribed", "state"]
        for topic in ("fleet:rows", f"server:{job.server_id}"):
            await page.say(op="subscribe", topic=topic)
            await page.hear_type("subscribed")
        for n in range(400):
            await log.write(2, width=5000)
            redis.publish(*live.message("fleet:rows", "rows", {str(n % 7): [n, n, n, n]}, seq=n))
            redis.publish(*live.message(f"server:{job.server_id}", "sample", {"n": n}, seq=n))
        await asyncio.sleep(0.2)
        (client,) = hubs.hub().clients
        boxes = {topic: one.outbox for topic, one in client.subscriptions.items()}
        lines = boxes[f"job:{job.pk}"]
        assert len(lines.queue) <= LINES_KEPT and lines.size <= LINES_BYTES
        assert lines.size == sum(message.size for message in lines.queue)
        assert all(len(boxes[topic].queue) <= KEPT for topic in ("fleet:rows", f"server:{job.server_id}"))
        reader, rows, sample = Reader(page), {}, None
        while reader.numbers.get(log.attempt, [0])[-1] < log.total or sample != 399 or rows.get("0", [0])[0] < 399:
            message = await page.hear()
            reader.take(message)
            if message["type"] == "rows":
                rows.update(message["data"])
            elif message["type"] == "sample":
                sample = message["data"].get("n")
        assert reader.numbers[log.attempt] == list(range(1, log.total + 1))
        assert rows == {str(n % 7): [n] * 4 for n in range(393, 400)}
        assert sum(message["type"] == "sample" for message in reader.messages) < 100


async def test_topics_that_nobody_reads_are_given_up(viewer, valkey, monkeypatch):
    monkeypatch.setattr(hubs, "PING_S", 0.05)
    redis = valkey.client()
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        assert redis.pubsub_numsub("live:jobs") == [(b"live:jobs", 1)]
        await page.say(op="unsubscribe", topic="jobs")
        await asyncio.sleep(0.3)
        assert redis.pubsub_numsub("live:jobs") == [(b"live:jobs", 0)]
        await page.subscribe("jobs")
        redis.publish(*live.message("jobs", "job", {"id": 1}))
        assert (await page.hear())["type"] == "job"


async def test_many_sockets_are_one_connection(viewer, valkey):
    pages = [Page(viewer) for _ in range(20)]
    for page in pages:
        await page.__aenter__()
        await page.subscribe("jobs")
    assert len(valkey.client().client_list(_type="pubsub")) == 1
    valkey.client().publish(*live.message("jobs", "job", {"id": 1}))
    for page in pages:
        assert (await page.hear())["data"] == {"id": 1}
        await page.__aexit__()


@pytest.fixture
def lone_valkey(own_valkey, monkeypatch):
    monkeypatch.setattr(settings, "REDIS_URL", own_valkey.url)
    monkeypatch.setattr(hubs, "PING_S", 0.1)
    monkeypatch.setattr(hubs, "DEAD_S", 0.5)
    return own_valkey


async def test_pages_know_when_redis_is_gone_and_miss_nothing_of_what_came_meanwhile(viewer, job, lone_valkey):
    log = await database_sync_to_async(Log(job, lone_valkey.client()).create)()
    await log.write(2)
    async with Page(viewer) as page, Page(viewer) as other:
        reader = Reader(page)
        await page.subscribe(f"job:{job.pk}")
        await other.subscribe("jobs")
        assert await reader.until(log) == [1, 2]
        lone_valkey.kill()
        for one in (page, other):
            stalled = await one.hear_type("stalled")
            assert stalled["data"]["since"] <= time.time()
        for _ in range(3):
            await log.write(2, lost=True)
        await sync_to_async(lone_valkey.start)()
        assert (await page.hear())["type"] == "live"
        assert await reader.until(log) == list(range(1, 9))
        assert (await other.hear_type("live"))["topic"] == "*"
        lone_valkey.client().publish(*live.message("jobs", "job", {"id": 1}))
        assert (await other.hear())["data"] == {"id": 1}


async def test_a_page_that_comes_while_redis_is_gone_reads_what_is_stored_and_is_told(viewer, job, lone_valkey):
    log = await database_sync_to_async(Log(job, lone_valkey.client()).create)()
    await log.write(2)
    lone_valkey.kill()
    async with Page(viewer) as first:
        await first.hear_type("stalled")
        async with Page(viewer) as page:
            assert (await page.hear())["type"] == "stalled"
            reader = Reader(page)
            await page.subscribe(f"job:{job.pk}")
            assert await reader.until(log) == [1, 2]
            await log.write(1, lost=True)
            await sync_to_async(lone_valkey.start)()
            await page.hear_type("live")
            assert await reader.until(log) == [1, 2, 3]


async def test_a_redis_that_hangs_is_given_up(viewer, lone_valkey):
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        lone_valkey.process.send_signal(signal.SIGSTOP)
        try:
            assert (await page.hear_type("stalled"))["topic"] == "*"
        finally:
            lone_valkey.process.send_signal(signal.SIGCONT)
        assert (await page.hear_type("live"))["topic"] == "*"


async def test_what_is_no_message_of_ours_is_passed_over(viewer, valkey):
    async with Page(viewer) as page:
        await page.subscribe("jobs")
        for payload in (b"", b"\xff\xfe", b"[]", json.dumps({"type": "job"}).encode()):
            valkey.client().publish("live:jobs", payload)
        valkey.client().publish(*live.message("jobs", "job", {"id": 9}))
        assert (await page.hear())["data"] == {"id": 9}


async def test_a_database_that_is_away_for_a_moment_only_delays_the_log(viewer, job, valkey, monkeypatch):
    from django.db import OperationalError

    log = await database_sync_to_async(Log(job, valkey.client()).create)()
    await log.write(2)
    failures, read = [OperationalError("database is locked")], topics.logs.after

    def fail_once(*place):
        if failures:
            raise failures.pop()
        return read(*place)

    monkeypatch.setattr(topics.logs, "after", fail_once)
    async with Page(viewer) as page:
        await page.subscribe(f"job:{job.pk}")
        assert await Reader(page).until(log) == [1, 2]


async def test_the_hub_ends_whenever_it_is_told_to(valkey):
    """Also while it connects: a swallowed cancellation would keep the process from ending."""
    chance = random.Random(1)
    for _ in range(200):
        hub = hubs.LiveHub(valkey.url)
        hub.attach(Client(None))
        for _ in range(chance.randint(0, 40)):
            await asyncio.sleep(0)
        await asyncio.sleep(chance.choice([0, chance.uniform(0, 0.002)]))
        task = hub._task
        async with asyncio.timeout(5):
            await hub.close()
        assert task.done()


async def test_the_end_of_the_process_closes_the_connection(viewer, valkey):
    from console.asgi import lifespan

    async with Page(viewer) as page:
        await page.subscribe("jobs")
        events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
        sent = []

        async def receive():
            return next(events)

        async def send(event):
            sent.append(event["type"])

        await lifespan({"type": "lifespan"}, receive, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        async with asyncio.timeout(2):
            while valkey.client().client_list(_type="pubsub"):
                await asyncio.sleep(0.01)
