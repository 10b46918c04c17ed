"""The whole console, as `make up` starts it: a real agent is stopped and started with another boot id, and the demo."""

import os
import re
import signal
import time
import urllib.error
from pathlib import Path

import pytest

from tests.deployments.joining import Browser
from tests.waiting import until
from tests.whole import Whole


@pytest.fixture(scope="module")
def boot(tmp_path_factory):
    path = tmp_path_factory.mktemp("boot") / "boot_id"
    path.write_text("boot-1\n")
    return path


@pytest.fixture(scope="module")
def console(tmp_path_factory, boot):
    whole = Whole(tmp_path_factory.mktemp("console"), demo_servers=14, ASCEND_BOOT_ID_FILE=str(boot))
    yield whole
    whole.stop()


@pytest.fixture(scope="module")
def token(console):
    return console.token()


@pytest.fixture(scope="module")
def local(console, token):
    """The name of the machine that the console runs on, once its agent has told its facts."""

    def told():
        servers = console.call("/servers", token)["servers"]
        name = next(one["name"] for one in servers if not one["simulated"])
        return name if console.call(f"/servers/{name}", token)["facts"].get("boot_id") else None

    return until(told, 40, every=0.2)


def job_in(console, token, job, *states, timeout=60):
    def look():
        found = console.call(f"/jobs/{job['id']}", token)
        return found if found["state"] in states else None

    return until(look, timeout, every=0.1)


def log(console, token, job):
    import urllib.request

    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{console.url}/api/v1/jobs/{job['id']}/log?limit=5000", headers=headers)
    return urllib.request.urlopen(request, timeout=10).read().decode()


def agents(console):
    """Pids of the agent's supervisor under this console."""
    config = str(Path(console.env["VAR_DIR"]) / "agent" / "config.json")
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            try:
                words = (one / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "deployments.agent" in words and config in words:
                found.append(int(one.name))
    return found


def restart_agent(console):
    before = agents(console)
    assert len(before) == 1
    os.kill(before[0], signal.SIGKILL)
    until(lambda: agents(console) and agents(console) != before, 20)


def test_a_job_of_a_real_agent_waits_over_a_restart_of_the_agent_and_goes_on_after_the_boot(
    console, token, local, boot
):
    params = {"by_hand": True, "force": True}
    job = console.call("/jobs", token, {"kind": "reboot", "server": local, "params": params})
    waits = job_in(console, token, job, "waiting_reboot")
    assert waits["reboot"]["by_hand"] is True and waits["reboot"]["step"] == 2
    attempt = waits["attempt"]["id"]

    page = Browser(console).get(f"/jobs/{job['id']}/")
    assert f"Waits until somebody restarts {local}" in page and "at the latest" in page
    # It keeps its locks, and nothing else begins on a server that is about to go down.
    other = console.call("/jobs", token, {"kind": "check", "server": local})
    assert other["waiting"]["holder"] == {"id": job["id"], "kind": "reboot"}

    restart_agent(console)  # the agent alone, with the same boot id: it goes on waiting
    time.sleep(4)
    assert console.call(f"/jobs/{job['id']}", token)["state"] == "waiting_reboot"

    boot.write_text("boot-2\n")
    restart_agent(console)
    ended = job_in(console, token, job, "succeeded", "failed", "lost")
    assert ended["state"] == "succeeded", log(console, token, job)
    assert ended["attempt"]["id"] == attempt and ended["attempt"]["n"] == 1 and ended["reboot"] is None
    assert [step["state"] for step in ended["attempt"]["steps"]] == ["succeeded"] * 3
    assert {item["key"] for item in ended["attempt"]["report"]} >= {"npu_processes", "other_jobs", "npus_back"}
    job_in(console, token, other, "succeeded", "failed", timeout=90)
    assert "The server has restarted" in log(console, token, job)


def test_a_job_that_waits_is_cancelled(console, token, local):
    job = console.call("/jobs", token, {"kind": "reboot", "server": local, "params": {"by_hand": True, "force": True}})
    job_in(console, token, job, "waiting_reboot")
    console.call(f"/jobs/{job['id']}/cancel", token, {})
    ended = job_in(console, token, job, "cancelled", "succeeded", "failed")
    assert ended["state"] == "cancelled"
    assert [step["state"] for step in ended["attempt"]["steps"]] == ["succeeded", "cancelled"]
    assert "while it waited for the restart" in ended["reason"]


def test_a_simulated_server_restarts_with_another_boot_id_and_is_silent_meanwhile(console, token):
    job = console.call("/jobs", token, {"kind": "reboot", "server": "kp-03"})  # none of its NPUs is in use
    waits = job_in(console, token, job, "waiting_reboot")
    assert waits["simulated"] and waits["reboot"]["by_hand"] is False
    ended = job_in(console, token, job, "succeeded", "failed", "lost", timeout=90)
    assert ended["state"] == "succeeded", log(console, token, job)
    text = log(console, token, job)
    was, now = re.findall(r"boot id ([0-9a-f]{32})", text)
    assert was != now
    assert "simulated: the server goes down" in text and "The server has restarted" in text


def test_it_refuses_while_npus_are_in_use_and_asks_before_it_is_queued(console, token):
    job = console.call("/jobs", token, {"kind": "reboot", "server": "kp-01"})
    ended = job_in(console, token, job, "succeeded", "failed")
    assert ended["state"] == "failed"
    assert [step["state"] for step in ended["attempt"]["steps"]] == ["failed", "skipped", "skipped"]
    assert next(item for item in ended["attempt"]["report"] if item["key"] == "npu_processes")["verdict"] == "failed"

    browser = Browser(console)
    _path, page = browser.send("/jobs/new", server="kp-01", kind="reboot", full="1", wait="1")
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Restart the server: kp-01" in words and "pid" in words and "vllm serve" in words
    assert len(console.call("/jobs?kind=reboot&server=kp-01", token)["jobs"]) == 1
    path, _page = browser.send("/jobs/new", server="kp-01", kind="reboot", full="1", wait="1", confirmed="1")
    assert re.fullmatch(r"/jobs/\d+/", path)


def test_rest_says_which_kinds_need_root(console, token):
    kinds = {one["kind"]: one["needs_root"] for one in console.call("/kinds", token)["kinds"]}
    assert kinds["reboot"] is True and kinds["check"] is False
    with pytest.raises(urllib.error.HTTPError):
        console.call("/jobs", token, {"kind": "reboot", "server": "nobody"})
