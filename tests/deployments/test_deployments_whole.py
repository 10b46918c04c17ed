"""The whole console with simulated servers: a model is served, told of, and stopped, by every part there is."""

import json
import urllib.request

import pytest

from tests.waiting import until
from tests.whole import Whole

SETTINGS = {"served_model_name": "chat", "tensor_parallel_size": 2, "max_model_len": 4096}


@pytest.fixture
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=3, ASCEND_DEMO_SPEED="50")
    yield whole
    whole.stop()


def change(console, token, **values):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url = f"{console.url}/api/v1/deployments/chat"
    request = urllib.request.Request(url, json.dumps(values).encode(), headers, method="PATCH")
    with console.open(request, timeout=10) as answer:
        return json.loads(answer.read())


def test_a_deployment_comes_up_by_itself_and_goes_when_it_is_stopped(console):
    token = console.token()
    body = {"kind": "install", "server": "kp-03", "params": {"stack": "vllm-ascend-0.26.0rc1"}}
    job = console.call("/jobs", token, body)["id"]
    until(lambda: console.call(f"/jobs/{job}", token)["state"] == "succeeded", 120, every=0.3)
    rows = until(lambda: console.call("/models?fleet=simulated", token)["models"], 60, every=0.3)
    model = next(row["id"] for row in rows if row["name"] == "Qwen3-8B")
    console.call("/deployments", token, {"name": "chat", "model": model, "settings": SETTINGS, "servers": ["kp-03"]})

    def look():
        return console.call("/deployments/chat", token)

    found = until(
        lambda: (now := look())["metrics"]["running"] is not None and now["ready"] == 1 and now, 120, every=0.3
    )
    (row,) = found["replica_set"]
    assert row["server"] == "kp-03" and len(row["npus"]) == 2 and row["heard"] and row["facts"]["kv_tokens"] > 0
    assert found["state"] == "ready" and found["reason"] is None and row["restarts"] == 0

    assert change(console, token, drain_s=1)["drain_s"] == 1  # requests of simulated engines never cease
    console.call("/deployments/chat/stop", token, {})
    until(lambda: look()["state"] == "stopped", 120, every=0.3)
    (row,) = look()["replica_set"]
    assert row["state"] == "stopped" and row["cut"] is not None
