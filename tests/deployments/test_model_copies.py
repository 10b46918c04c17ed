"""A model that goes from server to server: two real runners, a key that both were given, and who else may call."""

import json
import os
import random
import signal
import urllib.error
import urllib.request

import pytest

from deployments.agent.models import signed_http
from tests.conftest import free_port
from tests.deployments import models_on_disk
from tests.deployments.agent_bench import AgentServer, ended, events, texts
from tests.deployments.test_download_jobs import contents, program_pids, told
from tests.waiting import until

SEED, PAIR = "7c" * 32, "ab" * 16
KEY = signed_http.key_of(SEED, PAIR)
WITHIN_S = 120
BIG = random.Random(5).randbytes(30 << 20)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setenv("ASCEND_RETRY_S", "0.05")
    monkeypatch.setenv("ASCEND_STALL_S", "20")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def servers(tmp_path):
    made = [
        AgentServer(tmp_path / name, "redis://127.0.0.1:1/0", server_id=n) for n, name in enumerate(("one", "two"), 7)
    ]
    for server in made:
        give_key(server)
    yield made
    for server in made:
        server.close()


def give_key(server, seed=SEED):
    """As the agent on the console's own machine has it."""
    server.config.path.with_name("models.json").write_text(json.dumps({"tokens": {}, "ca": "", "seed": seed}))


@pytest.fixture
def origin(tmp_path):
    folder = models_on_disk.model(tmp_path / "origin 模型")
    (folder / "big.bin").write_bytes(BIG)
    return folder


class Copy:
    def __init__(self, servers, origin, folder):
        self.one, self.two = servers
        self.origin, self.folder, self.port = origin, folder, free_port()

    def serve(self):
        params = {"model": str(self.origin), "pair": PAIR, "port": self.port}
        job = self.one.run(kind="model_serve", params=params, wait=False)
        until(lambda: (job / "lines").exists() and ("Waiting for" in "".join(texts(job)) or ended(job)), WITHIN_S)
        return job

    def fetch(self, wait=True):
        params = {
            "server": "kp-07", "model": str(self.origin), "folder": str(self.folder), "address": "127.0.0.1",
            "port": self.port, "pair": PAIR,
        }  # fmt: skip
        return self.two.run(kind="model_copy", params=params, wait=wait, timeout=WITHIN_S)

    def ask(self, path, header=""):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={signed_http.HEADER: header})
        return urllib.request.urlopen(request, timeout=20).read()


@pytest.fixture
def copy(servers, origin, tmp_path):
    return Copy(servers, origin, tmp_path / "two" / "models" / "tiny")


def test_a_model_is_copied_and_both_jobs_end(copy):
    serving = copy.serve()
    job = copy.fetch()
    assert ended(job)["state"] == "succeeded", ended(job)
    assert contents(copy.folder) == contents(copy.origin)
    assert [(one["via"], one["path"]) for one in told(job)] == [("copied", str(copy.folder))]
    until(lambda: ended(serving), WITHIN_S)
    assert ended(serving)["state"] == "succeeded", ended(serving)
    assert KEY not in (job / "lines").read_text() + (serving / "lines").read_text()

    serving = copy.serve()
    again = copy.fetch()
    assert events(again, "step_end")[0]["state"] == "skipped"
    until(lambda: ended(serving), WITHIN_S)


def test_nobody_else_gets_anything(copy):
    copy.serve()
    good = signed_http.sign(KEY, "/files", "")
    assert json.loads(copy.ask("/files", good))
    for path, header in (
        ("/files", ""), ("/files", signed_http.sign("00" * 32, "/files", "")), ("/file/0", good), ("/", ""),
        ("/files", good.upper()), ("/../../etc/passwd", ""), ("/done", good),
    ):  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as caught:
            copy.ask(path, header)
        assert caught.value.code == 403
    for path in ("/file/999", "/file/-1", "/file/../x", "/etc/passwd", "/file/"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            copy.ask(path, signed_http.sign(KEY, path, ""))
        assert caught.value.code == 404


def test_another_end_is_not_believed(copy):
    give_key(copy.one, "00" * 32)
    copy.serve()
    job = copy.fetch()
    assert ended(job)["state"] == "failed" and "is not the other end" in ended(job)["reason"][1]
    assert not copy.folder.exists()


def test_a_copy_that_was_killed_goes_on(copy):
    serving = copy.serve()
    half = copy.folder.parent / ".tiny.part" / ".halves"
    job = copy.fetch(wait=False)
    until(lambda: (half.is_dir() and any(p.stat().st_size > 1 << 20 for p in half.iterdir())) or ended(job), WITHIN_S)
    for pid in program_pids(copy.folder):
        os.kill(pid, signal.SIGKILL)
    until(lambda: ended(job), WITHIN_S)
    if ended(job)["state"] == "succeeded":
        pytest.skip("it was faster than the signal")
    assert not copy.folder.exists() and not ended(serving), "the other end waits for the next try"
    assert ended(copy.fetch())["state"] == "succeeded"
    assert contents(copy.folder) == contents(copy.origin)
    until(lambda: ended(serving), WITHIN_S)


def test_an_end_that_nobody_calls_gives_up(copy, monkeypatch):
    monkeypatch.setenv("ASCEND_IDLE_S", "0.5")
    serving = copy.serve()
    until(lambda: ended(serving), WITHIN_S)
    assert ended(serving)["state"] == "failed" and "Nobody has asked" in ended(serving)["reason"][1]


def test_a_port_in_use_is_told(copy):
    first = copy.serve()
    second = copy.serve()
    assert "Nobody can listen" in ended(second)["reason"][1] and not ended(first)


def test_a_folder_that_is_not_there_is_told(copy, tmp_path):
    copy.origin = tmp_path / "none"
    assert "There is no folder" in ended(copy.serve())["reason"][1]
