"""The whole console, as `make up` starts it: an operator has simulated servers act out installs, a fault, and a model
that is served, told of, and stopped, by every part there is."""

import json
import urllib.error
import urllib.request

import pytest

from tests.deployments.joining import Browser
from tests.waiting import until
from tests.whole import Whole

SERVES = "kp-03"
STACK = "vllm-ascend-0.23.0"
SERVER = "kp-13"  # driver 24.1.0, no engine on its NPUs


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=14, ASCEND_DEMO_SPEED="10")
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def token(console):
    return console.token()


def job_in(console, token, job, *states, timeout=120):
    def look():
        found = console.call(f"/jobs/{job['id']}", token)
        return found if found["state"] in states else None

    return until(look, timeout, every=0.2)


def facts_say(console, token, **wanted):
    """Wait until the server's facts hold these."""

    def look():
        facts = console.call(f"/servers/{SERVER}", token)["facts"]
        return facts if all(facts.get(name) == value for name, value in wanted.items()) else None

    return until(look, 60, every=0.3)


FIRMWARE = "9.0.0.0.205"


def queue(console, token, **params):
    body = {"kind": "install", "server": SERVER, "params": {"stack": STACK, "firmware": FIRMWARE, **params}}
    return console.call("/jobs", token, body)


def verdict_of(console, token):
    rows = console.call(f"/stacks/{STACK}", token)["verdicts"]
    return next(row["verdict"] for row in rows if row["server"] == SERVER)


def test_a_fault_then_the_way_out_then_nothing_is_left_to_do(console, token):
    before = facts_say(console, token, driver="24.1.0")
    console.call("/stack-wishes", token, {"stack": STACK, "servers": [SERVER]})
    assert verdict_of(console, token) == "reachable"
    assert [row["state"] for row in console.call("/stacks", token)["drift"]] == ["drift"]

    failed = job_in(console, token, queue(console, token, fault="dkms_fails"), "succeeded", "failed", "lost")
    assert failed["state"] == "failed" and "kernel modules were not built" in failed["reason"]
    assert failed["simulated"] and failed["params"]["fault"] == "dkms_fails"
    facts_say(console, token, driver="26.0.rc1", driver_whole=False)
    shown = Browser(console).get(f"/servers/{SERVER}/facts")
    assert "half installed" in shown
    assert "Upgrade the driver to 26.0.rc1" in Browser(console).get(f"/stacks/{STACK}/plan/{SERVER}/")

    until(lambda: console.call(f"/servers/{SERVER}", token)["maintenance"], 20)
    assert "host-change-failed" in [one["name"] for one in console.call("/alerts", token)["alerts"]]
    page = " ".join(Browser(console).get(f"/servers/{SERVER}/").split())
    assert "26.0.rc1" in page and "in maintenance" in page

    params = {"driver": "26.0.rc1", "firmware": FIRMWARE}  # it starts in maintenance, too
    job = console.call("/jobs", token, {"kind": "drivers", "server": SERVER, "params": params})
    job_in(console, token, job, "waiting_reboot")
    ended = job_in(console, token, job, "succeeded", "failed", "lost")
    assert ended["state"] == "succeeded", ended["reason"]
    until(lambda: "host-change-failed" not in [one["name"] for one in console.call("/alerts", token)["alerts"]], 20)
    console.call(f"/servers/{SERVER}/maintenance", token, {"maintenance": False})
    job = queue(console, token)
    ended = job_in(console, token, job, "succeeded", "failed", "lost")
    assert ended["state"] == "succeeded", ended["reason"]
    after = facts_say(console, token, driver="26.0.rc1", driver_whole=True, firmware=FIRMWARE)
    assert after["boot_id"] != before["boot_id"]
    until(lambda: verdict_of(console, token) == "matches", 30, every=0.3)
    assert [row["state"] for row in console.call("/stacks", token)["drift"]] == ["in_line"]
    until(lambda: console.call(f"/servers/{SERVER}", token)["version"] == "26.0.rc1", 30, every=0.3)

    again = job_in(console, token, queue(console, token), "succeeded", "failed")
    assert {step["state"] for step in again["attempt"]["steps"]} == {"skipped"}


def test_a_deployment_comes_up_by_itself_and_goes_when_it_is_stopped(console, token):
    body = {"kind": "install", "server": SERVES, "params": {"stack": "vllm-ascend-0.26.0rc1"}}
    job_in(console, token, console.call("/jobs", token, body), "succeeded")
    rows = until(lambda: console.call("/models?fleet=simulated", token)["models"], 60, every=0.3)
    model = next(row["id"] for row in rows if row["name"] == "Qwen3-8B" and SERVES in row["servers"])
    settings = {"served_model_name": "chat", "tensor_parallel_size": 2, "max_model_len": 4096}
    made = {"name": "chat", "model": model, "settings": settings, "servers": [SERVES]}
    console.call("/deployments", token, made)

    def look():
        return console.call("/deployments/chat", token)

    found = until(lambda: (now := look())["metrics"]["running"] is not None and now["ready"] == 1 and now, 120, 0.3)
    (row,) = found["replica_set"]
    assert row["server"] == SERVES and len(row["npus"]) == 2 and row["heard"] and row["facts"]["kv_tokens"] > 0
    assert found["state"] == "ready" and found["reason"] is None and row["restarts"] == 0

    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    url, data = f"{console.url}/api/v1/deployments/chat", b'{"drain_s": 1}'  # its requests never cease
    with console.open(urllib.request.Request(url, data, headers, method="PATCH"), timeout=10) as answer:
        assert json.loads(answer.read())["drain_s"] == 1
    console.call("/deployments/chat/stop", token, {})
    until(lambda: look()["state"] == "stopped", 120, every=0.3)
    (row,) = look()["replica_set"]
    assert row["state"] == "stopped" and row["cut"] is not None


def test_a_real_server_takes_no_fault(console, token):
    servers = console.call("/servers", token)["servers"]
    local = next(one["name"] for one in servers if not one["simulated"])
    body = {"kind": "install", "server": local, "params": {"stack": "cpu-0.32.0", "fault": "dkms_fails"}}
    with pytest.raises(urllib.error.HTTPError) as refused:
        console.call("/jobs", token, body)
    assert refused.value.code == 422 and json.loads(refused.value.read())["error"]["code"] == "fault_on_real"
