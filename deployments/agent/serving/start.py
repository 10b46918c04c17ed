"""`python -m deployments.agent.serving.start e12 …`: have the engine run. Its keeper starts it and outlives this job;
with systemd that is the unit's, which the next step starts."""

import os
import time

from deployments.agent.config import Config
from deployments.agent.engines import watch
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
    """At once, and not when the agent looks the next time; it is to be no process of this job's."""
    for name in OF_A_JOB:
        os.environ.pop(name, None)
    watch.spawn(own.place, config)


if __name__ == "__main__":
    raise SystemExit(program.run(work))
