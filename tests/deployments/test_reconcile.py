"""Wished against real."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.errors import Conflict
from console.models import Alert
from deployments.models import Deployment, Job, JobState, PortLease, Replica, Reservation, Server
from deployments.services import deployments, reconcile, scaling
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
