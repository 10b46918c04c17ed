"""Dispatch over a real Redis, with real workers that are killed: each job runs once, and only what is signed runs."""

import base64
import json
import os
import pickle
import signal
import time

import pytest

from console import streams
from deployments import locks
from deployments.agent import processes, spool
from tests.deployments.agent_bench import AgentServer, SmallIngest, ended, events, texts
from tests.waiting import until


@pytest.fixture
def server(tmp_path, valkey):
    client = valkey.client()
    client.execute_command("ACL", "SETUSER", "h7", *streams.acl_rules(7, "pw7"))
    made = AgentServer(tmp_path, f"redis://h7:pw7@127.0.0.1:{valkey.port}/0")
    made.client = client
    yield made
    made.close()


def folder_of(server, body):
    return server.config.attempts / json.loads(body)["attempt"]


def answer(server, rq_id):
    """What RQ keeps as the result of one dispatch."""
    entries = server.client.xrange(f"h:7:rq:results:{rq_id}")
    return json.loads(base64.b64decode(entries[-1][1][b"return_value"])) if entries else None


def counts(server):
    try:
        return json.loads((server.config.state_dir / "worker.json").read_text())
    except FileNotFoundError:
        return {"refused": 0, "already": 0}


def test_a_job_from_the_queue_runs_under_the_servers_own_rights(server):
    server.start("worker")
    body = server.payload("print('hello')")
    server.enqueue(server.client, body, rq_id="one")
    until(lambda: ended(folder_of(server, body)))
    assert texts(folder_of(server, body)) == ["hello"]
    assert until(lambda: answer(server, "one")) == "accepted"
    assert server.client.llen("h:7:rq:queue:jobs:intermediate") == 0
    assert server.client.acl_log() == []


def test_it_waits_by_blmove_so_that_no_entry_is_lost_in_its_hand(server):
    server.start("worker")
    assert until(lambda: any(entry["cmd"] == "blmove" for entry in server.client.client_list()))


def test_the_same_payload_again_runs_nothing(server):
    server.start("worker")
    body = server.payload("print('once')")
    server.enqueue(server.client, body, rq_id="one")
    until(lambda: ended(folder_of(server, body)))
    server.enqueue(server.client, body, rq_id="two")
    assert until(lambda: answer(server, "two")) == "already"
    time.sleep(0.3)
    assert texts(folder_of(server, body)) == ["once"]
    assert len(events(folder_of(server, body), "started")) == 1


def test_expiry_is_judged_by_redis_time(server):
    server.start("worker")
    now = server.client.time()[0]
    late, good = server.payload("print(1)", not_after=now - 2), server.payload("print(2)", not_after=now + 60)
    server.enqueue(server.client, late, rq_id="late")
    server.enqueue(server.client, good, rq_id="good")
    until(lambda: ended(folder_of(server, good)))
    assert answer(server, "late").startswith("refused: the payload expired")
    assert not folder_of(server, late).exists()


class Touch:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_nothing_but_our_one_function_is_called_and_no_callback(server, tmp_path):
    bad = tmp_path / "bad"
    server.start("worker")
    server.enqueue(server.client, str(bad), mac="x", rq_id="func", func="os.mkdir")
    server.enqueue(server.client, "rm", rq_id="pickle")
    server.client.hset("h:7:rq:job:pickle", "data", pickle.dumps(("os.mkdir", None, (str(bad),), {})))
    server.enqueue(server.client, "rm", rq_id="reduce")
    server.client.hset("h:7:rq:job:reduce", "data", pickle.dumps(Touch(bad)))
    server.enqueue(server.client, "rm", rq_id="attr")
    server.client.hset("h:7:rq:job:attr", "data", json.dumps(["format", "{}", ["x", "y"], {}]))
    body = server.payload("print('good')")
    server.enqueue(server.client, body, rq_id="callbacks")
    server.client.hset(
        "h:7:rq:job:callbacks",
        mapping={
            "success_callback_name": "os.mkdir",
            "failure_callback_name": "os.mkdir",
            "stopped_callback_name": "os.mkdir",
            "webhooks": json.dumps([{"url": "http://127.0.0.1:9/x", "job_status": "finished"}]),
            "retries_left": "5",
            "repeats_left": "5",
            "repeat_intervals": "[1]",
            "timeout": "never-a-number",
            "created_at": "not a date",
        },
    )
    until(lambda: ended(folder_of(server, body)))
    assert until(lambda: answer(server, "callbacks")) == "accepted"
    assert not bad.exists()
    assert until(lambda: counts(server)["refused"] >= 4)
    assert "our one function" in answer(server, "func") and "not JSON" in answer(server, "pickle")
    assert [path.name for path in server.config.attempts.iterdir()] == [folder_of(server, body).name]


def test_entries_that_cannot_be_read_do_not_stop_the_worker(server):
    server.start("worker")
    server.client.set("h:7:rq:job:string", "not a hash")
    server.client.hset("h:7:rq:job:empty", "status", "queued")
    server.client.rpush("h:7:rq:queue:jobs", "string", "gone", "empty", b"\xff\xfe")
    body = server.payload("print('good')")
    server.enqueue(server.client, body)
    until(lambda: ended(folder_of(server, body)))
    assert until(lambda: server.client.llen("h:7:rq:queue:jobs:intermediate") == 0)


def test_an_unsigned_stop_command_is_not_heard(server):
    worker = server.start("worker")
    until(lambda: server.client.smembers("h:7:rq:workers"))
    (key,) = server.client.smembers("h:7:rq:workers")
    name = key.decode().removeprefix("h:7:rq:worker:")
    assert server.client.publish(f"h:7:rq:pubsub:{name}", '{"command": "shutdown"}') == 0
    assert worker.poll() is None


def test_a_server_reaches_no_other_servers_keys(server, valkey):
    import redis

    server.client.set("h:8:logs", "x")
    own = redis.Redis.from_url(server.config.redis_url)
    assert own.set("h:7:x", 1)
    for act in (
        lambda: own.get("h:8:logs"),
        lambda: own.xadd("h:8:logs", {"a": 1}),
        lambda: own.delete("h:8:logs"),
        lambda: own.publish("h:8:beat", "{}"),
        lambda: own.hset("fleet:now", "8", "{}"),
        lambda: own.keys("*"),
        lambda: own.flushall(),
        lambda: own.config_get("*"),
        lambda: own.eval("return 1", 0),
        lambda: own.execute_command("SCAN", 0),
        lambda: own.acl_users(),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            act()
    with pytest.raises(redis.exceptions.NoPermissionError):
        own.pubsub().psubscribe("h:*:beat") or own.pubsub().execute_command("PSUBSCRIBE", "h:*:beat")
        pubsub = own.pubsub()
        pubsub.psubscribe("h:*:beat")
        pubsub.parse_response()


def test_a_worker_killed_in_the_middle_leaves_the_job_running_and_the_next_adopts_it(server):
    worker = server.start("worker")
    body = server.payload("import time\nfor n in range(20): print(n, flush=True); time.sleep(.1)")
    server.enqueue(server.client, body)
    folder = folder_of(server, body)
    until(lambda: (folder / "lines").exists() and "3" in texts(folder))
    worker.kill()
    worker.wait()
    assert spool.is_alive(folder)
    server.start("worker")
    server.enqueue(server.client, body, rq_id="again")
    until(lambda: ended(folder))
    assert texts(folder) == [str(n) for n in range(20)]
    assert len(events(folder, "started")) == 1
    assert until(lambda: answer(server, "again")) == "already"


def test_workers_killed_over_and_over_lose_no_job_and_run_none_twice(server, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    program = (
        f"import os, time; open({str(marks)!r} + '/' + os.environ['ASCEND_ATTEMPT'], 'a').write('x'); time.sleep(.05)"
    )
    bodies = [server.payload(program) for _ in range(20)]
    worker = server.start("worker")
    for n, body in enumerate(bodies):
        server.enqueue(server.client, body, rq_id=f"j{n}")
        if n % 4 == 3:
            time.sleep(0.02 * n)
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
            worker = server.start("worker")
    until(lambda: all(ended(folder_of(server, body)) for body in bodies), timeout=30)
    assert sorted(path.name for path in marks.iterdir()) == sorted(folder_of(server, b).name for b in bodies)
    assert {path.read_text() for path in marks.iterdir()} == {"x"}


def test_what_a_killed_worker_had_in_hand_is_taken_again(server):
    body = server.payload("print('found')")
    server.enqueue(server.client, body, rq_id="held")
    server.client.lmove("h:7:rq:queue:jobs", "h:7:rq:queue:jobs:intermediate", "LEFT", "RIGHT")
    started = server.payload("print('started')")
    server.enqueue(server.client, started, rq_id="begun")
    server.client.lpop("h:7:rq:queue:jobs")
    server.client.zadd("h:7:rq:wip:jobs", {"begun:some-execution": time.time() + 600})
    server.start("worker")
    assert until(lambda: ended(folder_of(server, body)) and ended(folder_of(server, started)))


def test_only_one_worker_serves_a_server(server):
    server.start("worker")
    until(lambda: locks.is_locked(server.config.state_dir / "worker.lock"))
    second = server.start("worker")
    assert second.wait(10) == 1


def test_a_worker_outlives_redis(tmp_path, own_valkey):
    server = AgentServer(tmp_path, own_valkey.url)
    try:
        worker = server.start("worker")
        client = own_valkey.client()
        until(lambda: client.smembers("h:7:rq:workers"))
        own_valkey.kill()
        waiting = server.claim("print('claimed while Redis was away')")
        until(lambda: ended(waiting))
        time.sleep(2)
        own_valkey.start()
        body = server.payload("print('after')", attempt="a9-1-00000009")
        server.enqueue(own_valkey.client(), body)
        until(lambda: ended(server.config.attempts / "a9-1-00000009"), timeout=20)
        assert worker.poll() is None
    finally:
        server.close()


def test_a_worker_can_be_stopped_while_redis_is_away(tmp_path, own_valkey):
    server = AgentServer(tmp_path, own_valkey.url)
    try:
        worker = server.start("worker")
        until(lambda: own_valkey.client().smembers("h:7:rq:workers"))
        own_valkey.kill()
        time.sleep(1.5)
        assert worker.poll() is None
        worker.terminate()
        worker.wait(5)
    finally:
        server.close()


def test_a_burst_worker_takes_what_there_is_and_its_runners_go_on(server):
    bodies = [server.payload("import time; time.sleep(.3); print('done')") for _ in range(3)]
    for body in bodies:
        server.enqueue(server.client, body)
    assert server.start("worker", "--burst").wait(10) == 0
    until(lambda: all(ended(folder_of(server, body)) for body in bodies))
    assert server.start("worker", "--burst").wait(10) == 0


def test_sigterm_ends_the_worker_and_not_the_job(server):
    worker = server.start("worker")
    body = server.payload("import time; time.sleep(1); print('done')")
    server.enqueue(server.client, body)
    folder = folder_of(server, body)
    until(lambda: spool.is_alive(folder))
    worker.terminate()
    assert worker.wait(5) == 0
    until(lambda: ended(folder))
    assert texts(folder) == ["done"]


def test_a_runner_killed_is_told_as_failed_and_its_processes_are_ended(server):
    server.start("worker")
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(300)"
    body = server.payload(stubborn)
    server.enqueue(server.client, body)
    folder = folder_of(server, body)
    until(lambda: (folder / "lines").exists() and "up" in texts(folder))
    runner = spool.runner_identity(folder)
    os.kill(runner.pid, signal.SIGKILL)
    until(lambda: ended(folder))
    assert ended(folder)["state"] == "failed" and "runner died" in ended(folder)["reason"][1]
    assert [event["state"] for event in events(folder, "step_end")] == ["failed"]
    assert processes.session_members(runner.pid) == []


def test_an_attempt_of_before_the_reboot_is_told_as_failed(server):
    folder = server.claim("print('never')")
    (folder / "pid").write_text(json.dumps({"pid": 1, "started": 5, "boot_id": "another"}))
    (folder / "lines").write_bytes(spool.record("v", spool.event("started")) + b"1700000000000\to\thalf")
    server.start("worker")
    until(lambda: ended(folder))
    assert "The server restarted" in ended(folder)["reason"][1]
    assert texts(folder) == ["half"]


def test_a_runner_that_cannot_start_is_told_after_three_tries(server, monkeypatch):
    from deployments.agent import adopt

    monkeypatch.setattr(adopt, "TRY_AGAIN_S", 0.1)
    adopter = adopt.Adopter(server.config, runner=["/bin/sh", "-c", "echo broken install >&2; exit 1"])
    folder = server.claim("print('never')")
    until(lambda: (adopter.tick(), ended(folder))[1])
    assert "could not be started" in ended(folder)["reason"][1]
    assert texts(folder, "s") == ["broken install"] * 3


def test_the_beat_tells_what_was_refused_and_who_is_alive(server):
    pubsub = server.client.pubsub()
    pubsub.psubscribe(streams.BEATS)
    server.start("worker")
    server.enqueue(server.client, server.payload("print(1)"), mac="00", rq_id="forged")
    until(lambda: counts(server)["refused"])
    body = server.payload("import time; time.sleep(3)")
    server.enqueue(server.client, body)
    until(lambda: spool.is_alive(folder_of(server, body)))
    server.start("link")
    SmallIngest(server.client)

    def beat():
        message = pubsub.get_message(timeout=0.1)
        return json.loads(message["data"]) if message and message["type"] == "pmessage" else None

    told = until(beat)
    assert told["worker"] is True and told["refused"] == 1 and "signature" in told["last_refusal"]
    assert told["active"] == [folder_of(server, body).name]
