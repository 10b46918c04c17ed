"""What the console did not sign runs nowhere: it is refused, logged, counted on the server's row, and alerted."""

import json
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from console import streams
from console.ingest import Ingest
from console.models import Alert
from deployments.agent import signing
from deployments.models import Server
from deployments.services import enrol, refusals
from tests.deployments.agent_bench import KEY, AgentServer, ended
from tests.waiting import until


@pytest.fixture
def world(tmp_path, valkey, transactional_db):
    """Server 7 with real link and worker, and the ingest that hears it."""
    row = Server.objects.create(pk=7, name="kp-07", key=KEY, redis_password="pw7", last_seen_at=timezone.now())
    client = valkey.client()
    enrol.apply_rights(client, row)
    made = AgentServer(tmp_path, f"redis://h7:pw7@127.0.0.1:{valkey.port}/0")
    made.client, made.ingest = client, Ingest(valkey.url)
    made.ingest.beats.psubscribe(streams.BEATS)
    made.start("worker")
    made.start("link")
    yield made
    made.close()
    client.acl_deluser("h7")


def counted(world, **wanted):
    """The server's row once it has these counts, and what ingest did meanwhile."""

    def look():
        world.ingest.tick(time.time(), time.monotonic())
        world.ingest._due["flush"] = 0.0
        row = Server.objects.get(pk=7)
        return row if all(getattr(row, name) == value for name, value in wanted.items()) else None

    return until(look, timeout=20)


def unsigned(world, mark):
    world.enqueue(world.client, world.payload(mark), mac="")


def signed_by_another(world, mark):
    body = world.payload(mark)
    world.enqueue(world.client, body, mac=signing.sign("6b" * 32, body))


def altered(world, mark):
    good = world.payload("print(1)")
    world.enqueue(world.client, good.replace("print(1)", json.dumps(mark)[1:-1]), mac=signing.sign(KEY, good))


def expired(world, mark):
    world.enqueue(world.client, world.payload(mark, not_after=world.client.time()[0] - 2))


def for_another_server(world, mark):
    world.enqueue(world.client, world.payload(mark, server=8))


def other_bytes_for_a_claimed_attempt(world, mark):
    attempt = "a77-1-00000077"
    body = world.payload("print(1)", attempt=attempt)
    world.enqueue(world.client, body)
    until(lambda: ended(world.config.attempts / attempt))
    world.enqueue(world.client, world.payload(mark, attempt=attempt))


def a_foreign_function(world, mark):
    world.enqueue(world.client, "x", mac="x", func="os.system")


def pickled(world, mark):
    world.enqueue(world.client, "x", mac="x", rq_id="p")
    world.client.hset("h:7:rq:job:p", "data", b"\x80\x04cos\nsystem\n.")


REASONS = {
    unsigned: "signature", signed_by_another: "signature", altered: "signature", expired: "expired",
    for_another_server: "another server", other_bytes_for_a_claimed_attempt: "another payload",
    a_foreign_function: "our one function", pickled: "not JSON",
}  # fmt: skip


@pytest.mark.parametrize("hostile", REASONS, ids=lambda one: one.__name__)
def test_it_is_refused_logged_and_alerted_and_nothing_runs(world, tmp_path, hostile):
    mark = tmp_path / "it-ran"
    counted(world, refused=0)
    hostile(world, f"open({str(mark)!r}, 'w')")
    row = counted(world, refused=1)
    assert REASONS[hostile] in row.last_refusal
    alert = Alert.objects.get(ended_at=None)
    assert (alert.name, alert.subject, alert.severity, alert.count) == ("payload-refused", "server:7", "critical", 1)
    assert "kp-07" in alert.what[0] and REASONS[hostile] in alert.what[1]
    if hostile not in (unsigned, signed_by_another, altered, expired, for_another_server):
        assert not mark.exists()
        return
    good = world.payload("print('good')")
    world.enqueue(world.client, good)
    until(lambda: ended(world.config.attempts / json.loads(good)["attempt"]))
    assert not mark.exists() and len(list(world.config.attempts.iterdir())) == 1


def test_a_repeated_payload_runs_nothing_and_is_counted_without_an_alert(world):
    body = world.payload("print('once')")
    world.enqueue(world.client, body, rq_id="one")
    until(lambda: ended(world.config.attempts / json.loads(body)["attempt"]))
    world.enqueue(world.client, body, rq_id="two")
    row = counted(world, already=1)
    assert row.refused == 0 and not Alert.objects.exists()


def test_a_refusal_is_in_the_agents_own_log(world):
    a_foreign_function(world, "")
    said = until(lambda: [line for line in (world.state / "worker.log").read_text().splitlines() if "refused" in line])
    assert "refused an entry: the entry does not call our one function" in said[0]


def test_counts_that_began_anew_alert_no_old_refusal_and_the_next_one_again(db):
    server = Server.objects.create(name="kp-09", refused=5)
    count = refusals.Counts
    assert refusals.note({server.pk: count(5, 0, "x")}) == []
    assert refusals.note({server.pk: count(0, 0, "")}) == []
    assert refusals.note({server.pk: count(2, 0, "y")}) == [server]
    server.refresh_from_db()
    assert (server.refused, server.last_refusal) == (2, "y")
    assert refusals.note({server.pk + 1: count(2, 0, "y")}) == []


def test_it_ends_after_a_day_without_another(db):
    server = Server.objects.create(name="kp-09")
    refusals.note({server.pk: refusals.Counts(1, 0, "x")})
    assert refusals.settle() == 0
    Alert.objects.update(last_at=timezone.now() - timedelta(days=1, minutes=1))
    assert refusals.settle() == 1
    assert not Alert.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize(
    "said", [{}, {"refused": -1, "already": 0}, {"refused": "1", "already": 0}, {"refused": True, "already": 0},
             {"refused": 10**12, "already": 0}, {"refused": 1}],
)  # fmt: skip
def test_counts_that_are_none_are_none(said):
    assert refusals.read(said) is None


def test_reasons_are_bounded_text():
    assert (
        refusals.read({"refused": 1, "already": 0, "last_refusal": "\x00" + "x" * 999}).last_refusal == "�" + "x" * 199
    )
    assert refusals.read({"refused": 1, "already": 0, "last_refusal": ["x"]}).last_refusal == ""
