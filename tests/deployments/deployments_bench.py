"""Deployments for tests: servers with room, a model that lies on them, and engines that are pretended.

`Fleet.engines` stands for the servers: it ends jobs as their agents would (by the job's row, as ingest writes it) and
says what keepers say. Places, reservations, ports and jobs are the real ones.
"""

import json
import time
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from console import streams
from deployments.models import Artifact, Deployment, Job, JobState, Replica, Server
from deployments.row_locks import lock_replica
from deployments.services import reconcile, replica_events, replica_now
from deployments.serving.placing_facts import Candidate
from deployments.steps import Text
from tests.deployments.model_rows import artifact as model_row
from tests.deployments.model_rows import place as place_row

SETTINGS = {"served_model_name": "tiny", "device": "cpu", "route": "process"}
FULL = Text("没有空位", "nothing is free")


class Fleet:
    """`room`: {server name: how many replicas it takes}; `codes`: of what is in the way where there is none."""

    codes: tuple[str, ...] = ()

    def __init__(self, monkeypatch, redis, count=3, room=1):
        self.redis = redis
        self.servers = [
            Server.objects.create(
                name=f"kp-{n}",
                last_seen_at=timezone.now(),
                address_roles={f"10.0.0.{n}": "service"},
                facts={"root": "helper"},
            )
            for n in range(1, count + 1)
        ]
        self.model = model_row("tiny", summary={"max_position": 32768})
        for server in self.servers:
            place_row(self.model, server)
        self.room = {server.name: room for server in self.servers}
        self.engines = Engines(redis)
        monkeypatch.setattr("deployments.services.placement.look", self.look)
        monkeypatch.setattr("deployments.services.placement.choose", self.choose)
        monkeypatch.setattr(
            "deployments.services.serve_jobs.start", lambda row, by: self.engines.queue("serve", row, by)
        )
        monkeypatch.setattr(
            "deployments.services.serve_jobs.restart", lambda row, by: self.engines.queue("restart", row, by)
        )
        monkeypatch.setattr(
            "deployments.services.serve_jobs.stop", lambda row, by, now=False: self.engines.queue("stop", row, by)
        )

    def look(self, settings, artifact, *, servers=None, spread="racks", deployment=None):
        taken = Replica.objects.exclude(state__in=("stopped", "failed")).values_list("server__name", flat=True)
        left = {name: room - list(taken).count(name) for name, room in self.room.items()}
        rows = [row for row in self.servers if servers is None or row.name in servers]
        rows.sort(key=lambda row: (-left[row.name], row.name))
        return [
            Candidate(pk=row.pk, server=row.name, fits=left[row.name] > 0, path="/data/models/tiny",
                      why=(Text("空闲", "it is free"),), why_not=() if left[row.name] > 0 else (FULL,),
                      codes=self.codes)
            for row in rows
        ]  # fmt: skip

    def choose(self, settings, artifact, *, count, **where):
        return [one for one in self.look(settings, artifact, **where) if one.fits][:count]

    def wind(self, model, name, seconds, **where):
        """Let that time of rows be so much longer ago; of how many."""
        rows = list(model.objects.filter(**where))
        for row in rows:
            model.objects.filter(pk=row.pk).update(**{name: getattr(row, name) - timedelta(seconds=seconds)})
        return len(rows)

    def look_at(self, deployment):
        """Reconcile as the worker does; the deployment as it is then."""
        reconcile.look(deployment.pk)
        return Deployment.objects.select_related("revision", "owner").get(pk=deployment.pk)

    def settle(self, deployment, turns=40):
        """Everything that engines can do at once is done, until nothing moves; soaks and drains are waited for."""
        for _turn in range(turns):
            done = reconcile.look(deployment.pk)
            moved = self.engines.obey()
            now = timezone.now()
            moved += self.wind(Replica, "ready_at", 60, state="ready", ready_at__gt=now - timedelta(seconds=30))
            moved += self.wind(Replica, "drain_until", 90_000, state="draining", drain_until__gt=now)
            if not done and not moved:
                return Deployment.objects.select_related("revision", "owner").get(pk=deployment.pk)
        raise AssertionError("it does not come to rest")


class Engines:
    """`bad`: numbers of revisions whose engines fail; `slow`: servers whose jobs do not end by themselves."""

    def __init__(self, redis):
        self.redis, self.bad, self.slow, self.queued = redis, set(), set(), []
        self.refuse = None

    def queue(self, kind, row, by):
        if self.refuse:
            raise self.refuse
        self.queued.append((kind, row.n))
        return Job.objects.create(
            server=row.server, kind=kind, requester=by, state=JobState.QUEUED, params={"replica": row.pk},
            not_after=timezone.now() + timedelta(days=1),
        )  # fmt: skip

    def obey(self):
        """End every job there is, and let engines that were started be ready."""
        open_jobs = list(
            Job.objects.filter(kind__in=("serve", "restart", "stop"), state=JobState.QUEUED).order_by("pk")
        )
        open_jobs = [job for job in open_jobs if job.server.name not in self.slow]
        for job in open_jobs:
            row = Replica.objects.select_related("revision").get(pk=job.params["replica"])
            if job.kind == "stop":
                self.end(job, JobState.SUCCEEDED)
            elif row.revision.n in self.bad:
                self.end(job, JobState.FAILED, ["内存不足", "out of memory"])
            else:
                self.say(row, "ready")
                self.end(job, JobState.SUCCEEDED)
        return len(open_jobs)

    @transaction.atomic
    def end(self, job, state, reason=None):
        job.state, job.reason, job.ended_at = state, reason, timezone.now()
        replica_events.job_ended(job)
        job.save()

    @transaction.atomic
    def say(self, row, state, **more):
        """What a keeper says of it, as ingest takes it."""
        now = replica_now.clean({"replica": row.pk, "state": state, "at": time.time(), "restarts": 0, **more})
        return replica_events.heard(lock_replica(row.pk), now)

    def numbers(self, row, **metrics):
        kept = {"seen": time.time(), "state": "ready", "at": time.time(), "metrics": replica_now.metrics(metrics)}
        self.redis.hset(streams.REPLICAS_NOW, str(row.pk), json.dumps(kept))


def proven(name="tiny"):
    return Artifact.objects.get(name=name)
