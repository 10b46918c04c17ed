"""`python -m deployments.agent.serving.await_ready e12 …`: wait until the engine answers, and tell how far it is.

What its keeper says (`now.json`) is passed on as lines and items. It ends early, with the engine's own reason, where
the keeper gives up; a node that only computes for another is ready when it has lived for a moment.
"""

import re
import time
from collections.abc import Mapping
from typing import Any

from deployments.agent.config import Config
from deployments.agent.serving import engine, program
from deployments.agent.serving.engine import Engine
from deployments.agent.serving.program import Stopped
from deployments.serving import findings
from deployments.serving.asked import Ask
from deployments.steps import Text

EVERY_S = 0.25
ALONE_S = 30.0  # so long nobody may keep it
REST_S = 2.0
TRIES = 2
LIVES_S = 45.0  # a node that only computes for another
AGAIN = re.compile(
    r" (?:It is started again in [0-9.]+ s\.|[0-9.]+ 秒后重新启动。)$"
)  # by its keeper; not after we stop it
FACTS = {
    "version": Text("vLLM 版本", "Version of vLLM"),
    "weights_gb": Text("权重 GB", "Weights, GB"),
    "available_kv_gib": Text("KV 缓存显存 GiB", "Memory for the KV cache, GiB"),
    "kv_tokens": Text("KV 缓存词元数", "Tokens of the KV cache"),
    "max_concurrency": Text("最大并发", "Greatest concurrency"),
    "max_model_len": Text("最大长度", "Greatest length"),
}


class Teller:
    """Passes on what is new: progress as lines, facts as items."""

    def __init__(self) -> None:
        self.said, self.facts, self.restarts = "", dict[str, Any](), 0

    def tell(self, now: Mapping[str, Any]) -> None:
        if words := progress(now):
            line = " ".join(words)
            if line != self.said:
                self.said = line
                print(line, flush=True)
        restarts = now.get("restarts")
        if type(restarts) is int and restarts > self.restarts:
            self.restarts = restarts
            why = pair(now.get("reason"))
            program.say(f"引擎退出，第 {restarts} 次重新启动。{why.zh if why else ''}",
                        f"The engine ended; start {restarts + 1}. {why.en if why else ''}")  # fmt: skip
        facts = now.get("facts")
        for name, title in FACTS.items():
            value = facts.get(name) if isinstance(facts, dict) else None
            if value is not None and self.facts.get(name) != value:
                self.facts[name] = value
                program.item(f"engine:{name}", title, "ok", f"{value:g}" if isinstance(value, float) else value)


def progress(now: Mapping[str, Any]) -> list[str]:
    """`加载权重 Loading weights 3/8`, [] where nothing is told."""
    told = now.get("progress")
    what = pair(told.get("what")) if isinstance(told, dict) else None
    if what is None or not isinstance(told, dict):
        return []
    of = told.get("of")
    amount = [f"{told.get('done')}/{of}"] if of else []
    return [what.zh, what.en, *amount]


def pair(value: Any) -> Text | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return Text(value[0][:1000], value[1][:1000])
    return None


def work(ask: Ask, config: Config) -> int:
    own = engine.of(config, ask.name)
    began = seen = time.monotonic()
    teller = Teller()
    while True:
        now, at = own.now(), time.monotonic()
        teller.tell(now)
        state = now.get("state")
        if _lives(own, now) if ask.is_follower else state == "ready":
            program.say(f"就绪，用时 {at - began:.0f} 秒。", f"Ready after {at - began:.0f} s.")
            _rest(own, teller)
            return 0
        if state == "failed" or hopeless(own, now):
            raise failed(own, now)
        if own.is_kept():
            seen = at
        elif at - seen >= ALONE_S:
            raise failed(own, now, gone=True)
        if at - began >= ask.ready_s:
            raise too_slow(ask.ready_s, own)
        time.sleep(EVERY_S)


def hopeless(own: Engine, now: Mapping[str, Any]) -> bool:
    """Whether it has ended in a way that another start will not change: for a reason that is known, or twice."""
    restarts = now.get("restarts")
    if type(restarts) is not int or restarts < 1:
        return False
    return restarts >= TRIES or found_in(own, died=False, tell=False) is not None


def _rest(own: Engine, teller: Teller) -> None:
    """What it has printed of itself may be written a moment later than that it is ready."""
    until = time.monotonic() + REST_S
    while "kv_tokens" not in teller.facts and time.monotonic() < until:
        time.sleep(EVERY_S)
        teller.tell(own.now())


def _lives(own: Engine, now: Mapping[str, Any]) -> bool:
    """Whether the engine of a node that answers nobody has lived for a while since its newest start."""
    at = now.get("started_at")
    return isinstance(at, (int, float)) and time.time() - at >= LIVES_S and bool(own.leader() and own.members())


def failed(own: Engine, now: Mapping[str, Any], *, gone: bool = False) -> Stopped:
    """The reason in the words that we have for what the engine printed, else its keeper's own."""
    if known := found_in(own, died=True):
        return Stopped(*known)
    if why := pair(now.get("reason")):
        return Stopped(AGAIN.sub("", why.zh), AGAIN.sub("", why.en))
    if gone:
        return Stopped(
            "看护引擎的程序已不在，引擎没有就绪。请查看引擎日志，再重试。",
            "The program that keeps the engine is gone, and the engine was not ready. See the engine's log, then try "
            "again.",
        )
    return Stopped(
        "引擎没有就绪就结束了。请看引擎日志的最后几行。",
        "The engine ended before it was ready. See the last lines of its log.",
    )


def found_in(own: Engine, *, died: bool, tell: bool = True) -> Text | None:
    """What the log of this start says went wrong, None where it says nothing that is known."""
    lines = own.last_words(engine.noted_log()).splitlines()
    best = findings.best(lines, died=died) if lines else None
    if best is None:
        return None
    if tell:
        program.item("finding", Text("引擎日志", "Log of the engine"), "failed", best.text, None, best.cause)
    return best.cause


def too_slow(within_s: float, own: Engine) -> Stopped:
    """It may still say why."""
    known = found_in(own, died=False) or Text(
        "请看引擎日志；大模型请加长就绪时限，再重试。",
        "See its log; give a large model more time to become ready, then try again.",
    )
    return Stopped(
        f"引擎在 {within_s / 60:g} 分钟内没有就绪，已被停止。{known.zh}",
        f"The engine was not ready within {within_s / 60:g} min and was stopped. {known.en}",
    )


if __name__ == "__main__":
    raise SystemExit(program.run(work))
