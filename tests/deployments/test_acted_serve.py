"""Simulated servers act out engines: npu-smi shows them, samples tell of them, and a stop gives the memory back."""

import json
import time

import pytest

from deployments.demo import models, served
from tests.deployments.acted import Acted, at_once

__all__ = ["at_once"]

MODEL = {"path": "/data/models/Qwen3-8B", "name": "Qwen3-8B", "format": "hf", "dtype": "BF16", "shards": 4,
         "weight_bytes": 16_400_000_000, "bytes": 16_400_000_000, "layers": 36, "kv_heads": 8, "head_dim": 128,
         "max_position": 40960, "fingerprint": "ab" * 32}  # fmt: skip


@pytest.fixture
def acted(at_once, tmp_path):
    made = Acted("kp-01", tmp_path, free=True)
    scene = made.member._scene()
    scene.change(put={f"{MODEL['path']}/{models.FILE}": json.dumps({"path": MODEL["path"], "model": MODEL})})
    return made


def names(acted, *chips):
    return [acted.made.chips[n].bus_id for n in chips]


def asked(acted, **more):
    values = {"replica": 12, "deployment": "chat", "revision": 1, "model": MODEL["path"], "port": 18000,
              "fingerprint": MODEL["fingerprint"], "npus": names(acted, 0, 1), "stacks": "/opt/ascend-console/stacks",
              "settings": json.dumps({"tensor_parallel_size": 2}), "route": "systemd"}  # fmt: skip
    return {**values, **more}


def used(acted, *chips):
    sample = acted.member.sampler.sample()
    return [max(sample["npus"][n]["hbm_used_mb"] or 0, sample["npus"][n]["memory_used_mb"] or 0) for n in chips]


def test_an_engine_loads_becomes_ready_is_seen_and_gives_its_memory_back(acted, monkeypatch):
    before = used(acted, 0, 1)
    log = acted.run("serve", **asked(acted))
    assert log.ended["state"] == "succeeded", log.text
    assert log.states[-2:] == ["skipped", "succeeded"] and "加载权重 Loading weights 4/4" in log.text
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 600)  # the weights come in over a minute and a half
    sample = acted.member.sampler.sample()
    (told,) = sample["engines"]
    assert (told["replica"], told["state"], told["kept"]) == (12, "ready", True) and told["ready_at"]
    assert told["metrics"]["requests_total"] > 0 and told["facts"]["kv_tokens"] > 40_960
    processes = [one for one in sample["processes"] if one["pid"] in served.read(acted.folder, 12).pids]
    assert len(processes) == 2 and sample["holders"][str(told["pid"])] == "chat"
    assert all(now > was + 20_000 for now, was in zip(used(acted, 0, 1), before, strict=True))

    acted.start()  # the demo's process begins anew: the engine is still there
    assert acted.member.sampler.sample()["engines"][0]["state"] == "ready"
    again = acted.run("serve", **asked(acted, replica=13, port=18001))
    assert again.ended["state"] == "failed" and "Other processes hold NPUs" in again.reason
    stop = acted.run("stop", replica=12, npus=names(acted, 0, 1), route="systemd", now=True)
    assert stop.ended["state"] == "succeeded", stop.text
    (one,) = [event["data"] for event in stop.events if event["e"] == "told"]
    assert one["replica"] == 12 and one["cut"] >= 0
    assert acted.member.sampler.sample()["engines"] == []
    assert all(abs(now - was) < 400 for now, was in zip(used(acted, 0, 1), before, strict=True))


def lines(acted, piece):
    return (acted.folder / "logs" / f"e12-{piece}" / "lines").read_text()


def test_its_log_is_that_of_an_engine_a_piece_for_each_start(acted):
    acted.run("serve", **asked(acted))
    assert '"e":"started"' in lines(acted, 1) and "Application startup complete" in lines(acted, 1)
    log = acted.run("restart", **asked(acted))
    assert log.ended["state"] == "succeeded", log.text
    assert lines(acted, 1).rstrip().endswith('"exit":0,"reason":null,"more":false}')
    assert "Loading safetensors" in lines(acted, 2) and '"ended"' not in lines(acted, 2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("out_of_memory", "too little memory"),
        ("unknown_flag", "--no-such-flag"),
        ("crash_loop", "again and again"),
        ("other_files", "the same path with new files"),
        ("port_taken", "Port 18000"),
    ],
)
def test_a_fault_ends_the_start_in_words_and_leaves_no_engine(acted, fault, words):
    log = acted.run("serve", **asked(acted, fault=fault))
    assert log.ended["state"] == "failed" and words in log.reason, log.text
    assert acted.member.sampler.sample()["engines"] == []


def test_a_slow_start_can_be_cancelled_and_leaves_no_engine(acted):
    from deployments.agent import spool
    from tests.waiting import until

    folder = acted.queue("serve", **asked(acted, fault="slow"))
    until(lambda: acted.turn() or (served.read(acted.folder, 12) or served.Served(0, "")).progress, every=0.001)
    (folder / "cancel").touch()
    until(lambda: acted.turn() or spool.has_ended(folder), 60, every=0.001)
    made = served.read(acted.folder, 12)
    assert made.state == "stopped" and acted.member.sampler.sample()["engines"] == []


def test_memory_that_stays_fails_the_stop_and_names_the_reset(acted):
    acted.run("serve", **asked(acted))
    log = acted.run("stop", replica=12, npus=names(acted, 0, 1), fault="memory_stays")
    assert log.ended["state"] == "failed" and "Reset it" in log.reason
    failed = [event for event in log.events if event["e"] == "item" and event["verdict"] == "failed"]
    assert failed[0]["job"] == {"kind": "reset", "params": {"npu": names(acted, 0)[0]}}


def test_a_model_too_large_for_its_npus_does_not_fit_and_one_that_is_gone_is_named(acted):
    large = json.dumps({"path": MODEL["path"], "model": MODEL | {"weight_bytes": 10**12}})
    acted.member._scene().change(put={f"{MODEL['path']}/{models.FILE}": large})
    assert "too little memory" in acted.run("serve", **asked(acted)).reason
    assert "may have been deleted" in acted.run("serve", **asked(acted, model="/data/none")).reason
    assert "does not list" in acted.run("serve", **asked(acted, npus=["0000:FF:00.0"])).reason
