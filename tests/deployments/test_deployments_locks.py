"""Ingest holds a server and writes its replicas while reconcile holds a deployment and wants that server: neither may
wait for the other."""

import threading
from functools import partial

import pytest
from django.db import connection

from console.errors import Conflict
from deployments import ingest
from deployments.models import EngineLog, Replica
from deployments.services import deployments, gateways, reconcile, replica_live, scaling
from tests.deployments.beside_a_server import run_beside
from tests.deployments.deployments_bench import SETTINGS, Fleet
from tests.job_fixtures import Spool

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one lock for the whole database"),
]


@pytest.fixture
def fleet(monkeypatch, valkey, db):
    return Fleet(monkeypatch, valkey.client())


@pytest.fixture
def row(fleet, operator):
    made = deployments.create("tiny", fleet.model, SETTINGS, by=operator)
    fleet.settle(made)
    return made.replica_set.select_related("server", "deployment").get()


@pytest.fixture
def beside(row):
    """beside(act): what is written meanwhile is the replica."""
    return partial(run_beside, row.server_id, touch=lambda: Replica.objects.filter(pk=row.pk).update(cut=3))


def test_a_drain(fleet, row, beside, operator):
    scaling.scale(row.deployment, 0, by=operator)
    beside(lambda: reconcile.look(row.deployment_id))
    row.refresh_from_db()
    assert (row.state, row.cut) == ("draining", 3)


def test_a_replica_that_is_stopped_and_released(fleet, row, beside, operator):
    deployments.stop(row.deployment, by=operator)
    reconcile.look(row.deployment_id)
    fleet.wind(Replica, "drain_until", 90_000)
    beside(lambda: reconcile.look(row.deployment_id))
    fleet.settle(row.deployment)
    row.refresh_from_db()
    assert row.state == "stopped" and not row.ports.exists()


def test_lines_of_its_engine(row, beside):
    spool = Spool(f"e{row.pk}-1")
    Replica.objects.update(engine={})  # the spool of tests is of another year
    beside(lambda: ingest.store({row.server_id: [spool.event(e="engine", state="degraded")]}))
    assert EngineLog.objects.get().next_line == 2
    row.refresh_from_db()
    assert row.state == "degraded"


def test_what_it_says_each_second(row, beside):
    live = replica_live.Live()
    live.know()
    live.take(row.server_id, [{"replica": row.pk, "state": "degraded", "at": 2e9}], 1000.0)
    beside(live._write)
    row.refresh_from_db()
    assert row.state == "degraded"


def test_a_gateway_that_two_people_make_at_once(fleet, row, operator):
    """The second is told of the job of the first."""
    codes, gate = [], threading.Barrier(3)

    def make():
        gate.wait()
        try:
            gateways.make(row.deployment, fleet.servers[0], by=operator)
            codes.append("made")
        except Conflict as refused:
            codes.append(refused.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=make) for _n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(codes) == ["made", "under_way", "under_way"]
