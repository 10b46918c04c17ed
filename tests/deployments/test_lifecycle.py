"""Decommissioning: what stands in the way, what ends, what stays, and how a server comes back."""

import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
import redis
from django.utils import timezone, translation

from console import alerts, streams
from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from console.models import Alert, User
from deployments.agent import install, signing
from deployments.agent.dispatch import Dispatcher
from deployments.demo.__main__ import Loop
from deployments.models import Enrolment, Job, Order, Replica, Server
from deployments.services import (
    enrol,
    history,
    jobs,
    join,
    lifecycle,
    orders,
    quota,
    rotation,
    selection,
    servers,
    signed_calls,
)
from monitoring.services import live_state
from tests.deployments import serving_rows
from tests.deployments.agent_bench import AgentServer
from tests.deployments.handed import finish, kinds_of_tests  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kinds_of_tests")]


@pytest.fixture
def administrator(db):
    return User.objects.create_user("root", password="only-for-this-test", role="administrator")


@pytest.fixture(autouse=True)
def var(settings, tmp_path):
    settings.VAR_DIR = tmp_path
    return tmp_path


@pytest.fixture
def granted(server, valkey):
    """The server's user is there in Redis, with keys of its own."""
    enrol.grant(valkey.client())
    own = redis.Redis.from_url(f"redis://h{server.pk}:{server.redis_password}@127.0.0.1:{valkey.port}/0")
    own.set(f"h:{server.pk}:x", "1")
    valkey.client().hset(streams.FLEET_NOW, str(server.pk), "{}")
    return own


def told(server):
    return [(row.field, row.before, row.after, row.by_name) for row in history.page(server)[0]]


def test_who_is_gone_is_out_of_the_fleet_and_out_of_redis_and_the_record_stays(
    server, granted, valkey, administrator, operator
):
    old = jobs.queue_job(server, "hold_locks", {"locks": ["a"]}, by=operator)
    finish(old)
    Enrolment.objects.create(server=server, digest="d", expires_at=timezone.now() + timedelta(hours=1))
    alerts.fire("card-lost", f"server:{server.pk}", what=("a", "b"), do=("c", "d"))
    gone = lifecycle.decommission(server, "kp-01", by=administrator, reason="sold", ticket="OPS-5")
    assert gone.is_gone and f"h{server.pk}" not in valkey.client().acl_users()
    assert not list(valkey.client().scan_iter(f"h:{server.pk}:*")) and not valkey.client().hlen(streams.FLEET_NOW)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis.from_url(f"redis://h{server.pk}:{server.redis_password}@127.0.0.1:{valkey.port}/0").ping()
    enrol.grant(valkey.client())
    assert f"h{server.pk}" not in valkey.client().acl_users(), "a restart of the console gives it nothing back"
    assert live_state.all_now() == [] and selection.find(selection.Asked(fleet="both"))[0] == []
    assert Job.objects.filter(server=server).count() == 1 and gone.key != server.key
    assert told(server)[:3] == [
        ("server", "leaving", "decommissioned", "root"),
        ("credentials", None, "revoked", "root"),
        ("server", "joined", "leaving", "root"),
    ]
    assert history.page(server)[0][0].reason == "sold" and history.page(server)[0][0].ticket == "OPS-5"
    assert Enrolment.objects.get().is_expired and Alert.objects.get().ended_at
    for act in (
        lambda: jobs.queue_job(gone, "check", {}, by=operator),
        lambda: servers.drain(gone, by=operator, reason="x"),
        lambda: lifecycle.decommission(gone, "kp-01", by=administrator),
    ):
        with pytest.raises(Conflict) as refused:
            act()
        assert refused.value.code == "decommissioned"


@pytest.mark.parametrize("go", ["decommission", "leave"])
def test_keys_that_change_meanwhile_bring_nobody_back(server, granted, valkey, administrator, go):
    Server.objects.filter(pk=server.pk).update(last_seen_at=timezone.now())
    server.refresh_from_db()
    made = rotation.start(server, by=administrator)
    if go == "leave":
        join.leave(server, by=administrator)
    else:
        lifecycle.decommission(server, "kp-01", by=administrator)
    for hours in (1, 48):
        orders.look_after(timezone.now() + timedelta(hours=hours))
        rotation.look_after()
    assert f"h{server.pk}" not in valkey.client().acl_users()
    assert not list(valkey.client().scan_iter(f"h:{server.pk}:*"))
    kept = Order.objects.get()
    assert (kept.state, kept.args) == ("expired", {})
    body = json.dumps({"op": "leave", "server": server.pk, "t": time.time()})
    with pytest.raises(NotAllowed):
        signed_calls.leave(body, signing.sign(made.key, body))


def test_the_keys_of_who_is_gone_cannot_change_and_it_is_not_switched_on(server, granted, valkey, administrator):
    Server.objects.filter(pk=server.pk).update(last_seen_at=timezone.now(), cut_off_at=timezone.now())
    gone = lifecycle.decommission(Server.objects.get(), "kp-01", by=administrator)
    for act in (rotation.start, quota.switch_on):
        with pytest.raises(Conflict):
            act(gone, by=administrator)
    assert f"h{server.pk}" not in valkey.client().acl_users()


def test_what_is_not_meant_or_not_allowed_is_refused(server, granted, administrator, operator):
    with pytest.raises(NotAllowed):
        lifecycle.decommission(server, "kp-01", by=operator)
    for typed in ("", "kp-1", "KP-01"):
        with pytest.raises(Invalid):
            lifecycle.decommission(server, typed, by=administrator)
    Server.objects.filter(pk=server.pk).update(is_local=True)
    with pytest.raises(Conflict):
        lifecycle.decommission(server, "kp-01", by=administrator)
    assert granted.ping() and not Server.objects.get().leaving_at


def test_jobs_that_run_are_waited_for_and_those_that_wait_are_cancelled(server, granted, administrator, operator):
    running = jobs.queue_job(server, "hold_locks", {"locks": ["a"]}, by=operator)
    Job.objects.filter(pk=running.pk).update(state="running")
    waiting = jobs.queue_job(server, "hold_locks", {"locks": ["a"]}, by=operator)
    with translation.override("en"), pytest.raises(Conflict) as refused:
        lifecycle.decommission(server, "kp-01", by=administrator)
    assert f"#{running.pk}" in refused.value.what
    finish(running)
    Job.objects.filter(pk=waiting.pk).update(waiting=True)
    lifecycle.decommission(server, "kp-01", by=administrator)
    job = Job.objects.get(pk=waiting.pk)
    assert job.state == "cancelled" and job.reason[1] == "The server was decommissioned"


def test_a_server_that_serves_is_kept_until_its_replicas_have_ended(server, granted, administrator):
    row = serving_rows.replica(serving_rows.deployment("chat"), server)
    with translation.override("en"), pytest.raises(Conflict, match="serve from kp-01: chat"):
        lifecycle.decommission(server, "kp-01", by=administrator)
    Replica.objects.filter(pk=row.pk).update(state="stopped")
    assert lifecycle.decommission(server, "kp-01", by=administrator).is_gone


@pytest.mark.parametrize("state", ["running", "waiting_reboot"])
def test_a_silent_server_is_not_waited_for(server, granted, administrator, operator, state):
    """Its job may have gone on as long as the console doubted itself; from here on nobody hears its end."""
    running = jobs.queue_job(server, "hold_locks", {"locks": ["a"]}, by=operator)
    Job.objects.filter(pk=running.pk).update(state=state)
    Server.objects.filter(pk=server.pk).update(last_seen_at=timezone.now() - timedelta(days=9))
    server.refresh_from_db()
    assert lifecycle.decommission(server, "kp-01", by=administrator).is_gone
    running.refresh_from_db()
    assert running.state == "lost" and running.reason


def test_without_redis_nothing_is_half_done(server, own_valkey, settings, administrator):
    settings.REDIS_URL = own_valkey.url
    own_valkey.kill()
    with pytest.raises(ConsoleError) as refused:
        lifecycle.decommission(server, "kp-01", by=administrator)
    assert refused.value.status == 503
    server.refresh_from_db()
    assert not server.is_gone and not server.leaving_at and told(server) == []


def test_an_agent_that_can_is_asked_to_go_and_its_goodbye_ends_it(server, granted, valkey, administrator):
    Server.objects.filter(pk=server.pk).update(facts={"install": {"prefix": "/x", "removes_itself": True}})
    server.refresh_from_db()
    asked = lifecycle.decommission(server, "kp-01", by=administrator)
    assert asked.leaving_at and not asked.is_gone
    assert valkey.client().llen(f"{streams.rq_prefix(server.pk)}:queue:jobs") == 1
    assert lifecycle.finish_leaving() == []
    body = json.dumps({"op": "leave", "server": server.pk, "t": time.time()})
    signed_calls.leave(body, signing.sign(server.key, body))
    assert Server.objects.get().is_gone
    assert ("agent_removed", None, "removed", "") in told(server)


def test_an_agent_that_does_not_answer_is_not_waited_for_long(server, granted, administrator):
    Server.objects.filter(pk=server.pk).update(facts={"install": {"removes_itself": True}})
    server.refresh_from_db()
    lifecycle.decommission(server, "kp-01", by=administrator)
    Server.objects.update(leaving_at=timezone.now() - timedelta(seconds=lifecycle.LEAVE_S + 1))
    assert lifecycle.finish_leaving() == [server.pk]
    assert Server.objects.get().is_gone and lifecycle.finish_leaving() == []


def test_a_server_that_is_gone_joins_again_by_a_command(server, granted, settings, administrator):
    settings.ALLOW_PLAINTEXT = True
    lifecycle.decommission(server, "kp-01", by=administrator)
    enrolment = join.make("kp-01", by=administrator)
    assert Server.objects.get().is_gone, "not before it is back"
    join.config(enrolment)
    assert not Server.objects.get().is_gone
    assert told(server)[1] == ("server", "decommissioned", "rejoined", "root")


def test_a_simulated_server_falls_silent_and_comes_back(valkey, var, administrator):
    row = enrol.enlist_demo(2)[1]
    Server.objects.filter(pk=row.pk).update(last_seen_at=timezone.now())
    config = {**enrol.agent_config(row, valkey.url, var / "demo" / row.name), "redis_url": valkey.url}
    from deployments.agent.config import parse

    loop = Loop([parse(var / "c.json", config)], valkey.client(), var / "demo")
    key = streams.telemetry(row.pk)
    _turn(loop, lambda: valkey.client().xlen(key))
    lifecycle.decommission(row, row.name, by=administrator)
    _turn(loop, lambda: loop.members[0].gone)
    valkey.client().delete(key)
    until_at = time.monotonic() + 2.5
    _turn(loop, lambda: time.monotonic() > until_at)
    assert not valkey.client().exists(key)
    assert [one.is_gone for one in enrol.enlist_demo(2)] == [False, True], "the next start knows it still"
    with pytest.raises(NotAllowed):
        lifecycle.bring_back(row, by=User.objects.create_user("olga", password="a-long-password", role="operator"))
    lifecycle.bring_back(Server.objects.get(pk=row.pk), by=administrator)
    _turn(loop, lambda: valkey.client().xlen(key))
    with pytest.raises(Conflict):
        lifecycle.bring_back(Server.objects.get(pk=row.pk), by=administrator)


def _turn(loop, condition, seconds=15):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(loop.turn())


def test_an_agent_leaves_only_when_its_own_console_says_so_and_only_where_it_may(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(install, "start_leaving", started.append)
    agent = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    judge = Dispatcher(agent.config, time.time, lambda: None)

    def say(**fields):
        body = json.dumps({"op": "leave", "server": agent.id, "not_after": time.time() + 60, **fields})
        return judge.handle(*agent.signed(body))

    assert say() == "refused: this agent may not remove itself"
    monkeypatch.setattr(install, "removable", lambda config: tmp_path)
    assert say(server=99).startswith("refused") and say(not_after=time.time() - 1).startswith("refused")
    assert judge.handle('{"op":"leave"}', "00").startswith("refused")
    assert started == []
    assert say() == "accepted" and started == [tmp_path]


def test_what_root_installed_removes_itself_only_by_a_helper_that_sudo_lets_it_use(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    (tmp_path / "bin").mkdir()
    found = install.Install(tmp_path, "https://c", "", 7, "ascend-console", root_helper=True)
    found.save()
    config = SimpleNamespace(path=found.config)

    def may():
        said = {}
        for state in ("helper", "old", "none", "refused"):
            monkeypatch.setattr(install.as_root, "state", lambda config, state=state: state)
            said[state] = install.removable(config) == tmp_path
        return [state for state, yes in said.items() if yes]

    assert may() == [], "joined before there was such a program, or where root would run what others can change"
    (tmp_path / "bin" / "leave").touch()
    assert may() == ["helper", "old"]
