"""A keeper and an engine that pretends: it becomes ready, tells what it is, and is ended whole."""


import pytest

from tests.deployments.engine_bench import Bench, gone
from tests.waiting import until


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_it_becomes_ready_by_health_and_a_real_completion_and_says_what_it_found(bench):
    bench.ask_for({"graphs": 2}).keep()
    told = bench.until("ready")
    assert told["replica"] == 7 and told["pid"] == bench.pids[0] and told["ready_at"] >= told["started_at"]
    assert told["facts"] == {"version": "0.99.0", "kv_tokens": 20480, "max_concurrency": 10.0, "weights_gb": 1.25,
                             "available_kv_gib": 3.5, "max_model_len": 2048}  # fmt: skip
    until(lambda: bench.now["metrics"]["requests_total"] == 1)  # the completion that proved it
    assert bench.now["restarts"] == 0 and bench.now["reason"] is None and bench.now["progress"] is None
    assert bench.stop()
    assert all(map(gone, bench.pids)) and bench.now["state"] == "stopped"
    started, *engine, ended = bench.events()
    assert started == {"e": "engine", "state": "loading", "progress": None, "reason": None, "facts": started["facts"]}
    assert [one["pid"] for one in engine if one["e"] == "started"] == [bench.pids[0]]
    assert [one["state"] for one in engine if one["e"] == "engine"][-2:] == ["ready", "stopped"]
    assert ended == {"e": "ended", "state": "succeeded", "exit": 0, "reason": None, "more": False}
    assert "INFO:     Application startup complete." in bench.said()
