"""`python -m deployments.agent.serving.idle e12 --npus=…`: wait until the NPUs of an engine have their memory back.

A process that died badly may leave its memory in the driver: then only a reset of the card helps. What is free is told
by the level that each NPU had before the engine came, else by what its chip uses with nothing on it; where neither is
known, that is said and nothing is waited for.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from deployments.agent.config import Config
from deployments.agent.serving import engine, npus, program
from deployments.agent.serving.npus import Seen
from deployments.agent.serving.program import Stopped
from deployments.serving.asked import Ask
from deployments.serving.idle import by_chip
from deployments.steps import Text

PATIENCE_S, EVERY_S = 180.0, 1.0
MARGIN_MB = 400  # readings of an idle card differ by so much
TITLE = Text("NPU 显存", "Memory of the NPU")


def limits(ask: Ask, before: Mapping[str, int], there: Sequence[Seen], margin_mb: int = MARGIN_MB) -> dict[str, int]:
    """{name: MB below which the NPU is idle}, of those for which that is known."""
    found = {}
    for one in there:
        if one.name in before:
            known: int | None = before[one.name]
        else:
            known = ask.idle_mb or by_chip(one.chip, ask.family)
        if known is not None:
            found[one.name] = known + margin_mb
    return found


def busy(there: Sequence[Seen], most: Mapping[str, int]) -> list[Seen]:
    """Those that use more than they do when idle."""
    return [one for one in there if one.used_mb is not None and one.used_mb > most.get(one.name, one.used_mb)]


def wait(
    ask: Ask, before: Mapping[str, int], look: Callable[[], list[Seen]], patience_s: float = PATIENCE_S,
    every_s: float = EVERY_S,
) -> list[Seen]:  # fmt: skip
    """The NPUs that do not come back to idle within the time. Raises Stopped where npu-smi does not tell."""
    until, told = time.monotonic() + patience_s, ""
    while True:
        there = [one for one in look() if one.name in ask.npus]
        left = busy(there, limits(ask, before, there))
        if not left or time.monotonic() >= until:
            return left
        words = ", ".join(f"{one.name} {one.used_mb} MB" for one in left)
        if words != told:
            told = words
            program.say(f"尚未空闲：{words}。", f"Not idle yet: {words}.")
        time.sleep(every_s)


def work(ask: Ask, config: Config) -> int:
    if ask.device == "cpu" or not ask.npus:
        return program.NOTHING
    before, there = engine.of(config, ask.name).idle(), [one for one in npus.look() if one.name in ask.npus]
    known = limits(ask, before, there)
    if unknown := [one.name for one in there if one.name not in known or one.used_mb is None]:
        words = ", ".join(unknown)
        program.say(f"不知道这些 NPU 空闲时用多少显存，跳过：{words}。",
                    f"What these NPUs use when idle is not known, so they are passed over: {words}.")  # fmt: skip
    if not [name for name in known if name not in unknown]:
        return program.NOTHING
    left = {one.name: one for one in wait(ask, before, npus.look)}
    for one in there:
        if one.name in known and one.name not in unknown:
            _report(one, left.get(one.name), known[one.name])
    if left:
        raise not_idle(list(left.values()))
    return 0


def _report(one: Seen, left: Seen | None, most: int) -> None:
    title, wanted = Text(f"{TITLE.zh} {one.name}", f"{TITLE.en} {one.name}"), f"≤ {most} MB"
    if left is None:
        program.item(f"idle:{one.name}", title, "ok", None, wanted)
        return
    remedy = Text(
        "查看还有谁在用这个 NPU；没有进程时复位它。",
        "See who else uses this NPU; where no process does, reset it.",
    )
    job = {"kind": "reset", "params": {"npu": one.bus_id}}
    program.item(f"idle:{one.name}", title, "failed", f"{left.used_mb} MB", wanted, remedy, job)


def not_idle(left: Sequence[Seen]) -> Stopped:
    words = ", ".join(f"{one.name} {one.used_mb} MB{_who(one)}" for one in left[:8])
    return Stopped(
        f"引擎已停止，但这些 NPU 的显存没有释放：{words}。请查看是否有其他进程；没有时复位 NPU，再使用它们。",
        f"The engine was stopped, but these NPUs do not give their memory back: {words}. See whether another process "
        "uses them; where none does, reset them before they are used again.",
    )


def _who(one: Seen) -> str:
    return f" (PID {', '.join(map(str, one.pids[:4]))})" if one.pids else ""


if __name__ == "__main__":
    raise SystemExit(program.run(work))
