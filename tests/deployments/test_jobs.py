import json
from datetime import timedelta

import pytest
import redis
from django.db import OperationalError
from django.db.models import QuerySet
from django.utils import timezone

from console.errors import ConsoleError
from deployments import queues
from deployments.agent import signing
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import jobs, reaper

pytestmark = pytest.mark.django_db


def queue(server, operator, django_capture_on_commit_callbacks, **params):
    with django_capture_on_commit_callbacks(execute=True):
        return jobs.queue_job(server, "check", params, by=operator)


@pytest.fixture
def job(server, operator, valkey, django_capture_on_commit_callbacks):
    return queue(server, operator, django_capture_on_commit_callbacks)


def test_a_queued_job_is_a_signed_dispatch_on_the_servers_own_queue(job, server):
    attempt = job.attempts.get()
    entry = queues.queue(server.pk).fetch_job(attempt.pk)
    body, mac = entry.args
    assert entry.func_name == "deployments.agent.worker.dispatch"
    assert signing.is_signed(server.key, body, mac)
    assert {key: json.loads(body)[key] for key in ("op", "attempt", "kind", "server")} == {
        "op": "run", "attempt": attempt.pk, "kind": "check", "server": server.pk,
    }  # fmt: skip
    assert attempt.pushes == 1 and queues.is_waiting(attempt)


def test_every_key_lies_below_the_servers_prefix(job, server, valkey):
    assert {key.split(b":")[1] for key in valkey.client().keys("*")} == {str(server.pk).encode()}


def test_without_redis_the_job_is_kept_and_pushed_later(
    server, operator, own_valkey, settings, django_capture_on_commit_callbacks
):
    settings.REDIS_URL = own_valkey.url
    own_valkey.kill()
    job = queue(server, operator, django_capture_on_commit_callbacks)
    attempt = job.attempts.get()
    assert (job.state, attempt.pushed_at) == (JobState.QUEUED, None)
    own_valkey.start()
    assert reaper.resend(timezone.now()) == 1
    assert queues.is_waiting(attempt)
    assert reaper.resend(timezone.now()) == 0  # it stands in the queue


def test_a_viewer_queues_nothing(server, viewer):
    with pytest.raises(ConsoleError) as caught:
        jobs.queue_job(server, "check", {}, by=viewer)
    assert (caught.value.code, caught.value.status) == ("not_allowed", 403)
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("kind", "params", "code"),
    [
        ("format_disk", {}, "unknown_kind"),
        ("../os", {}, "unknown_kind"),
        ("check", {"depth": 3}, "invalid_params"),
        ("check", {"deep": "yes"}, "invalid_params"),
    ],
)
def test_wrong_calls_are_answered_in_words_and_write_nothing(server, operator, kind, params, code):
    with pytest.raises(ConsoleError) as caught:
        jobs.queue_job(server, kind, params, by=operator)
    assert caught.value.code == code and caught.value.what and caught.value.do
    assert not Job.objects.exists()


def test_a_silent_server_gets_no_job(server, operator):
    server.last_seen_at = timezone.now() - timedelta(seconds=61)
    server.save()
    with pytest.raises(ConsoleError) as caught:
        jobs.queue_job(server, "check", {}, by=operator)
    assert caught.value.code == "server_offline"


def test_cancel_before_the_server_saw_it_takes_it_back(job, operator, server):
    jobs.cancel_job(job, by=operator)
    job.refresh_from_db()
    attempt = job.attempts.get()
    assert (job.state, attempt.state) == (JobState.CANCELLED, JobState.CANCELLED)
    assert not queues.is_waiting(attempt)


def test_cancel_of_a_running_job_asks_its_server(job, operator, server, django_capture_on_commit_callbacks):
    attempt = job.attempts.get()
    queues.withdraw(attempt)  # the agent took it
    Attempt.objects.filter(pk=attempt.pk).update(state=JobState.RUNNING, started_at=timezone.now(), next_line=5)
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    with django_capture_on_commit_callbacks(execute=True):
        jobs.cancel_job(job, by=operator)
    (entry,) = queues.queue(server.pk).get_jobs()
    assert json.loads(entry.args[0])["op"] == "cancel"
    job.refresh_from_db()
    assert job.state == JobState.RUNNING and jobs.as_json(job)["cancelling"] is True


def test_retry_makes_a_new_attempt_and_only_of_an_ended_job(job, operator, django_capture_on_commit_callbacks):
    with pytest.raises(ConsoleError) as caught:
        jobs.retry_job(job, by=operator)
    assert caught.value.code == "under_way"
    jobs.cancel_job(job, by=operator)
    with django_capture_on_commit_callbacks(execute=True):
        jobs.retry_job(job, by=operator)
    job.refresh_from_db()
    assert job.state == JobState.QUEUED and [a.n for a in job.attempts.all()] == [1, 2]


def test_silence_loses_running_jobs_and_a_beat_brings_them_back(job, server):
    attempt = job.attempts.get()
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    assert reaper.mark_lost([server.pk + 1]) == []
    assert reaper.mark_lost([server.pk]) == [job]
    job.refresh_from_db()
    assert job.state == JobState.LOST and server.name in job.reason[1]
    assert reaper.bring_back({server.pk: {"a-of-nobody"}}) == []
    assert reaper.bring_back({server.pk + 1: {attempt.pk}}) == [], "a server speaks for its own jobs only"
    assert reaper.bring_back({server.pk: {attempt.pk}}) == [job]
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.RUNNING, None)


def test_what_vanished_from_redis_is_sent_again_with_back_off(job, server, valkey):
    valkey.client().flushall()
    now = timezone.now()
    assert reaper.resend(now) == 0  # sent a moment ago
    assert reaper.resend(now + timedelta(seconds=25)) == 1
    assert job.attempts.get().pushes == 2


def test_a_long_queue_of_one_server_keeps_no_other_from_its_jobs(job, server, valkey, monkeypatch):
    monkeypatch.setattr(reaper, "AT_ONCE", 25)
    busy = Server.objects.create(name="kp-66", last_seen_at=timezone.now())
    long_ago = timezone.now() - timedelta(hours=1)
    for _ in range(30):
        waiting = Job.objects.create(server=busy, kind="check", not_after=job.not_after)
        Attempt.objects.create(pk=f"a{waiting.pk}-1-00000001", job=waiting, n=1, pushed_at=long_ago, pushes=1)
    valkey.client().flushall()
    assert reaper.resend(timezone.now() + timedelta(seconds=25)) == 21
    assert queues.is_waiting(job.attempts.get())


@pytest.mark.parametrize("name", [b"\xff\xfe", b"x" * 100_000])
def test_what_a_server_puts_into_its_own_queue_is_not_read(job, server, valkey, name):
    """The list is the server's to write: the console must not choke on names that are no text, or a million of them."""
    waiting = queues.queue(server.pk)
    valkey.client().rpush(waiting.key, *[name] * 100)
    assert queues.is_waiting(job.attempts.get())
    valkey.client().delete(waiting.key)
    valkey.client().set(waiting.key, "not a list")
    assert reaper.resend(timezone.now() + timedelta(seconds=25)) == 0


def test_a_cancel_that_found_no_redis_is_asked_again_until_an_event_answers(
    job, server, operator, valkey, monkeypatch, django_capture_on_commit_callbacks
):
    attempt = job.attempts.get()
    queues.withdraw(attempt)
    Attempt.objects.update(state=JobState.RUNNING, started_at=timezone.now(), next_line=5)
    Job.objects.update(state=JobState.RUNNING)
    with monkeypatch.context() as away, django_capture_on_commit_callbacks(execute=True):
        away.setattr(queues, "push_cancel", lambda attempt: (_ for _ in ()).throw(redis.ConnectionError("away")))
        jobs.cancel_job(job, by=operator)
    later = timezone.now() + timedelta(seconds=11)
    assert reaper.resend_cancels(timezone.now()) == 0
    assert reaper.resend_cancels(later) == 1 and queues.cancel_is_waiting(attempt)
    assert reaper.resend_cancels(later) == 0, "it stands in the queue"
    valkey.client().flushall()
    Attempt.objects.update(rung="interrupt")
    assert reaper.resend_cancels(later) == 0, "the server has answered"


def test_a_database_too_busy_to_note_a_push_fails_no_call(server, operator, valkey, monkeypatch):
    """The row is committed by then: who got an error would send the job a second time."""
    made = Job.objects.create(server=server, kind="check", not_after=timezone.now() + timedelta(days=1))
    attempt = Attempt.objects.create(pk=f"a{made.pk}-1-00000001", job=made, n=1)
    with monkeypatch.context() as busy:
        busy.setattr(QuerySet, "update", lambda *_, **__: (_ for _ in ()).throw(OperationalError("locked")))
        assert jobs.hand_over(attempt) is False
    assert reaper.resend(timezone.now()) == 1 and queues.is_waiting(attempt)


def test_a_job_that_nobody_took_in_time_has_failed(job):
    reaper.resend(job.not_after + timedelta(seconds=1))
    job.refresh_from_db()
    assert job.state == JobState.FAILED and job.reason[1]


def test_a_lost_job_of_which_its_server_knows_nothing_is_cancelled_as_asked(server, operator, valkey):
    made = jobs.queue_job(server, "check", {}, by=operator)
    attempt = made.attempts.get()
    Attempt.objects.update(state=JobState.RUNNING, started_at=timezone.now(), next_line=5)
    Job.objects.update(state=JobState.LOST)
    jobs.cancel_job(made, by=operator)
    now, unanswered = timezone.now(), {}
    later = now + timedelta(seconds=reaper.GIVE_UP_S + 1)
    assert reaper.give_up(now, unanswered) == [] and list(unanswered) == [attempt.pk]
    assert reaper.give_up(later, unanswered) == [], "its server is silent again"
    Server.objects.update(last_seen_at=later)
    reaper.give_up(now, unanswered)
    queues.push_cancel(attempt)
    assert reaper.give_up(later, unanswered) == [], "the cancel stands in the queue"
    valkey.client().flushall()
    assert reaper.give_up(later, unanswered) == [made]
    made.refresh_from_db()
    assert made.state == JobState.CANCELLED and "knows nothing" in made.reason[1]


def test_a_lost_job_that_nobody_cancelled_stays_lost(server, operator, valkey):
    made = jobs.queue_job(server, "check", {}, by=operator)
    Attempt.objects.update(state=JobState.RUNNING)
    Job.objects.update(state=JobState.LOST)
    assert reaper.give_up(timezone.now() + timedelta(days=1), {made.attempts.get().pk: timezone.now()}) == []
