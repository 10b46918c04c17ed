"""Jobs of engines are filled in from their replicas alone and hide what is secret; of several nodes all or none run."""

import base64
import json
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone, translation

from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.models import Alert, ApiToken
from deployments import ingest, queues
from deployments.agent import signing
from deployments.demo import models
from deployments.models import (
    ArtifactPlace,
    Attempt,
    Deployment,
    Job,
    JobState,
    Npu,
    PortLease,
    Replica,
    ReplicaState,
    Revision,
    Server,
)
from deployments.services import jobs, model_uses, serve_jobs, waiting
from tests.deployments.acted import Acted, at_once
from tests.deployments.model_rows import artifact
from tests.job_fixtures import Spool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
__all__ = ["at_once"]
NAMES = ["0000:C1:00.0", "0000:C2:00.0"]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


def make_server(name, **more):
    facts = {"stacks_root": "/opt/ascend-console/stacks", **more.pop("facts", {})}
    made = Server.objects.create(name=name, last_seen_at=timezone.now(), facts=facts, family="910B4", **more)
    for n, bus_id in enumerate(NAMES):
        Npu.objects.create(server=made, npu_id=n, chip_id=0, device_index=n, bus_id=bus_id)
    return made


@pytest.fixture
def server(db):
    return make_server("kp-01")


@pytest.fixture
def deployment(server, operator):
    row = Deployment.objects.create(name="chat", owner=operator, drain_s=300)
    model = artifact("Qwen3-8B")
    settings = {"tensor_parallel_size": 2, "served_model_name": "qwen"}
    row.revision = Revision.objects.create(
        deployment=row, n=3, artifact=model, fingerprint=model.fingerprint, settings=settings, by=operator
    )
    row.save()
    return row


@pytest.fixture
def replica(deployment, server):
    ArtifactPlace.objects.create(artifact=deployment.revision.artifact, server=server, path="/data/q", bytes=1)
    return make_replica(deployment, server)


def make_replica(deployment, server, **more):
    n = deployment.replica_set.count() + 1
    row = Replica.objects.create(
        deployment=deployment, revision=deployment.revision, n=n, server=server, npus=NAMES, path="/data/q",
        address="192.0.2.1", port=18000, **more,
    )  # fmt: skip
    PortLease.objects.create(server=server, port=18000, replica=row)
    return row


def test_a_start_is_filled_in_from_the_replica(replica, operator, deployment):
    job = serve_jobs.start(replica, by=operator)
    assert (job.kind, job.server_id, job.state) == ("serve", replica.server_id, JobState.QUEUED)
    assert job.locks == [f"engine:{replica.pk}", "npu:0000:C1:00.0", "npu:0000:C2:00.0"]
    told = job.params
    assert (told["deployment"], told["revision"], told["model"], told["port"]) == ("chat", 3, "/data/q", 18000)
    assert told["fingerprint"] == deployment.revision.fingerprint and told["npus"] == NAMES
    assert json.loads(told["settings"]) == deployment.revision.settings
    opened = signing.unseal(replica.server.key, base64.b64decode(told["sealed"]))
    assert json.loads(opened) == {"api_key": deployment.api_key}


@pytest.mark.django_db(transaction=True)
def test_nobody_else_fills_these_fields_and_no_answer_shows_what_is_secret(replica, operator, client, deployment):
    for given in ({"sealed": "eA=="}, {"model": "/data/other"}, {"npus": ["0000:81:00.0"]}, {"settings": "{}"}):
        with pytest.raises(Invalid, match="fills in"):
            jobs.queue_job(replica.server, "serve", {"replica": replica.pk, **given}, by=operator)
    job = serve_jobs.start(replica, by=operator)
    client.force_login(operator)
    assert jobs.as_json(job)["params"] == {"replica": replica.pk}
    page = client.get(f"/jobs/{job.pk}/")
    assert page.status_code == 200
    _row, token = ApiToken.make(operator, "operator")
    answer = client.get(f"/api/v1/jobs/{job.pk}", headers={"Authorization": f"Bearer {token}"})
    assert answer.json()["params"] == {"replica": replica.pk}
    for text in (page.content.decode(), answer.content.decode(), json.dumps(jobs.as_json(job))):
        assert deployment.api_key not in text and job.params["sealed"] not in text
    (body, _mac) = queues.queue(replica.server_id).jobs[0].args
    assert job.params["sealed"] in body and deployment.api_key not in body


@pytest.mark.parametrize(
    ("params", "error", "words"),
    [
        ({}, Invalid, "replica"),
        ({"replica": 999_999}, NotFound, "no replica with number"),
        ({"replica": "1"}, Invalid, "must be a whole number"),
        ({"replica": 0}, Invalid, "at least 1"),
        ({"replica": True}, Invalid, "whole number"),
    ],
)
def test_what_names_no_replica_is_answered_in_words(server, operator, params, error, words):
    for kind in ("serve", "stop", "restart"):
        with pytest.raises(error, match=words):
            jobs.queue_job(server, kind, params, by=operator)


def test_a_replica_is_started_on_its_own_server_and_while_it_lives(replica, operator):
    other = make_server("kp-02")
    with pytest.raises(Invalid, match="is not on kp-02"):
        jobs.queue_job(other, "serve", {"replica": replica.pk}, by=operator)
    with pytest.raises(Invalid, match="no simulated server"):
        serve_jobs.start(replica, by=operator, fault="out_of_memory")
    Replica.objects.filter(pk=replica.pk).update(state=ReplicaState.STOPPED)
    with pytest.raises(Conflict, match="has ended"):
        serve_jobs.start(replica, by=operator)
    Replica.objects.filter(pk=replica.pk).update(state=ReplicaState.PLANNED, port=0)
    with pytest.raises(Conflict, match="has no port"):
        serve_jobs.start(replica, by=operator)
    assert not Job.objects.exists()


def test_the_route_is_what_the_server_can_do_and_says_why_it_is_another(replica, operator):
    def route(**facts):
        Server.objects.filter(pk=replica.server_id).update(facts={"stacks_root": "/s", **facts})
        Job.objects.all().delete()
        params = serve_jobs.start(Replica.objects.get(pk=replica.pk), by=operator).params
        return params["route"], params["why"]

    assert route() == ("process", "no_systemd")
    assert route(systemd=True, root="none") == ("process", "no_root")
    assert route(systemd=True, root="root") == ("process", "no_root")
    assert route(systemd=True, root="old") == ("process", "old_helper")
    assert route(systemd=True, root="helper") == ("systemd", "")
    Revision.objects.update(settings={"route": "podman", "image": "quay.io/x:1"})
    assert route(systemd=True, root="helper") == ("podman", "")
    Revision.objects.update(settings={"route": "process"})
    assert route(systemd=True, root="helper") == ("process", "")


def test_310p_gets_the_data_type_that_it_has(replica, operator):
    Server.objects.update(family="310P3")
    replica.refresh_from_db()
    assert json.loads(serve_jobs.start(replica, by=operator).params["settings"])["dtype"] == "float16"


def test_a_stop_goes_on_a_server_in_maintenance_that_is_drained_and_holds_no_cordoned_npu(replica, operator):
    Server.objects.update(maintenance=True, cordons={"0000:C1:00.0": {"reason": "ECC"}})
    replica.refresh_from_db()
    job = serve_jobs.stop(replica, by=operator)
    assert job.locks == [f"engine:{replica.pk}", "npu:0000:C2:00.0"] and not job.waiting
    assert job.params["npus"] == NAMES and job.params["drain_s"] == 300 and not job.params["now"]
    server = Server.objects.get()
    server.draining = True
    assert waiting.standstill(server, "stop") == "" and waiting.standstill(server, "serve") == "draining"


def test_a_stop_takes_the_route_of_the_start_before(replica, operator):
    Server.objects.update(facts={"stacks_root": "/s", "systemd": True, "root": "helper"})
    started = serve_jobs.start(Replica.objects.get(), by=operator)
    end(started, "failed")
    Server.objects.update(facts={"stacks_root": "/s", "systemd": True, "root": "none"})
    with pytest.raises(Conflict, match="needs root"):
        serve_jobs.stop(Replica.objects.get(), by=operator)
    Server.objects.update(facts={"stacks_root": "/s", "systemd": True, "root": "helper"})
    assert serve_jobs.stop(Replica.objects.get(), by=operator).params["route"] == "systemd"


def test_a_stop_cancels_a_start_that_is_under_way_and_comes_behind_it(replica, operator):
    begun = serve_jobs.start(replica, by=operator)
    Attempt.objects.filter(job=begun).update(state=JobState.RUNNING, started_at=timezone.now())
    Job.objects.filter(pk=begun.pk).update(state=JobState.RUNNING)
    stop = serve_jobs.stop(replica, by=operator, now=True)
    begun.refresh_from_db()
    assert begun.cancel_requested_at is not None and stop.waiting
    assert serve_jobs.stop(replica, by=operator).waiting  # again: it is not cancelled twice


def test_how_many_requests_were_cut_is_told_by_the_stop_alone(replica, operator):
    def tell(job, data):
        attempt = job.attempts.get()
        ingest.store({job.server_id: [Spool(attempt.pk).event(e="told", told="engine_stopped", data=data)]})
        replica.refresh_from_db()
        return replica.cut

    assert tell(serve_jobs.stop(replica, by=operator), {"replica": replica.pk, "cut": 3}) == 3
    for cut in (-1, "9", None, True, 10**9):
        assert tell(serve_jobs.stop(replica, by=operator), {"cut": cut}) == 3
    assert tell(serve_jobs.start(replica, by=operator), {"cut": 7}) == 3


def test_a_start_waits_for_the_stop_before_it(replica, operator):
    assert not serve_jobs.stop(replica, by=operator).waiting
    assert serve_jobs.start(replica, by=operator).waiting
    assert serve_jobs.restart(replica, by=operator).waiting


def test_a_job_that_goes_again_is_sealed_with_the_key_of_now(replica, operator, deployment):
    job = serve_jobs.start(replica, by=operator)
    end(job, "failed")
    Server.objects.update(key="cd" * 32)
    Job.objects.filter(pk=job.pk).update(params={**job.params, "port": 1})
    again = jobs.retry_job(Job.objects.get(pk=job.pk), by=operator)
    opened = signing.unseal("cd" * 32, base64.b64decode(again.params["sealed"]))
    assert json.loads(opened) == {"api_key": deployment.api_key}
    assert again.params["port"] == 18000


def test_a_copy_that_a_replica_serves_is_in_use(replica):
    place = ArtifactPlace.objects.get()
    (use,) = [one for one in model_uses.of(place) if one.blocks]
    assert use.text == "Replica 1 of the deployment chat serves it."
    Replica.objects.update(state=ReplicaState.FAILED)
    assert not [one for one in model_uses.of(place) if one.blocks]


def test_a_simulated_server_acts_out_what_is_filled_in(at_once, deployment, operator, tmp_path):
    acted = Acted("kp-01", tmp_path, free=True)
    path, model = next((path, one["model"]) for path, one in models.there(acted.member._scene()).items())
    server = Server.objects.get(name="kp-01")
    Server.objects.filter(pk=server.pk).update(simulated=True, facts=acted.facts())
    Revision.objects.update(fingerprint=model["fingerprint"])
    names = [chip.bus_id for chip in acted.made.chips[:2]]
    row = make_replica(Deployment.objects.get(), Server.objects.get(pk=server.pk))
    Replica.objects.filter(pk=row.pk).update(path=path, npus=names)
    row = Replica.objects.get(pk=row.pk)
    started = serve_jobs.start(row, by=operator)
    log = acted.run("serve", **started.params)
    assert log.ended["state"] == "succeeded" and started.params["route"] == "systemd", log.text
    assert [one["replica"] for one in acted.member.sampler.sample()["engines"]] == [row.pk]
    assert deployment.api_key not in log.text
    end(started, "succeeded")
    assert acted.run("stop", **serve_jobs.stop(row, by=operator).params).ended["state"] == "succeeded"
    assert acted.member.sampler.sample()["engines"] == []
    deployment.labels, deployment.simulated = {"fault": "crash_loop"}, True
    deployment.save()
    wrong = serve_jobs.start(Replica.objects.get(pk=row.pk), by=operator)
    assert "again and again" in acted.run("serve", **wrong.params).reason


# ---------- several nodes ----------


@pytest.fixture
def several(deployment, server):
    other = make_server("kp-02")
    settings = {"nodes": 2, "tensor_parallel_size": 2, "data_parallel_size": 2}
    Revision.objects.update(settings=settings)
    deployment.revision.refresh_from_db()
    nodes = [
        {"server": one.pk, "name": one.name, "npus": NAMES, "rank": rank, "address": f"192.0.2.{rank + 1}"}
        for rank, one in enumerate((server, other))
    ]
    row = make_replica(deployment, server, nodes=nodes)
    PortLease.objects.create(server=server, port=13400, replica=row, purpose="dp")
    return row


def end(job, state, reason=None):
    """The agent tells how the job's newest attempt has ended."""
    attempt = Attempt.objects.filter(job=job).order_by("n").last()
    spool = Spool(attempt.pk)
    ended = spool.chunk(
        ("v", json.dumps({"e": "started", "attempt": attempt.pk, "pid": 1, "host": "x"})),
        ("v", json.dumps({"e": "ended", "state": state, "exit": 1, "reason": reason})),
    )
    ingest.store({job.server_id: [ended]})
    job.refresh_from_db()
    return job


def test_several_nodes_get_a_job_each_the_others_first(several, operator):
    first = serve_jobs.start(several, by=operator)
    second = Job.objects.exclude(pk=first.pk).get()
    assert second.pk < first.pk and (first.server.name, second.server.name) == ("kp-01", "kp-02")
    assert (first.params["rank"], second.params["rank"]) == (0, 1)
    assert second.params["addresses"] == ["192.0.2.1", "192.0.2.2"] and second.params["address"] == "192.0.2.2"
    assert first.params["ports"] == second.params["ports"] == ["dp:13400"]
    stop = serve_jobs.stop(several, by=operator)
    assert stop.server.name == "kp-01" and Job.objects.filter(kind="stop").count() == 2


def test_all_of_them_are_queued_or_none(several, operator):
    Server.objects.filter(name="kp-01").update(last_seen_at=timezone.now() - timedelta(days=1))
    with pytest.raises(ConsoleError):
        serve_jobs.start(Replica.objects.get(), by=operator)
    assert not Job.objects.exists()
    Server.objects.update(last_seen_at=timezone.now())
    Job.objects.create(server=Server.objects.get(name="kp-01"), kind="check", locks=[f"npu:{NAMES[0]}"],
                       state=JobState.RUNNING, not_after=timezone.now() + timedelta(days=1))  # fmt: skip
    with pytest.raises(Conflict, match="holds npu"):
        serve_jobs.start(Replica.objects.get(), by=operator)
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_where_one_node_fails_the_others_end_and_say_so(several, operator):
    first = serve_jobs.start(several, by=operator)
    second = Job.objects.get(kind="serve", server__name="kp-02")
    for job in (first, second):
        Attempt.objects.filter(job=job).update(state=JobState.RUNNING, started_at=timezone.now())
        Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    end(second, "failed", ["NPU 丢失", "An NPU was lost."])
    first.refresh_from_db()
    assert first.cancel_requested_at is not None
    end(first, "cancelled", ["已按请求取消。", "Cancelled on request."])
    assert first.reason == ["节点 kp-02：NPU 丢失", "Node kp-02: An NPU was lost."]


@pytest.mark.django_db(transaction=True)
def test_a_node_that_had_started_is_stopped_when_another_fails(several, operator):
    first = serve_jobs.start(several, by=operator)
    second = Job.objects.get(kind="serve", server__name="kp-02")
    end(second, "succeeded")
    end(first, "failed", ["x", "It ended."])
    stop = Job.objects.get(kind="stop")
    assert stop.server.name == "kp-02" and stop.params["now"] is True


@pytest.mark.django_db(transaction=True)
def test_it_is_stopped_when_each_of_its_nodes_is_and_one_that_is_not_is_told_of(several, operator):
    first = serve_jobs.stop(several, by=operator, now=True)
    second = Job.objects.get(kind="stop", server__name="kp-02")
    Replica.objects.update(state="draining", stop_job=first)
    end(first, "succeeded")
    several.refresh_from_db()
    assert (several.state, several.stop_job) == ("draining", second)
    end(second, "failed", ["卡住", "It hangs."])
    several.refresh_from_db()
    assert several.state == "draining" and several.reason == ["卡住", "It hangs."]
    assert Alert.objects.filter(name="replica-not-stopped", ended_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_in_whatever_order_they_stop(several, operator):
    first = serve_jobs.stop(several, by=operator, now=True)
    Replica.objects.update(state="draining", stop_job=first)
    end(Job.objects.get(kind="stop", server__name="kp-02"), "succeeded")
    several.refresh_from_db()
    assert several.state == "draining"
    end(first, "succeeded")
    several.refresh_from_db()
    assert several.state == "stopped"


def test_nothing_is_stopped_on_a_server_that_is_no_more(several, operator):
    Server.objects.filter(name="kp-01").update(decommissioned_at=timezone.now())
    assert serve_jobs.stop(Replica.objects.get(), by=operator).server.name == "kp-02"
    Server.objects.update(decommissioned_at=timezone.now())
    assert serve_jobs.stop(Replica.objects.get(), by=operator) is None


def test_nodes_that_do_not_go_together_are_refused(several, operator):
    several.nodes[1]["address"] = "192.0.2.1"
    several.save()
    with pytest.raises(Conflict, match="address of its own"):
        serve_jobs.start(several, by=operator)


def test_who_wants_to_know_hears_of_ends(replica, operator, monkeypatch):
    heard = []
    monkeypatch.setattr(serve_jobs, "ENDED_HOOKS", [lambda job, attempt: heard.append((job.kind, job.state))])
    end(serve_jobs.start(replica, by=operator), "failed", ["x", "y"])
    with transaction.atomic():
        serve_jobs.ended(Job(kind="check", state="failed"), None)
    assert heard == [("serve", "failed")]
