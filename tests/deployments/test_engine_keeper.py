"""A keeper and an engine that pretends: it becomes ready, tells what it is, and is ended whole."""

import json
import os
import signal
import socket
import time

import pytest

from tests.deployments.engine_bench import KEY, Bench, gone
from tests.waiting import until


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def test_it_becomes_ready_by_health_and_a_real_completion_and_says_what_it_found(bench):
    bench.ask_for({"graphs": 2}).keep()
    told = bench.until("ready")
    assert told["replica"] == 7 and told["pid"] == bench.pids[0] and told["ready_at"] >= told["started_at"]
    assert told["facts"] == {"version": "0.99.0", "kv_tokens": 20480, "max_concurrency": 10.0, "weights_gb": 1.25,
                             "available_kv_gib": 3.5, "max_model_len": 2048}  # fmt: skip
    until(lambda: bench.now["metrics"]["requests_total"] == 1)  # the completion that proved it
    assert bench.now["restarts"] == 0 and bench.now["reason"] is None and bench.now["progress"] is None
    assert bench.stop()
    assert all(map(gone, bench.pids)) and bench.now["state"] == "stopped"
    started, *engine, ended = bench.events()
    assert started == {"e": "engine", "state": "loading", "progress": None, "reason": None, "facts": started["facts"]}
    assert [one["pid"] for one in engine if one["e"] == "started"] == [bench.pids[0]]
    assert [one["state"] for one in engine if one["e"] == "engine"][-2:] == ["ready", "stopped"]
    assert ended == {"e": "ended", "state": "succeeded", "exit": 0, "reason": None, "more": False}
    assert "INFO:     Application startup complete." in bench.said()


def test_its_key_is_told_to_the_engine_alone(bench):
    bench.ask_for({}).keep()
    bench.until("ready")
    assert json.loads((bench.model / "env.json").read_text())["VLLM_API_KEY"] == KEY
    bench.say(f"the key is {KEY}\nafter it\n".encode())
    until(lambda: "after it" in bench.said())
    bench.stop()
    assert "the key is ***" in bench.said()
    assert KEY not in str(bench.records()) and KEY not in json.dumps(bench.now)
    assert KEY not in (bench.model / "argv.json").read_text()


def test_the_environment_is_clean(bench):
    bench.ask_for({}, env={"HF_HUB_OFFLINE": "1"}).keep(http_proxy="http://proxy:1", SECRET_KEY="s", PYTHONHASHSEED="0")
    bench.until("ready")
    env = json.loads((bench.model / "env.json").read_text())
    assert env["HF_HUB_OFFLINE"] == "1" and env["ASCEND_ENGINE"] == "e7"
    assert not {"http_proxy", "SECRET_KEY", "PYTHONPATH", "PYTHONHASHSEED", "ASCEND_RT_VISIBLE_DEVICES"} & env.keys()


def test_progress_is_told_while_it_loads(bench):
    bench.ask_for({"load_s": 2.0, "shards": 4}).keep()
    seen = set()

    def look():
        told = bench.now
        if told.get("progress"):
            seen.add((told["progress"]["what"][1], told["progress"]["done"], told["progress"]["of"]))
        return told.get("state") == "ready"

    until(look, 20, 0.01)
    assert {("Loading weights", n, 4) for n in (1, 2, 3)} <= seen


def test_a_killed_keeper_costs_no_request_and_the_next_takes_the_engine_up(bench):
    keeper = bench.ask_for({"token_s": 0.05}).keep()
    pid = bench.until("ready")["pid"]
    stream = bench.complete(stream=True, max_tokens=30)
    keeper.kill()
    keeper.wait()
    bench.say(b"".join(b"while nobody kept it %d\n" % n for n in range(5000)))
    bench.keep()
    told = bench.until("ready")
    assert stream.read().count(b"data:") == 31  # each token, and [DONE]
    assert told["pid"] == pid and told["restarts"] == 0 and told["facts"]["kv_tokens"] == 20480 and bench.starts == 1
    bench.stop()
    said = [line for line in bench.said() if line.startswith("while nobody")]
    assert said == [f"while nobody kept it {n}" for n in range(5000)]
    assert all(map(gone, bench.pids))


def test_keepers_that_are_killed_over_and_over_lose_and_double_no_line(bench):
    """Whenever it happens: between the FIFO and engine.log, in the middle of a record, while engine.log turns over."""
    bench.ask_for({})
    keeper = bench.keep(QUICK_FILES="100000")
    bench.until("ready")
    lines = [b"line %d %s" % (n, b"x" * (n % 150)) for n in range(12000)]
    for n in range(8):
        bench.touch("say", b"\n".join(lines[n * 1500 : n * 1500 + 1500]) + b"\n")
        until(lambda n=n: not (bench.model / "say").exists())
        if n % 2 == 0:
            keeper.kill()
            keeper.wait()
            keeper = bench.keep(QUICK_FILES="100000")
    until(lambda: lines[-1].decode() in bench.said()[-3:], 30, 0.2)
    assert bench.starts == 1 and bench.place.newest_piece() > 2
    bench.stop()
    assert [line.encode() for line in bench.said() if line.startswith("line ")] == lines
    assert not [line for line in bench.said() if "GET /health" in line]  # what it asked itself is in engine.log alone


@pytest.mark.parametrize("which", [0, 1])
def test_an_engine_whose_server_or_core_is_killed_is_ended_whole_and_started_anew(bench, which):
    bench.ask_for({"elsewhere": True}).keep()
    bench.until("ready")
    before = bench.pids
    until(lambda: bench.now["metrics"]["running"] is not None)
    os.kill(before[which], signal.SIGKILL)
    until(lambda: bench.starts == 2)
    assert bench.until("ready")["pid"] not in before
    assert all(map(gone, before)) and bench.now["restarts"] == 1
    (ended,) = bench.events("ended")
    assert ended["state"] == "failed" and ended["more"] is True and ended["reason"]
    if which == 1:
        assert "core process" in ended["reason"][1]


def test_one_that_dies_again_and_again_is_given_up_with_the_reason_and_stays_so(bench):
    words = "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"
    keeper = bench.ask_for({"die": words}, max_restarts=2).keep()
    told = bench.until("failed")
    assert keeper.wait(10) == 1 and bench.starts == 3
    assert "3 times" in told["reason"][1] and "not enough memory" in told["reason"][1]
    assert bench.place.failed and bench.events("ended")[-1]["more"] is False
    assert [one["more"] for one in bench.events("ended")] == [True, True, False]
    assert words in bench.said()
    bench.ask_for({})  # asking anew forgives
    assert bench.place.failed is None and bench.place.deaths == []
    bench.keep()
    assert bench.until("ready")["restarts"] == 0


@pytest.mark.parametrize("under_systemd", [False, True])
def test_why_it_is_started_anew_is_said_until_it_is_ready(bench, under_systemd):
    """Loading takes minutes; a keeper that comes meanwhile, as under systemd at each start, says it too."""
    bench.ask_for({"die": "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"})
    keeper = bench.keep(*(["--once"] if under_systemd else []))
    until(lambda: bench.now.get("restarts") == 1)
    (bench.model / "pretend.json").write_text(json.dumps({"load_s": 1.5}))
    if under_systemd:
        assert keeper.wait(10) == 1
        keeper = bench.keep("--once")
    told = until(lambda: bench.now if bench.now["state"] == "loading" and bench.now["pid"] else None)
    assert "not enough memory" in told["reason"][1] and "is being started again" in told["reason"][1]
    keeper.kill()
    keeper.wait()
    bench.keep()
    until(lambda: bench.place.is_kept and bench.now["at"] > told["at"])
    assert bench.now["state"] == "loading" and bench.now["reason"] == told["reason"]
    assert bench.until("ready")["reason"] is None


def test_a_node_that_only_computes_is_started_anew_when_the_first_node_ends(bench):
    """Not while that one still loads, nor where it is only slow: its port is open then."""
    first = socket.create_server(("127.0.0.1", 0))
    at = first.getsockname()
    bench.ask_for({}, port=0, head=f"127.0.0.1:{at[1]}").keep()
    bench.until("ready")
    first.settimeout(10)
    for _ in range(3):
        first.accept()[0].close()
    assert bench.starts == 1
    first.close()
    until(lambda: bench.starts == 2)
    told = bench.until("ready")
    assert told["restarts"] == 1 and "first node has ended" in bench.events("ended")[0]["reason"][1]
    time.sleep(0.5)  # it is not there yet
    assert bench.starts == 2


def test_two_agents_on_one_machine_may_have_an_engine_of_the_same_name(bench, tmp_path):
    """What is left of one is found by its mark, and is not the other's."""
    (tmp_path / "other").mkdir()
    other = Bench(tmp_path / "other")
    try:
        other.ask_for({}).keep()
        theirs = other.until("ready")["pid"]
        bench.ask_for({}).keep()  # later, so that what the other starts from now on is not older than it
        bench.until("ready")
        os.kill(theirs, signal.SIGKILL)
        theirs = until(lambda: other.now["pid"] if other.now["pid"] not in (None, theirs) else None)
        other.until("ready")
        bench.stop()
        assert not gone(theirs) and other.now["restarts"] == 1
    finally:
        other.close()


def test_one_that_dies_twice_comes_up_the_third_time(bench):
    bench.ask_for({"die": "Segmentation fault", "dies": 2}).keep()
    assert bench.until("ready")["restarts"] == 2 and bench.starts == 3


def test_one_that_hangs_is_degraded_then_ended_and_started_anew(bench):
    bench.ask_for({}, hang_s=2.0).keep()
    first = bench.until("ready")["pid"]
    bench.touch("hang")
    told = bench.until("degraded")
    assert "does not answer" in told["reason"][1] and told["metrics"]["running"] is None
    until(lambda: gone(first))
    (bench.model / "hang").unlink()
    assert bench.until("ready")["pid"] != first
    assert "was not well for 2 s" in bench.events("ended")[0]["reason"][1]


def test_one_that_gets_well_again_is_ready_again(bench):
    bench.ask_for({}).keep()
    first = bench.until("ready")["pid"]
    bench.touch("sick")
    assert "HTTP 503" in bench.until("degraded")["reason"][1]
    (bench.model / "sick").unlink()
    assert bench.until("ready")["pid"] == first and bench.now["reason"] is None


def test_one_that_answers_health_but_completes_nothing_never_becomes_ready(bench):
    bench.touch("refuse")
    bench.ask_for({}, ready_s=1.0, max_restarts=0).keep()
    told = bench.until("failed")
    assert "was not ready within 1 s" in told["reason"][1] and "HTTP 500" in told["reason"][1]
    assert all(map(gone, bench.pids))


def test_a_stop_while_it_loads_leaves_nothing(bench):
    bench.ask_for({"load_s": 30, "elsewhere": True}).keep()
    until(lambda: (bench.now.get("progress") or {}).get("of"))
    assert bench.stop()
    assert all(map(gone, bench.pids)) and bench.now["state"] == "stopped"


def test_a_stubborn_engine_and_its_children_elsewhere_are_killed(bench):
    bench.ask_for({"stubborn": True, "elsewhere": True}, stop_s=0.3).keep()
    bench.until("ready")
    assert bench.stop()
    assert all(map(gone, bench.pids))


def test_what_a_killed_keeper_left_is_ended_when_its_engine_died_meanwhile(bench):
    keeper = bench.ask_for({"elsewhere": True}).keep()
    bench.until("ready")
    until(lambda: bench.now["metrics"]["running"] is not None)
    before = bench.pids
    keeper.kill()
    keeper.wait()
    os.kill(before[0], signal.SIGKILL)
    until(lambda: gone(before[0]))
    bench.keep()
    until(lambda: bench.starts == 2)
    bench.until("ready")
    assert all(map(gone, before)) and bench.now["restarts"] == 1


def test_sigterm_ends_the_engine_but_not_the_wish(bench):
    keeper = bench.ask_for({}).keep()
    bench.until("ready")
    keeper.terminate()
    assert keeper.wait(10) == 0
    assert all(map(gone, bench.pids)) and bench.place.wish == "run"
    bench.keep()
    bench.until("ready")


def test_under_systemd_the_keeper_ends_when_its_engine_does(bench):
    keeper = bench.ask_for({}).keep("--once")
    bench.until("ready")
    bench.touch("die")
    assert keeper.wait(10) == 1 and bench.starts == 1
    assert all(map(gone, bench.pids)) and bench.place.failed is None
    assert bench.now["state"] == "loading" and bench.events("ended")[-1]["more"] is True


def test_under_systemd_it_is_given_up_when_systemd_does(bench):
    bench.ask_for({"die": "Segmentation fault"}, max_restarts=3)
    assert [bench.keep("--once").wait(10) for _ in range(3)] == [1, 1, 1]
    assert bench.now["state"] == "failed" and "3 times" in bench.place.failed.en
    assert [one["more"] for one in bench.events("ended")] == [True, True, False]


def test_two_keepers_never_keep_the_same_engine(bench):
    bench.ask_for({}).keep()
    bench.until("ready")
    assert bench.keep().wait(10) == 0
    assert bench.starts == 1 and bench.now["state"] == "ready"


def test_after_a_restart_of_the_server_it_is_started_again(bench, tmp_path):
    boot = tmp_path / "boot"
    boot.write_text("one")
    keeper = bench.ask_for({}).keep(ASCEND_BOOT_ID_FILE=str(boot))
    bench.until("ready")
    before = bench.pids
    keeper.kill()
    keeper.wait()
    os.killpg(before[0], signal.SIGKILL)
    boot.write_text("two")
    bench.keep(ASCEND_BOOT_ID_FILE=str(boot))
    until(lambda: bench.starts == 2)
    assert bench.until("ready")["restarts"] == 0
    assert "server restarted" in bench.events("ended")[0]["reason"][1]


def test_a_stop_between_two_starts_is_told(bench):
    bench.ask_for({"die": "x", "dies": 1}).keep(QUICK_PAUSE="5")
    until(lambda: bench.now.get("restarts") == 1)
    assert bench.stop() and bench.now["state"] == "stopped" and bench.starts == 1
    assert bench.events("ended")[-1] == {"e": "ended", "state": "succeeded", "exit": 0, "reason": None, "more": False}
    assert bench.events("engine")[-1]["state"] == "stopped"


def test_asked_for_anew_while_it_stops_it_starts_with_what_is_asked_for_now(bench):
    keeper = bench.ask_for({"stubborn": True}, stop_s=1.0).keep()
    before = bench.until("ready")["pid"]
    bench.place.ask("stop")
    until(lambda: "asked to stop" in bench.said())
    bench.ask_for({}, env={"SECOND": "yes"})
    until(lambda: bench.starts == 2)
    assert bench.until("ready")["pid"] != before and keeper.poll() is None
    assert json.loads((bench.model / "env.json").read_text())["SECOND"] == "yes"
    assert [one["more"] for one in bench.events("ended")] == [True]
