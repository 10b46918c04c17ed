"""The jobs that bring models to a server, with its real runner: to their end, cut off, on a full disk, twice."""

import hashlib
import http.server
import json
import os
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from deployments.agent import signing
from deployments.artifacts import BadModel, digests, fetch, sample
from deployments.artifacts.read import read
from deployments.artifacts.sources import File
from deployments.artifacts.sources.hubs import HuggingFace
from deployments.artifacts.sources.names import OWN
from deployments.artifacts.sources.web import Web
from tests.deployments import models_on_disk
from tests.deployments.agent_bench import KEY, AgentServer, ended, events, texts
from tests.deployments.model_hub import TOKEN, Hub
from tests.waiting import until

BIG = "model-00001-of-00002.safetensors"
WITHIN_S = 120  # a crowded machine may take its time


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setenv("ASCEND_RETRY_S", "0.01")
    monkeypatch.setenv("ASCEND_STALL_S", "20")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


@pytest.fixture
def origin(tmp_path):
    return models_on_disk.model(tmp_path / "origin", config={"hidden_size": 48})


@pytest.fixture
def hub(origin):
    made = Hub({path.name: path.read_bytes() for path in origin.iterdir()})
    yield made
    made.close()


def run(server, kind="download", **params):
    return server.run(kind=kind, params=params, timeout=WITHIN_S)


def from_hub(hub, folder, **more):
    return {"source": "huggingface", "model": "org/tiny", "endpoint": hub.url, "folder": str(folder), **more}


def told(folder, what="artifact"):
    return [event["data"] for event in events(folder, "told") if event["told"] == what]


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------- the sample model ----------


@pytest.mark.parametrize(("model", "layers"), [("qwen2", "2"), ("llama", "28")])
def test_a_sample_model_is_whole_and_told(server, tmp_path, model, layers):
    target = tmp_path / "models" / "示例 sample"
    job = run(server, "sample_model", model=model, layers=layers, folder=str(target))
    assert ended(job)["state"] == "succeeded", ended(job)
    found = read(target)
    assert (found.whole, found.model_type, found.layers, found.head_dim or found.hidden // found.heads) == (
        True, model, int(layers), 32,
    )  # fmt: skip
    assert [one["via"] for one in told(job)] == ["sample"] and told(job)[0]["path"] == str(target)
    assert told(job)[0]["digest"] == digests.make(target).digest == digests.known(server.state, target).digest
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_sample_model_that_is_there_is_left_alone(server, tmp_path):
    target = tmp_path / "models" / "s"
    for state in ("succeeded", "skipped"):
        job = run(server, "sample_model", layers="2", folder=str(target))
        assert ended(job)["state"] == "succeeded" and events(job, "step_end")[0]["state"] == state
    (target / "config.json").write_text("{}")
    job = run(server, "sample_model", layers="2", folder=str(target))
    assert ended(job)["state"] == "failed" and "not empty" in ended(job)["reason"][1]
    assert (target / "config.json").read_text() == "{}"


def test_two_sample_models_differ_and_one_is_always_the_same():
    assert sample.manifest("qwen2", 2) == sample.manifest("qwen2", 2) != sample.manifest("llama", 2)


# ---------- a download ----------


def test_a_look_tells_what_would_come_and_changes_nothing(server, hub, tmp_path):
    target = tmp_path / "models" / "tiny"
    hub.files["extra.bin"] = b"x" * 10
    job = run(server, "download_look", **from_hub(hub, target))
    assert ended(job)["state"] == "succeeded", ended(job)
    rows = {event["key"]: event for event in events(job, "item")}
    size = sum(len(data) for name, data in hub.files.items() if name != "extra.bin")
    assert rows["download.files"]["found"] == "5" and f"({size} B)" in rows["download.bytes"]["found"]
    assert rows["download.left.pickle"]["found"] == "extra.bin"
    assert rows[f"download.calls.{hub.url}"]["found"] == hub.url
    assert rows["download.room"]["verdict"] == "ok"
    assert not target.parent.exists() and not [path for _m, path, _h in hub.asked if "/resolve/" in path]


def test_a_download_comes_and_is_told(server, hub, origin, tmp_path):
    target = tmp_path / "models" / "tiny"
    job = run(server, **from_hub(hub, target))
    assert ended(job)["state"] == "succeeded", ended(job)
    assert contents(target) == contents(origin)
    (one,) = told(job)
    assert (one["via"], one["path"], one["model"]["problems"]) == ("downloaded", str(target), [])
    assert one["model"]["fingerprint"] == read(origin).fingerprint
    assert one["digest"] == digests.make(origin).digest

    hub.asked.clear()
    again = run(server, **from_hub(hub, target))
    assert events(again, "step_end")[0]["state"] == "skipped" and told(again) == [one]
    assert not [path for _m, path, _h in hub.asked if "/resolve/" in path], "nothing is fetched twice"


def test_another_state_of_the_hub_is_told_and_nothing_touched(server, hub, origin, tmp_path):
    target = tmp_path / "models" / "tiny"
    run(server, **from_hub(hub, target))
    hub.files[BIG] = bytes(reversed(hub.files[BIG]))
    job = run(server, **from_hub(hub, target))
    assert ended(job)["state"] == "failed" and BIG in ended(job)["reason"][1]
    assert contents(target) == contents(origin)


def test_a_folder_that_somebody_filled_is_digested_and_taken(server, hub, origin, tmp_path):
    job = run(server, **from_hub(hub, origin))
    assert events(job, "step_end")[0]["state"] == "skipped", texts(job)
    (origin / BIG).write_bytes(bytes(len(hub.files[BIG])))
    digests.kept(server.state, origin).unlink()
    job = run(server, **from_hub(hub, origin))
    assert ended(job)["state"] == "failed" and "holds files already" in ended(job)["reason"][1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_is_killed_midway_goes_on_where_it_was(server, hub, origin, tmp_path, how):
    hub.files[BIG] = random.Random(3).randbytes(40 << 16)
    hub.speed = 1 << 20
    target = tmp_path / "models" / "tiny"
    half = tmp_path / "models" / ".tiny.part" / OWN
    job = server.run(kind="download", params=from_hub(hub, target, only=["*.json", BIG]), wait=False)
    until(lambda: largest(half) > 1 << 17, WITHIN_S)
    (pid,) = program_pids(target)
    os.kill(pid, how)
    until(lambda: ended(job), WITHIN_S)
    assert ended(job)["state"] == "failed" and not target.exists() and not told(job)
    hub.speed = 0
    hub.asked.clear()
    again = run(server, **from_hub(hub, target, only=["*.json", BIG]))
    (asked,) = hub.ranges(BIG)
    assert asked.startswith("bytes=") and int(asked[6:-1]) > 1 << 16, "not from the beginning"
    assert (target / BIG).read_bytes() == hub.files[BIG], texts(again)
    assert not half.parent.exists()


def largest(folder):
    """Bytes of its largest file, 0 where there is none; files may go meanwhile."""
    try:
        return max((path.stat().st_size for path in folder.iterdir()), default=0)
    except FileNotFoundError:
        return 0


def program_pids(target):
    """Processes that write into that folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"deployments.agent.models.download" in words and str(target).encode() in words:
                found.append(int(entry.name))
    return found


def test_a_cancelled_download_leaves_no_model(server, hub, tmp_path):
    hub.behave[BIG] = "hangs"
    target = tmp_path / "models" / "tiny"
    job = server.run(kind="download", params=from_hub(hub, target), wait=False)
    assert hub.reached.wait(WITHIN_S)
    (job / "cancel").touch()
    until(lambda: ended(job), WITHIN_S)
    assert ended(job)["state"] == "cancelled" and not target.exists() and not told(job)


def test_a_private_hub_gets_the_sites_token(server, hub, origin, tmp_path):
    hub.token = TOKEN
    target = tmp_path / "models" / "tiny"
    refused = run(server, **from_hub(hub, target))
    assert "MODEL_TOKENS" in ended(refused)["reason"][1]
    server.config.path.with_name("models.json").write_text(json.dumps({"tokens": {hub.url: TOKEN}, "ca": ""}))
    job = run(server, **from_hub(hub, target, private=True))
    assert ended(job)["state"] == "succeeded" and contents(target) == contents(origin)
    spoken = (job / "lines").read_text() + (job / "spec.json").read_text()
    assert TOKEN not in spoken


def test_a_model_without_config_gets_no_name(server, hub, tmp_path):
    del hub.files["config.json"]
    target = tmp_path / "models" / "tiny"
    job = run(server, **from_hub(hub, target))
    assert ended(job)["state"] == "failed" and "config.json" in ended(job)["reason"][1]
    assert not target.exists() and not told(job)


@pytest.mark.parametrize("name", ["../escape", "a\\b", "/etc/cron.d/x"])
def test_names_that_lead_outside_end_the_job(server, hub, tmp_path, name):
    hub.files["config.json"] = b"{}"
    hub.told["config.json"] = {"path": name}
    target = tmp_path / "models" / "tiny"
    job = run(server, **from_hub(hub, target))
    assert ended(job)["state"] == "failed" and "may not be called" in ended(job)["reason"][1]
    assert not target.parent.exists()


def test_a_shared_path_is_copied_or_listed(server, origin, tmp_path):
    target = tmp_path / "models" / "copy"
    job = run(server, source="path", model=str(origin), folder=str(target))
    assert contents(target) == contents(origin) and told(job)[0]["via"] == "copied"
    job = run(server, source="path", model=str(origin), in_place=True)
    assert (told(job)[0]["path"], told(job)[0]["via"]) == (str(origin), "found")
    job = run(server, source="path", model=str(tmp_path / "none"), folder=str(tmp_path / "x"))
    assert ended(job)["state"] == "failed" and "There is no folder" in ended(job)["reason"][1]


def test_a_web_folder_comes(server, hub, origin, tmp_path):
    target = tmp_path / "models" / "tiny"
    job = run(server, source="web", model=f"{hub.url}/models/", folder=str(target))
    assert contents(target) == contents(origin) and told(job)[0]["via"] == "downloaded"


# ---------- an upload ----------


class Console:
    """Answers POST /join/upload as the console does, and hangs up `breaks` times in the middle of a file."""

    def __init__(self, files):
        self.files, self.breaks, self.asked = files, 0, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_words):
                pass

            def do_POST(self):
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert signing.is_signed(KEY, told["body"], told["mac"])
                outer.answer(self, json.loads(told["body"]))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, handler, asked):
        self.asked.append((asked["file"], int(asked["begin"])))
        rows = [
            {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in self.files.items()
        ]
        data = self.files[asked["file"]] if asked["file"] else json.dumps({"files": rows}).encode()
        data = data[int(asked["begin"]) :]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if self.breaks and len(data) > 1000:
            self.breaks -= 1
            data = data[: len(data) // 2]
        handler.wfile.write(data)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def test_an_upload_is_fetched_from_the_console_and_goes_on(tmp_path, origin):
    console = Console({path.name: path.read_bytes() for path in origin.iterdir()})
    server = AgentServer(tmp_path, "redis://127.0.0.1:1/0", console=console.url)
    try:
        console.breaks = 1
        target = tmp_path / "models" / "tiny"
        job = run(server, source="upload", model="0123456789abcdef", folder=str(target))
        assert ended(job)["state"] == "succeeded", ended(job)
        assert contents(target) == contents(origin) and told(job)[0]["via"] == "uploaded"
        assert any(begin for _file, begin in console.asked), "it went on where it was"
    finally:
        server.close()
        console.close()


def test_an_upload_of_this_machine_is_read_from_its_folder(server, origin, tmp_path):
    kept = tmp_path / "uploads" / "0123456789abcdef"
    kept.mkdir(parents=True)
    origin.rename(kept / "files")
    rows = [
        {"name": path.name, "size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in (kept / "files").iterdir()
    ]
    (kept / "upload.json").write_text(json.dumps({"files": rows}))
    target = tmp_path / "models" / "tiny"
    job = run(server, source="upload", model="0123456789abcdef", endpoint=str(kept), folder=str(target))
    assert ended(job)["state"] == "succeeded", ended(job)
    assert contents(target) == contents(kept / "files") and told(job)[0]["via"] == "uploaded"


# ---------- a full disk ----------


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]).returncode:
        pytest.skip("only root mounts a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_too_small_is_told_before(server, hub, small_disk):
    job = run(server, **from_hub(hub, small_disk / "tiny"))
    assert ended(job)["state"] == "failed" and "is needed" in ended(job)["reason"][1]
    look = run(server, "download_look", **from_hub(hub, small_disk / "tiny"))
    assert [event["verdict"] for event in events(look, "item") if event["key"] == "download.room"] == ["failed"]


def test_a_disk_that_fills_up_keeps_what_has_come(hub, small_disk, tmp_path):
    hub.files = {"config.json": b"{}", BIG: random.Random(1).randbytes(3 << 20)}
    source = HuggingFace(Web(), hub.url, "org/tiny")
    files = source.files()
    part = small_disk / ".tiny.part"
    part.mkdir()
    with pytest.raises(BadModel, match="disk is full"):
        fetch.Fetch(source, part).all(files)
    kept = [path for path in (part / OWN).iterdir() if path.stat().st_size > 1 << 16]
    assert len(kept) == 1
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    hub.asked.clear()
    fetch.Fetch(source, part).all(files)
    assert (part / BIG).read_bytes() == hub.files[BIG] and hub.ranges(BIG) != [""]


def test_a_folder_of_somebody_else_is_told(hub, tmp_path):
    part = tmp_path / "part"
    part.mkdir()
    (part / OWN).write_text("a file where the folder would go")
    with pytest.raises(BadModel, match="cannot be written"):
        fetch.Fetch(HuggingFace(Web(), hub.url, "org/tiny"), part).all([File("config.json", 2)])
