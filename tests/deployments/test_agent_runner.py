import json
import os
import resource
import signal
import sys
import time

import pytest

from deployments.agent import devices, processes, spool
from tests.deployments.agent_bench import PROGRAM, AgentServer, ended, events, records, texts
from tests.waiting import until


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


@pytest.fixture
def quick_ladder(monkeypatch):
    monkeypatch.setenv("TEST_RUNG_S", "0.5")


def test_a_job_runs_its_steps_in_order_and_says_so(server):
    folder = server.run("print('one')", "import sys; print('two', file=sys.stderr)")
    assert texts(folder, "oe") == ["one", "two"]
    names = [(event["e"], event.get("n"), event.get("state")) for event in events(folder)]
    assert names == [
        ("started", None, None),
        ("step", 1, None),
        ("step_end", 1, "succeeded"),
        ("step", 2, None),
        ("step_end", 2, "succeeded"),
        ("ended", None, "succeeded"),
    ]
    assert events(folder, "step")[0]["title"] == ["程序 1", "Program 1"]
    assert ended(folder) == {"e": "ended", "state": "succeeded", "exit": 0, "reason": None}


def test_a_failed_step_ends_the_job_and_skips_the_rest(server):
    folder = server.run("raise SystemExit(3)", "print('never')")
    assert [(event["n"], event["state"], event["exit"]) for event in events(folder, "step_end")] == [
        (1, "failed", 3),
        (2, "skipped", None),
    ]
    assert (ended(folder)["state"], ended(folder)["exit"]) == ("failed", 3)
    assert "exit code 3" in ended(folder)["reason"][1] and "退出码 3" in ended(folder)["reason"][0]
    assert texts(folder) == []


def test_a_step_that_may_fail_does_not_end_the_job(server):
    folder = server.run("raise SystemExit(3)", "print('after')", may_fail=True)
    assert texts(folder) == ["after"]
    assert ended(folder)["state"] == "succeeded"


def test_a_missing_program_is_a_sentence(server):
    folder = server.run("argv no-such-tool --now")
    assert ended(folder)["exit"] == 127
    assert "There is no no-such-tool on this server." in ended(folder)["reason"][1]


def test_a_step_killed_from_outside_names_the_signal(server):
    folder = server.run("import os; os.kill(os.getpid(), 9)")
    assert ended(folder)["exit"] == 137
    assert "SIGKILL" in ended(folder)["reason"][1]


def test_a_step_reads_nothing_and_sees_no_secret_of_ours(server, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    monkeypatch.setenv("RQ_KEY_PREFIX", "h:7:rq")
    folder = server.run("import os, sys; print(repr(sys.stdin.read()), sorted(os.environ))")
    assert texts(folder)[0].startswith("''")
    assert "DATABASE_URL" not in texts(folder)[0] and "RQ_KEY_PREFIX" not in texts(folder)[0]


def test_items_become_events_between_the_lines(server):
    program = (
        "import json, os, time\n"
        "items = open(os.environ['ASCEND_ITEMS'], 'a')\n"
        "for key in 'ab':\n"
        "    item = {'e': 'ended', 'key': key, 'title': ['甲', key], 'verdict': 'ok', 'found': 5}\n"
        "    items.write(json.dumps(item) + '\\n')\n"
        "    items.flush(); time.sleep(.2); print('after', key, flush=True); time.sleep(.2)\n"
        "items.write('no json\\n{\"key\": 1}\\n'); items.flush()\n"
    )
    folder = server.run(program)
    found = [
        json.loads(text)["key"] if kind == "v" else text
        for kind, text in records(folder)
        if kind == "o" or (kind == "v" and '"item"' in text)
    ]
    assert found == ["a", "after a", "b", "after b"]
    item = events(folder, "item")[0]
    assert item == {
        "e": "item", "key": "a", "title": ["甲", "a"], "verdict": "ok", "found": "5",
        "wanted": None, "remedy": None, "job": None,
    }  # fmt: skip
    assert texts(folder, "s") == [f"无法识别的检查项 Not an item: {text}" for text in ("no json", '{"key": 1}')]
    assert ended(folder)["state"] == "succeeded"


def test_npus_are_named_by_bus_id_and_become_device_indexes(server):
    npus = [{"bus_id": f"0000:{bus}:00.0", "chip": 0} for bus in ("C1", "81", "41")]
    devices.remember(server.config.state_dir, {"npus": npus})
    folder = server.run(
        "import os; print(os.environ['ASCEND_RT_VISIBLE_DEVICES'])", npus=["0000:41:00.0", "0000:C1:00.0"]
    )
    assert texts(folder) == ["0,2"]


def test_an_npu_that_is_gone_fails_the_step_in_words(server):
    devices.remember(server.config.state_dir, {"npus": [{"bus_id": "0000:C1:00.0", "chip": 0}]})
    folder = server.run("print('never')", npus=["0000:82:00.0"])
    assert ended(folder)["state"] == "failed"
    assert "npu-smi does not list NPU 0000:82:00.0 now." in ended(folder)["reason"][1]
    assert texts(folder) == []


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *a: print('INT', flush=True))
signal.signal(signal.SIGTERM, lambda *a: print('TERM', flush=True))
child = "import signal,time,subprocess,sys\\nsignal.signal(2,1);signal.signal(15,1)\\n"
grandchild = child + "time.sleep(300)"
child += f"subprocess.Popen([sys.executable,'-c',{grandchild!r}])\\ntime.sleep(300)"
subprocess.Popen([sys.executable, '-c', child])
time.sleep(.5)
print('ready', flush=True)
until = time.time() + 300
while time.time() < until: time.sleep(1)
"""


def session_of(folder):
    return spool.runner_identity(folder).pid


def test_cancel_climbs_the_ladder_and_leaves_nobody(server, quick_ladder):
    folder = server.run(STUBBORN, "print('never')", wait=False)
    until(lambda: (folder / "lines").exists() and "ready" in texts(folder))
    session = session_of(folder)
    assert len(processes.session_members(session)) == 4  # runner, program, child, grandchild
    (folder / "cancel").touch()
    until(lambda: ended(folder))
    assert texts(folder) == ["ready", "INT", "TERM"]
    assert [event["rung"] for event in events(folder, "cancelling")] == ["interrupt", "terminate", "kill"]
    assert [event["state"] for event in events(folder, "step_end")] == ["cancelled", "skipped"]
    assert ended(folder)["state"] == "cancelled"
    until(lambda: not processes.session_members(session))


def test_a_program_that_obeys_is_cancelled_at_the_first_rung(server):
    folder = server.run("import time; print('ready', flush=True); time.sleep(60)", wait=False)
    until(lambda: (folder / "lines").exists() and "ready" in texts(folder))
    (folder / "cancel").touch()
    until(lambda: ended(folder), timeout=3)
    assert [event["rung"] for event in events(folder, "cancelling")] == ["interrupt"]
    assert ended(folder)["state"] == "cancelled"


def test_sigterm_to_the_runner_ends_its_step_and_is_not_called_a_cancel(server):
    folder = server.run("import time; print('ready', flush=True); time.sleep(60)", wait=False)
    until(lambda: (folder / "lines").exists() and "ready" in texts(folder))
    os.kill(session_of(folder), signal.SIGTERM)
    until(lambda: ended(folder), timeout=3)
    assert ended(folder)["state"] == "failed"
    assert "the server shut down or restarted, or somebody stopped it" in ended(folder)["reason"][1]


def test_a_step_past_its_deadline_is_stopped_and_failed(server, quick_ladder):
    folder = server.run("import time; time.sleep(60)", timeout_s=0.5)
    assert events(folder, "cancelling") == []
    assert ended(folder)["state"] == "failed"
    assert "did not end within its 0.5 s" in ended(folder)["reason"][1]


def test_processes_that_a_step_leaves_behind_are_ended(server):
    leave = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input() or 1'], stdin=-1); print('gone')"
    folder = server.run(leave, "print('next')")
    assert texts(folder) == ["gone", "next"]
    assert ended(folder)["state"] == "succeeded"
    assert processes.session_members(session_of(folder)) == []


def test_a_daemon_in_a_session_of_its_own_lives_on(server, tmp_path):
    pid_file = tmp_path / "daemon"
    detach = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        f"open({str(pid_file)!r}, 'w').write(str(p.pid))"
    )
    folder = server.run(detach)
    pid = int(pid_file.read_text())
    try:
        assert ended(folder)["state"] == "succeeded"
        assert processes.stat(pid).state != "Z"
    finally:
        os.kill(pid, signal.SIGKILL)


def test_of_two_runners_for_one_attempt_one_works(server):
    folder = server.claim("import time; time.sleep(.5); print('once')")
    first, second = (server.start("runner", str(folder)) for _ in range(2))
    assert (first.wait(10), second.wait(10)) == (0, 0)
    third = server.start("runner", str(folder))
    assert third.wait(10) == 0
    assert texts(folder) == ["once"]
    assert len(events(folder, "started")) == 1


def test_a_step_whose_number_cannot_be_noted_runs_all_the_same(server):
    """As on a full disk: here a folder stands where the number is written."""
    folder = server.run("import os; os.mkdir('step.new')", "print('on')")
    assert ended(folder)["state"] == "succeeded"
    assert ("o", "on") in records(folder) and not (folder / "step").exists()


def test_a_full_disk_loses_lines_but_no_event_and_says_how_many(server):
    program = (
        "import os, sys, time\n"
        "for n in range(4000): print('line', n)\n"
        "sys.stdout.flush()\n"
        "flag = os.path.join(os.getcwd(), 'room')\n"
        "while not os.path.exists(flag): time.sleep(.05)\n"
        "time.sleep(1.2)\n"
        "print('after')\n"
    )
    folder = server.claim(program, "print('second')")
    argv = [sys.executable, "-m", "tests.deployments.limited", "20000", str(folder), str(server.config.path)]
    process = server.start_raw(argv)
    until(lambda: (folder / "lines").exists() and (folder / "lines").stat().st_size > 19_000)
    time.sleep(1.2)
    assert (folder / "lines").stat().st_size <= 20_000
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    (folder / "room").touch()
    process.wait(10)
    kept = [text for text in texts(folder) if text.startswith("line ")]
    lost = sum(int(text) for text in texts(folder, "g"))
    assert 0 < lost < 4000
    assert len(kept) + lost == 4000
    assert texts(folder)[-2:] == ["after", "second"]
    assert kept == [f"line {n}" for n in range(len(kept))]
    gap = next(at for at, (kind, _) in enumerate(records(folder)) if kind == "g")
    assert records(folder)[gap - 1] == ("o", kept[-1])
    assert [event["state"] for event in events(folder, "step_end")] == ["succeeded", "succeeded"]
    assert ended(folder)["state"] == "succeeded"


def test_a_fast_program_is_followed_without_loss(server):
    count = 300_000
    program = f"import sys\nsys.stdout.write(''.join(f'line {{n}}\\n' for n in range({count})))"
    folder = server.run(program)
    lines = texts(folder)
    assert len(lines) == count and lines[-1] == f"line {count - 1}"
    took = events(folder, "step_end")[0]["took_s"]
    assert took < 60, took


def test_a_runner_that_cannot_begin_on_a_full_disk_leaves_everything_as_it_was(server):
    folder = server.claim("print(1)")
    argv = [sys.executable, "-m", "tests.deployments.limited", "0", str(folder), str(server.config.path)]
    assert server.start_raw(argv).wait(20) == spool.NO_ROOM
    assert not (folder / "pid").exists() and not (folder / "lines").exists()
    process = server.start_raw([*argv[:3], "100000", *argv[4:]])
    process.wait(20)
    assert ended(folder)["state"] == "succeeded"


def test_a_runner_runs_nothing_of_an_attempt_that_was_shipped(server):
    folder = server.run("open('../../ran', 'a').write('x')")
    spool.mark_shipped(folder)
    argv = [sys.executable, str(PROGRAM), "runner", str(folder), "--config", str(server.config.path)]
    assert server.start_raw(argv).wait(20) == 0
    assert (server.state / "ran").read_text() == "x" and not (folder / "lines").exists()
