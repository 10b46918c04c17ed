"""`python -m deployments.agent.serving.settle e12 …`: at the end of a job, stop the engine that has not answered.

Its folder stays, with the log that says why.
"""

from pathlib import Path

from deployments.agent.config import Config
from deployments.agent.serving import engine, program, stop
from deployments.agent.serving.program import NOTHING, SERVED
from deployments.serving.asked import CONTAINERS, Ask

PUT = "put"  # a file of the attempt: from here on it is this job's engine


def work(ask: Ask, config: Config) -> int:
    own = engine.of(config, ask.name)
    if Path(SERVED).exists() or not Path(PUT).exists():
        return NOTHING
    stop.stop(own)
    spec = own.spec()
    if str(spec.get("route")) in CONTAINERS:
        stop.end_container(str(spec["route"]), str(spec.get("container")))
    if left := own.members():
        raise stop.stays(ask.name, left)
    program.say("引擎已停止，目录与日志保留。", f"The engine was stopped; its folder {own.folder} stays, with the log.")
    return 0


if __name__ == "__main__":
    raise SystemExit(program.run(work))
