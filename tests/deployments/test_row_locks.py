"""Two transactions never wait for each other: each locks the server's row before what belongs to the server."""

import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection, transaction
from django.utils import timezone

from deployments import ingest
from deployments.models import Enrolment, Job, JobState, Order, OrderState, Rotation
from deployments.row_locks import lock_job
from deployments.services import jobs, join, lifecycle, orders, reaper
from tests.deployments.beside_a_server import run_beside

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("valkey"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one lock for the whole database"),
]


@pytest.fixture
def beside(server):
    return partial(run_beside, server.pk)


def touch_job(attempt):
    def touch():
        Job.objects.filter(pk=attempt.job_id).update(mark=["a", "a"])
        type(attempt).objects.filter(pk=attempt.pk).update(rung="")

    return touch


def test_a_cancel_beside_a_hand_over(beside, attempt, operator):
    beside(lambda: jobs.cancel_job(attempt.job, by=operator), touch_job(attempt))
    assert Job.objects.get().state == JobState.CANCELLED


def test_lines_stored_beside_a_cancel(beside, server, attempt, spool):
    entry = spool.event(e="started", attempt=attempt.pk, pid=1, host="h")
    beside(lambda: ingest.store({server.pk: [entry]}), touch_job(attempt))
    assert Job.objects.get().state == JobState.RUNNING


def test_a_retry_beside_an_end(beside, attempt, operator):
    Job.objects.filter(pk=attempt.job_id).update(state=JobState.FAILED)
    beside(lambda: jobs.retry_job(attempt.job, by=operator), touch_job(attempt))
    assert Job.objects.get().state == JobState.QUEUED


def test_a_job_that_expires_beside_a_hand_over(beside, attempt):
    beside(lambda: reaper.expire(attempt), touch_job(attempt))
    assert Job.objects.get().state == JobState.FAILED


def test_a_server_that_leaves_beside_lines(beside, server, attempt):
    beside(lambda: lifecycle.finish(server), touch_job(attempt))
    assert Job.objects.get().state == JobState.CANCELLED


def test_new_keys_taken_beside_a_server_that_leaves(beside, server):
    made = Rotation.objects.create(server=server)
    order = Order.objects.create(server=server, do="rotate", not_after=timezone.now() + timedelta(days=1))

    def touch():
        Rotation.objects.filter(pk=made.pk).delete()
        orders.drop(server)

    beside(lambda: orders._end(order, OrderState.DONE, ""), touch)
    assert Order.objects.get().state == OrderState.EXPIRED, "who came first has ended it"


def test_credentials_handed_out_beside_a_server_that_leaves(beside, server):
    until_then = timezone.now() + timedelta(hours=1)
    found = Enrolment.objects.create(server=server, digest="d", expires_at=until_then)
    beside(
        lambda: join.config(found),
        lambda: Enrolment.objects.filter(pk=found.pk).update(expires_at=until_then + timedelta(hours=1)),
    )
    found.refresh_from_db()
    assert found.used_at


def test_who_writes_history_does_not_wait_for_a_decision(server, attempt):
    """Rows that only point to the server are written while somebody holds it."""
    with transaction.atomic():
        lock_job(attempt.job_id)
        written = []

        def write():
            written.append(Order.objects.create(server=server, do="settle", not_after=timezone.now()))
            connection.close()

        thread = threading.Thread(target=write)
        thread.start()
        thread.join(10)
        assert written, "it waits for the server's row"
