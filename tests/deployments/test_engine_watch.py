"""Keepers are there when they are needed, and nowhere else; the console gets the log; the agent may die and leave."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from console import runners
from deployments import locks
from deployments.agent import control, install, spool
from deployments.agent.engines import engine, folder, now, watch
from tests.conftest import ROOT
from tests.deployments.agent_bench import SmallIngest
from tests.deployments.engine_bench import Bench, gone
from tests.waiting import until


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.place.ask("stop")
    until(lambda: not made.place.is_kept, 40)
    made.close()


@pytest.fixture
def quick(monkeypatch):
    """Keepers with less patience, started at once."""
    monkeypatch.setattr(watch, "KEEPER", "tests.deployments.quick_keeper")
    monkeypatch.setattr(watch, "AGAIN_S", 0.0)
    monkeypatch.setattr(watch, "_children", {})
    monkeypatch.setattr(watch, "_tried", {})


def test_a_missing_keeper_is_started_once(bench, quick):
    bench.ask_for({})
    assert watch.sweep(bench.config) == ["e7"]
    pid = bench.until("ready")["pid"]
    assert watch.sweep(bench.config) == []
    os.kill(bench.place.keeper, signal.SIGKILL)
    until(lambda: watch.sweep(bench.config) == ["e7"])
    until(lambda: bench.place.is_kept)
    assert bench.until("ready")["pid"] == pid and bench.starts == 1
    assert folder.sessions(bench.state) == {pid: "e7"}


def test_nobody_keeps_what_is_not_wanted_or_systemd_keeps_or_has_failed(bench, quick):
    assert watch.sweep(bench.config) == []  # no spec
    bench.ask_for({})
    bench.place.ask("stop")
    assert watch.sweep(bench.config) == []
    bench.ask_for({}, route="systemd")
    assert watch.sweep(bench.config) == []
    bench.ask_for({})
    bench.place.fail(engine.Text("坏", "broken"))
    assert watch.sweep(bench.config) == [] and bench.place.failed.en == "broken"
    (bench.place.path / "wish").unlink()
    assert watch.sweep(bench.config) == []


def test_what_a_killed_keeper_left_is_stopped_where_it_is_not_wanted_any_more(bench, quick):
    keeper = bench.ask_for({}).keep()
    bench.until("ready")
    keeper.kill()
    keeper.wait()
    bench.place.ask("stop")
    assert watch.sweep(bench.config) == ["e7"]
    until(lambda: all(map(gone, bench.pids)))
    assert bench.until("stopped")


def test_simulated_servers_have_no_engines(tmp_path, quick):
    bench = Bench(tmp_path, simulated=True).ask_for({})
    assert watch.sweep(bench.config) == []


def test_the_sample_tells_how_engines_are_and_believes_only_their_own_words(bench):
    (bench.place.path / "now.json").write_text(json.dumps({"replica": 7, "state": "ready"}))
    assert now.every(bench.config) == [{"replica": 7, "state": "ready", "kept": False}]
    for text in ('{"replica": 8}', "[]", "{", "9" * 300_000, "[" * 100_000):
        (bench.place.path / "now.json").write_text(text)
        assert now.every(bench.config) == []


def test_the_newest_that_are_kept_come_first_however_many_have_ended(bench):
    for n in range(1, 100):
        place = folder.Folder(bench.place.path.with_name(f"e{n}"), bench.config.logs)
        place.path.mkdir(exist_ok=True)
        (place.path / "now.json").write_text(json.dumps({"replica": n, "state": "stopped"}))
    lock = locks.take_lock(bench.place.path / "lock")
    told = [one["replica"] for one in now.every(bench.config)]
    os.close(lock)
    assert told == [7, *range(99, 36, -1)]


def test_a_stopped_engines_folder_goes_after_a_while_and_no_other(tmp_path):
    bench = Bench(tmp_path)
    bench.ask_for({})
    long_ago = time.time() - folder.KEPT_S - 60
    for name, wish, at in (("e1", "stop", long_ago), ("e2", "run", long_ago), ("e3", "stop", time.time())):
        place = folder.Folder(bench.place.path.with_name(name), bench.config.logs)
        place.path.mkdir()
        place.ask(wish)
        os.utime(place.path / "wish", (at, at))
    bench.place.path.with_name("e4").mkdir()  # nobody has asked for anything yet
    assert folder.forget(bench.state) == ["e1"]
    assert sorted(path.name for path in (bench.state / "engines").iterdir()) == ["e2", "e3", "e4", "e7"]
    bench.place.ask("stop")
    os.utime(bench.place.path / "wish", (long_ago, long_ago))
    lock = locks.take_lock(bench.place.path / "lock")
    assert folder.forget(bench.state) == []
    os.close(lock)
    assert folder.forget(bench.state) == ["e7"]


def test_make_down_names_engines_and_with_all_ends_them_until_the_next_start(tmp_path):
    (tmp_path / "var").mkdir()
    bench = Bench(tmp_path)
    (tmp_path / "var" / "agent").symlink_to(bench.state)
    bench.ask_for({}).keep()
    pid = bench.until("ready")["pid"]
    left = runners.engines(tmp_path / "var")
    assert runners.farewell([], left)[1:] == [f"  engine e7  deployment d  pid {pid}"]
    assert runners.end_engines(left) == []
    assert all(map(gone, bench.pids)) and bench.place.wish == "run" and not bench.place.is_kept


def test_leaving_ends_engines_for_good_kept_or_not(tmp_path):
    bench = Bench(tmp_path)
    keeper = bench.ask_for({"stubborn": True, "elsewhere": True}).keep()
    bench.until("ready")
    until(lambda: bench.now["metrics"]["running"] is not None)
    keeper.kill()
    keeper.wait()
    places = folder.alive(bench.state)
    assert watch.end(places, for_good=True) == places
    assert all(map(gone, bench.pids[:2])) and bench.place.wish == "stop"
    bench.close()
    os.kill(bench.pids[2], signal.SIGKILL) if not gone(bench.pids[2]) else None


def test_an_agent_does_not_leave_while_engines_run_unless_told_so(tmp_path, capsys):
    bench = Bench(tmp_path)
    bench.ask_for({}).keep()
    bench.until("ready")
    found = install.Install(tmp_path, "", "", 7)
    assert control.status(found) == 3 and "e7" in capsys.readouterr().out
    assert control.leave(found, now=False) == 1 and "1 engines run here (e7)" in capsys.readouterr().out
    assert bench.complete().status == 200
    install.end_runners(found)  # as with --now
    assert all(map(gone, bench.pids)) and bench.place.wish == "stop"


def test_npus_are_looked_up_at_each_start(tmp_path):
    bench = Bench(tmp_path)
    spec = {"npus": ["0000:82:00.0", "0000:81:00.0"], "device": "npu"}
    with pytest.raises(engine.CannotStart, match="NPU 0000:82"):
        engine.visible(bench.config, spec)
    npus = [{"bus_id": f"0000:8{n}:00.0", "chip": 0} for n in (3, 1, 2)]
    (bench.state / "last_sample.json").write_text(json.dumps(npus))
    assert engine.visible(bench.config, spec) == "1,2"
    env = engine.environment(bench.config, spec, "1,2", "e7")
    assert env["ASCEND_RT_VISIBLE_DEVICES"] == "1,2" and "TORCH_DEVICE_BACKEND_AUTOLOAD" not in env
    assert engine.visible(bench.config, {"npus": []}) == ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo devices 2", None),
        ("echo warning; echo devices 2; exit 0", None),
        ("echo devices 1", "torch sees 1"),
        ("echo ImportError: libhccl.so; exit 1", "libhccl.so"),
    ],
)
def test_torch_must_see_as_many_npus_as_were_chosen(tmp_path, body, said):
    """The stack's python stands for one with torch_npu."""
    (tmp_path / "python").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "activate").write_text(f"export PATH={tmp_path}:$PATH\n")
    spec = {"device": "npu", "activate": str(tmp_path / "activate")}
    if said is None:
        return engine.check_devices(spec, os.environ, "1,2", tmp_path, lambda: True)
    with pytest.raises(engine.CannotStart, match=said):
        engine.check_devices(spec, os.environ, "1,2", tmp_path, lambda: True)


def test_an_npu_that_is_gone_fails_the_start_in_words(bench):
    bench.ask_for({}, npus=["0000:99:00.0"], device="npu", max_restarts=0).keep()
    assert "does not list NPU 0000:99:00.0" in bench.until("failed")["reason"][1]
    assert bench.starts == 0


def test_an_agent_keeps_and_ships_and_its_death_touches_no_engine(tmp_path, valkey):
    bench = Bench(tmp_path, redis_url=valkey.url)
    argv = [
        sys.executable,
        "-m",
        "deployments.agent",
        "--config",
        str(bench.config_path),
        "--logs",
        str(tmp_path / "l"),
    ]
    start = lambda: subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)  # noqa: E731
    client, agent = valkey.client(), start()
    try:
        ingest = SmallIngest(client)
        bench.ask_for({})
        pid = bench.until("ready")["pid"]
        until(lambda: (ingest.poll(), "INFO:     Application startup complete." in ingest.texts("e7-1"))[1])
        agent.kill()
        agent.wait()
        assert bench.complete().status == 200
        agent = start()
        keeper = bench.place.keeper
        os.kill(keeper, signal.SIGKILL)
        until(lambda: bench.place.keeper not in (None, keeper), 15)
        seen = until(lambda: [one for one in samples(client)[-1]["engines"] if one["kept"] and one["pid"]], 15)
        assert [(one["pid"], one["replica"]) for one in seen] == [(pid, 7)] and bench.starts == 1
        bench.place.ask("stop")
        until(lambda: (ingest.poll(), "e7-1" in ingest.done)[1], 15)
        until(lambda: (bench.state / "logs" / "e7-1" / "shipped").exists())
        assert ingest.duplicates == 0 and all(map(gone, bench.pids))
        assert sum("Application startup complete" in text for text in ingest.texts("e7-1")) == 1
    finally:
        agent.terminate()
        agent.wait()
        bench.place.ask("stop")
        until(lambda: not bench.place.is_kept, 40)
        bench.close()


def samples(client):
    found = [json.loads(fields[b"d"]) for _entry, fields in client.xrange("h:7:telemetry")]
    return [one for one in found if one["type"] == "sample"]


def test_names_of_pieces_and_attempts_are_apart():
    assert spool.PIECE_ID.fullmatch("e12-3") and not spool.is_attempt_id("e12-3")
    assert not spool.PIECE_ID.fullmatch("a1-1-0000000a") and not spool.PIECE_ID.fullmatch("../e1-1")
