"""Long logs, written straight into the database: a server would need minutes to send them."""

import random
import zlib

CHUNK = 500  # lines; about 64 kB raw, as agents send them
START_MS = 1_764_500_000_000
TEXTS = (
    "INFO 11-30 18:53:20 [loggers.py:111] Engine 000: Avg prompt throughput: {0}.3 tokens/s, Running: {1} reqs",
    "(Worker_TP{2} pid=4711) INFO 11-30 18:53:20 [worker_v1.py:256] Available memory: {0}12233 bytes",
    "(APIServer pid=4242) INFO:     10.1.2.{1}:51820 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
    "[rank{2}] DEBUG 11-30 18:53:21 [model_runner_v1.py:1804] step took {0}.{1} ms, batch of {2}",
)  # fmt: skip


def _ordinary(chance):
    return [["o", chance.choice(TEXTS).format(chance.randint(1, 999), chance.randint(1, 250), chance.randint(0, 7))]
            for _ in range(CHUNK)]  # fmt: skip


def _packed(records, at_ms):
    raw = "".join(f"{at_ms + i}\t{kind}\t{text}\n" for i, (kind, text) in enumerate(records))
    data = raw.encode("utf-8", "surrogateescape")  # a test may ask for bytes that are no text
    return len(data), zlib.compress(data, 1)


def long_log(attempt, lines=2_000_000, special=None):
    """A log of so many lines; `special` is {line: [kind, text]}. Eight chunks are used again and again."""
    from deployments.models import Attempt, LogChunk

    chance = random.Random(7)
    ordinary = [_ordinary(chance) for _ in range(8)]
    packed = [_packed(records, START_MS) for records in ordinary]
    special = {int(line): record for line, record in (special or {}).items()}
    touched = {(line - 1) // CHUNK for line in special}
    rows, byte = [], 0
    for i in range(lines // CHUNK):
        size, data = packed[i % 8]
        if i in touched:
            records = [special.get(i * CHUNK + k + 1, record) for k, record in enumerate(ordinary[i % 8])]
            size, data = _packed(records, START_MS)
        rows.append(LogChunk(attempt_id=attempt, first=i * CHUNK + 1, n=CHUNK, data=data))
        byte += size
    LogChunk.objects.filter(attempt_id=attempt).delete()
    LogChunk.objects.bulk_create(rows, batch_size=500)
    Attempt.objects.filter(pk=attempt).update(next_line=lines + 1, next_byte=byte)
    return lines
