"""Nothing of deployments grows for ever, and nothing goes that somebody still needs."""

from datetime import timedelta

import pytest
from django.utils import timezone

from deployments.models import Benchmark, Deployment, GatewayKey, KeyUsage, PortLease, Replica
from deployments.services import retention
from tests.deployments import serving_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def chat(settings):
    settings.REPLICA_DAYS = 10
    return serving_rows.deployment("chat")


def test_replicas_that_ended_long_ago_go_but_for_the_newest_and_those_that_hold_something(server, chat):
    old, new = timezone.now() - timedelta(days=11), timezone.now()
    rows = {
        n: serving_rows.replica(chat, server, n, state=state, ended_at=ended)
        for n, state, ended in (
            (1, "stopped", old), (2, "failed", old), (3, "ready", None), (4, "stopped", new), (5, "failed", old),
        )
    }  # fmt: skip
    PortLease.objects.create(server=server, port=18_000, replica=rows[2])
    assert retention.prune() == 1
    assert list(Replica.objects.order_by("n").values_list("n", flat=True)) == [2, 3, 4, 5]


def test_of_deleted_deployments_benchmarks_go_and_usage_that_is_too_old_to_ask_for(chat):
    Benchmark.objects.create(deployment=chat, created_at=timezone.now() - timedelta(days=20))
    assert retention.prune() == 0, "the history of a deployment that is there stays"
    Deployment.objects.update(deleted_at=timezone.now() - timedelta(days=11))
    key = GatewayKey.objects.create(name="team", start="sk-", digest="0" * 64)
    for days in (500, 30):
        KeyUsage.objects.create(key=key, deployment=chat, day=timezone.localdate() - timedelta(days=days))
    assert retention.prune() == 2 and KeyUsage.objects.count() == 1 and not Benchmark.objects.exists()
