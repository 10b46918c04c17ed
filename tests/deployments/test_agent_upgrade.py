"""An agent is brought to another version by a job, and back where the new one does not come up."""

import json
import os
import signal
import time

import pytest

from deployments.agent import bundles, chosen, pages, processes, spool
from tests.deployments.joined_agent import HASTY, PATIENCE_S, JoinedAgent, made
from tests.waiting import until

MAIN = "lib/deployments/agent/__main__.py"
LINK = "lib/deployments/agent/link.py"
START = "def main(argv: list[str] | None = None) -> int:\n"
COUNT = "import time\nfor n in range(200):\n    print('line', n, flush=True)\n    time.sleep(0.05)\n"


@pytest.fixture
def hasty():
    pass


@pytest.fixture
def agent(tmp_path, own_valkey, request):
    """Where the new code never comes up, `hasty` says not to wait a whole minute for it."""
    changes = [HASTY] if "hasty" in request.fixturenames else []
    joined = JoinedAgent(tmp_path, own_valkey, made("0.1.0", *changes))
    try:
        joined.start()
        yield joined
    finally:
        joined.close()


def test_an_upgrade_goes_through_while_a_job_runs_and_loses_no_line(agent):
    counting = agent.queue("try_program", {"programs": [COUNT]})
    until(lambda: agent.ingest.poll() is not None and agent.ingest.texts(counting), PATIENCE_S)
    newer = made("0.2.0")
    ended = agent.upgrade(newer)
    assert ended["state"] == "succeeded", agent.words()
    agent.await_code(newer.code)
    assert agent.beat()["agent"] == "0.2.0"
    path, asked = agent.console.asked[0]
    assert path == "/join/code" and json.loads(asked["body"])["digest"] == newer.digest
    assert agent.end(counting)["state"] == "succeeded"
    assert agent.ingest.texts(counting) == [f"line {n}" for n in range(200)]
    assert agent.runs_once()
    # The next job runs on the new code, with its own packages; and it stays after a restart of everything.
    assert agent.end(agent.queue("try_program", {"programs": ["print('hello')"]}))["state"] == "succeeded"
    assert "0.2.0" in agent.status().stdout and newer.code in agent.status().stdout
    agent.kill_all()
    agent.start_again()
    agent.await_code(newer.code)
    assert agent.choice().watcher is None


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((MAIN, START, START + "    import time\n    time.sleep(600)\n"), "did not report"),
        (
            (LINK, "        credentials.without(config.redis_url),", "        'redis://127.0.0.1:1/0',"),
            "did not report",
        ),
    ],
    ids=["hangs", "does not reach Redis"],
)
def test_what_does_not_come_up_is_rolled_back(agent, change, words):
    check_rolled_back(agent, change, words)


def test_what_crashes_is_rolled_back_before_the_minute_is_over(agent):
    began = time.monotonic()
    check_rolled_back(agent, (MAIN, START, START + "    raise SystemExit(3)\n"), "ended right after its start")
    assert time.monotonic() - began < 2 * PATIENCE_S


def check_rolled_back(agent, change, words):
    counting = agent.queue("try_program", {"programs": [COUNT]})
    until(lambda: agent.ingest.poll() is not None and agent.ingest.texts(counting), PATIENCE_S)
    ended = agent.upgrade(made("0.2.0", change))
    assert ended["state"] == "failed"
    assert "Rolled back" in ended["reason"][1] and words in ended["reason"][1]
    agent.await_code(agent.base.code)
    assert agent.choice().code == "" and agent.choice().watcher is None
    assert agent.end(counting)["state"] == "succeeded"
    assert agent.ingest.texts(counting) == [f"line {n}" for n in range(200)]
    until(agent.runs_once, PATIENCE_S)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("lib/deployments/agent/worker.py", "    config.attempts.mkdir(", "    return 1\n    config.attempts.mkdir("),
         "its worker does not run"),
        (("lib/deployments/agent/sampler.py", "    loop = Loop(", "    raise SystemExit(1)\n    loop = Loop("),
         "no sample of it went out"),
    ],
    ids=["no worker", "no sampler"],
)  # fmt: skip
def test_an_agent_that_is_half_there_is_rolled_back(agent, change, words):
    ended = agent.upgrade(made("0.2.0", change))
    assert ended["state"] == "failed" and "Rolled back" in ended["reason"][1]
    assert words in ended["reason"][1] or "did not report" in ended["reason"][1]  # where the machine is very slow
    agent.await_code(agent.base.code)


def test_what_cannot_be_loaded_or_is_not_what_was_signed_changes_nothing(agent):
    pid = (agent.place.state / "agent.lock").read_text()
    broken = agent.upgrade(made("0.2.0", (LINK, "import redis\n", "import redis\nimport nosuchmodule\n")))
    assert broken["state"] == "failed" and "nosuchmodule" in broken["reason"][1]
    newer = made("0.3.0")
    agent.console.data = b"something else"
    attempt = agent.queue("agent_upgrade", {"digest": newer.digest, "version": "0.3.0"})
    assert "does not have the digest" in agent.end(attempt)["reason"][1]
    agent.console.status, agent.console.data = 409, b"The console has another version. Start a new upgrade."
    attempt = agent.queue("agent_upgrade", {"digest": newer.digest, "version": "0.3.0"})
    assert "Start a new upgrade" in agent.end(attempt)["reason"][1]
    agent.console.close()
    attempt = agent.queue("agent_upgrade", {"digest": newer.digest, "version": "0.3.0"})
    assert "cannot be reached from here" in agent.end(attempt)["reason"][1]
    assert (agent.place.state / "agent.lock").read_text() == pid
    assert agent.choice() is None


def test_a_cancelled_switch_goes_back(agent):
    hangs = made("0.2.0", (MAIN, START, START + "    import time\n    time.sleep(600)\n"))
    attempt = agent.upgrade(hangs, wait=False)
    until(lambda: agent.choice() and agent.choice().code == hangs.code, PATIENCE_S)
    old = chosen.started(agent.place.state)
    until(
        lambda: chosen.started(agent.place.state) != old and processes.lives(chosen.started(agent.place.state)),
        PATIENCE_S,
    )
    # Nobody takes a cancel from Redis just now: as the runner gets it from the worker, in its folder.
    spool.write_whole(agent.config.attempts / attempt / "cancel", b"{}")
    agent.await_code(agent.base.code)
    assert agent.end(attempt)["state"] == "cancelled"


def test_an_upgrade_that_loses_its_watcher_is_taken_back(agent):
    newer = made("0.2.0")
    attempt = agent.upgrade(newer, wait=False)
    until(lambda: agent.choice() and agent.choice().watcher, PATIENCE_S)
    watcher = agent.choice().watcher
    folder = agent.config.attempts / attempt
    os.kill(spool.runner_identity(folder).pid, signal.SIGKILL)
    os.kill(watcher.pid, signal.SIGKILL)
    assert agent.end(attempt)["state"] == "failed"
    until(lambda: agent.choice().watcher is None, PATIENCE_S)
    agent.await_code(agent.base.code)
    until(agent.runs_once, PATIENCE_S)


def test_after_a_power_cut_it_starts_with_the_code_from_before_or_the_new_one(agent):
    """Cut at every state of the disk that an upgrade leaves behind: nothing, half unpacked, on trial, confirmed."""
    newer = made("0.2.0")
    home = chosen.home(agent.place.state)
    dead = processes.Identity(2**22 - 1, 1, "another boot")
    whole = home / newer.code

    def half():
        home.mkdir()
        (home / f".new-{newer.code}" / "lib").mkdir(parents=True)

    def unpacked():
        bundles.unpack(newer.data, whole)

    def on_trial():
        chosen.write(agent.place.state, chosen.Choice(agent.place.joined, newer.code, "", dead))

    def cut_choice():
        (home / chosen.CHOICE).write_bytes(b'{"over": "1')

    def confirmed():
        chosen.write(agent.place.state, chosen.Choice(agent.place.joined, newer.code))

    def gone():
        (whole / "lib/deployments/agent/__main__.py").unlink()

    base = agent.base.code
    for state, code in ((half, base), (unpacked, base), (on_trial, base), (cut_choice, base), (confirmed, newer.code),
                        (gone, base)):  # fmt: skip
        agent.kill_all()
        state()
        agent.start_again()
        agent.await_code(code)
        said = agent.status()
        assert said.returncode == 0 and code in said.stdout, (state, said)
    assert not (home / f".new-{newer.code}").exists()
    # Half of it is there: the same job makes it whole.
    assert agent.upgrade(newer)["state"] == "succeeded", agent.words()
    agent.await_code(newer.code)
    # Joining again repairs: what the console sent before is of no use any more.
    agent.join_again()
    agent.await_code(base)


def test_old_code_goes_and_what_a_runner_still_needs_stays(agent):
    home = chosen.home(agent.place.state)
    first, second, third = made("0.2.0"), made("0.3.0"), made("0.4.0")
    assert agent.upgrade(first)["state"] == "succeeded", agent.words()
    agent.await_code(first.code)
    waits = agent.queue("try_program", {"programs": ["import time\ntime.sleep(600)"]})
    until(lambda: spool.is_alive(agent.config.attempts / waits), PATIENCE_S)
    assert agent.upgrade(second)["state"] == "succeeded", agent.words()
    agent.await_code(second.code)
    assert agent.upgrade(third)["state"] == "succeeded", agent.words()
    agent.await_code(third.code)
    folders = {folder.name for folder in home.iterdir() if folder.is_dir()}
    assert folders == {first.code, second.code, third.code}  # the first for the job that runs from it
    spool.write_whole(agent.config.attempts / waits / "cancel", b"{}")
    assert agent.end(waits)["state"] == "cancelled"
    until(lambda: not spool.is_alive(agent.config.attempts / waits), PATIENCE_S)
    assert bundles.prune(home, agent.config.attempts, {second.code, third.code}) == [first.code]
    # Back to what was installed needs no download.
    asked = len(agent.console.asked)
    assert agent.upgrade(agent.base)["state"] == "succeeded", agent.words()
    agent.await_code(agent.base.code)
    assert len(agent.console.asked) == asked
    assert agent.upgrade(agent.base)["state"] == "succeeded"
    assert "of this version already" in agent.words()


def test_without_a_keeper_nothing_is_changed(agent):
    os.kill(json.loads(agent.place.pid_file.read_text())["pid"], signal.SIGKILL)
    ended = agent.upgrade(made("0.2.0"))
    assert ended["state"] == "failed" and "ascend-console restart" in ended["reason"][1]
    time.sleep(0.1)
    assert agent.choice() is None


def test_a_bundle_with_foreign_entries_is_not_unpacked(tmp_path):
    import io
    import tarfile

    for name, kind in (("../out", tarfile.REGTYPE), ("lib/x", tarfile.SYMTYPE), ("/etc/x", tarfile.REGTYPE)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry, io.BytesIO(b""))
        with pytest.raises(pages.Stopped):
            bundles.unpack(out.getvalue(), tmp_path / "state" / "code" / "x")
    assert not (tmp_path / "state" / "code" / "x").exists()
    for broken in (b"", b"no archive", made().data[:5000]):
        with pytest.raises(pages.Stopped):
            bundles.unpack(broken, tmp_path / "state" / "code" / "x")


def test_the_consoles_own_agent_is_not_upgraded_by_itself(tmp_path, capsys, monkeypatch):
    config = tmp_path / "config.json"
    data = {"server_id": 1, "name": "a", "redis_url": "redis://x", "prefix": "h:1", "key": "ab" * 32}
    config.write_text(json.dumps({**data, "state_dir": str(tmp_path)}))
    monkeypatch.setenv("ASCEND_CONFIG", str(config))
    monkeypatch.setenv("ASCEND_REASON", str(tmp_path / "reason"))
    assert bundles.main(["0" * 64]) == 1
    assert "comes with the console" in capsys.readouterr().out
    assert "comes with the console" in json.loads((tmp_path / "reason").read_text())[1]
