import os
import signal
import subprocess
import sys
import time

import pytest

from deployments import locks
from deployments.agent import adopt, processes, spool
from deployments.agent.adopt import Adopter, bury, end_session
from tests.deployments.agent_bench import PROGRAM, AgentServer, ended, records
from tests.waiting import until

RUNNER = [sys.executable, str(PROGRAM), "runner"]


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


@pytest.fixture
def stranger():
    """A process that leads a session of its own and is none of ours."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    until(lambda: processes.stat(process.pid).sid == process.pid)
    yield process
    process.kill()
    process.wait()


def dead_runner(server, identity):
    """An attempt whose runner is gone in the middle of a line."""
    folder = server.claim("print(1)")
    if identity:
        spool.write_whole(folder / "pid", str(identity._asdict()).replace("'", '"').encode())
    (folder / "step").write_text('{"n": 1}')
    (folder / "lines").write_bytes(spool.record("o", "before") + b"1700000000000\to\thal")
    return folder


def test_a_claim_gets_one_runner(server):
    adopter = Adopter(server.config, RUNNER)
    folder = server.claim("import time; time.sleep(.5); print('done')")
    assert adopter.tick() == [folder.name]
    adopter.tick()
    assert len(adopter.children) == 1
    until(lambda: spool.is_alive(folder))
    assert adopter.tick() == [folder.name]
    until(lambda: ended(folder))
    until(lambda: adopter.tick() == [])
    assert adopter.finished == {folder.name}


def test_many_claims_at_once_wait_their_turn_and_a_cancelled_one_does_not(server, monkeypatch):
    monkeypatch.setattr(adopt, "MAX_RUNNERS", 2)
    adopter = Adopter(server.config, RUNNER)
    folders = [server.claim("import time; time.sleep(.3)", attempt=f"a{n}-1-00000001") for n in (9, 10, 11, 12)]
    (folders[3] / "cancel").write_text("")
    assert adopter.tick() == [folders[3].name, folders[0].name]
    most = 0

    def all_ended():
        nonlocal most
        adopter.tick()
        most = max(most, sum(map(spool.is_alive, folders)))
        return all(map(ended, folders))

    until(all_ended)
    assert most <= 2
    assert [ended(folder)["state"] for folder in folders] == ["succeeded"] * 3 + ["cancelled"]


def test_a_pid_that_was_given_out_again_is_left_alone(server, stranger):
    now = processes.identity(stranger.pid)
    folder = dead_runner(server, now._replace(started=now.started - 5))
    assert bury(folder, adopt.DIED)
    assert ended(folder)["state"] == "failed"
    assert stranger.poll() is None


def test_a_session_of_before_a_reboot_is_left_alone(server, stranger):
    folder = dead_runner(server, processes.identity(stranger.pid)._replace(boot_id="another"))
    assert bury(folder, adopt.DIED)
    assert "restarted" in ended(folder)["reason"][1]
    assert stranger.poll() is None


def test_the_end_is_written_once_after_the_mended_line(server):
    folder = dead_runner(server, processes.Identity(2**22 - 1, 1, processes.boot_id()))
    assert bury(folder, adopt.DIED) and bury(folder, adopt.DIED)
    kinds = [(kind, text[:20]) for kind, text in records(folder)]
    assert kinds == [("o", "before"), ("o", "hal"), ("v", '{"e":"step_end","n":'), ("v", '{"e":"ended","state"')]


def test_a_living_runner_is_never_buried(server):
    folder = server.claim("print(1)")
    lock = locks.try_lock(folder / "lock")
    assert bury(folder, adopt.DIED) is False
    os.close(lock)
    assert not (folder / "lines").exists()


def test_without_room_the_end_is_left_for_the_next_time(server, monkeypatch):
    folder = dead_runner(server, processes.Identity(2**22 - 1, 1, processes.boot_id()))
    write = os.write
    monkeypatch.setattr(adopt.os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    assert bury(folder, adopt.DIED) is False
    assert [text for _, text in records(folder)] == ["before", "hal"]
    monkeypatch.undo()
    assert bury(folder, adopt.DIED) is True
    assert ended(folder)["state"] == "failed"


def test_what_ignores_sigterm_is_killed(server, monkeypatch):
    monkeypatch.setattr(adopt, "LEFT_OVER_S", 0.3)
    ignore = "import signal, time; signal.signal(15, 1); print('up', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.readline()
    began = time.monotonic()
    end_session(processes.identity(process.pid))
    assert process.wait(1) == -signal.SIGKILL
    assert time.monotonic() - began < 10


def test_a_new_attempt_waits_until_the_old_one_of_its_job_has_ended(server):
    adopter = Adopter(server.config, RUNNER)
    old = server.claim("import time; time.sleep(.6)", attempt="a5-1-00000001")
    adopter.tick()
    until(lambda: spool.is_alive(old))
    new = server.claim("print(2)", attempt="a5-2-00000002")
    other = server.claim("print(3)", attempt="a6-1-00000003")
    assert set(adopter.tick()) == {old.name, other.name}
    assert not (new / "lines").exists()
    until(lambda: ended(old))
    until(lambda: new.name in adopter.tick())
    until(lambda: ended(new))


def test_a_new_attempt_that_is_cancelled_waits_for_nothing(server):
    adopter = Adopter(server.config, RUNNER)
    old = server.claim("import time; time.sleep(30)", attempt="a5-1-00000001")
    adopter.tick()
    until(lambda: spool.is_alive(old))
    new = server.claim("print(2)", attempt="a5-2-00000002")
    (new / "cancel").touch()
    adopter.tick()
    assert until(lambda: ended(new))["state"] == "cancelled"


def test_a_runner_that_finds_no_room_on_the_disk_is_no_try(server, monkeypatch):
    monkeypatch.setattr(adopt, "TRY_AGAIN_S", 0.0)
    full = Adopter(server.config, [sys.executable, "-c", f"import sys; sys.exit({spool.NO_ROOM})"])
    folder = server.claim("print(1)")
    for _ in range(adopt.MAX_TRIES + 2):
        assert full.tick() == [folder.name]
        full.children[folder.name].wait()
    full.runner = RUNNER  # it is slow to begin, and TRY_AGAIN_S is over at once: it is one try all the same
    until(lambda: (full.tick(), ended(folder))[1])
    assert ended(folder)["state"] == "succeeded"


def test_a_full_disk_that_has_no_room_for_a_runners_log_stops_no_other(server, monkeypatch):
    adopter = Adopter(server.config, RUNNER)
    first, second = server.claim("print(1)"), server.claim("print(2)")
    (first / "runner.log").mkdir()
    assert adopter.tick() == [second.name]
    (first / "runner.log").rmdir()
    monkeypatch.setattr(adopt, "TRY_AGAIN_S", 0.0)
    assert first.name in adopter.tick()
    until(lambda: ended(first) and ended(second))


@pytest.mark.parametrize("look", ["has_ended", "is_alive", "has_begun"])
def test_a_folder_that_the_link_frees_while_it_is_looked_at_is_never_run_again(server, monkeypatch, look):
    folder = server.run("print(1)")
    (folder / "lines").rename(folder / "aside")
    (folder / "lines").touch()  # as seen by who looked before the end was written
    real = getattr(spool, look)

    def freed_meanwhile(where):
        if (folder / "aside").exists():
            (folder / "aside").replace(folder / "lines")
            if look == "has_begun":
                spool.mark_shipped(folder)
                return real(where)
        found = real(where) if look == "is_alive" else False
        spool.mark_shipped(folder)
        return found

    monkeypatch.setattr(spool, look, freed_meanwhile)
    adopter = Adopter(server.config, RUNNER)
    assert adopter.tick() == [] and not adopter.children
    assert {path.name for path in folder.iterdir()} - {"lock"} == {"shipped", "spec.json"}
