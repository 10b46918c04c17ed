"""A runner killed at any moment of its life, from its first instruction to its last; no console, so many in short time.

`--faults-runs N` adds N kills.
"""

import json
import random
import re
import signal
import sys
import time

import pytest

from deployments.agent import adopt, processes, spool
from deployments.agent.adopt import Adopter
from tests.deployments.agent_bench import PROGRAM, AgentServer, events, records, texts
from tests.waiting import until

pytestmark = pytest.mark.slow
KILLS = 12
STEP = (
    "import os, sys, time\n"
    "with open('{notes}', 'a') as file: file.write('{step} began\\n')\n"
    "for n in range(1, 401):\n"
    "    print('{step}:%d' % n, flush=True)\n"
    "    n % 50 or time.sleep(.02)\n"
    "with open('{notes}', 'a') as file: file.write('{step} ended\\n')\n"
)


@pytest.fixture
def server(tmp_path):
    made = AgentServer(tmp_path, "redis://127.0.0.1:1/0")
    yield made
    made.close()


def test_a_runner_killed_at_any_moment_runs_nothing_twice_and_ends_in_words(
    server, faults_seed, faults_tally, request, monkeypatch
):
    monkeypatch.setattr(adopt, "TRY_AGAIN_S", 0.2)
    adopter = Adopter(server.config, [sys.executable, str(PROGRAM), "runner"])
    dice = random.Random(faults_seed)
    print(f"--faults-seed {faults_seed}")
    for n in range(KILLS + request.config.getoption("--faults-runs")):
        notes = server.state / f"notes-{n}"
        folder = server.claim(*(STEP.format(notes=notes, step=step) for step in (1, 2)))
        adopter.tick()
        runner = adopter.children[folder.name]
        time.sleep(dice.uniform(0, 0.9))
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        until(lambda folder=folder: (adopter.tick(), spool.has_ended(folder))[1], 60)
        check_attempt(folder, notes, session=runner.pid)
        faults_tally.note(["kill runner at any moment"], "from begin to end", 0.0)
        faults_tally.lines += len(records(folder))


def check_attempt(folder, notes, session):
    """What is written is whole and true, and nothing of the runner lives."""
    written = notes.read_text().split("\n")[:-1] if notes.exists() else []
    wanted = [f"{step} {word}" for step in (1, 2) for word in ("began", "ended")]
    assert written == wanted[: len(written)], written
    (end,) = events(folder, "ended")
    assert json.loads(records(folder)[-1][1]) == end
    assert (end["state"] == "succeeded") == (written == wanted and not end["reason"]), (end, written)
    assert end["state"] == "succeeded" or end["reason"][1], end
    seen = [tuple(map(int, text.split(":"))) for text in texts(folder) if re.fullmatch(r"\d:\d+", text)]
    whole = [(step, n) for step in (1, 2) for n in range(1, 401)]
    # The last line of all may be cut: what was written of it is kept.
    assert seen[:-1] == whole[: len(seen)][:-1] or seen == whole[: len(seen)], seen[-3:]
    until(lambda: not processes.session_members(session), 10)
