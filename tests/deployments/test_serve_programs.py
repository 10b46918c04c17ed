"""The programs of `serve` and `stop` with a real keeper: what starts, what is refused in words, and that nothing of a
failed start stays but its folder."""

import http.client
import json
import os
import socket
import stat
import threading
import urllib.request

import pytest

from deployments.agent import processes
from deployments.agent.serving import await_ready, npus, stop
from tests.deployments.serve_bench import API_KEY, Serving, sealed
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
    assert made["api_key"] == API_KEY and API_KEY not in json.dumps(made["argv"]) and made["served_model_name"] == "chat"
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


def test_npus_that_are_gone_held_or_full_are_named(serving):
    settings = json.dumps({"served_model_name": "chat"})
    npu = {"device": "npu", "settings": settings, "family": "910B4"}
    serving.npus()
    there = npus.look()
    free = [one for one in there if not one.pids and (one.used_mb or 0) < 3500]
    assert free, "the table has an idle NPU"
    assert serving.step("look", npus=[free[0].name], **npu) == 0
    assert serving.items[f"npu:{free[0].name}"]["verdict"] == "ok"
    serving.attempt()
    assert serving.step("look", npus=["0000:FE:00.0"], **npu) == 1
    assert "does not list 0000:FE:00.0" in serving.reason[1]
    if held := [one for one in there if one.pids]:
        serving.attempt()
        assert serving.step("look", npus=[held[0].name], **npu) == 1
        assert "hold" in serving.reason[1] and str(held[0].pids[0]) in serving.reason[1]
    serving.attempt()
    serving.npus(f"{free[0].used_mb} /", f"{9000:>5}/")
    assert serving.step("look", npus=[free[0].name], **npu) in (0, 1)
    serving.table.write_text("dcmi module initialize failed. ret is -8005\n")
    serving.attempt()
    assert serving.step("look", npus=[free[0].name], **npu) == 1
    assert "npu-smi lists no NPUs" in serving.reason[1]
