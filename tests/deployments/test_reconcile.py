"""Wished against real."""

import threading
from datetime import timedelta

import django_rq
import pytest
from django.db import connection, transaction
from django.utils import timezone

from console.errors import Conflict
from console.models import Alert
from deployments.models import Deployment, Job, JobState, PortLease, Replica, Server
from deployments.services import deployments, reconcile, replica_place, revisions, scaling
from tests.deployments.deployments_bench import SETTINGS, Fleet

pytestmark = [pytest.mark.django_db(transaction=True)]


@pytest.fixture
def fleet(monkeypatch, valkey, db):
    return Fleet(monkeypatch, valkey.client())


@pytest.fixture
def made(fleet, operator):
    return deployments.create("tiny", fleet.model, SETTINGS, by=operator, replicas=2)


def states(deployment):
    return list(deployment.replica_set.order_by("n").values_list("n", "state"))


def test_what_is_wished_is_placed_leased_and_started(fleet, made):
    reconcile.look(made.pk)
    first, second = made.replica_set.all()
    assert first.server != second.server and {first.state, second.state} == {"starting"}
    assert (
        first.port == 18000 and first.address == f"10.0.0.{first.server.name[-1]}" and first.path == "/data/models/tiny"
    )
    assert PortLease.objects.count() == 2 and fleet.engines.queued == [("serve", 1), ("serve", 2)]
    assert first.serve_job.kind == "serve" and first.why == [["空闲", "it is free"]]


def test_a_second_look_does_nothing_again(fleet, made):
    reconcile.look(made.pk)
    assert reconcile.look(made.pk) == [] and Replica.objects.count() == 2


def test_it_comes_to_rest_with_every_replica_ready(fleet, made):
    found = fleet.settle(made)
    assert states(made) == [(1, "ready"), (2, "ready")] and found.reason is None
    assert made.pk not in reconcile.unsettled()


# ---------- fewer ----------


def test_a_replica_too_many_drains_until_nothing_runs_and_its_place_is_free_again(fleet, made, operator):
    fleet.settle(made)
    second = made.replica_set.get(n=2)
    fleet.engines.numbers(second, running=3, waiting=1)
    scaling.scale(made, 1, by=operator)
    reconcile.look(made.pk)
    assert states(made) == [(1, "ready"), (2, "draining")]
    fleet.wind(Replica, "drain_until", 10, pk=second.pk)
    assert reconcile.look(made.pk) == [], "four requests are under way"
    fleet.engines.numbers(second, running=0, waiting=0)
    assert reconcile.look(made.pk) == ["stop"]
    fleet.settle(made)
    second.refresh_from_db()
    assert (second.state, second.cut, second.stop_job.kind) == ("stopped", 0, "stop") and second.ended_at
    assert list(PortLease.objects.values_list("replica__n", flat=True)) == [1]


def test_requests_that_outlast_the_drain_are_cut_and_counted(fleet, made, operator):
    fleet.settle(made)
    deployments.stop(made, by=operator)
    for row in made.replica_set.all():
        fleet.engines.numbers(row, running=2, waiting=5)
    reconcile.look(made.pk)
    assert [kind for kind, _n in fleet.engines.queued].count("stop") == 0
    fleet.wind(Replica, "drain_until", 700, deployment=made)
    reconcile.look(made.pk)
    assert list(made.replica_set.values_list("cut", flat=True)) == [7, 7]


def test_a_gateway_has_time_before_an_idle_replica_is_ended(fleet, made, operator):
    fleet.settle(made)
    scaling.scale(made, 1, by=operator)
    reconcile.look(made.pk)
    fleet.engines.numbers(made.replica_set.get(n=2), running=0, waiting=0)
    assert reconcile.look(made.pk) == [], "its gateway may still send"


def test_a_stopped_deployment_starts_again_with_as_many(fleet, made, operator):
    fleet.settle(made)
    deployments.stop(made, by=operator)
    assert fleet.settle(made).reason is None and {state for _n, state in states(made)} == {"stopped"}
    deployments.start(made, by=operator)
    fleet.settle(made)
    assert states(made)[2:] == [(3, "ready"), (4, "ready")]


def test_a_replica_that_would_not_stop_keeps_its_place_and_is_told_of(fleet, made, operator):
    fleet.settle(made)
    scaling.scale(made, 1, by=operator)
    reconcile.look(made.pk)
    fleet.wind(Replica, "drain_until", 700, state="draining")
    reconcile.look(made.pk)
    fleet.engines.end(Job.objects.get(kind="stop"), JobState.FAILED, ["显存未释放", "its memory was not given back"])
    found = fleet.settle(made)
    assert states(made)[1] == (2, "draining") and "its memory was not given back" in found.reason[1]
    assert PortLease.objects.count() == 2 and Alert.objects.get().name == "replica-not-stopped"
    deployments.stop_again(made, 2, by=operator)
    fleet.settle(made)
    assert states(made)[1] == (2, "stopped") and Alert.objects.get().ended_at and PortLease.objects.count() == 1


# ---------- what cannot be met ----------


def test_without_room_the_nearest_refusal_is_said_and_nothing_is_left_behind(fleet, made, operator):
    scaling.scale(made, 5, by=operator)
    found = fleet.settle(made)
    assert len(states(made)) == 3 and found.reason == [
        "没有服务器可以再放下 2 个副本；最接近的是 kp-1：没有空位",
        "No server has room for 2 more; the nearest is kp-1: nothing is free",
    ]
    assert reconcile.sweep() == 0, "it is left alone for a while"
    fleet.room["kp-1"] = 3
    assert fleet.settle(made).reason is None and len(states(made)) == 5


def test_what_waits_for_a_stack_does_not_wait_for_room(fleet, made, operator):
    fleet.codes = ("stack",)
    scaling.scale(made, 5, by=operator)
    assert fleet.settle(made).reason == [
        "2 个副本在等软件栈；最接近的是 kp-1：没有空位",
        "2 more wait for a stack, not for room; the nearest is kp-1: nothing is free",
    ]


def test_a_job_that_cannot_be_queued_leaves_no_replica(fleet, made):
    fleet.engines.refuse = Conflict("kp-1 is silent.", "Start its agent.")
    found = fleet.look_at(made)
    assert Replica.objects.count() == PortLease.objects.count() == 0
    assert found.reason[1].endswith("kp-1 is silent. Start its agent.")


def test_a_replica_that_failed_is_not_started_again_by_itself(fleet, made, operator):
    fleet.engines.bad = {1}
    found = fleet.settle(made)
    assert states(made) == [(1, "failed"), (2, "failed")] and "out of memory" in found.reason[1]
    assert PortLease.objects.count() == 0 and reconcile.look(made.pk) == []
    alert = Alert.objects.get(name="replica-failed")
    assert "out of memory" in alert.what[1] and alert.count == 1
    fleet.engines.bad = set()
    deployments.start(made, by=operator)
    assert (
        fleet.settle(made).reason is None
        and Alert.objects.get(name="replica-failed").ended_at
        and states(made)[2:] == [(3, "ready"), (4, "ready")]
    )


def test_an_engine_that_gave_up_is_told_to_stay_away_before_its_place_is_given_back(fleet, made):
    fleet.settle(made)
    fleet.engines.say(made.replica_set.get(n=1), "failed", reason=["崩溃循环", "it crashed again and again"])
    assert reconcile.look(made.pk) == ["clean_up"] and PortLease.objects.count() == 2
    found = fleet.settle(made)
    assert states(made) == [(1, "failed"), (2, "ready")] and PortLease.objects.count() == 1
    assert "it crashed again and again" in found.reason[1]


def test_a_job_that_ended_on_the_console_alone_is_seen(fleet, made):
    reconcile.look(made.pk)
    Job.objects.filter(kind="serve").update(state=JobState.CANCELLED, reason=["取消", "Cancelled"])
    reconcile.look(made.pk)
    assert states(made) == [(1, "failed"), (2, "failed")] and PortLease.objects.count() == 0


def test_right_after_a_stop_npus_that_still_seem_taken_are_no_reason(fleet, made, operator):
    fleet.settle(made)
    scaling.scale(made, 1, by=operator)
    fleet.settle(made)
    fleet.room = dict.fromkeys(fleet.room, 0)
    scaling.scale(made, 2, by=operator)
    assert fleet.look_at(made).reason is None
    fleet.wind(Replica, "ended_at", 60, state="stopped")
    assert "No server has room" in fleet.look_at(made).reason[1]


# ---------- silence ----------


def silence(server, minutes):
    Server.objects.filter(pk=server.pk).update(last_seen_at=timezone.now() - timedelta(minutes=minutes))


def test_a_replica_on_a_silent_server_stays_as_it_is_and_none_takes_its_place(fleet, made):
    fleet.settle(made)
    silence(made.replica_set.get(n=1).server, 30)
    found = fleet.look_at(made)
    assert states(made) == [(1, "ready"), (2, "ready")] and "may still serve there" in found.reason[1]


def test_where_it_is_allowed_another_one_takes_its_place_and_the_lost_one_is_stopped_later(fleet, made, operator):
    fleet.settle(made)
    deployments.edit(made, {"replace_lost": True}, by=operator)
    lost = made.replica_set.get(n=1)
    silence(lost.server, 5)
    assert reconcile.look(made.pk) == [], "not yet"
    silence(lost.server, 11)
    assert made.pk in reconcile.unsettled()
    fleet.settle(made)
    assert states(made) == [(1, "draining"), (2, "ready"), (3, "ready")] and PortLease.objects.count() == 3
    silence(lost.server, 0)
    fleet.settle(made)
    assert states(made)[0] == (1, "stopped") and PortLease.objects.count() == 2


def test_a_replica_whose_server_was_decommissioned_ends_and_another_one_takes_its_place(fleet, made, operator):
    fleet.settle(made)
    gone = made.replica_set.get(n=1)
    silence(gone.server, 11)
    Server.objects.filter(pk=gone.server_id).update(decommissioned_at=timezone.now())
    fleet.settle(made)
    gone.refresh_from_db()
    assert states(made) == [(1, "stopped"), (2, "ready"), (3, "ready")] and "decommissioned" in gone.reason[1]
    assert not gone.ports.exists() and not gone.reservations.exists()


def test_one_that_was_to_be_stopped_there_ends_as_well(fleet, made, operator):
    fleet.settle(made)
    deployments.stop(made, by=operator)
    row = made.replica_set.get(n=1)
    fleet.engines.slow = {row.server.name}
    fleet.settle(made)
    Server.objects.filter(pk=row.server_id).update(decommissioned_at=timezone.now())
    with transaction.atomic():
        fleet.engines.end(made.replica_set.get(n=1).stop_job, JobState.FAILED, ["x", "nobody knows"])
    fleet.settle(made)
    assert states(made) == [(1, "stopped"), (2, "stopped")] and not PortLease.objects.exists()
    assert not Alert.objects.filter(name="replica-not-stopped", ended_at=None).exists()


def test_the_alert_of_a_failed_replica_that_was_not_stopped_ends_with_another_try(fleet, made, operator):
    fleet.settle(made)
    fleet.engines.say(made.replica_set.get(n=1), "failed", reason=["反复退出", "it ended again and again"])
    reconcile.look(made.pk)
    row = made.replica_set.get(n=1)
    assert (row.state, row.stop_job.kind) == ("failed", "stop")
    fleet.engines.end(row.stop_job, JobState.FAILED, ["x", "stuck"])
    assert Alert.objects.filter(name="replica-not-stopped", ended_at=None).count() == 1
    deployments.stop_again(made, 1, by=operator)
    fleet.settle(made)
    assert not Alert.objects.filter(name="replica-not-stopped", ended_at=None).exists()
    assert not PortLease.objects.filter(replica=row).exists()


def test_while_the_console_doubts_itself_nothing_is_done(fleet, made, monkeypatch):
    monkeypatch.setattr("console.doubt.is_on", lambda simulated: True)
    assert reconcile.look(made.pk) == [] and not Replica.objects.exists()


def test_a_paused_deployment_is_left_alone(fleet, made, operator):
    deployments.pause(made, by=operator)
    found = fleet.look_at(made)
    assert not Replica.objects.exists() and found.reason[1].startswith("It is paused")
    with pytest.raises(Conflict):
        scaling.scale(made, 3, by=operator)
    deployments.resume(made, by=operator)
    assert fleet.settle(made).reason is None and len(states(made)) == 2


# ---------- who looks ----------


def test_two_at_once_do_nothing_twice(fleet, made, operator):
    fleet.room = {"kp-1": 3, "kp-2": 3, "kp-3": 3}
    scaling.scale(made, 6, by=operator)
    errors = []

    def other():
        try:
            reconcile.look(made.pk)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=other) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [] and [state for _n, state in states(made)] == ["starting"] * 6
    assert sorted(fleet.engines.queued) == [("serve", n) for n in range(1, 7)] and PortLease.objects.count() == 6


def test_however_many_ask_it_stands_once_in_the_consoles_queue(fleet, made, valkey):
    queue = django_rq.get_queue("default")
    assert queue.count == 1, "who creates it asks"
    for _ in range(3):
        reconcile.ask(made.pk)
    assert reconcile.sweep() == 0 and queue.count == 1
    job = queue.jobs[0]
    job.func(*job.args)
    assert Replica.objects.count() == 2
    reconcile.ask(made.pk)
    assert queue.count == 2, "asked again since"


def test_a_settled_fleet_is_found_with_a_fixed_number_of_queries(fleet, made, operator, django_assert_num_queries):
    fleet.settle(made)
    fleet.room = {"kp-1": 9, "kp-2": 9, "kp-3": 9}
    fleet.settle(deployments.create("other", fleet.model, SETTINGS, by=operator))
    with django_assert_num_queries(4):
        assert reconcile.unsettled() == []


def test_gateways_hear_of_each_change_of_who_may_be_asked(fleet, made, operator, monkeypatch):
    heard = []
    monkeypatch.setattr(
        "deployments.services.serving_hooks.CHANGED",
        [lambda found: heard.append(sorted(found.replica_set.filter(state="ready").values_list("n", flat=True)))],
    )
    fleet.settle(made)
    assert heard[-1] == [1, 2]
    told = len(heard)
    reconcile.look(made.pk)
    assert len(heard) == told, "nothing has changed"
    scaling.scale(made, 1, by=operator)
    reconcile.look(made.pk)
    assert heard[-1] == [1], "who drains takes no more"


# ---------- by day and time ----------


def test_a_point_of_the_schedule_scales_once_and_a_hand_holds_until_the_next(fleet, made, operator):
    now = timezone.localtime()
    every = list(range(7))
    ago = now - timedelta(minutes=5)
    deployments.set_schedule(made, [{"at": f"{ago:%H:%M}", "days": every, "replicas": 1}], by=operator)
    fleet.settle(made)
    assert Deployment.objects.get().replicas == 2, "it was due before there was a schedule"
    fleet.wind(Deployment, "schedule_at", 3600)
    assert made.pk in reconcile.unsettled()
    fleet.settle(made)
    assert Deployment.objects.get().replicas == 1
    scaling.scale(made, 3, by=operator)
    fleet.settle(made)
    assert Deployment.objects.get().replicas == 3


def test_room_that_was_found_for_other_settings_is_not_taken(fleet, made, operator, monkeypatch):
    """Somebody makes a revision while the console looks for room: what it found is for the one before."""
    hold, found = replica_place._candidates, []

    def slow(seen):
        candidates = hold(seen)
        if not found:
            revisions.make(made, {**SETTINGS, "max_num_seqs": 4}, by=operator)
        found.append(seen.deployment.revision.n)
        return candidates

    monkeypatch.setattr(replica_place, "_candidates", slow)
    reconcile.look(made.pk)
    assert found == [1, 2, 2] and [row.revision.n for row in made.replica_set.all()] == [2, 2]
