"""Engines that somebody else started are found by their commands, and asked without anybody waiting for it."""

import fcntl
import json
import subprocess
import sys
import threading
import time

import pytest

from deployments.agent.engines import contained, external, probe
from deployments.agent.owners import Owners
from deployments.agent.sampler import Sampler
from deployments.agent.tools import Output
from tests.deployments.engine_bench import PRETENDED, Bench, free_port
from tests.waiting import until


@pytest.mark.parametrize(
    ("words", "kind", "model", "port"),
    [
        ("/opt/v/bin/python3 /opt/v/bin/vllm serve /models/q --port 8123", "vllm", "/models/q", 8123),
        ("vllm serve Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B", 8000),
        ("python -m vllm.entrypoints.openai.api_server --model=/m/x --port=9000", "vllm", "/m/x", 9000),
        ("python3 -u -m vllm.entrypoints.openai.api_server --port nine", "vllm", None, None),
        ("./bin/mindieservice_daemon", "mindie", None, None),
        ("docker run --rm image vllm serve /m", None, None, None),
        ("sudo vllm serve /m", None, None, None),
        ("vim vllm serve.md", None, None, None),
        ("vllm bench serve --model m", None, None, None),
        ("python -c import vllm.entrypoints.openai.api_server", None, None, None),
    ],
)
def test_commands_of_engines_are_known(words, kind, model, port):
    words = words.split()
    assert external.kind_of(words) == kind
    if kind:
        assert (external.model_of(words), external.port_of(kind, words)) == (model, port)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def somebodys(bench, tmp_path):
    """A pretended vLLM under the name that people start it with."""
    program = tmp_path / "vllm"
    program.write_text(f"#!{sys.executable}\nimport runpy, sys\nsys.argv[0] = {str(PRETENDED)!r}\n"
                       f"runpy.run_path(sys.argv[0], run_name='__main__')\n")  # fmt: skip
    program.chmod(0o755)
    port = free_port()
    argv = [str(program), "serve", "--model", str(bench.model), "--port", str(port), "--served-model-name", "theirs"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True,
                               env={"PATH": "/usr/bin", "ASCEND_RT_VISIBLE_DEVICES": "1,0"})  # fmt: skip
    process.port = port
    until(lambda: (bench.model / "pids.json").exists())
    yield process
    process.kill()
    process.wait()
    subprocess.run(["kill", "-9", *map(str, json.loads((bench.model / "pids.json").read_text())[1:])], check=False)


def found(bench, pid):
    finder = external.Finder(bench.config, Owners(bench.config))
    return [one for one in finder.look() if one["pid"] == pid]


def test_one_of_somebody_else_is_told_with_all_that_is_known(bench, somebodys):
    (bench.state / "last_sample.json").write_text(json.dumps([{"bus_id": "0000:81:00.0"}, {"bus_id": "0000:82:00.0"}]))
    (told,) = until(lambda: [one for one in found(bench, somebodys.pid) if one["health"] == "ok"])
    assert told["kind"] == "vllm" and told["port"] == somebodys.port and told["model"] == "theirs"
    assert told["npus"] == ["0000:82:00.0", "0000:81:00.0"] and told["container"] is None and told["user"]
    assert told["key"].startswith(f"{somebodys.pid}-")
    (bench.model / "sick").touch()
    assert found(bench, somebodys.pid)[0]["health"] == "failed"
    (bench.model / "hang").touch()
    began = time.monotonic()
    assert found(bench, somebodys.pid)[0]["health"] == "failed"
    assert time.monotonic() - began < 5


def test_our_own_are_not_told(bench, somebodys, monkeypatch):
    monkeypatch.setattr(external.folder, "sessions", lambda state: {somebodys.pid: "e1"})
    assert found(bench, somebodys.pid) == []


def test_one_that_does_not_listen_yet_is_not_called_failed(bench, somebodys):
    finder = external.Finder(bench.config, Owners(bench.config))
    at = finder._address("vllm", ["vllm", "serve", "m"], free_port(), None)
    assert at.host == "127.0.0.1" and finder._health(at) is None


def test_what_it_says_of_its_load_is_told(bench, somebodys):
    finder = external.Finder(bench.config, Owners(bench.config))

    def look():
        return next(one for one in finder.look() if one["pid"] == somebodys.pid)

    first = until(lambda: look()["metrics"])
    assert first["kv_pct"] == 25.0 and first["running"] == 0
    body = json.dumps({"model": "theirs", "prompt": "hi", "max_tokens": 4}).encode()
    probe.ask(probe.Address("127.0.0.1", somebodys.port), "/v1/completions", within_s=5, body=body)
    assert look()["metrics"]["generation_tokens_s"] > 0
    (bench.model / "sick").touch()
    assert look()["metrics"] is None


INSPECTED = [{
    "Config": {"Image": "quay.io/ascend/vllm-ascend:v0.23.0"},
    "NetworkSettings": {"Ports": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "18123"}], "9000/tcp": None}},
}]  # fmt: skip


def test_a_container_tells_its_image_and_its_ports_outside():
    about = contained.read(json.dumps(INSPECTED))
    assert about == ("quay.io/ascend/vllm-ascend:v0.23.0", {8000: 18123})
    for bad in ("", "[]", "[3]", '[{"Config": null}]', '[{"Config": {"Image": 3}}]', "[" * 100_000):
        assert contained.read(bad) == (None, {})

    def run(argv, *, env, timeout_s):
        asked.append(argv[0])
        return Output(0, json.dumps(INSPECTED)) if argv[0] == "podman" else Output(1, "no such container")

    asked = []
    assert contained.inspect("0a" * 6, run).image == about.image and asked == ["docker", "podman"]


def test_one_in_a_network_of_its_own_is_asked_where_its_port_is_bound(bench):
    finder = external.Finder(bench.config, Owners(bench.config))
    words = ["vllm", "serve", "m", "--host", "172.17.0.2"]
    assert finder._address("vllm", words, 8000, False) is None
    assert finder._address("vllm", words, 18123, True)[:2] == ("127.0.0.1", 18123)
    assert finder._address("vllm", words, 8000, None)[:2] == ("172.17.0.2", 8000)
    assert finder._address("mindie", words, 1025, None) is None


def test_our_own_in_containers_are_not_told(bench, somebodys):
    bench.ask_for({}, container="ascend-console-e7", route="docker", port=somebodys.port)
    with (bench.place.path / "lock").open("w") as lock:
        assert found(bench, somebodys.pid)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert found(bench, somebodys.pid) == []


def test_sampling_does_not_wait_for_the_looking(bench, monkeypatch):
    release, begun = threading.Event(), threading.Event()

    def look(finder):
        begun.set()
        release.wait(20)
        return [{"pid": 1}]

    monkeypatch.setattr(external.Finder, "look", look)
    sampler = Sampler(bench.config)
    assert "external" not in sampler.sample() and begun.wait(5)
    assert "external" not in sampler.sample()
    release.set()
    assert until(lambda: sampler.sample().get("external")) == [{"pid": 1}]
    assert "external" not in sampler.sample()  # once in 30 s


def test_a_container_is_known_by_its_cgroup(tmp_path):
    (tmp_path / "cgroup").write_text("0::/system.slice/docker-" + "0a" * 32 + ".scope\n")
    assert external.container_of(tmp_path) == "0a" * 6
    (tmp_path / "cgroup").write_text("0::/user.slice\n")
    assert external.container_of(tmp_path) is None and external.container_of(tmp_path / "no") is None


@pytest.mark.parametrize("said", ["7", "x", "", ",", "0,0"])
def test_indexes_that_the_newest_reading_does_not_list_are_not_known(tmp_path, said):
    (tmp_path / "last_sample.json").write_text(json.dumps([{"bus_id": "0000:81:00.0"}]))
    expected = {"0,0": ["0000:81:00.0"], "": [], ",": []}.get(said)
    assert external.bus_ids(tmp_path, said) == expected
