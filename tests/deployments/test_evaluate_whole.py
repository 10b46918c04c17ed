"""An evaluation from the agent's runner to its end, cancelled on the way, and acted out on simulated servers."""

import json

import pytest

from deployments.agent import spool
from tests.deployments.acted import Acted, at_once
from tests.deployments.agent_bench import AgentServer, ended, events
from tests.deployments.pretended_engines import left, model, stack
from tests.waiting import until

__all__ = ["at_once"]


@pytest.fixture
def bench(tmp_path, valkey):
    bench = AgentServer(tmp_path / "agent", valkey.url)
    yield bench
    bench.close()


def params(folder):
    return {"child": str(folder / "child"), "parent": str(folder / "parent"), "stacks": str(stack(folder)),
            "pasted": "hello\n你好", "timeout_min": 2}  # fmt: skip


def test_a_whole_job_tells_answers_and_verdict(bench, tmp_path):
    model(tmp_path / "parent"), model(tmp_path / "child", "worse")
    folder = bench.run(kind="evaluate", params=params(tmp_path), timeout=120)
    assert ended(folder)["state"] == "succeeded"
    told = events(folder, "told")
    assert [event["told"] for event in told] == ["answer", "answer", "evaluation"]
    assert told[-1]["data"]["passed"] is False and told[0]["data"]["prompt"] == "hello"
    assert not left(tmp_path / "parent") and not left(tmp_path / "child")


def test_a_cancelled_job_leaves_no_engine(bench, tmp_path):
    model(tmp_path / "parent", "never"), model(tmp_path / "child")
    folder = bench.run(kind="evaluate", params=params(tmp_path), wait=False)
    until(lambda: len(left(tmp_path / "parent")) == 2, 60)
    (folder / "cancel").touch()
    until(lambda: spool.has_ended(folder), 60)
    assert ended(folder)["state"] == "cancelled" and not left(tmp_path / "parent")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("child, passed", [("/data/models/q-w8a8", True), ("/data/models/q-broken", False)])
def test_simulated_servers_act_it_out(tmp_path, child, passed):
    server = Acted("kp-01", tmp_path)
    asked = {"child": child, "parent": "/data/models/q", "stacks": "/opt/ascend-console/stacks"}
    log = server.run("evaluate", **asked)
    assert log.ended["state"] == "succeeded" and log.states == ["succeeded"] * 4
    told = [event for event in log.events if event["e"] == "told"]
    assert len(told) == 49 and told[-1]["told"] == "evaluation" and told[-1]["data"]["passed"] is passed
    assert all(len(json.dumps(event)) < 30_000 for event in told) and "prompt 48 of 48" in log.text
    assert any("acted out" in note[1] for note in told[-1]["data"]["notes"])
    again = server.run("evaluate", **asked, pasted="only this")
    assert [e["data"]["prompt"] for e in again.events if e.get("told") == "answer"] == ["only this"]
