"""`python -m deployments.agent.serving.stop e12 … [--drain=600]`: stop an engine, gently at first, until its group is
gone.

The keeper does it as its wish says; where none lives (it was killed, or the engine is an orphan of an earlier start)
this program does. What requests were under way is told, for they are cut off.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time

from deployments.agent.config import Config
from deployments.agent.engines import scrape
from deployments.agent.serving import engine, program
from deployments.agent.serving.engine import Engine
from deployments.agent.serving.program import NOTHING, Stopped
from deployments.artifacts.tell import tell
from deployments.serving import container
from deployments.serving.asked import CONTAINERS, Ask
from deployments.steps import Text

GENTLY_S, KEEPER_S = 30.0, 60.0
EVERY_S, SCRAPE_S, RUNTIME_S = 0.1, 2.0, 90.0
MOST_METRICS = 4 * 1024 * 1024
DRAIN = "--drain="


def work(ask: Ask, config: Config, *, drain_s: float = 0.0) -> int:
    own = engine.of(config, ask.name)
    spec = own.spec()
    if not spec and not own.members():
        program.say(f"这台服务器上没有引擎 {ask.name}。", f"There is no engine {ask.name} on this server.")
        return NOTHING
    cut = drained(ask, own, drain_s) if drain_s else under_way(ask, own)
    was_there = bool(own.members()) or own.is_kept()
    stop(own)
    route = str(spec.get("route") or ask.route)
    if route in CONTAINERS:
        end_container(route, str(spec.get("container") or f"ascend-console-{ask.name}"))
    if left := own.members():
        raise stays(ask.name, left)
    _tell(ask, cut if was_there else 0)
    return 0


def _tell(ask: Ask, cut: int | None) -> None:
    tell("engine_stopped", {"replica": ask.replica, "cut": cut})
    words = "—" if cut is None else str(cut)
    program.item("cut", Text("切断的请求", "Requests cut off"), "unknown" if cut is None else "ok", words)
    program.say(f"引擎已停止，切断的请求：{words}。", f"The engine has stopped; requests cut off: {words}.")


def under_way(ask: Ask, own: Engine) -> int | None:
    """How many requests it is at work with or has waiting; None where neither it nor its keeper tells."""
    if not own.members():
        return 0
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection = http.client.HTTPConnection(ask.address, ask.port, timeout=SCRAPE_S)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            found = scrape.values(answer.read(MOST_METRICS).decode(errors="replace"))
        finally:
            connection.close()
        if answer.status == 200 and "running" in found:
            return int(found["running"] + found.get("waiting", 0.0))
    told = own.now().get("metrics")
    counts = [told.get(name) for name in ("running", "waiting")] if isinstance(told, dict) else [None]
    return sum(counts) if all(type(one) is int for one in counts) else None  # type: ignore[arg-type]


def drained(ask: Ask, own: Engine, within_s: float) -> int | None:
    """How many requests are under way when none is, or when the time is over."""
    until, told = time.monotonic() + within_s, -1
    while (count := under_way(ask, own)) and time.monotonic() < until:
        if count != told:
            told = count
            program.say(f"等待 {count} 个请求结束。", f"Waits for {count} requests to end.")
        time.sleep(1.0)
    return count


def stop(own: Engine) -> None:
    """Until the group is gone, or nothing more can be done. Raises OSError where the wish cannot be written."""
    if own.folder.is_dir():
        own.wish("stop")
    until = time.monotonic() + KEEPER_S
    while own.is_kept() and time.monotonic() < until:
        time.sleep(EVERY_S)
    if own.members():
        program.say(
            "看护程序没有结束引擎，现在直接结束它。", "Its keeper has not ended the engine; it is ended directly."
        )
        if who := own.leader():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(who.pid, signal.SIGTERM)
        until = time.monotonic() + GENTLY_S
        while own.members() and time.monotonic() < until:
            time.sleep(EVERY_S)
        own.kill()


def end_container(runtime: str, name: str) -> None:
    """The client may be gone and the container not."""
    for argv in (container.stop(runtime, name), container.remove(runtime, name)):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=RUNTIME_S, check=False)


def stays(name: str, left: list[int]) -> Stopped:
    words = ", ".join(map(str, left[:8]))
    return Stopped(
        f"引擎 {name} 的进程结束不了：PID {words}。它们可能卡在驱动里：请查看 dmesg；多半只有重启服务器才能结束它们。",
        f"Processes of the engine {name} do not end: PID {words}. They may hang in the driver: look in dmesg; mostly "
        "only a restart of the server ends them.",
    )


def main(arguments: list[str]) -> int:
    drain = next((float(word.removeprefix(DRAIN)) for word in arguments if word.startswith(DRAIN)), 0.0)
    rest = [word for word in arguments if not word.startswith(DRAIN)]
    return program.run(lambda ask, config: work(ask, config, drain_s=drain), rest)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
