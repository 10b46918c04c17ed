"""The whole way of a deployment on a machine without an NPU, with the real vLLM: a sample is served, answers, is
measured, gets another context, goes back, survives the death of its engine core, API process and agent, and stops."""

import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.waiting import until

READY_S = 600
NAME = "tiny"
SETTINGS = {"served_model_name": NAME, "device": "cpu", "dtype": "float32", "max_model_len": 256, "enforce_eager": True}


class Deployed:
    """One deployment of a real console, by REST and by its pages."""

    def __init__(self, operator):
        self.operator, self.console, self.token = operator, operator.console, operator.token
        self.browser = operator.browser

    def call(self, path="", body=None, method=None):
        request = urllib.request.Request(
            f"{self.console.url}/api/v1/deployments{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", "Accept-Language": "en"},
            method=method,
        )
        with self.console.open(request, timeout=30) as answer:
            return json.loads(answer.read())

    def now(self):
        return self.call(f"/{NAME}")

    def replica(self):
        """The one that is there."""
        rows = [one for one in self.now()["replica_set"] if one["state"] not in ("stopped", "failed")]
        return rows[-1] if rows else None

    def ready(self, revision, other_than=None):
        """Its replica, when it serves that revision."""

        def there():
            found = self.now()
            one = self.replica()
            assert found["state"] != "failed", found
            settled = found["rollout"] is None and one and one["revision"] == revision and one["state"] == "ready"
            return one if settled and one["n"] != other_than else None

        return until(there, READY_S, 0.5)

    def chat(self, words="Say something.", **more):
        """What the playground's stream answers: all of its text."""
        page = self.browser.get(f"/deployments/{NAME}/chat")
        token = re.search(r'csrf[^"]*" (?:value|content)="([^"]+)', page) or re.search(r'csrfToken": "([^"]+)', page)
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": 8, "temperature": 0, **more}
        headers = {"Content-Type": "application/json", "Referer": self.console.url + "/"}
        jar = next(one for one in self.browser.opener.handlers if hasattr(one, "cookiejar")).cookiejar
        cookie = next((one.value for one in jar if one.name == "csrftoken"), token and token[1])
        headers["X-CSRFToken"] = cookie
        request = urllib.request.Request(
            f"{self.console.url}/deployments/{NAME}/chat/stream", json.dumps(body).encode(), headers
        )
        with self.browser.opener.open(request, timeout=60) as answer:
            return answer.read().decode()

    def deploy(self, model):
        """Deploy on this machine, and it answers; returns the replica."""
        self.call(body={"name": NAME, "model": model["id"], "settings": SETTINGS, "servers": ["kp-60"]})
        first = self.ready(1)
        assert '"content"' in self.chat()
        assert f":{first['port']}/v1" in self.browser.get(f"/deployments/{NAME}/")
        return first

    def check_benchmark(self):
        """Measured with its own benchmark."""
        asked = {"params": {"degrees": "1, 2", "prompts": 4, "input_len": 32, "output_len": 8}}
        measured = self.call(f"/{NAME}/benchmarks", asked)["id"]

        def done():
            found = self.console.call(f"/benchmarks/{measured}", self.token)
            return found if found["ended_at"] else None

        found = until(done, 600, 0.5)
        assert [point["concurrency"] for point in found["points"]] == [1, 2], found
        assert all(point["failed"] == 0 for point in found["points"])

    def check_change_and_back(self, first):
        """Another context rolls over, and back again; returns the replica that serves then."""
        self.call(f"/{NAME}", {"settings": {**SETTINGS, "max_model_len": 192}}, "PATCH")
        second = self.ready(2)
        assert second["n"] != first["n"]
        self.call(f"/{NAME}/rollback", {"revision": 1})
        return self.ready(1, other_than=first["n"])


@pytest.fixture
def deployed(operator):
    return Deployed(operator)


def processes(host, word):
    """{pid: command} of the host's processes whose command holds the word."""
    return {pid: line for pid, line in host.pids().items() if word in line}


def engine_core(leader):
    """The engine core below an API process; vLLM gives it a title of its own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            parent = int(re.search(r"PPid:\s+(\d+)", (entry / "status").read_text())[1])
            title = (entry / "cmdline").read_bytes()
        except (OSError, TypeError):
            continue
        if parent == leader and b"EngineCore" in title:
            return int(entry.name)
    return None


def api_process(host):
    found = [
        pid for pid, line in processes(host, "api_server").items() if "with_env" not in line and " -c " not in line
    ]
    leaders = [pid for pid in found if engine_core(pid)]
    return leaders[0] if leaders else None


def test_a_model_is_served_changed_and_stopped(installed, operator, host, deployed):
    assert installed.job["state"] == "succeeded"
    until(lambda: all(step["state"] == "satisfied" for step in operator.plan()["steps"]), 120, 0.5)
    first = deployed.deploy(made_model(operator, host))
    deployed.check_benchmark()
    third = deployed.check_change_and_back(first)
    check_killed_engines_come_back(host, deployed, third)
    check_a_dead_agent_costs_no_request(host, deployed)
    until(lambda: agent_is_heard(operator), 120, 0.5)
    check_stop_leaves_nothing(host, deployed)


def made_model(operator, host):
    """A sample model on the server, as the console knows it."""
    target = f"{host.agent}/state/models/served"
    body = {"server": "kp-60", "kind": "sample_model", "params": {"model": "qwen2", "layers": "2", "target": target}}
    job = operator.followed(f"/jobs/{operator.console.call('/jobs', operator.token, body)['id']}/", 300)
    assert job["state"] == "succeeded"

    def known():
        models = operator.console.call("/models", operator.token)["models"]
        return next((one for one in models if one["name"] == "served"), None)

    return until(known, 60, 0.5)


def check_killed_engines_come_back(host, deployed, replica):
    """The engine core dies, then the API process: each time it is started anew by itself."""
    for find in (lambda leader: engine_core(leader), lambda leader: leader):
        leader = until(lambda: api_process(host), 60, 0.2)
        os.kill(find(leader), signal.SIGKILL)
        until(lambda was=leader: (now := api_process(host)) and now != was, READY_S, 0.5)
        until(lambda: deployed.replica()["state"] == "ready" and answers(deployed), READY_S, 0.5)
        assert not Path(f"/proc/{leader}").exists()
    assert deployed.replica()["n"] == replica["n"] and deployed.replica()["restarts"] >= 2


def check_a_dead_agent_costs_no_request(host, deployed):
    """The agent dies while a client asks: the engine does not notice."""
    leader, client = api_process(host), Client(deployed)
    for pid in processes(host, "deployments.agent --config"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: client.count >= 3, 120, 0.2)
    assert not client.end() and api_process(host) == leader
    assert host.ctl("start").returncode == 0


def check_stop_leaves_nothing(host, deployed):
    deployed.call(f"/{NAME}/stop", {})
    until(lambda: deployed.now()["state"] == "stopped", 300, 0.5)
    until(lambda: not processes(host, "api_server"), 60, 0.2)


class Client:
    """Asks in the playground, one question after the other, until `end`, which gives what went wrong."""

    def __init__(self, deployed):
        self.deployed, self.count, self.failures, self.ended = deployed, 0, [], threading.Event()
        self.thread = threading.Thread(target=self.ask)
        self.thread.start()

    def ask(self):
        while not self.ended.is_set():
            try:
                self.deployed.chat()
                self.count += 1
            except Exception as error:
                self.failures.append(error)

    def end(self):
        self.ended.set()
        self.thread.join(60)
        return self.failures


def answers(deployed):
    try:
        return "data:" in deployed.chat()
    except OSError:
        return False


def agent_is_heard(operator):
    found = operator.console.call("/servers/kp-60", operator.token)
    return found["state"] == "live" and (found["age_s"] or 99) < 10


def test_what_cannot_run_is_refused_before_it_starts(installed, deployed, operator):
    """A context beyond the model's, TP that does not divide, an unknown flag: a sentence each, and no job."""
    model = next(one for one in operator.console.call("/models", operator.token)["models"] if one["name"] == "served")
    for wrong in ({"max_model_len": 10**7}, {"extra": ["--no-such-flag"]}, {"dtype": "float3"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            deployed.call(body={"name": "wrong", "model": model["id"], "settings": {**SETTINGS, **wrong}})
        told = json.loads(refused.value.read())["error"]
        assert refused.value.code in (400, 409, 422) and told["what"] and told["do"], told
