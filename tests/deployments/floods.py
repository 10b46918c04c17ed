"""`python -m tests.deployments.floods PORT KIND NUMBER`: a client of server 7 that does one thing again and again."""

import contextlib
import sys
import time

import redis

MB = 1 << 20


def lines(own, number, turn):
    own.xadd("h:7:logs", {"a": "x", "z": b"z" * 64_000})


def many_keys(own, number, turn):
    pipe = own.pipeline(transaction=False)
    for n in range(1000):
        pipe.set(f"h:7:{number}:{turn}:{n}", "v" * 2000)
    pipe.execute()


def huge_values(own, number, turn):
    own.set(f"h:7:{number}:{turn}", b"v" * 4 * 1000 * 1000)


def one_growing_value(own, number, turn):
    own.hset("h:7:value", f"{number}:{turn}", b"v" * MB)


def unread_answers(own, number, turn):
    """Asks for much and reads nothing of it."""
    if turn == 0:
        own.set("h:7:big", b"v" * 4 * 1000 * 1000)
        own.kept = own.connection_pool.get_connection()
    own.kept.send_command("GETRANGE", "h:7:big", 0, -2)
    time.sleep(0.01)


KINDS = {one.__name__: one for one in (lines, many_keys, huge_values, one_growing_value, unread_answers)}


def main(port, kind, number):
    own = redis.Redis(port=int(port), username="h7", password="pw7", retry=None, socket_timeout=20)
    turn, until_s = 0, time.monotonic() + 30
    with contextlib.suppress(redis.RedisError, OSError):
        while time.monotonic() < until_s:
            KINDS[kind](own, number, turn)
            turn += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
