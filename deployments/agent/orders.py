"""What the console tells the agent itself, not a job: signed orders on the list `h:<id>:orders`.

An entry is JSON {"body", "mac"}; `body` is JSON text {"op": "order", "do": "<name>", "args": {…}, "server", "nonce",
"not_after"}, signed like a job's payload. Each is obeyed once: its answer is noted on disk before the entry goes, and
is told in every beat until the order's time is over. One that was cut off in the middle is obeyed again, so what
obeys it bears being called twice. Takes any Redis client by its methods.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deployments.agent import dispatch, keys, spool
from deployments.agent.config import Config, Current

log = logging.getLogger("orders")

STATE = "orders.json"
LOOK_S = 1.0
A_LOOK = 8  # entries
MOST_TOLD = 8  # answers in one beat
MOST_KEPT = 200
MAX_ENTRY = dispatch.MAX_BODY + 1024
MOST_WORDS = 300
NONCE = re.compile(r"[0-9a-f]{16,64}")

Handler = Callable[[dict[str, Any]], str]  # takes `args`, returns what to say about it; raises CannotObey


class CannotObey(Exception):
    """An order that is sound and cannot be carried out here; both sentences go to the console."""

    def __init__(self, zh: str, en: str) -> None:
        super().__init__(en)
        self.words = f"{en[:190]}\n{zh[: MOST_WORDS - 191]}"


@dataclass(frozen=True)
class Answer:
    """`state` is done or failed; `words` say why it failed: in English, and in a second line in Chinese."""

    nonce: str
    state: str
    words: str
    not_after: float


class Orders:
    """One server's. `tick` obeys what stands in the list; raises what the client raises, and goes on at the next."""

    def __init__(
        self, config: Config, redis: Any, handlers: Mapping[str, Handler], refused: Callable[[str], None]
    ) -> None:
        self.config = config
        self.current = Current(config)
        self.redis = redis
        self.handlers = handlers
        self.refused = refused
        self.key = keys.orders(config.prefix)
        self.known = _read(config)

    def answers(self) -> list[list[str]]:
        """[[nonce, state, words]] of the newest, as the beat carries them."""
        return [[answer.nonce, answer.state, answer.words] for answer in list(self.known.values())[-MOST_TOLD:]]

    def tick(self) -> int:
        """How many entries were taken."""
        entries = self.redis.lrange(self.key, 0, A_LOOK - 1)
        if not entries:
            return 0
        seconds, micros = self.redis.time()
        now = float(seconds) + float(micros) / 1e6
        for entry in entries:
            self._take(entry, now)
            self.redis.lrem(self.key, 1, entry)
        return len(entries)

    def _take(self, entry: bytes, now: float) -> None:
        try:
            data = self._open(entry, now)
        except dispatch.Refused as refusal:
            log.warning("refused an order: %s", refusal)
            self.refused(f"order: {refusal}")
            return
        if data["nonce"] not in self.known:
            self._note(self._obey(data), now)

    def _open(self, entry: bytes, now: float) -> dict[str, Any]:
        try:
            outer = json.loads(entry) if len(entry) <= MAX_ENTRY else None
        except (ValueError, RecursionError):
            outer = None
        if not isinstance(outer, dict):
            raise dispatch.Refused("the entry is not a signed order")
        data = dispatch.opened(self.current(), outer.get("body"), outer.get("mac"), now)
        if data.get("op") != "order" or not isinstance(data.get("do"), str) or not isinstance(data.get("args"), dict):
            raise dispatch.Refused("the payload is no order")
        if not isinstance(data.get("nonce"), str) or not NONCE.fullmatch(data["nonce"]):
            raise dispatch.Refused("the order has no nonce")
        return data

    def _obey(self, data: dict[str, Any]) -> Answer:
        handler = self.handlers.get(data["do"])
        name = data["do"][:40]
        state, words = "failed", f"this agent knows no order {name}\n这台服务器的代理不认识指令 {name}"
        if handler is not None:
            try:
                state, words = "done", handler(data["args"])
            except CannotObey as error:
                words = error.words
            except Exception as error:
                log.exception("order %s failed", data["do"])
                words = f"{type(error).__name__}: {error}"
        log.info("order %s: %s %s", data["do"], state, words.partition("\n")[0])
        return Answer(data["nonce"], state, words[:MOST_WORDS], float(data["not_after"]))

    def _note(self, answer: Answer, now: float) -> None:
        """On disk before the entry goes; answers whose orders are void by now are of no use any more."""
        self.known[answer.nonce] = answer
        kept = [one for one in self.known.values() if one.not_after >= now][-MOST_KEPT:]
        self.known = {one.nonce: one for one in kept}
        text = json.dumps([asdict(one) for one in kept]).encode()
        spool.write_synced(self.config.state_dir / STATE, text)


def _read(config: Config) -> dict[str, Answer]:
    try:
        rows = json.loads((config.state_dir / STATE).read_bytes())
        found = [Answer(str(r["nonce"]), str(r["state"]), str(r["words"]), float(r["not_after"])) for r in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {answer.nonce: answer for answer in found}
