"""Console and agent one version apart: what was said in protocol 1, recorded then, is understood now, both ways.

When PROTOCOL grows, record the messages of the one before into a folder of their own beside `protocol_1`.
"""

import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console import streams
from console.errors import Conflict
from deployments import queues
from deployments.agent import PROTOCOL, config, signing, spool
from deployments.agent.dispatch import Dispatcher
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import jobs
from tests.console.test_ingest import Turns

KEY = "5a" * 32
SAID = Path(__file__).parents[1] / "fixtures" / "protocol_1"
ATTEMPT = "a42-1-0f3c5a7e"


def said(name):
    return json.loads((SAID / f"{name}.json").read_text())


@pytest.fixture
def old_server(db):
    return Server.objects.create(pk=7, name="kp-07", key=KEY)


@pytest.fixture
def old_attempt(old_server):
    until = datetime.fromtimestamp(1765104800, UTC)
    job = Job.objects.create(pk=42, server=old_server, kind="check", params={"deep": False}, not_after=until)
    return Attempt.objects.create(pk=ATTEMPT, job=job, n=1, protocol=1)


@pytest.mark.django_db
def test_the_console_understands_an_agent_of_protocol_1(valkey, old_server, old_attempt):
    turns, redis = Turns(valkey.url), valkey.client()
    redis.publish(streams.beat(7), json.dumps(said("beat")))
    for name in ("sample", "facts"):
        redis.xadd(streams.telemetry(7), {"d": json.dumps(said(name))})
    for entry in said("logs"):
        redis.xadd(streams.logs(7), {**entry, "z": base64.b64decode(entry["z"])})
    turns.turn()
    turns.turn(5.0)
    old_server.refresh_from_db()
    assert (old_server.agent_version, old_server.agent_code, old_server.agent_protocol) == ("0.1.0", "", 1)
    assert old_server.last_seen_at is not None
    assert old_server.facts["kernel"].startswith("5.10.0") and old_server.hostname == "npu-host-07"
    assert old_server.npus.count() == len(said("sample")["npus"]) > 1
    job = Job.objects.get(pk=42)
    assert job.state == JobState.SUCCEEDED
    assert [step.title_en for step in job.attempts.get().steps.all()] == ["Check the system"]
    assert job.attempts.get().report[0]["found"] == "5.10.0"
    assert json.loads(redis.hget(streams.acked(7), ATTEMPT))[2] is True


@pytest.mark.django_db
def test_what_was_sent_in_protocol_1_is_sent_again_in_the_same_bytes(valkey, old_attempt):
    queues.push(old_attempt)
    body, mac = queues.queue(7).fetch_job(ATTEMPT).args
    assert {"body": body, "mac": mac} == said("payloads")[0]
    old_attempt.protocol, old_attempt.pk = PROTOCOL, "a42-2-00000000"
    queues.push(old_attempt)
    assert json.loads(queues.queue(7).fetch_job("a42-2-00000000").args[0])["protocol"] == PROTOCOL


def dispatcher(tmp_path):
    data = {"server_id": 7, "name": "kp-07", "redis_url": "redis://x", "prefix": "h:7", "key": KEY}
    own = config.parse(tmp_path / "config.json", {**data, "state_dir": str(tmp_path)})
    own.attempts.mkdir()
    return Dispatcher(own, lambda: 1765000000.0, lambda: None), own.attempts


def test_the_agent_takes_payloads_of_protocol_1(tmp_path):
    found, attempts = dispatcher(tmp_path)
    run, cancel = said("payloads")
    assert found.handle(run["body"], run["mac"]) == "accepted"
    assert (attempts / ATTEMPT / "spec.json").read_text() == run["body"]
    assert found.handle(run["body"], run["mac"]) == "already"
    assert found.handle(cancel["body"], cancel["mac"]) == "accepted"
    assert (attempts / ATTEMPT / "cancel").exists()


def test_the_agent_works_with_a_newer_console_or_says_why_not(tmp_path):
    found, attempts = dispatcher(tmp_path)
    upgrade = {"kind": "agent_upgrade", "params": {"digest": "0" * 64, "version": "9.0.0"}}
    for n, (protocol, more, answer) in enumerate([
        (PROTOCOL + 1, {}, "accepted"),
        (PROTOCOL + 2, {}, "refused: The console is much newer"),
        ("two", {}, "refused: The console is much newer"),
        (PROTOCOL + 9, upgrade, "accepted"),
    ]):  # fmt: skip
        body = json.dumps({**json.loads(said("payloads")[0]["body"]), "attempt": f"a42-{n + 2}-00000000",
                           "protocol": protocol, "unknown": 1, **more})  # fmt: skip
        assert found.handle(body, signing.sign(KEY, body)).startswith(answer)
        assert spool.has_ended(attempts / f"a42-{n + 2}-00000000") == answer.startswith("refused")


@pytest.mark.django_db
def test_the_console_works_with_a_newer_agent_or_says_why_not(valkey, operator, server):
    redis, turns = valkey.client(), Turns(valkey.url)
    for protocol, refused in ((PROTOCOL + 1, False), (PROTOCOL + 2, True), ("x", False), (PROTOCOL - 1, False)):
        beat = {**said("beat"), "agent": "9.1.0", "code": "f" * 16, "protocol": protocol, "new": {"thing": [1]}}
        redis.publish(streams.beat(server.pk), json.dumps(beat))
        turns.turn()
        turns.turn(5.0)
        server.refresh_from_db()
        assert server.agent_version == "9.1.0"
        if refused:
            with pytest.raises(Conflict) as refusal:
                jobs.queue_job(server, "check", {}, by=operator)
            assert refusal.value.code == "agent_too_new" and server.name in refusal.value.what
        else:
            assert jobs.queue_job(server, "check", {}, by=operator).state == JobState.QUEUED
    assert time.time() - server.last_seen_at.timestamp() < 60
