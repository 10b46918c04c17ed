"""Jobs that wait for locks, for a paused queue or for the end of a maintenance."""

import random
import threading
import time
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.utils import timezone, translation

from console.errors import ConsoleError
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import jobs, reaper, servers, waiting
from tests.deployments.handed import FakeAgent, finish, handed, kinds_of_tests  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "kinds_of_tests")]


@pytest.fixture
def hold(server, operator):
    def queue(*locks, **more):
        return jobs.queue_job(server, "hold_locks", {"locks": list(locks)}, by=operator, **more)

    return queue


def state(*made):
    return [(job.state, job.waiting) for job in Job.objects.filter(pk__in=[job.pk for job in made]).order_by("pk")]


def test_jobs_that_share_no_lock_go_at_once_and_one_that_does_waits(server, hold):
    first, other, second = hold("npu:1"), hold("npu:2"), hold("npu:1", "npu:3")
    assert handed(server) == [first.pk, other.pk]
    assert state(first, other, second) == [("queued", False), ("queued", False), ("queued", True)]
    finish(other)
    assert handed(server) == [first.pk]
    finish(first)
    assert handed(server) == [second.pk]


def test_a_waiting_job_says_for_whom_and_its_place(hold):
    first, second, third, free = hold("a"), hold("a"), hold("a"), hold("b")
    told = waiting.explain([first, second, third, free])
    assert {pk: (wait.holder.pk, wait.place, wait.lock) for pk, wait in told.items()} == {
        second.pk: (first.pk, 1, "a"), third.pk: (first.pk, 2, "a"),
    }  # fmt: skip
    with translation.override("en"):
        assert jobs.as_json(third)["waiting"]["text"] == f"waits for job #{first.pk} (Hold) · place 2"
    assert jobs.as_json(free)["waiting"] is None


def test_nobody_overtakes_a_job_that_waits_for_two_locks(server, hold):
    a, b = hold("a"), hold("b")
    both, late = hold("a", "b"), hold("b")
    finish(b)
    assert handed(server) == [a.pk], "the last one would starve the one that needs both"
    finish(a)
    assert handed(server) == [both.pk]
    finish(both)
    assert handed(server) == [late.pk]


def test_who_does_not_want_to_wait_is_refused_and_nothing_is_written(hold):
    first = hold("a")
    with pytest.raises(ConsoleError) as caught:
        hold("a", wait=False)
    assert (caught.value.code, caught.value.status) == ("locked", 409)
    assert f"#{first.pk}" in caught.value.what
    assert Job.objects.count() == 1
    assert hold("b", wait=False).waiting is False


def test_a_waiting_job_is_cancelled_at_once_and_the_next_takes_its_place(server, hold, operator):
    first, second, third = hold("a"), hold("a"), hold("a")
    jobs.cancel_job(second, by=operator)
    assert state(second) == [("cancelled", False)]
    jobs.cancel_job(first, by=operator)  # it stood in the queue: taken back, and the lock is free
    assert handed(server) == [third.pk]


def test_a_retried_job_waits_too(server, hold, operator):
    first = hold("a")
    finish(first)
    second = hold("a")
    jobs.retry_job(first, by=operator)
    assert state(first) == [("queued", True)]
    with pytest.raises(ConsoleError):
        jobs.retry_job(first, by=operator)
    finish(second)
    assert handed(server) == [first.pk]


def test_waiting_does_not_count_against_the_time_a_job_is_valid_for(server, hold):
    first, second = hold("a"), hold("a")
    Job.objects.filter(pk=second.pk).update(not_after=timezone.now() - timedelta(days=1))
    assert reaper.resend(timezone.now()) == 0
    assert state(second) == [("queued", True)]
    finish(first)
    second.refresh_from_db()
    assert second.not_after > timezone.now() + timedelta(days=6)


def test_a_lost_job_keeps_its_locks_until_somebody_cancels_it(server, hold, operator):
    first = hold("a")
    attempt = first.attempts.get()
    agent = FakeAgent(server)
    assert agent.take() == attempt.pk
    agent.start(attempt.pk)
    reaper.mark_lost([server.pk])
    second = hold("a")
    assert state(second) == [("queued", True)]
    jobs.cancel_job(first, by=operator)
    assert state(second) == [("queued", False)]


def test_a_cancel_between_the_decision_and_the_push_runs_nothing(server, hold, operator, monkeypatch):
    push, agent = jobs.queues.push, FakeAgent(server)

    def cancel_then_push(attempt):
        jobs.cancel_job(attempt.job, by=operator)
        push(attempt)

    monkeypatch.setattr(jobs.queues, "push", cancel_then_push)
    job = hold("a")
    assert state(job) == [("queued", False)], "the server decides"
    assert agent.take() is None and state(job) == [("cancelled", False)]


def test_without_redis_what_is_free_is_handed_over_later(server, hold, own_valkey, settings):
    first, second = hold("a"), hold("a")
    finish_first = first.attempts.get()
    FakeAgent(server).start(finish_first.pk)
    Job.objects.filter(pk=first.pk).update(state=JobState.SUCCEEDED)
    url, settings.REDIS_URL = settings.REDIS_URL, own_valkey.url
    own_valkey.kill()
    jobs.release([server.pk])
    settings.REDIS_URL = url
    assert state(second) == [("queued", False)]
    assert reaper.resend(timezone.now()) == 1
    assert handed(server)[-1] == second.pk


# ---------- pause and maintenance ----------


def test_a_paused_queue_keeps_new_jobs_and_takes_back_those_not_taken_yet(server, hold, operator):
    before = hold("a")
    servers.pause_queue(server, by=operator, reason="Fan is being changed")
    after = hold("b")
    assert handed(server) == [] and state(before, after) == [("queued", True), ("queued", True)]
    row = Server.objects.get(pk=server.pk)
    assert (row.queue_paused_reason, row.queue_paused_by) == ("Fan is being changed", operator)
    assert reaper.resend(timezone.now() + timedelta(hours=1)) == 0
    assert jobs.as_json(Job.objects.get(pk=after.pk))["waiting"]["why"] == "paused"
    with pytest.raises(ConsoleError) as caught:
        hold("c", wait=False)
    assert caught.value.code == "queue_paused"
    servers.resume_queue(server, by=operator)
    assert handed(server) == [before.pk, after.pk]
    verbs = [entry.additional_data["verb"] for entry in LogEntry.objects.get_for_object(row).order_by("pk")]
    assert verbs == ["server.queue_paused", "server.queue_resumed"]


def test_what_a_server_has_taken_goes_on_while_its_queue_is_paused(server, hold, operator):
    first = hold("a")
    agent = FakeAgent(server)
    attempt = agent.take()
    servers.pause_queue(server, by=operator)
    assert state(first) == [("queued", False)]
    agent.start(attempt)
    agent.end(attempt)
    assert state(first) == [("succeeded", False)]


def test_in_maintenance_only_checks_start(server, hold, operator):
    servers.set_maintenance(server, True, by=operator)
    held = hold("a")
    check = jobs.queue_job(server, "check", {}, by=operator)
    assert handed(server) == [check.pk] and state(held) == [("queued", True)]
    servers.set_maintenance(server, False, by=operator)
    assert handed(server) == [check.pk, held.pk]


def test_a_viewer_pauses_nothing(server, viewer):
    for change in (servers.pause_queue, servers.resume_queue):
        with pytest.raises(ConsoleError):
            change(server, by=viewer)
    with pytest.raises(ConsoleError):
        servers.set_maintenance(server, True, by=viewer)
    assert not Server.objects.filter(queue_paused=True).exists()


# ---------- many at once ----------


def run_all(*targets):
    """Threads with their own connections; the first error of any is raised here."""
    errors = []

    def run(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[target]) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_at_once_lose_no_wake_up_and_never_share_a_lock(server, operator, seed):
    """Four people queue, one cancels, the server takes and ends; nothing sweeps, so each end must wake its next."""
    each, people = 10, 4
    queued, done = [], threading.Event()
    agent, running, overlaps = FakeAgent(server), {}, []

    def person(n):
        dice = random.Random(seed * 100 + n)
        for _ in range(each):
            locks = dice.sample(["a", "b", "c"], dice.randint(1, 2))
            queued.append(jobs.queue_job(server, "hold_locks", {"locks": locks}, by=operator))
            time.sleep(dice.random() * 0.01)

    def canceller():
        for _ in range(5):
            time.sleep(0.04)
            one = Job.objects.filter(state=JobState.QUEUED, waiting=True).order_by("?").first()
            if one:
                try:
                    jobs.cancel_job(one, by=operator)
                except ConsoleError:
                    pass  # it ended just now

    def server_side():
        dice = random.Random(seed)
        while not done.is_set() or running:
            while attempt := agent.take():
                mine = Attempt.objects.select_related("job").get(pk=attempt).job
                overlaps.extend((mine.pk, pk) for pk, locks in running.values() if set(locks) & set(mine.locks))
                running[attempt] = (mine.pk, mine.locks)
                agent.start(attempt)
            if running:
                attempt = dice.choice(sorted(running))
                del running[attempt]
                stored = agent.end(attempt)
                jobs.release({job.server_id for job in stored.jobs.values()})
            time.sleep(0.002)

    def watch():
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            over = Job.objects.filter(state__in=[JobState.SUCCEEDED, JobState.CANCELLED]).count()
            if len(queued) == each * people and over == each * people:
                break
            time.sleep(0.02)
        done.set()

    run_all(*(lambda n=n: person(n) for n in range(people)), canceller, server_side, watch)
    open_ = Job.objects.exclude(state__in=[JobState.SUCCEEDED, JobState.CANCELLED])
    left = list(open_.values_list("pk", "state", "waiting", "locks", "attempts__pushed_at", "attempts__pushes"))
    assert left == [] and overlaps == []
    assert not Attempt.objects.filter(pushes__gt=1).exists()


def test_an_end_whose_wake_up_died_with_ingest_is_found_by_the_sweep(server, hold):
    first, second = hold("a"), hold("a")
    agent = FakeAgent(server)
    attempt = agent.take()
    agent.start(attempt)
    agent.end(attempt)  # and ingest dies here
    assert state(first, second) == [("succeeded", False), ("queued", True)]
    assert waiting.servers_with_room() == [server.pk]
    jobs.release(waiting.servers_with_room())
    assert handed(server) == [second.pk] and waiting.servers_with_room() == []
