"""Drain and cordon: what holds jobs back, what does not, and what history tells."""

import pytest
from django.utils.translation import override

from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from deployments.models import Job, Npu
from deployments.services import history, jobs, servers, waiting
from tests.deployments.handed import finish, handed, kinds_of_tests  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "kinds_of_tests")]
BUS = "0000:C1:00.0"


@pytest.fixture
def hold(server, operator):
    Npu.objects.create(server=server, device_index=0, npu_id=0, chip_id=0, bus_id=BUS)
    Npu.objects.create(server=server, device_index=1, npu_id=1, chip_id=0, bus_id="0000:C2:00.0")

    def queue(*locks, **more):
        return jobs.queue_job(server, "hold_locks", {"locks": list(locks)}, by=operator, **more)

    return queue


def told(server):
    return [(row.field, row.before, row.after, row.by_name) for row in history.page(server)[0]]


def test_a_drain_lets_what_runs_end_and_starts_nothing(server, hold, operator):
    running = hold("a")
    Job.objects.filter(pk=running.pk).update(state="running")
    queued = hold("b")
    assert handed(server) == [running.pk, queued.pk]
    drained = servers.drain(server, by=operator, reason="new fans", ticket="OPS-1")
    assert servers.drain_word(drained) == "draining"
    assert handed(server) == [running.pk], "what the agent had not taken came back"
    later = hold("c")
    with override("en"):
        assert jobs.as_json(later)["waiting"]["text"] == "waits: the server is being drained · place 2"
    assert servers.settle_drains() == []
    finish(running)
    assert servers.settle_drains() == [server.pk]
    server.refresh_from_db()
    assert servers.drain_word(server) == "drained" and server.drain_reason == "new fans"
    assert told(server) == [("drain", "draining", "drained", ""), ("drain", "off", "draining", "olga")]
    servers.end_drain(server, by=operator)
    assert set(handed(server)) >= {queued.pk, later.pk}
    assert told(server)[0] == ("drain", "drained", "off", "olga")


def test_a_server_without_jobs_is_drained_at_once_and_a_reason_is_asked_for(server, operator, viewer):
    with pytest.raises(Invalid):
        servers.drain(server, by=operator, reason=" ")
    with pytest.raises(NotAllowed):
        servers.drain(server, by=viewer, reason="x")
    assert servers.drain_word(servers.drain(server, by=operator, reason="x")) == "drained"


def test_nobody_who_will_not_wait_gets_onto_a_draining_server(server, hold, operator):
    servers.drain(server, by=operator, reason="x")
    with pytest.raises(Conflict) as refused:
        hold("a", wait=False)
    assert refused.value.code == "draining"


@pytest.mark.parametrize("lock", [f"npu:{BUS}", f"npu:{BUS}/1", f"npu:{BUS.lower()}"])
def test_a_job_that_would_take_a_cordoned_npu_is_refused_in_words(server, hold, operator, lock):
    servers.cordon(server, BUS.lower(), by=operator, reason="ECC errors")
    with override("en"), pytest.raises(Conflict) as refused:
        hold("a", lock)
    assert refused.value.code == "npu_cordoned" and "ECC errors" in refused.value.what
    assert not Job.objects.exists()
    hold("npu:0000:C2:00.0")
    servers.uncordon(server, BUS, by=operator)
    hold("b", lock)
    assert [row[:3] for row in told(server)] == [
        ("cordon", {BUS: "ECC errors"}, None),
        ("cordon", None, {BUS: "ECC errors"}),
    ]


def test_a_job_that_waits_for_an_npu_goes_on_waiting_when_it_is_cordoned(server, hold, operator):
    first, second = hold(f"npu:{BUS}"), hold(f"npu:{BUS}")
    servers.cordon(server, BUS, by=operator, reason="ECC")
    assert handed(server) == [], "the first was not taken yet, so it came back"
    told_why = waiting.explain(Job.objects.select_related("server").filter(pk__in=[first.pk, second.pk]))
    assert {wait.why for wait in told_why.values()} == {"cordoned"}
    jobs.release([server.pk])
    assert handed(server) == []
    servers.uncordon(server, BUS, by=operator)
    assert handed(server) == [first.pk]


def test_only_npus_that_there_are_can_be_cordoned_and_ended(server, hold, operator):
    for bus_id in ("0000:FF:00.0", "", "<script>"):
        with pytest.raises(Invalid):
            servers.cordon(server, bus_id, by=operator, reason="x")
    with pytest.raises(ConsoleError):
        servers.uncordon(server, BUS, by=operator)
    with pytest.raises(Invalid):
        servers.cordon(server, BUS, by=operator, reason="")
    assert told(server) == []


def test_a_retry_of_a_job_on_a_cordoned_npu_is_refused(server, hold, operator):
    job = hold(f"npu:{BUS}")
    finish(job)
    servers.cordon(server, BUS, by=operator, reason="ECC")
    with pytest.raises(Conflict):
        jobs.retry_job(Job.objects.get(pk=job.pk), by=operator)


def test_maintenance_and_pauses_have_reasons_in_the_history(server, operator):
    servers.set_maintenance(server, True, by=operator, reason="BIOS", ticket="OPS-3")
    servers.set_maintenance(server, True, by=operator)
    servers.pause_queue(server, by=operator, reason="look")
    servers.resume_queue(server, by=operator)
    rows = history.page(server)[0]
    assert [(row.field, row.before, row.after, row.reason, row.ticket) for row in rows] == [
        ("queue", "paused", "running", "", ""),
        ("queue", "running", "paused", "look", ""),
        ("maintenance", "off", "on", "BIOS", "OPS-3"),
    ]
