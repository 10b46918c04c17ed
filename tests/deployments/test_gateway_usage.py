"""Keys of gateways, and what each has used: told as digests, counted once, within bounds."""

# ruff: noqa: F811 - fixtures of gateway_rows.py

import hashlib
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from console.errors import Conflict, Invalid, NotFound
from deployments.models import Deployment, Gateway, GatewayKey, KeyUsage, Server
from deployments.services import gateway_heard, gateway_keys, usage
from tests.deployments.gateway_rows import deployment, gateway, sent_to, settled, tell  # noqa: F401

pytestmark = pytest.mark.django_db


def test_a_key_is_shown_once_and_told_as_its_digest(gateway, deployment, server, operator):
    settled(gateway)
    other = Deployment.objects.create(name="other")
    mine = gateway_keys.make("team a", by=operator, deployments=["qwen"], rate_per_min=60)
    theirs = gateway_keys.make("team b", by=operator, deployments=[other.name])
    digest = hashlib.sha256(mine.secret.encode()).hexdigest()
    told = {row["digest"]: row for row in sent_to(server)["keys"]}
    assert told[digest] == {"id": mine.key.pk, "digest": digest, "until": 0, "allowed": True, "rate": 60}
    assert told[theirs.key.digest]["allowed"] is False
    assert mine.secret not in json.dumps(list(GatewayKey.objects.values("name", "start", "digest", "owner")))
    gateway_keys.revoke(mine.key, by=operator)
    assert [row["id"] for row in sent_to(server)["keys"]] == [theirs.key.pk]
    with pytest.raises(Conflict):
        gateway_keys.revoke(mine.key, by=operator)


@pytest.mark.parametrize(
    "given",
    [{"name": ""}, {"name": "x" * 101}, {"name": "a\nb"}, {"rate_per_min": 0}, {"owner": "o" * 101},
     {"expires_at": timezone.now() - timedelta(days=1)}, {"deployments": ["nobody"]}],
)  # fmt: skip
def test_keys_that_make_no_sense_are_refused(operator, given):
    with pytest.raises((Invalid, NotFound)) as refused:
        gateway_keys.make(**({"name": "k", "by": operator} | given))
    assert refused.value.what and refused.value.do
    assert not GatewayKey.objects.exists()


def test_usage_counts_once_however_often_it_is_told(gateway, operator):
    settled(gateway)
    key = gateway_keys.make("k", by=operator).key
    day = timezone.localdate().isoformat()
    for totals in ([3, 1, 30, 12], [3, 1, 30, 12], [5, 1, 50, 20], [4, 1, 40, 16], [5, 1, 50, 20]):
        tell(
            gateway, usage=[[day, key.pk, *totals]], at=timezone.now() + timedelta(seconds=totals[0]), state="degraded"
        )
        Gateway.objects.update(heard_at=None)
    row = KeyUsage.objects.get()
    assert (row.requests, row.failed, row.prompt_tokens, row.completion_tokens) == (5, 1, 50, 20)
    # On another server its totals begin anew, and are added.
    tell(gateway, instance="cd" * 8, usage=[[day, key.pk, 2, 0, 7, 3]])
    row.refresh_from_db()
    assert (row.requests, row.prompt_tokens) == (7, 57)
    key.refresh_from_db()
    assert key.used_at is not None


TODAY = timezone.localdate()
HOSTILE = [
    None, {}, "x", [[]], [["2026-01-01", 1, 2, 3, 4]], [["not a day", 1, 1, 1, 1, 1]], [["1999-01-01", 1, 1, 1, 1, 1]],
    [["2999-01-01", 1, 1, 1, 1, 1]], [[TODAY.isoformat(), 1, -1, 0, 0, 0]],
    [[TODAY.isoformat(), 10**30, 1, 0, 0, 0]], [[TODAY.isoformat(), True, True, 0, 0, 0]],
    [[TODAY.isoformat(), 4711, 1, 0, 0, 0]], [[TODAY.isoformat(), 1, 2**60, 0, 0, 0]],
]  # fmt: skip


@pytest.mark.parametrize("rows", HOSTILE, ids=range(len(HOSTILE)))
def test_a_server_can_only_tell_of_its_own_gateway_and_within_bounds(gateway, rows):
    tell(gateway, usage=rows, reason=[1, 2], engines=[{"url": "x" * 9000, "load": "much"}, 7], restarts=-1)
    assert not KeyUsage.objects.exists()
    assert gateway.reason is None and len(gateway.told["engines"][0]["url"]) <= 300
    other = Server.objects.create(name="kp-09")
    before = gateway.state
    said = {"gateway": gateway.pk, "state": "failed"}
    gateway_heard.heard(other.pk, [said, {"gateway": "7"}, 7, {"gateway": -1}, {"gateway": 10**40}], 1.0)
    gateway.refresh_from_db()
    assert gateway.state == before


def test_what_a_server_makes_up_never_outgrows_the_database(gateway, operator):
    settled(gateway)
    key = gateway_keys.make("k", by=operator).key
    day, most = timezone.localdate().isoformat(), gateway_heard.MOST_COUNT
    for n in range(3):  # an instance of its own each time, so that all of it counts
        tell(gateway, instance=f"{n:016x}", usage=[[day, key.pk, *([most] * 4)]])
        Gateway.objects.update(heard_at=None)
    row = KeyUsage.objects.get()
    assert (row.requests, row.completion_tokens) == (most, most)
    assert usage.by_key([key])[0].requests == most


def test_bars_and_totals_are_of_the_days_asked_for(gateway, operator):
    key = gateway_keys.make("k", by=operator).key
    today = timezone.localdate()
    for days, tokens in ((0, 40), (1, 10), (40, 1000)):
        KeyUsage.objects.create(
            key=key,
            deployment=gateway.deployment,
            day=today - timedelta(days=days),
            requests=1,
            completion_tokens=tokens,
        )
    found = usage.by_key([key])[0]
    assert (found.requests, found.completion_tokens, found.bars[-2:]) == (2, 50, [10, 40])
    assert found.drawn[-1] == (78, 0, 24)
    assert usage.by_key([key], days=60)[0].completion_tokens == 1050
