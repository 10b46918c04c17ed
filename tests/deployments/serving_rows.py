"""Rows that tests of deployments share: servers with NPUs and a newest reading, a model, a deployment, replicas."""

import json
import time

from django.utils import timezone

from console import streams
from deployments.models import Artifact, ArtifactPlace, Deployment, Npu, Replica, Revision, Server
from tests.deployments.stack_facts import facts

NPUS = 4


def bus_id(n):
    return f"0000:{n + 16:02X}:00.0"


def ring(count=NPUS):
    names = [f"NPU{n}" for n in range(count)]
    return {"npus": names, "matrix": [["X" if a == b else "HCCS" for b in names] for a in names]}


def npu_server(name="kp-1", *, count=NPUS, **more):
    told = facts(stack_current="vllm-ascend-0.23.0", topology=ring(count))
    made = Server.objects.create(
        **{"name": name, "family": "910B3", "last_seen_at": timezone.now(), "facts": told, **more}
    )
    now = timezone.now()
    Npu.objects.bulk_create(
        Npu(server=made, device_index=n, npu_id=n, chip_id=0, bus_id=bus_id(n), name="910B3", seen_at=now,
            memory_total_mb=65536)
        for n in range(count)
    )  # fmt: skip
    return made


def npu_now(n, **more):
    return {
        "npu": n, "chip": 0, "bus_id": bus_id(n), "name": "910B3", "health": "OK", "aicore": 0, "hbm_used_mb": 3400,
        "hbm_total_mb": 65536, "temp_c": 40, "power_w": 90, "occ": "free", **more,
    }  # fmt: skip


def reading(client, server, npus=None, **more):
    """The newest reading of a server, as ingest keeps it."""
    rows = [npu_now(n) for n in range(server.npus.count())] if npus is None else npus
    told = {
        "state": "live", "seen": time.time(), "family": server.family, "seq": 1, "t": time.time(), "took_ms": 1,
        "error": None, "npus": rows, "processes": [], "version": "25.3", "holders": {},
        "host": {"cpus": 192, "mem_total_mb": 1_500_000, "mem_used_mb": 90_000}, **more,
    }  # fmt: skip
    client.hset(streams.FLEET_NOW, str(server.pk), json.dumps(told))


def model(*servers, name="tiny", simulated=False):
    made = Artifact.objects.create(
        name=name, fingerprint=(name * 64)[:64], format="hf", bytes=10**9, simulated=simulated
    )
    for one in servers:
        ArtifactPlace.objects.create(artifact=made, server=one, path=f"/models/{name}")
    return made


def deployment(name="chat", **more):
    made = Deployment.objects.create(name=name, **more)
    made.revision = Revision.objects.create(deployment=made, n=1)
    made.save()
    return made


def replica(of, server, n=1, **more):
    return Replica.objects.create(deployment=of, revision=of.revision, n=n, server=server, path="/models/tiny", **more)
