"""The programs of `serve` and `stop` with a real keeper: what starts, what is refused in words, and that nothing of a
failed start stays but its folder."""

import http.client
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from deployments.agent import processes, spool
from deployments.agent.serving import await_npus, await_ready, idle, npus, stop
from deployments.serving import idle as levels
from tests.conftest import ROOT
from tests.deployments.serve_bench import API_KEY, PRETENDED, Serving, sealed
from tests.waiting import until


@pytest.fixture
def serving(tmp_path, monkeypatch):
    made = Serving(tmp_path, monkeypatch)
    yield made
    made.close()


def test_an_engine_starts_answers_once_and_lives_on_until_it_is_stopped(serving, capfd):
    serving.pretend(kv_tokens=8192)
    codes = serving.serve()
    assert codes == {"look": 0, "put": 0, "start": 0, "await_ready": 0, "try_one": 0, "settle": 3}, capfd.readouterr()
    printed = capfd.readouterr().out
    assert "Ready after" in printed and "answered once in" in printed and API_KEY not in printed
    assert serving.items["engine:kv_tokens"]["found"] == "8192" and serving.items["answer"]["verdict"] == "ok"
    leader = serving.own.leader()
    assert processes.lives(leader) and processes.stat(leader.pid).sid != os.getsid(0)
    spec = serving.own.folder / "spec.json"
    assert stat.S_IMODE(spec.stat().st_mode) == 0o600 and stat.S_IMODE(spec.parent.stat().st_mode) == 0o700
    made = json.loads(spec.read_text())
    assert made["api_key"] == API_KEY and made["served_model_name"] == "chat"
    assert API_KEY not in json.dumps(made["argv"])
    told = json.loads((serving.model / "env.json").read_text())
    assert told["VLLM_API_KEY"] == API_KEY and told["HF_HUB_OFFLINE"] == "1" and "SERVE_SEALED" not in told

    serving.attempt()
    assert serving.stop() == 0
    assert not serving.own.members() and not serving.own.is_kept() and serving.own.place.wish == "stop"
    assert serving.items["engine_stopped"]["data"] == {"replica": 12, "cut": 0}
    assert (serving.own.folder / "engine.log").exists()
    assert serving.stop() == 0  # again: nothing is left to be done


def test_stopping_says_how_many_requests_it_cuts_off(serving):
    serving.pretend(token_s=0.2, tokens=600)
    serving.serve()
    body = json.dumps({"model": "chat", "prompt": "a", "max_tokens": 500, "stream": True}).encode()
    headers = {"Authorization": f"Bearer {API_KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{serving.port}/v1/completions", body, headers)
    answers = []

    def ask():
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                answers.append(answer.read())
        except (OSError, http.client.HTTPException):
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    until(lambda: stop.under_way(_ask(serving), serving.own) == 1)
    assert serving.stop() == 0
    assert serving.items["engine_stopped"]["data"]["cut"] == 1


def _ask(serving):
    from deployments.kinds import serve

    return serve.ask_of(serving.params())


def test_an_engine_that_fails_says_why_and_is_stopped_with_its_log_kept(serving):
    words = "api_server.py: error: unrecognized arguments: --no-such-flag"
    serving.pretend(die=words, exit=2)
    codes = serving.serve()
    assert codes["await_ready"] == 1 and codes["settle"] == 0 and "try_one" not in codes
    assert "--no-such-flag" in serving.reason[1]
    assert not serving.own.members() and serving.own.place.wish == "stop"
    assert words in (serving.own.folder / "engine.log").read_text()
    assert serving.items["finding"]["verdict"] == "failed"


def test_a_cancel_ends_the_engine_that_loads_and_the_job_with_it(serving):
    """With the agent's own runner, in a session of its own; the keeper is none of its processes."""
    serving.pretend(load_s=120)
    attempts, name = serving.config.attempts, "a5-1-00000005"
    attempts.mkdir()
    body = {"attempt": name, "kind": "serve", "params": serving.values, "not_after": time.time() + 600}
    spool.claim(attempts, name, json.dumps(body))
    argv = [sys.executable, "-m", "deployments.agent.runner", str(attempts / name)]
    argv += ["--config", str(serving.config_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    runner = subprocess.Popen(argv, env=env, start_new_session=True)
    until(lambda: serving.own.now().get("progress") and serving.own.members(), 30)
    keeper = serving.own.place.keeper
    assert processes.stat(keeper).sid != processes.stat(runner.pid).sid
    (attempts / name / "cancel").touch()
    assert runner.wait(60) == 0
    told = [line.split("\t", 2)[2] for line in (attempts / name / "lines").read_text().splitlines()]
    assert json.loads(told[-1])["state"] == "cancelled"
    assert not serving.own.members() and not serving.own.is_kept() and serving.own.place.wish == "stop"
    assert (serving.own.folder / "engine.log").exists() and API_KEY not in "\n".join(told)


def test_what_an_earlier_start_printed_is_no_reason_of_this_one(serving):
    serving.pretend(die="torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB", exit=1)
    serving.serve()
    assert "memory" in serving.reason[1].lower()
    serving.attempt()
    serving.pretend(die="ValueError: the chat template of this model is strange", exit=1)
    serving.serve()
    assert "out of memory" not in serving.reason[1].lower() and "enough memory" not in serving.reason[1].lower()


def test_one_that_does_not_become_ready_in_time_is_stopped(serving, monkeypatch):
    serving.pretend(load_s=60)
    monkeypatch.setattr("deployments.serving.asked.Ask.ready_s", property(lambda self: 0.5))
    monkeypatch.setattr(await_ready, "found_in", lambda own, **_more: None)
    codes = serving.serve()
    assert codes["await_ready"] == 1 and codes["settle"] == 0
    assert "not ready within" in serving.reason[1] or "not become ready" in serving.reason[1]
    assert not serving.own.members()


def test_the_same_path_with_other_files_is_another_model(serving):
    (serving.model / "config.json").write_text((serving.model / "config.json").read_text().replace("4096", "8192"))
    assert serving.step("look") == 1
    assert "the same path with new files" in serving.reason[1] and "路径相同" in serving.reason[0]
    assert serving.step("settle") == 3  # nothing was put: nothing to stop
    assert not serving.own.folder.exists()


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda s: (s.stacks / "current").unlink(), "no stack is in use"),
        (lambda s: (s.model / "model-00001-of-00002.safetensors").unlink(), "another model"),
        (lambda s: (s.model / "config.json").unlink(), "may have been deleted"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(serving, break_it, words):
    break_it(serving)
    assert serving.step("look", fingerprint="" if "another" in words else serving.fingerprint) == 1
    said = serving.reason[1]
    assert words in said or ("another model" in words and "not whole" in said), said


def test_a_port_that_somebody_has_is_named(serving):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", serving.port))
        taken.listen(1)
        assert serving.step("look") == 1
    assert f"Port {serving.port} of 127.0.0.1 is taken" in serving.reason[1]
    assert serving.step("look", address="203.0.113.9") == 1
    assert "Nobody can listen" in serving.reason[1]


def test_a_key_sealed_for_another_server_opens_nothing(serving):
    assert serving.step("put", sealed=sealed("77" * 32)) == 1
    assert "cannot be opened" in serving.reason[1] and API_KEY not in serving.reason[1]
    assert not (serving.own.folder / "spec.json").exists()


def test_bfloat16_on_310p_and_settings_of_a_newer_console_are_refused(serving):
    settings = json.dumps({"device": "npu", "dtype": "bfloat16"})
    assert serving.step("look", family="310P3", settings=settings) == 1
    assert "310P has no bfloat16" in serving.reason[1]
    assert serving.step("put", settings=json.dumps({"device": "cpu", "of_tomorrow": 1})) == 1
    assert "of_tomorrow" in serving.reason[1]


def test_an_engine_that_runs_is_not_started_twice(serving):
    serving.serve()
    serving.attempt()
    assert serving.serve() == {"look": 1, "settle": 3}
    assert "runs already" in serving.reason[1]
    assert serving.own.members()


def test_an_orphan_without_its_keeper_is_stopped_all_the_same(serving):
    serving.serve()
    keeper = serving.own.place.keeper
    os.kill(keeper, 9)
    until(lambda: not serving.own.is_kept())
    assert serving.own.members()
    serving.attempt()
    assert serving.stop() == 0
    assert not serving.own.members()


NPU = {"device": "npu", "settings": json.dumps({"served_model_name": "chat"}), "family": "910B4"}


@pytest.mark.parametrize(
    ("npu", "words"),
    [
        ("0000:FE:00.0", "does not list 0000:FE:00.0 now, but: 0000:C1:00.0"),
        ("0000:01:00.0", "Other processes hold NPUs that were chosen: 0000:01:00.0: PID 41310"),
        ("0000:81:00.0", "PID 41207"),
        ("0000:41:00.0", "No process holds them, but NPUs have memory in use: 0000:41:00.0 30017 MB"),
    ],
)
def test_an_npu_that_cannot_be_taken_is_named_with_its_holder(serving, npu, words):
    serving.npus()
    assert serving.step("look", npus=["0000:C1:00.0", npu], **NPU) == 1
    assert words in serving.reason[1]
    assert serving.items[f"npu:{npu}"]["verdict"] == "failed"


def test_a_node_that_only_computes_is_ready_when_it_lives_and_answers_nobody(serving, monkeypatch):
    monkeypatch.setattr(await_ready, "LIVES_S", 0.3)
    both = {"rank": 1, "addresses": ["192.0.2.1", "192.0.2.2"], "ports": ["dp:13400"],
            "settings": json.dumps({"device": "cpu", "nodes": 2, "data_parallel_size": 2})}  # fmt: skip
    (serving.bin / "ip").write_text("#!/bin/sh\necho '2: eth7    inet 192.0.2.2/24 scope global eth7'\n")
    (serving.bin / "ip").chmod(0o755)
    codes = serving.serve(**both)
    assert codes == {"look": 0, "put": 0, "start": 0, "await_ready": 0, "try_one": 3, "settle": 3}
    argv = json.loads((serving.model / "argv.json").read_text())
    assert "--headless" in argv and argv[argv.index("--data-parallel-start-rank") + 1] == "1"
    env = json.loads((serving.model / "env.json").read_text())
    assert env["VLLM_HOST_IP"] == "192.0.2.2" and env["GLOO_SOCKET_IFNAME"] == "eth7"
    assert serving.own.spec()["head"] == f"192.0.2.1:{serving.port}" and serving.own.spec()["port"] == 0
    serving.attempt()
    assert serving.stop() == 0 and not serving.own.members()


PODMAN = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + chr(10))
if sys.argv[1] == "image" and os.path.exists({log!r} + ".none"):
    sys.exit("Error: no such image")
if sys.argv[1] == "run":
    inner = sys.argv[sys.argv.index("quay.io/a/vllm:1") + 1 :]
    os.execv({python!r}, [{python!r}, {pretended!r}, *inner[2:]])
"""


def asked(log):
    return [json.loads(line) for line in Path(log).read_text().splitlines()]


def test_an_engine_in_a_container_is_the_clients_and_ends_with_it(serving):
    log = str(serving.folder / "podman.log")
    tool = serving.bin / "podman"
    tool.write_text(PODMAN.format(python=sys.executable, log=log, pretended=str(PRETENDED)))
    tool.chmod(0o755)
    image = {"device": "cpu", "served_model_name": "chat", "image": "quay.io/a/vllm:1"}
    boxed = {"route": "podman", "settings": json.dumps(image)}
    codes = serving.serve(**boxed)
    assert codes == {"look": 0, "put": 0, "start": 0, "await_ready": 0, "try_one": 0, "settle": 3}
    (run,) = [words for words in asked(log) if words[0] == "run"]
    assert f"{serving.model}:{serving.model}:ro" in run and API_KEY not in json.dumps(run)
    serving.attempt()
    assert serving.stop(route="podman") == 0 and not serving.own.members()
    assert [words[0] for words in asked(log)][-2:] == ["stop", "rm"]
    serving.attempt()
    (serving.folder / "podman.log.none").touch()
    assert serving.step("look", **boxed) == 1 and "has no image quay.io/a/vllm:1" in serving.reason[1]
    tool.unlink()
    assert serving.step("look", **boxed) == 1 and "no podman on this server" in serving.reason[1]


@pytest.mark.parametrize(("link", "code"), [("UP", 0), ("DOWN", 1)])
def test_links_between_nodes_are_looked_at_before(serving, link, code):
    serving.npus()
    (serving.bin / "hccn_tool").write_text(f'#!/bin/sh\n[ "$3" = -link ] && echo "link status: {link}"\nexit 0\n')
    (serving.bin / "hccn_tool").chmod(0o755)
    several = {**NPU, "npus": ["0000:C1:00.0"], "addresses": ["127.0.0.1", "192.0.2.2"]}
    assert serving.step("look", **several) == code
    assert serving.items["link:0000:C1:00.0-link"]["verdict"] == ("ok" if link == "UP" else "failed")
    if code:
        assert "ports of these NPUs are down: 0000:C1:00.0" in serving.reason[1]
    serving.attempt()
    assert serving.step("look", **several, interface="no-such0") == 1 and "no network interface" in serving.reason[1]


PONG = "device 0 PING x\n{}\n3 packets transmitted, {} received, 0.00% packet loss\n"


@pytest.mark.parametrize(
    ("back", "code", "verdict"),
    [({"-ping": 3}, 0, "ok"), ({"-ping": 2}, 0, "warning"), ({"-ping": 0}, 1, "failed"),
     ({"-hccs_ping": 3}, 0, "ok"), ({"-hccs_ping": 0, "-ping": 3}, 0, "ok"),
     ({"-hccs_ping": 0, "-ping": 0}, 1, "failed"), ({}, 0, "unknown")],
)  # fmt: skip
def test_each_npu_pings_those_of_the_other_nodes_before(serving, back, code, verdict):
    serving.npus()
    answers = "".join(
        f'[ "$3 $4 $5 $6" = "{option} -g address 198.18.1.10" ] && printf "{PONG.format("recv", n)}"\n'
        for option, n in back.items()
    )
    (serving.bin / "hccn_tool").write_text(f'#!/bin/sh\n[ "$3" = -link ] && echo "link status: UP"\n{answers}exit 0\n')
    (serving.bin / "hccn_tool").chmod(0o755)
    peers = [
        f"1/0/{way}/198.18.1.10" for way in ("hccs", "roce") if {"hccs": "-hccs_ping", "roce": "-ping"}[way] in back
    ]
    several = {**NPU, "npus": ["0000:C1:00.0"], "addresses": ["127.0.0.1", "192.0.2.2"], "peers": [*peers, "nonsense"]}
    assert serving.step("look", **several) == code
    assert serving.items["ping:0000:C1:00.0:1" if back else "ping:1"]["verdict"] == verdict
    if code:
        assert "0000:C1:00.0 → 192.0.2.2" in serving.reason[1] and "TLS" in serving.reason[1]


def test_an_npu_that_goes_while_it_starts_ends_the_start_in_words(serving):
    serving.npus()
    npu = {**NPU, "npus": ["0000:C1:00.0"]}
    assert serving.step("look", **npu) == serving.step("put", **npu) == 0
    serving.npus("0000:C1:00.0", "0000:C9:00.0")
    assert serving.step("start", **npu) == 0
    assert serving.step("await_ready", **npu) == 1
    assert "npu-smi does not list NPU 0000:C1:00.0 now" in serving.reason[1]
    assert "started again" not in serving.reason[1] and "重新启动" not in serving.reason[0]
    assert serving.step("settle", **npu) == 0 and not serving.own.is_kept()


def test_npus_are_not_guessed_where_npu_smi_does_not_tell(serving):
    serving.npus()
    assert serving.step("look", npus=["0000:C1:00.0", "0000:82:00.0"], **NPU) == 0
    serving.npus("| OK            | 81.3", "| Critical      | 81.3")
    assert serving.step("look", npus=["0000:C1:00.0"], **NPU) == 1 and "not well" in serving.reason[1]
    serving.table.write_text("dcmi module initialize failed. ret is -8005\n")
    assert serving.step("look", npus=["0000:C1:00.0"], **NPU) == 1 and "lists no NPUs" in serving.reason[1]


def test_after_a_stop_the_memory_must_be_back_at_the_level_of_before(serving, monkeypatch):
    monkeypatch.setattr(idle, "PATIENCE_S", 0.3)
    monkeypatch.setattr(idle.wait, "__defaults__", (0.3, 0.02))
    serving.npus()
    both = ["0000:C1:00.0", "0000:82:00.0"]
    assert serving.step("put", npus=both, **NPU) == 0
    assert serving.own.idle() == {"0000:C1:00.0": 2900, "0000:82:00.0": 3311}
    assert json.loads((serving.own.folder / "spec.json").read_text())["idle_mb"] == 3311
    serving.attempt()
    assert serving.step("idle", npus=both, **NPU) == 0 and serving.items["idle:0000:C1:00.0"]["verdict"] == "ok"
    serving.attempt()
    serving.npus("2900 / 32768", "9200 / 32768")
    assert serving.step("idle", npus=both, **NPU) == 1
    one = serving.items["idle:0000:C1:00.0"]
    assert one["verdict"] == "failed" and one["job"] == {"kind": "reset", "params": {"npu": "0000:C1:00.0"}}
    assert serving.items["idle:0000:82:00.0"]["verdict"] == "ok"
    assert "do not give their memory back: 0000:C1:00.0 9200 MB" in serving.reason[1]


def test_a_level_that_nobody_knows_is_passed_over_and_said(serving, capfd):
    serving.npus("910B4", "770Z1")
    assert serving.step("idle", npus=["0000:41:00.0"], device="npu", settings="{}") == 3
    assert "not known, so they are passed over: 0000:41:00.0" in capfd.readouterr().out
    assert serving.step("idle", npus=[], device="cpu") == 3
    assert (
        levels.by_chip("Ascend310P3") == 1600 and levels.by_chip("910_9362") == 3500 and levels.by_chip("950DT") == 5900
    )


def test_a_unit_waits_until_its_npus_are_back(serving, tmp_path, capfd):
    serving.npus()
    serving.step("put", npus=["0000:C1:00.0"], **NPU)
    folder = str(serving.own.folder)
    assert await_npus.main([folder]) == 0
    serving.npus("0000:C1:00.0", "0000:C9:00.0")
    assert await_npus.main([folder], 0.1, 0.02) == 1 and "0000:C1:00.0" in capfd.readouterr().err
    calls = []

    def look():
        calls.append(1)
        return npus.look() if len(calls) < 3 else [npus.Seen("0000:C1:00.0", "0000:C1:00.0", 0, None, None, None, ())]

    assert await_npus.wait(["0000:C1:00.0"], look, 5.0, 0.01) == "" and len(calls) == 3
