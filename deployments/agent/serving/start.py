"""`python -m deployments.agent.serving.start e12 …`: have the engine run. Its keeper starts it and outlives this job;
with systemd that is the unit's, which the next step starts."""

import os
import subprocess
import sys
import time

from deployments.agent import ROOT
from deployments.agent.config import Config
from deployments.agent.environment import passed_on
from deployments.agent.serving import engine, program
from deployments.agent.serving.engine import Engine
from deployments.agent.serving.program import Stopped
from deployments.serving.asked import Ask

BEGINS_S, EVERY_S = 20.0, 0.1
OF_A_JOB = ("ASCEND_ATTEMPT", "ASCEND_ITEMS", "ASCEND_REASON", "ASCEND_RT_VISIBLE_DEVICES")


def work(ask: Ask, config: Config) -> int:
    own = engine.of(config, ask.name)
    engine.note_log(own.log_end())
    own.wish("run")
    if ask.route == "systemd":
        return 0
    if not own.is_kept():
        spawn(own, config)
    until = time.monotonic() + BEGINS_S
    while not own.is_kept():
        if time.monotonic() >= until:
            own.wish("stop")
            raise Stopped(
                f"看护引擎的程序在 {BEGINS_S:g} 秒内没有开始，其日志在 {own.folder}/keeper.log。请查看，再重试。",
                f"The program that keeps the engine did not begin within {BEGINS_S:g} s; its log is "
                f"{own.folder}/keeper.log. See it, then try again.",
            )
        time.sleep(EVERY_S)
    program.say("看护程序已开始。", "Its keeper has begun.")
    return 0


def spawn(own: Engine, config: Config) -> None:
    """Start a keeper in a session of its own, and no process of this job's: it is to live on."""
    env = {name: value for name, value in passed_on().items() if name not in OF_A_JOB}
    env |= {**config.env, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "-m", "deployments.agent.engines.keeper", str(own.folder), "--config", str(config.path)]
    with (own.folder / "keeper.log").open("wb") as log:
        os.fchmod(log.fileno(), 0o600)
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=own.folder, env=env,
                         start_new_session=True)  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(program.run(work))
