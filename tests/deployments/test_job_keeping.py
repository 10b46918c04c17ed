"""Rows of jobs go when they are old and nothing needs them."""

from datetime import timedelta

import pytest
from django.utils import timezone

from deployments.models import Approval, Artifact, Attempt, Batch, Evaluation, Job, Server
from deployments.services import job_keeping
from tests.deployments import serving_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(server, settings):
    settings.JOB_DAYS = 100

    def make(days=101, state="succeeded", kind="install", **values):
        at = timezone.now() - timedelta(days=days)
        values = {
            "server": server,
            "kind": kind,
            "state": state,
            "created_at": at,
            "ended_at": at,
            "not_after": at,
        } | values
        row = Job.objects.create(**values)
        Attempt.objects.create(pk=f"a{row.pk}-1-x", job=row, n=1, done=True)
        return row

    return make


def left():
    return set(Job.objects.values_list("pk", flat=True))


def test_old_jobs_go_and_the_newest_of_each_kind_state_and_server_stay(job):
    job(), job(), job(state="failed")
    other = Server.objects.create(name="kp-02")
    stay = [
        job(),
        job(state="failed"),
        job(kind="check"),
        job(server=other),
        job(days=3, kind="serve"),
        job(state="lost"),
    ]
    job(days=99, kind="stop"), job(days=98, kind="stop")
    assert job_keeping.prune() == 3
    assert {one.pk for one in stay} <= left() and len(left()) == 8
    assert Attempt.objects.count() == 8


def test_what_something_refers_to_stays(job, server):
    batch = Batch.objects.create(kind="install")
    held = [job() for _ in range(4)]
    Artifact.objects.create(name="qwen", made_by=held[0])
    serving_rows.replica(serving_rows.deployment("chat"), server, 1, state="ready", serve_job=held[1])
    Approval.objects.create(job=held[2], expires_at=timezone.now())
    Job.objects.filter(pk=held[3].pk).update(batch=batch)
    free, newest = job(), job()
    assert job_keeping.prune() == 1
    assert left() == {*(one.pk for one in held), newest.pk} and free.pk not in left()


def test_every_relation_but_the_parts_of_a_job_keeps_it():
    """So that one that is added later does, too."""
    keeping = {
        relation.related_model._meta.label
        for model in (Job, Attempt)
        for relation in model._meta.related_objects
        if relation.related_model._meta.label not in job_keeping.PARTS
    }
    assert {Evaluation._meta.label, "deployments.Replica", "deployments.Artifact", "deployments.Benchmark"} <= keeping
