"""From one revision to another, and back."""

from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.utils import timezone, translation

from console.errors import Conflict
from console.models import Alert
from deployments.models import Deployment, Job, JobState, Replica
from deployments.services import deployment_json, deployments, reconcile, revisions
from tests.deployments.deployments_bench import SETTINGS, Fleet

pytestmark = [pytest.mark.django_db(transaction=True)]
LONGER = {**SETTINGS, "max_model_len": 4096}
LONGEST = {**SETTINGS, "max_model_len": 8192}


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def fleet(monkeypatch, valkey, db):
    return Fleet(monkeypatch, valkey.client())


@pytest.fixture
def made(fleet, operator):
    found = deployments.create("tiny", fleet.model, SETTINGS, by=operator, replicas=2)
    return fleet.settle(found)


def of_revisions(deployment, *states):
    """[(n, revision, state)] of those in these states, all without."""
    rows = deployment.replica_set.select_related("revision").order_by("n")
    return [(row.n, row.revision.n, row.state) for row in rows if not states or row.state in states]


def step(fleet, deployment):
    """One look and what engines do at once: no soak, no drain."""
    done = reconcile.look(deployment.pk)
    fleet.engines.obey()
    return done


def ready_for_long(fleet):
    fleet.wind(Replica, "ready_at", 60, state="ready")


def drained(fleet):
    fleet.wind(Replica, "drain_until", 700, state="draining")


def test_a_new_revision_replaces_one_by_one_and_never_two_at_once(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    fewest, seen = 2, set()
    for _turn in range(60):
        step(fleet, made)
        fewest = min(fewest, len(of_revisions(made, "ready")))
        ready_for_long(fleet)
        drained(fleet)
        now = Deployment.objects.get(pk=made.pk)
        seen.add((now.rollout or {}).get("phase"))
        if now.rollout is None:
            break
    assert of_revisions(made) == [(1, 1, "stopped"), (2, 1, "stopped"), (3, 2, "ready"), (4, 2, "ready")]
    assert fewest == 1 and seen == {"first", "rest", None} and Deployment.objects.get().reason is None


def test_a_replica_in_place_takes_the_place_that_was_given_up(fleet, made, operator):
    free = next(row for row in fleet.servers if not row.replicas.exists())
    revisions.make(made, LONGER, by=operator)
    fleet.settle(made)
    assert not free.replicas.exists()


def test_the_first_has_to_go_on_well_before_the_rest_follows(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    while not of_revisions(made, "ready") or of_revisions(made, "ready")[-1][1] != 2:
        step(fleet, made)
        drained(fleet)
    assert step(fleet, made) == [] and len(of_revisions(made, "draining")) == 0
    assert Deployment.objects.get().rollout["phase"] == "first"
    ready_for_long(fleet)
    assert step(fleet, made) == ["first_proven", "drain"]


def test_ready_alone_is_not_proven_while_the_job_has_had_no_completion(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    while not of_revisions(made, "starting"):
        reconcile.look(made.pk)
        drained(fleet)
        for job in Job.objects.filter(kind="stop", state=JobState.QUEUED):
            fleet.engines.end(job, JobState.SUCCEEDED)
    new = made.replica_set.get(state="starting")
    fleet.engines.say(new, "ready")
    ready_for_long(fleet)
    assert reconcile.look(made.pk) == []


def test_a_revision_that_fails_goes_back_by_itself_and_says_why(fleet, made, operator):
    fleet.engines.bad = {2}
    revisions.make(made, LONGER, by=operator)
    found = fleet.settle(made)
    assert found.revision.n == 1 and found.rollout is None and found.reason is None
    assert of_revisions(made) == [(1, 1, "ready"), (2, 1, "stopped"), (3, 2, "failed"), (4, 1, "ready")]
    alert = Alert.objects.get()
    assert alert.name == "rollout-failed" and "out of memory" in alert.what[1] and "Revision 2" in alert.what[1]


@pytest.mark.parametrize(("errors", "served", "back"), [(30, 70, True), (2, 1, False), (9, 500, False)])
def test_a_first_replica_that_fails_its_requests_is_no_good_either(
    fleet, made, operator, monkeypatch, errors, served, back
):
    numbers = {"errors_total": errors, "requests_total": served, "running": 0, "waiting": 0}
    new = lambda pk: Replica.objects.get(pk=pk).revision.n == 2  # noqa: E731
    told = lambda pks: {pk: {"metrics": numbers if new(pk) else {**numbers, "errors_total": 0}} for pk in pks}  # noqa: E731
    monkeypatch.setattr("deployments.services.picture.replica_live.read", told)
    revisions.make(made, LONGER, by=operator)
    while not [row for row in of_revisions(made, "ready") if row[1] == 2]:
        step(fleet, made)
        drained(fleet)
    found = fleet.settle(made)
    assert found.revision.n == (1 if back else 2)
    assert not back or f"{errors} of {errors + served} requests ended in an error" in Alert.objects.get().what[1]


def test_while_it_goes_back_the_deployment_says_so(fleet, made, operator):
    fleet.engines.bad = {2}
    revisions.make(made, LONGER, by=operator)
    while Deployment.objects.get().revision_id != made.revision_id:
        step(fleet, made)
        drained(fleet)
    kept = deployment_json.of(deployments.find("tiny"))
    assert kept["rollout"]["phase"] == "back" and kept["rollout"]["to"] == 1 and kept["state"] == "rolling_out"
    assert "out of memory" in kept["reasons"][1]


def test_a_first_replica_that_degrades_is_no_good_either(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    while not [row for row in of_revisions(made, "ready") if row[1] == 2]:
        step(fleet, made)
        drained(fleet)
    fleet.engines.say(made.replica_set.get(n=3), "degraded", reason=["探测失败", "3 probes failed"])
    found = fleet.settle(made)
    assert found.revision.n == 1 and of_revisions(made)[2] == (3, 2, "stopped")
    assert "3 probes failed" in Alert.objects.get().what[1]


def test_where_the_one_before_fails_as_well_it_stops_and_waits_for_a_person(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    fleet.engines.bad = {1, 2}
    found = fleet.settle(made)
    assert found.rollout["phase"] == "stuck" and "out of memory" in found.reason[1]
    assert len(of_revisions(made, "ready")) == 1, "who serves goes on"
    fleet.engines.bad = set()
    revisions.back(made, 1, by=operator)
    found = fleet.settle(made)
    assert found.rollout is None and found.reason is None and len(of_revisions(made, "ready")) == 2


def test_surge_starts_the_new_one_first(fleet, made, operator):
    revisions.make(made, LONGER, by=operator, how="surge")
    fewest = 2
    for _turn in range(40):
        step(fleet, made)
        fewest = min(fewest, len(of_revisions(made, "ready")))
        ready_for_long(fleet)
        drained(fleet)
    assert Deployment.objects.get().rollout is None and fewest == 2
    assert [row[1] for row in of_revisions(made, "ready")] == [2, 2]


def test_surge_without_room_goes_on_in_place(fleet, made, operator):
    fleet.room["kp-3"] = 0
    revisions.make(made, LONGER, by=operator, how="surge")
    assert step(fleet, made)[:2] == ["no_surge", "drain"]
    assert [row[1] for row in of_revisions(fleet.settle(made), "ready")] == [2, 2]


def test_going_back_in_the_middle_keeps_what_still_runs(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    while not [row for row in of_revisions(made, "ready") if row[1] == 2]:
        step(fleet, made)
        drained(fleet)
    revisions.abort(made, by=operator)
    found = fleet.settle(made)
    assert found.revision.n == 1 and of_revisions(made, "ready") == [(1, 1, "ready"), (4, 1, "ready")]
    assert made.revisions.count() == 2, "going back makes no revision"


def test_a_rollout_waits_while_it_is_paused_and_another_may_not_begin(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    step(fleet, made)
    deployments.set_rollout_paused(made, True, by=operator)
    drained(fleet)
    assert "place" not in [verb for _ in range(5) for verb in step(fleet, made)]
    with pytest.raises(Conflict, match="A rollout of"):
        revisions.make(made, LONGEST, by=operator)
    deployments.set_rollout_paused(made, False, by=operator)
    assert fleet.settle(made).rollout is None


def test_it_goes_on_where_it_was_after_a_restart_of_the_console(fleet, made, operator):
    """Nothing of a rollout is in memory: every look reads all of it anew. One that died left half a turn."""
    revisions.make(made, LONGER, by=operator)
    original = reconcile._once
    for turns in (1, 2, 1, 3):
        left = [turns]

        def once(pk, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return original(pk)

        reconcile._once = once
        try:
            reconcile.look(made.pk)
        except KeyboardInterrupt:
            pass
        finally:
            reconcile._once = original
        fleet.engines.obey()
        drained(fleet)
    found = fleet.settle(made)
    assert found.rollout is None and [row[1] for row in of_revisions(made, "ready")] == [2, 2]


def test_stopping_ends_a_rollout(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    step(fleet, made)
    deployments.stop(made, by=operator)
    found = fleet.settle(made)
    assert found.rollout is None and of_revisions(made, "ready") == []


def test_replicas_start_anew_one_by_one_on_their_places(fleet, made, operator):
    deployments.restart(made, by=operator)
    fewest = 2
    for _turn in range(40):
        step(fleet, made)
        fewest = min(fewest, len(of_revisions(made, "ready")))
        ready_for_long(fleet)
        drained(fleet)
    assert of_revisions(made) == [(1, 1, "ready"), (2, 1, "ready")] and fewest == 1
    assert [kind for kind, _n in fleet.engines.queued] == ["serve", "serve", "restart", "restart"]
    assert Deployment.objects.get().rollout is None


def test_a_restart_that_fails_stops_before_the_next(fleet, made, operator):
    fleet.engines.bad = {1}
    deployments.restart(made, by=operator)
    found = fleet.settle(made)
    assert found.rollout["phase"] == "stuck" and of_revisions(made) == [(1, 1, "failed"), (2, 1, "ready")]


# ---------- what it would do ----------


def test_the_plan_names_who_restarts_and_how_long_nobody_answers(fleet, operator):
    made = fleet.settle(deployments.create("one", fleet.model, SETTINGS, by=operator))
    row = made.replica_set.get()
    Job.objects.filter(pk=row.serve_job_id).update(created_at=timezone.now())
    Replica.objects.filter(pk=row.pk).update(
        ready_at=Job.objects.get(pk=row.serve_job_id).created_at + timedelta(seconds=95)
    )
    plan = revisions.plan(made, LONGER)
    assert plan["restarts"] == [{"n": 1, "server": row.server.name, "npus": [], "state": "ready"}]
    assert (plan["no_service"], plan["away_s"], plan["surge"], plan["how"]) == (True, 95.0, True, "in_place")
    assert [(one["field"], one["after"]) for one in plan["changes"]] == [("max_model_len", "4096")]
    assert revisions.plan(made, LONGER, how="surge")["no_service"] is False
    assert made.revisions.count() == 1 and Deployment.objects.get().rollout is None


def test_that_requests_are_logged_from_here_on_is_in_the_audit_log(fleet, made, operator):
    def told():
        return LogEntry.objects.filter(additional_data__verb="deployment.requests_logged").count()

    assert told() == 0
    revisions.make(made, {**SETTINGS, "log_requests": True}, by=operator)
    fleet.settle(made)
    revisions.make(Deployment.objects.get(), {**LONGER, "log_requests": True}, by=operator)
    assert told() == 1, "it was on already"


def test_nothing_changed_makes_no_revision(fleet, made, operator):
    with pytest.raises(Conflict, match="Nothing has changed"):
        revisions.make(made, {**SETTINGS, "max_num_seqs": 16}, by=operator)
    assert made.revisions.count() == 1


def test_a_model_whose_content_is_another_one_is_not_gone_back_to(fleet, made, operator):
    revisions.make(made, LONGER, by=operator)
    fleet.settle(made)
    first = made.revisions.get(n=1)
    fleet.model.places.update(gone_at=timezone.now())
    with pytest.raises(Conflict, match="No server has a copy"):
        revisions.back(made, 1, by=operator)
    first.artifact.fingerprint = "0" * 64
    first.artifact.save()
    with pytest.raises(Conflict, match="is no longer what it was"):
        revisions.back(made, 1, by=operator)
