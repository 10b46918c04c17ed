"""Placement over 1,000 servers × 8 NPUs: why and why not for each, beside the plainest way to read the same rows and
readings. A fifth of the NPUs is taken, and no two servers have the same facts.

Run by `make bench`, or alone: `python -m tests.benchmarks.bench_placement`.
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

SERVERS, NPUS, REPEATS, BUDGET_MS = 1000, 8, 7, 300


def begin(folder: Path) -> Any:
    """A database and a Valkey of its own; the Valkey, to be ended."""
    from tests.conftest import Valkey

    valkey = Valkey(folder)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "console.settings", "VAR_DIR": str(folder), "REDIS_URL": valkey.url,
        "DATABASE_URL": f"sqlite:///{folder / 'bench.sqlite3'}",
    }  # fmt: skip
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    return valkey


def bus_id(index: int) -> str:
    return f"0000:{index + 16:02X}:00.0"


def told(n: int, more: dict[str, Any]) -> dict[str, Any]:
    from tests.deployments.stack_facts import facts

    return facts(kernel=f"6.6.{n}", **more)


def npu(index: int, taken: bool) -> dict[str, Any]:
    return {
        "npu": index, "chip": 0, "bus_id": bus_id(index), "name": "910B3", "health": "OK",
        "aicore": 0, "hbm_used_mb": 60000 if taken else 3400, "hbm_total_mb": 65536, "temp_c": 40, "power_w": 90,
        "occ": "unexplained" if taken else "free",
    }  # fmt: skip


def fill(client: Any) -> Any:
    """Servers, NPUs, a model on most of them, promises, and their newest readings; the model."""
    from datetime import timedelta

    from django.utils import timezone

    from console import streams
    from deployments.models import Artifact, ArtifactPlace, Hold, Npu, Reservation, Server

    names = [f"NPU{i}" for i in range(NPUS)]
    topology = {
        "npus": names, "matrix": [["X" if a == b else "HCCS" for b in names] for a in names],
        "cpu_affinity": {name: f"{24 * (i // 2)}-{24 * (i // 2) + 23}" for i, name in enumerate(names)},
    }  # fmt: skip
    more = {"stack_current": "vllm-ascend-0.23.0", "topology": topology, "padding": "x" * 4000}
    now = timezone.now()
    servers = Server.objects.bulk_create(
        Server(
            name=f"kp-{n:04}",
            rack=f"r{n // 16}",
            family="910B3",
            last_seen_at=now,
            facts=told(n, more),
        )
        for n in range(SERVERS)
    )
    Npu.objects.bulk_create(
        Npu(server=one, device_index=i, npu_id=i, chip_id=0, bus_id=bus_id(i), name="910B3", seen_at=now)
        for one in servers for i in range(NPUS)
    )  # fmt: skip
    artifact = Artifact.objects.create(name="Qwen3-32B", fingerprint="f" * 64, format="hf", bytes=65 * 10**9)
    ArtifactPlace.objects.bulk_create(
        ArtifactPlace(artifact=artifact, server=one, path="/models/qwen3-32b") for one in servers if one.pk % 10
    )
    hold = Hold.objects.create(server=servers[0], team="vision", reason="bench", until=now + timedelta(days=1))
    Reservation.objects.bulk_create(
        Reservation(server=one, npu="0000:10:00.0", hold=hold) for one in servers if one.pk % 5 == 0
    )
    readings = {}
    for one in servers:
        rows = [npu(i, (one.pk + i) % 5 == 0) for i in range(NPUS)]
        process = {"npu": 1, "chip": 0, "pid": 4711, "user": "wang", "name": "python", "memory_mb": 1, "attempt": None}
        reading = {
            "npus": rows, "processes": [process] if one.pk % 3 == 0 else [], "seen": time.time() + 3600, "error": None,
            "host": {"cpus": 192, "mem_total_mb": 1_500_000, "mem_used_mb": 90_000},
        }  # fmt: skip
        readings[str(one.pk)] = json.dumps(reading)
    client.hset(streams.FLEET_NOW, mapping=readings)
    return artifact


def plainly(client: Any) -> None:
    """The least that anyone has to read for the same."""
    import orjson
    from django.db import connection

    with connection.cursor() as cursor:
        for table in ("deployments_server", "deployments_npu", "deployments_artifactplace", "deployments_reservation"):
            cursor.execute(f"SELECT * FROM {table}")
            cursor.fetchall()
    for told in client.hgetall("fleet:now").values():
        orjson.loads(told)


def best_ms(call: Any, times: int = REPEATS) -> float:
    least = float("inf")
    for _run in range(times):
        before = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - before)
    return 1000 * least


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        valkey = begin(Path(name))
        try:
            from console.redis import client
            from deployments.services import placement
            from deployments.serving.settings import read

            artifact = fill(client())
            wanted = read({"tensor_parallel_size": 4})
            first = best_ms(lambda: placement.look(wanted, artifact), 1)
            looked = best_ms(lambda: placement.look(wanted, artifact))
            chosen = best_ms(lambda: placement.choose(wanted, artifact, count=8), 3)
            plain = best_ms(lambda: plainly(client()))
            found = placement.look(wanted, artifact)
        finally:
            valkey.kill()
    fits = sum(one.fits for one in found)
    print(
        f"placement over {SERVERS} servers × {NPUS} NPUs: {looked:.0f} ms, {looked / BUDGET_MS:.0%} of {BUDGET_MS} ms"
        f"{'' if looked <= BUDGET_MS else '  ABOVE'}, "
        f"{looked / plain:.1f} times reading the same rows ({plain:.0f} ms); the first, which reads facts: "
        f"{first:.0f} ms; places for 8 replicas: {chosen:.0f} ms; {fits} servers fit"
    )


if __name__ == "__main__":
    main()
