"""Rows of deployments for tests of pages: servers with NPUs, revisions, replicas in every state, their logs."""

import json
import time
import zlib
from datetime import timedelta

from tests.deployments.model_rows import artifact

FINDING = {
    "id": "kv_too_small", "line": 3, "text": "ValueError: No available memory for the cache blocks.",
    "cause": ["KV 缓存放不下最长上下文。", "The KV cache does not hold the longest context."],
    "remedies": [
        {"text": ["上下文改为 16,384。", "Set the context to 16,384."], "job": None, "way": "",
         "change": {"max_model_len": 16384}},
        {"text": ["换更大的 NPU。", "Use larger NPUs."], "change": None, "job": None, "way": "by hand"},
    ],
    "numbers": {},
}  # fmt: skip
METRICS = {
    "running": 11, "waiting": 1, "kv_pct": 62.0, "prompt_tokens_s": 2210.0, "generation_tokens_s": 1742.0,
    "ttft_ms": 212.0, "tpot_ms": 14.2, "requests_total": 4100,
}  # fmt: skip


def server(name, npus=8, **fields):
    from django.utils import timezone

    from deployments.models import Npu, Server

    fields = {"last_seen_at": timezone.now(), "family": "910B3", **fields}
    made = Server.objects.update_or_create(name=name, defaults=fields)[0]
    for n in range(npus):
        Npu.objects.get_or_create(
            server=made, npu_id=n, chip_id=0, defaults={"device_index": n, "bus_id": bus(n), "name": "910B3"}
        )
    return made


def bus(n):
    return f"0000:{0xC1 + n:02X}:00.0"


def deployment(name="qwen3-32b", model=None, settings=None, by=None, revisions=1, **fields):
    """With so many revisions, each with a longer context; the last one is the present one."""
    from deployments.models import Deployment, Revision

    model = model or artifact("Qwen3-32B")
    made = Deployment.objects.create(name=name, owner=by, **{"created_at": _later(-86400), **fields})
    base = {"served_model_name": name, "tensor_parallel_size": 4, **(settings or {})}
    for n in range(1, revisions + 1):
        row = Revision.objects.create(
            deployment=made, n=n, artifact=model, fingerprint=model.fingerprint, by=by,
            settings={**base, "max_model_len": 16384 * 2 ** (n - 1)}, note="longer context" if n > 1 else "",
        )  # fmt: skip
        made.revision = row
    made.save()
    return made


def replica(of, n, on, state="ready", npus=(0, 1, 2, 3), revision=None, **fields):
    """It holds its NPUs, as long as it is there."""
    from django.utils import timezone

    from deployments.models import GONE, Replica, Reservation

    now, names = timezone.now(), [bus(one) for one in npus]
    times = {"ready_at": now - timedelta(minutes=20)} if state in ("ready", "degraded", "draining") else {}
    times |= {"ended_at": now - timedelta(minutes=5)} if state in GONE else {}
    made = Replica.objects.create(
        deployment=of, revision=revision or of.revision, n=n, state=state, server=on, npus=names, path="/data/models/q",
        address="10.1.2.3", port=18000 + n, heard_at=now,
        **{"created_at": now - timedelta(minutes=23), **times, **fields},
    )  # fmt: skip
    if state not in GONE:
        Reservation.objects.bulk_create(Reservation(server=on, npu=name, replica=made) for name in names)
    return made


def told(of, ago_s=0, **metrics):
    """What its engine said of its load, so long ago."""
    from console import streams
    from console.redis import client

    said = {
        "seen": time.time() - ago_s,
        "state": of.state,
        "at": time.time() - ago_s,
        "metrics": {**METRICS, **metrics},
    }
    client().hset(streams.REPLICAS_NOW, str(of.pk), json.dumps(said))


def log(of, n=1, lines=(), done=False, **fields):
    """A piece of its engine's log; `lines` are (kind, text)."""
    from django.utils import timezone

    from deployments.models import EngineChunk, EngineLog

    ms = int(time.time() * 1000)
    records = [f"{ms + at}\t{kind}\t{text}" for at, (kind, text) in enumerate(lines)]
    made = EngineLog.objects.create(
        id=f"e{of.pk}-{n}", replica=of, server=of.server, n=n, next_line=len(records) + 1, done=done,
        started_at=timezone.now(), **fields,
    )  # fmt: skip
    if records:
        data = zlib.compress("".join(f"{one}\n" for one in records).encode())
        EngineChunk.objects.create(log=made, first=1, n=len(records), data=data)
    return made


STARTED = ("v", json.dumps({"e": "started", "replica": 1, "pid": 4711, "argv": ["python", "-m", "vllm"]}))
LOADING = ("v", json.dumps({"e": "engine", "state": "loading", "reason": None,
                            "progress": {"what": ["加载权重", "loading weights"], "done": 12, "of": 37}}))  # fmt: skip


def whole():
    """Every kind of deployment once, on three servers: for looking at pages. Names by what they show."""
    one, two, three = (server(f"kp-0{n}", rack="A1") for n in (1, 2, 3))
    model = artifact("Qwen3-32B", summary={"dtype": "BF16"}, bytes=65_500_000_000)
    big = deployment("qwen3-32b", model, revisions=3, replicas=5, title="Contract desk",
                     labels={"team": "legal", "prod": ""},
                     notes="Kept for the contract desk.\nAsk before a restart.",
                     schedule=[{"at": "08:00", "days": [0, 1, 2, 3, 4], "replicas": 5},
                               {"at": "20:00", "days": [0, 1, 2, 3, 4, 5, 6], "replicas": 2}])  # fmt: skip
    why = [
        ["同一 HCCS 组内有 4 个空闲 NPU", "4 free NPUs in one HCCS group"],
        ["权重已在本机磁盘", "Weights are on its disk: no copy"],
    ]
    facts = {"facts": {"version": "0.23.0", "kv_tokens": 637312, "max_concurrency": 4.9, "available_kv_gib": 38.9}}
    old = big.revisions.get(n=2)
    for n, (on, npus) in enumerate([(one, (0, 1, 2, 3)), (one, (4, 5, 6, 7)), (two, (0, 1, 2, 3))], 1):
        told(replica(big, n, on, npus=npus, why=why, engine=facts), running=11 + n, ttft_ms=200 + 10 * n)
    leaving = replica(big, 4, two, "draining", (4, 5, 6, 7), old, drain_until=_later(400))
    told(leaving, running=2, waiting=0, kv_pct=9, generation_tokens_s=490)
    coming = replica(big, 5, three, "loading", (4, 5, 6, 7), why=why,
                     progress={"what": ["加载权重", "loading weights"], "done": 12, "of": 37})  # fmt: skip
    big.rollout = {"why": "revision", "phase": "rest", "to": 3, "from": 2, "how": "in_place", "of": 5, "by": "olga",
                   "since": _later(-600).isoformat(), "paused": False, "reason": None, "now": None,
                   "left": []}  # fmt: skip
    big.save()
    log(coming, lines=[STARTED, ("o", "INFO vLLM version 0.23.0"), LOADING, ("e", "WARNING slow disk")])
    ill = deployment("glm-4-9b", artifact("GLM-4-9B"), replicas=1)
    bad = replica(ill, 1, three, "failed", (0, 1), findings=[FINDING], reason=FINDING["cause"], restarts=5)
    log(bad, lines=[STARTED, ("o", "INFO loading"), ("e", FINDING["text"])], done=True, exit_code=1)
    quiet = deployment("deepseek-v3", artifact("DeepSeek-V3"), replicas=1)
    told(replica(quiet, 1, three, "degraded", (2,), reason=["3 次探测失败", "3 probes failed"]), ago_s=95)
    deployment("idle", artifact("Qwen3-8B"), stopped=True, replicas=2)
    first = deployment("first", artifact("Qwen3-0.6B"), replicas=1, reason=["没有空闲 NPU", "No server has room."])
    return {"big": big.name, "ill": ill.name, "quiet": quiet.name, "first": first.name}


def _later(seconds):
    from django.utils import timezone

    return timezone.now() + timedelta(seconds=seconds)
