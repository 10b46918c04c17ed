"""Fan-out of the live hub beside raw Redis pub/sub in the same process, and 200 viewers on one busy log.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_hub`.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

SOCKETS = 200
WINDOW, WINDOWS = 48, 20  # messages published at once, and how often
TOPIC = "job:1"
RECORD = "1764500000000\to\t(Worker_TP0 pid=52488) INFO 11-30 14:01:44 [loader.py:268] Loading weights took 1.82 s"
LINES_A_MESSAGE = 5
VIEWED_S, VIEWED_HZ, VIEWED_LINES = 10, 20, 100  # seconds, messages a second (ingest's ticks), lines in each

# Publishes one window for every byte it reads, so that it never runs ahead of the slowest listener.
PUBLISHER = """
import sys, redis
from console import live
import django; django.setup()
url, topic, window, n, record = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
client, first = redis.Redis.from_url(url), 1
while sys.stdin.buffer.read(1):
    pipe = client.pipeline(transaction=False)
    for _ in range(window):
        data = {"attempt": "a1-1-bench", "first": first, "n": n, "text": "\\n".join([record] * n)}
        pipe.publish(*live.message(topic, "log", data, seq=first + n - 1))
        first += n
    pipe.execute()
"""


Write = Callable[[Any, dict[int, float]], Awaitable[None]]  # fills in {last line: when it was written}


class Raw(asyncio.Protocol):
    """The least that a Redis subscriber can do: cut the payloads out of the stream and hand each to its socket."""

    def __init__(self, password: str, deliver: Callable[[bytes], None]) -> None:
        self.hello = f"AUTH default {password}\r\nSUBSCRIBE live:{TOPIC}\r\n".encode()
        self.head = f"$7\r\nmessage\r\n${len(TOPIC) + 5}\r\nlive:{TOPIC}\r\n$".encode()
        self.deliver = deliver
        self.rest = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self.hello)

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        place = 0
        while (found := data.find(self.head, place)) >= 0:
            at = found + len(self.head)
            size = data.find(b"\r\n", at)
            end = size + 2 + int(data[at:size]) if size >= 0 else len(data)
            if end + 2 > len(data):
                break
            self.deliver(data[size + 2 : end])
            place = end + 2
        self.rest = data[place:]


class Counter:
    """Deliveries so far; wakes the publisher's side when a window has reached everybody."""

    def __init__(self) -> None:
        self.n = 0
        self.goal = 0
        self.reached = asyncio.Event()

    def add(self, n: int) -> None:
        self.n += n
        if self.n >= self.goal:
            self.reached.set()


async def publish(url: str, counter: Counter) -> float:
    """Deliveries a second of this process's own processor time: what Redis and its neighbours use is not in it."""
    publisher = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, url, TOPIC, str(WINDOW), str(LINES_A_MESSAGE), RECORD], stdin=subprocess.PIPE
    )
    assert publisher.stdin is not None
    try:
        started = 0.0
        for window in range(WINDOWS + 1):
            if window == 1:  # the first one waits for the publisher's imports
                started = time.process_time()
            counter.goal += WINDOW * SOCKETS
            counter.reached.clear()
            publisher.stdin.write(b".")
            publisher.stdin.flush()
            await asyncio.wait_for(counter.reached.wait(), 60)
        return WINDOWS * WINDOW * SOCKETS / (time.process_time() - started)
    finally:
        publisher.stdin.close()
        publisher.wait()


async def raw(url: str, port: int) -> float:
    """Every socket has a Redis connection of its own, read by the plainest protocol there is."""
    counter, loop = Counter(), asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Raw("secret", lambda payload: counter.add(1)), "127.0.0.1", port)
        for _ in range(SOCKETS)
    ]
    await asyncio.sleep(0.3)
    try:
        return await publish(url, counter)
    finally:
        for transport, _ in made:
            transport.close()


async def raw_client(url: str) -> float:
    """Every socket has a redis-py subscription of its own: what one would write without a hub."""
    import redis.asyncio

    counter, redis_client = Counter(), redis.asyncio.Redis.from_url(url, socket_timeout=None, max_connections=10_000)

    async def listen() -> None:
        subscription = redis_client.pubsub(ignore_subscribe_messages=True)
        await subscription.subscribe(f"live:{TOPIC}")
        async for _ in subscription.listen():
            counter.add(1)

    tasks = [asyncio.create_task(listen()) for _ in range(SOCKETS)]
    await asyncio.sleep(1)
    try:
        return await publish(url, counter)
    finally:
        for task in tasks:
            task.cancel()
        await redis_client.aclose()


async def hub(url: str, user: Any) -> float:
    """The console's own consumers, from their handshake on, whose `send` only counts."""
    from console.hub import hub as the_hub
    from console.sockets import LiveConsumer

    counter, application = Counter(), LiveConsumer.as_asgi()

    async def socket_of_one() -> None:
        frames = iter([{"type": "websocket.connect"}, {"type": "websocket.receive", "text": subscribe}])

        async def receive() -> dict[str, Any]:
            return next(frames, None) or await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(event: dict[str, Any]) -> None:
            if event.get("text", "").startswith(wanted):
                counter.add(1)

        await application({"type": "websocket", "path": "/ws/", "headers": [], "user": user}, receive, send)

    subscribe = json.dumps({"op": "subscribe", "topic": TOPIC})
    wanted = f'{{"topic":"{TOPIC}","seq":'
    tasks = [asyncio.create_task(socket_of_one()) for _ in range(SOCKETS)]
    await asyncio.sleep(2)
    counter.n = 0
    try:
        return await publish(url, counter)
    finally:
        for task in tasks:
            task.cancel()
        await the_hub().close()


async def viewers(port: int, cookie: str, redis_client: Any, deflate: bool, write: Write | None = None) -> list[float]:
    """Milliseconds to each of 200 real websockets of a uvicorn of its own process, sorted: from publish, or from when
    `write` wrote it into its server's stream."""
    import websockets

    took: list[float] = []
    sent: dict[int, float] = {}

    async def watch() -> None:
        headers = {"Cookie": cookie, "Origin": f"http://127.0.0.1:{port}"}
        compression = "deflate" if deflate else None
        address = f"ws://127.0.0.1:{port}/ws/"
        async with websockets.connect(
            address, additional_headers=headers, compression=compression, max_size=None
        ) as page:
            await page.send(json.dumps({"op": "subscribe", "topic": TOPIC}))
            async for text in page:
                if '"type":"log"' in text[:80]:
                    first, last, now = _number(text, "first"), _number(text, "seq"), time.perf_counter()
                    # who fell behind gets several at once, read from the database
                    ends = range(-(-first // VIEWED_LINES) * VIEWED_LINES, last + 1, VIEWED_LINES)
                    took.extend((now - sent[end]) * 1000 for end in ends)

    tasks = [asyncio.create_task(watch()) for _ in range(SOCKETS)]
    await asyncio.sleep(3)
    await (write or _busy_log)(redis_client, sent)
    expected, patience = len(sent) * SOCKETS, time.perf_counter() + 20
    while len(took) < expected and time.perf_counter() < patience:
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(took) == expected, f"{len(took)} of {expected} messages came; first error: {tasks[0]}"
    return sorted(took)


def _number(text: str, name: str) -> int:
    """Without reading the whole message: that is the measuring process's time."""
    at = text.index(f'"{name}":') + len(name) + 3
    return int(text[at : text.index(",", at)])


async def _busy_log(redis_client: Any, sent: dict[int, float]) -> None:
    from console import live

    text = "\n".join([RECORD] * VIEWED_LINES)
    started = time.perf_counter()
    for n in range(VIEWED_S * VIEWED_HZ):
        await asyncio.sleep(max(0.0, started + n / VIEWED_HZ - time.perf_counter()))
        data = {"attempt": "a1-1-bench", "first": n * VIEWED_LINES + 1, "n": VIEWED_LINES, "text": text}
        last = (n + 1) * VIEWED_LINES
        sent[last] = time.perf_counter()
        redis_client.publish(*live.message(TOPIC, "log", data, seq=last))


@contextlib.asynccontextmanager
async def web(deflate: bool) -> AsyncIterator[tuple[int, int]]:
    """(port, pid) of a uvicorn as `make up` starts it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            sys.executable, "-m", "uvicorn", "console.asgi:application", "--port", str(port), "--log-level", "warning",
            "--ws", "websockets-sansio", "--ws-per-message-deflate", "true" if deflate else "false",
        ],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            await asyncio.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def view(cookie: str, redis_client: Any, deflate: bool, write: Write | None = None) -> str:
    async with web(deflate) as (port, pid):
        before = cpu_s(pid)
        took = await viewers(port, cookie, redis_client, deflate, write)
        busy = (cpu_s(pid) - before) / VIEWED_S * 100
    p50, p99 = (took[int(len(took) * part)] for part in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, web {busy:.0f} % of a core"


def prepare() -> tuple[Any, str]:
    """(a user, the cookie of a session of theirs); job 1 with an attempt that has no line yet."""
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.test import Client
    from django.utils import timezone

    from console.models import User
    from deployments.models import Attempt, Job, Server

    call_command("migrate", verbosity=0)
    job = Job.objects.create(pk=1, server=Server.objects.create(name="bench"), kind="check", not_after=timezone.now())
    Attempt.objects.create(pk="a1-1-bench", job=job, n=1)
    user, client = User.objects.create(username="bench", role="viewer"), Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return user, f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


def run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """On uvloop, as uvicorn runs."""
    import uvloop

    return uvloop.run(function(*arguments))  # type: ignore[arg-type]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ |= {"VAR_DIR": name, "LOG_LEVEL": "WARNING"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        user, cookie = prepare()
        from django.conf import settings

        from tests.conftest import Valkey

        valkey = Valkey(Path(name))
        settings.REDIS_URL = os.environ["REDIS_URL"] = valkey.url
        try:
            measure(valkey, user, cookie)
        finally:
            valkey.kill()


def measure(valkey: Any, user: Any, cookie: str) -> None:
    naive = run(raw_client, valkey.url)
    pairs = [(run(raw, valkey.url, valkey.port), run(hub, valkey.url, user)) for _ in range(3)]
    least, ours = sorted(pairs, key=lambda pair: pair[1] / pair[0])[1]
    print(
        f"fan-out to {SOCKETS} sockets: {ours:,.0f} deliveries a CPU second, {ours / least:.0%} of raw Redis pub/sub "
        f"in the same process ({least:,.0f}; budget 70 %), {ours / naive:.1f} times redis-py a socket ({naive:,.0f})"
    )
    for deflate in (False, True):
        told = run(view, cookie, valkey.client(), deflate)
        how = "deflated" if deflate else "plain"
        lines = VIEWED_HZ * VIEWED_LINES
        print(f"{SOCKETS} viewers on one log of {lines:,} lines/s, {how}: {told} (budget p99 500 ms)")


if __name__ == "__main__":
    main()
