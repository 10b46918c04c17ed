"""A process beside the tests that writes what an operator or a server would: rows, and entries of a server's streams.

It reads one JSON line {"call", "args"} a time and answers with one. The tests themselves hold Playwright's event
loop, in which Django's ORM refuses to work, and a database of their own.
"""

import json
import os
import sys
import time
import zlib
from datetime import timedelta

from tests.browser import (
    seeded_benchmarks,
    seeded_diagnoses,
    seeding_gateways,
    seeding_holds,
    seeding_join,
    seeding_logs,
    seeding_merged,
    seeding_models,
)
from tests.browser.seeded_artifacts import model_told, models, no_models
from tests.browser.seeded_deployments import deployment_moved, deployments, no_deployments
from tests.browser.seeded_evaluations import evaluated
from tests.browser.seeding_quantize import quantizable, servable

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def user(name="olga", role="operator", password="a-long-password"):
    from console.models import User

    User.objects.filter(username=name).delete()
    return User.objects.create_user(name, password=password, role=role).pk


def server(name="kp-01", heard=True, **fields):
    from django.utils import timezone

    from deployments.models import Server

    seen = timezone.now() if heard is True else None
    return Server.objects.update_or_create(name=name, defaults={"last_seen_at": seen, **fields})[0].pk


def job(server="kp-01", kind="check", state="queued", by=None, minutes_ago=0, took_s=0, **fields):
    """A job with one attempt, as `queue_job` leaves it, or already in another state."""
    from django.utils import timezone

    from console.models import User
    from deployments.models import Attempt, Job, Server

    at = timezone.now() - timedelta(minutes=minutes_ago)
    times = {} if state == "queued" else {"started_at": at}
    if state in ("succeeded", "failed", "cancelled"):
        times["ended_at"] = at + timedelta(seconds=took_s)
    made = Job.objects.create(
        server=Server.objects.get(name=server), kind=kind, state=state, created_at=at, not_after=at + timedelta(days=7),
        requester=User.objects.filter(username=by).first(), **times, **fields,
    )  # fmt: skip
    attempt = Attempt.objects.create(pk=f"a{made.pk}-1-0000abcd", job=made, n=1, state=state, pushed_at=at, **times)
    return {"job": made.pk, "attempt": attempt.pk}


def looked(server="kp-01", found=(), state="succeeded"):
    """A look at what can be cleaned up: `found` is [[target, size, files, why it stays or ""]]."""
    from deployments.models import Attempt

    made = job(server, "cleanup_look", state)
    report = []
    for n, (target, size, files, why) in enumerate(found):
        category, _colon, path = target.partition(":")
        todo = None if why else {"kind": "cleanup", "params": {"targets": [target], "seen": 1_790_000_000}}
        report.append(
            {"key": f"{category}.{n:012}", "title": [path, path], "verdict": "unknown" if why else "ok",
             "found": f"{size >> 20} MiB ({size} B), {files}", "wanted": "2026-09-21T10:00:00Z",
             "remedy": [why, why] if why else None, "job": todo, "line": n + 1}
        )  # fmt: skip
    Attempt.objects.filter(pk=made["attempt"]).update(report=report)
    return made


def ended(job, state="succeeded"):
    """The job and its attempt have ended, and its page hears of it."""
    from django.utils import timezone

    from deployments.models import Attempt, Job
    from deployments.services import jobs

    Attempt.objects.filter(job=job).update(state=state, ended_at=timezone.now())
    Job.objects.filter(pk=job).update(state=state, ended_at=timezone.now())
    jobs.tell(Job.objects.select_related("server", "requester").get(pk=job))


def cut_off(server="kp-01", on=True):
    """Switched off in Redis, as services/quota.py notes it; with `on` false it is as if that had never been."""
    from django.utils import timezone

    from deployments.models import Server

    reason = ["它在 Redis 中占用了 71 MB，超过 64 MB 的配额", "it held 71 MB in Redis, more than its quota of 64 MB"]
    values = {"cut_off_at": timezone.now(), "cut_off_reason": reason} if on else {"cut_off_at": None}
    Server.objects.filter(name=server).update(
        refused=3, last_refusal="the signature is not that of this server's key", **values
    )


def doubted(silent=0, of=10):
    """What ingest keeps while it doubts; 0: it does no more."""
    import time

    from console import doubt
    from console.redis import client

    doubt.write(client(), [doubt.Doubt(False, time.time(), silent, of, ())] if silent else [])


def jobs(count, server="kp-01", states=("succeeded", "failed")):
    """Many ended jobs at once."""
    from django.utils import timezone

    from deployments.models import Job, Server

    now, of = timezone.now(), Server.objects.get(name=server)
    same = {"server": of, "kind": "check", "not_after": now, "created_at": now, "started_at": now, "ended_at": now}
    rows = [Job(state=states[i % len(states)], **same) for i in range(count)]
    Job.objects.bulk_create(rows, batch_size=500)
    return count


def send(attempt, records, start_ms=None):
    """What the server's shipper would send next: records [[kind, text]] in chunks of 500 on its log stream."""
    from console import streams
    from console.redis import client
    from deployments.models import Attempt

    row = Attempt.objects.select_related("job").get(pk=attempt)
    line, byte = PLACES.get(attempt, (row.next_line, row.next_byte))
    at = start_ms or int(time.time() * 1000)
    for i in range(0, len(records), 500):
        part = records[i : i + 500]
        raw = "".join(f"{at + i + n}\t{kind}\t{text}\n" for n, (kind, text) in enumerate(part)).encode()
        fields = {
            "a": attempt,
            "f": line,
            "n": len(part),
            "b0": byte,
            "b1": byte + len(raw),
            "z": zlib.compress(raw, 1),
        }
        client().xadd(streams.logs(row.job.server_id), fields)
        line, byte = line + len(part), byte + len(raw)
    PLACES[attempt] = (line, byte)
    return line - 1


PLACES: dict[str, tuple[int, int]] = {}


def stored(attempt):
    """How many lines of an attempt are in the database."""
    from deployments.models import Attempt

    return Attempt.objects.get(pk=attempt).next_line - 1


def heard(name):
    """The server beat just now."""
    from django.utils import timezone

    from deployments.models import Server

    return Server.objects.filter(name=name).update(last_seen_at=timezone.now())


def rows(job):
    """The state of a job, and how many attempts it has."""
    from deployments.models import Job

    found = Job.objects.get(pk=job)
    return {"state": found.state, "attempts": found.attempts.count(), "params": found.params, "ticket": found.ticket}


def newest_job():
    from deployments.models import Job

    found = Job.objects.order_by("-pk").first()
    return found.pk if found else None


def forget():
    """No jobs, no lock-outs."""
    from axes.models import AccessAttempt

    from deployments.models import Batch, Campaign, Job

    AccessAttempt.objects.all().delete()
    Campaign.objects.all().delete()
    Batch.objects.all().delete()
    Job.objects.all().delete()


def sample(name, npus=(), processes=(), error=None, seq=1, host=None):
    """What the server's sampler would send next; `npus` are {aicore_pct, …} merged over a free 910B3."""
    from console import streams
    from console.redis import client
    from deployments.models import Server

    idle = {
        "chip": 0, "phy_id": 0, "name": "910B3", "health": "OK", "power_w": 92.0, "temp_c": 40, "hugepages_used": 0,
        "hugepages_total": 0, "aicore_pct": 0, "memory_used_mb": 0, "memory_total_mb": 0, "hbm_used_mb": 3200,
        "hbm_total_mb": 65536,
    }  # fmt: skip
    printed = [{**idle, "npu": n, "bus_id": f"0000:{0x81 + n:02X}:00.0", **npu} for n, npu in enumerate(npus)]
    of = Server.objects.get(name=name)
    message = {
        "type": "sample", "seq": seq, "t": time.time(), "took_ms": 30.0, "version": "25.5.1", "simulated": of.simulated,
        "npus": printed, "processes": list(processes), "host": host or {}, "error": error,
    }  # fmt: skip
    client().xadd(streams.telemetry(of.pk), {"d": json.dumps(message)})


def many(count, prefix, npus=8):
    """Simulated servers that were each heard once."""
    from deployments.models import Server

    names = [f"{prefix}{n + 1}" for n in range(count)]
    Server.objects.bulk_create([Server(name=name, simulated=True, rack=f"W{n // 20}") for n, name in enumerate(names)])
    for n, name in enumerate(names):
        sample(name, npus=[{"temp_c": 30 + (n * 7 + chip * 11) % 60} for chip in range(npus)])


def remove(prefix):
    from deployments.models import Server

    Server.objects.filter(name__startswith=prefix).delete()


def batch(find, by="olga"):
    """A batch of checks on the real servers that these words find."""
    from console.models import User
    from deployments.services import batches, selection

    who = User.objects.get(username=by)
    return batches.start("check", {}, selection.Asked(find=find), batches.Plan(), by=who).pk


def campaign(find, stack="cpu-0.32.0", by="olga", approved_by=None, **order):
    """A campaign for the real servers that these words find; approved, it has begun."""
    from console.models import User
    from deployments.services import campaigns, selection
    from deployments.services.campaign_rings import Order

    order = Order(**{"size": 2, "soak_min": 0, **order})
    who = User.objects.get(username=by)
    made = campaigns.ask(stack, {}, selection.Asked(find=find), order, by=who, why="The new release mends the crash")
    if approved_by:
        campaigns.approve(made, by=User.objects.get(username=approved_by), seen=made.digest, note="Looked at it")
    return made.pk


def reset(server="r-1", by="ada"):
    """A reset of an NPU whose ring has a second one; it waits for approval."""
    from console.models import User
    from deployments.models import Npu, Server
    from deployments.services import jobs

    links = {"NPU0": {"NPU1": "HCCS"}, "NPU1": {"NPU0": "HCCS"}}
    pk = globals()["server"](name=server, rack="R1", facts={"root": "helper", "topology": {"links": links}})
    for n in (0, 1):
        place = {"npu_id": n, "chip_id": 0, "bus_id": f"0000:{n + 16:02X}:00.0"}
        Npu.objects.update_or_create(server_id=pk, device_index=n, defaults=place)
    params = {"npu": "0000:11:00.0", "confirm": server}
    return jobs.queue_job(Server.objects.get(pk=pk), "reset", params, by=User.objects.get(username=by)).pk


def told(job):
    """The job's page hears of it, though nothing has changed."""
    from deployments.models import Job
    from deployments.services import jobs

    jobs.tell(Job.objects.select_related("server", "requester").get(pk=job))


def held_back(find):
    """A campaign whose canary was left out, and whose other servers have another plan than was approved."""
    from deployments.models import Campaign, Job
    from deployments.services import batches

    found = Campaign.objects.get(pk=campaign(find, approved_by="ada", at_once=10, size=20, spread=False))
    found.members.filter(ring__gt=0).update(approved="0")
    Job.objects.filter(batch=found.batch_id, wave=0).update(state="cancelled")
    batches.advance(found.batch_id)
    return found.pk


def tells(name, facts):
    """The server tells of itself anew."""
    from django.utils import timezone

    from deployments.models import Server

    now = timezone.now()
    Server.objects.filter(name=name).update(facts=facts, facts_at=now, last_seen_at=now)


def newest_attempts(count, servers=""):
    """The newest attempts that no server has begun, at most `count`, oldest first; of servers whose name begins so."""
    from deployments.models import Attempt

    found = Attempt.objects.filter(started_at=None, state="queued", job__server__name__startswith=servers)
    found = found.order_by("-job_id")
    return list(found.values_list("pk", flat=True)[:count])[::-1]


def bus_ids(name):
    """Those that the database knows of a server: ingest writes them a moment after the page has shown them."""
    from deployments.models import Npu

    return list(Npu.objects.filter(server__name=name).values_list("bus_id", flat=True))


ALL = (
    bus_ids, user, server, job, jobs, cut_off, doubted, send, stored, heard, rows, newest_job, forget, sample, many,
    remove, evaluated,
    batch, newest_attempts, looked, ended, campaign, tells, held_back,
    reset, told, models, model_told, no_models, quantizable, servable, deployments, no_deployments, deployment_moved,
    seeded_benchmarks.serving, seeded_benchmarks.measured, seeded_benchmarks.failed_replica,
)  # fmt: skip
ELSEWHERE = (
    seeding_models.model_looked, seeding_models.uploads, *seeding_gateways.ALL, *seeding_merged.ALL, seeding_holds.held,
    seeding_holds.none_held, seeding_logs.long_log, *seeded_diagnoses.ALL, *seeding_join.ALL,
)  # fmt: skip
CALLS = {one.__name__: one for one in (*ALL, *ELSEWHERE)}


def main():
    import django

    django.setup()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": CALLS[asked["call"]](**asked["args"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
