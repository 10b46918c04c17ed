"""Judges a signed payload and, when it is good, claims the attempt it names. Plain: no Redis, no RQ."""

import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deployments import kinds
from deployments.agent import PROTOCOL, install, signing, spool
from deployments.agent.config import Config, Current
from deployments.steps import BadParams, Text, read_params

MAX_BODY = 256 * 1024
STATE = "worker.json"
UPGRADE = "agent_upgrade"  # the one kind that an agent takes from however new a console
WORKER_LOCK = "worker.lock"  # held by the worker for life
CANCELLED = Text("在开始之前已按请求取消。", "Cancelled on request, before it began.")


class Refused(Exception):
    """A payload that this server does not take; the words are for the console's log."""


@dataclass
class Counts:
    """Since the agent's state began: payloads refused, payloads that came again, why the last was refused."""

    refused: int = 0
    already: int = 0
    last_refusal: str = ""


class Dispatcher:
    """`handle` answers "accepted", "already" or "refused: <reason>". `redis_now` is Redis's clock, epoch seconds."""

    def __init__(self, config: Config, redis_now: Callable[[], float], wake: Callable[[], None]) -> None:
        self.config = config
        self.current = Current(config)
        self.redis_now = redis_now
        self.wake = wake
        self.counts = read_counts(config)
        self.lock = threading.Lock()

    def handle(self, body: str, mac: str) -> str:
        try:
            answer = self._take(body, mac)
        except Refused as refusal:
            answer = f"refused: {refusal}"
            self.note(refused=str(refusal))
        if answer == "already":
            self.note()
        return answer

    def note(self, refused: str | None = None) -> None:
        """Count a refusal, or a payload that came again, where the beat finds it."""
        with self.lock:
            if refused is None:
                self.counts.already += 1
            else:
                self.counts.refused += 1
                self.counts.last_refusal = refused[:200]
            spool.write_whole(self.config.state_dir / STATE, json.dumps(vars(self.counts)).encode())

    def _take(self, body: str, mac: str) -> str:
        data = verify(self.current(), body, mac, self.redis_now())
        if data["op"] == "leave":
            return self._leave()
        if data["op"] == "cancel":
            return self._cancel(data["attempt"], body)
        problem = _problem(data)
        records = _refusal(problem) if problem else b""
        answer = spool.claim(self.config.attempts, data["attempt"], body, records)
        if answer == "other":
            raise Refused("another payload has claimed this attempt")
        if answer == "claimed" and problem:
            raise Refused(problem.en)
        self.wake()
        return "accepted" if answer == "claimed" else "already"

    def _cancel(self, attempt: str, body: str) -> str:
        """Ask the runner, or, when the attempt never came here, claim it so that it never begins."""
        ended = spool.record("v", spool.event("ended", state="cancelled", exit=None, reason=list(CANCELLED)))
        if spool.claim(self.config.attempts, attempt, body, ended) == "claimed":
            return "accepted"
        folder = self.config.attempts / attempt
        if spool.is_over(folder) or (folder / "cancel").exists():
            return "already"
        spool.write_whole(folder / "cancel", body.encode())
        return "accepted"

    def _leave(self) -> str:
        """Take the agent off this server, where that is in its power; a program of its own does it in a moment."""
        prefix = install.removable(self.config)
        if prefix is None:
            raise Refused("this agent may not remove itself")
        install.start_leaving(prefix)
        return "accepted"


def opened(config: Config, body: Any, mac: Any, now: float) -> dict[str, Any]:
    """What is signed with this server's key, meant for it, and still valid at `now`. Raises Refused."""
    if not isinstance(body, str) or not isinstance(mac, str) or len(body) > MAX_BODY:
        raise Refused("the payload is not a signed text")
    if not mac.isascii() or not any(signing.is_signed(key, body, mac) for key in config.keys):
        raise Refused("the signature is not that of this server's key")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused("the payload is not JSON") from error
    if not isinstance(data, dict):
        raise Refused("the payload names no known operation")
    if data.get("server") != config.server_id:
        raise Refused("the payload is for another server")
    _check_time(data.get("not_after"), now)
    return data


def verify(config: Config, body: Any, mac: Any, now: float) -> dict[str, Any]:
    """A payload that asks to run or cancel an attempt, or the agent to leave. Raises Refused."""
    data = opened(config, body, mac, now)
    if data.get("op") not in ("run", "cancel", "leave"):
        raise Refused("the payload names no known operation")
    if data["op"] != "leave" and not _names_attempt(data):
        raise Refused("the payload names no attempt")
    return data


def _names_attempt(data: dict[str, Any]) -> bool:
    return isinstance(data.get("attempt"), str) and spool.is_attempt_id(data["attempt"])


def _check_time(not_after: Any, now: float) -> None:
    if isinstance(not_after, bool) or not isinstance(not_after, (int, float)) or not math.isfinite(not_after):
        raise Refused("the payload has no time after which it is void")
    if now > not_after:
        raise Refused(f"the payload expired {int(now - not_after)} s ago")


def _problem(data: dict[str, Any]) -> Text | None:
    """Why this server cannot make steps of the payload; None when it can."""
    spoken = data.get("protocol", 1)
    if data.get("kind") != UPGRADE and (not isinstance(spoken, int) or spoken > PROTOCOL + 1):
        return Text(
            f"控制台比这台服务器的代理新得多（协议 {str(spoken)[:20]}，代理为 {PROTOCOL}）。请先升级代理，再重试。",
            f"The console is much newer than this server's agent (protocol {str(spoken)[:20]}, the agent speaks "
            f"{PROTOCOL}). Upgrade the agent, then try again.",
        )
    try:
        kind = kinds.load(str(data.get("kind")))
        kind.steps(read_params(kind.Params, data["params"]))
    except KeyError:
        return Text(
            f"这台服务器的代理不认识作业种类 {data.get('kind')}。请升级代理，再重试。",
            f"This server's agent does not know the job kind {data.get('kind')}. Upgrade the agent, then try again.",
        )
    except BadParams as error:
        words = "；".join(f"{name} {text.zh}" for name, text in error.problems)
        return Text(f"参数不对：{words}。请改正后重试。", f"Wrong parameters: {error}. Correct them, then try again.")
    except Exception as error:
        words = f"{type(error).__name__}: {error}"[:500]
        return Text(f"无法由这些参数得出步骤（{words}）。", f"No steps could be made of these parameters ({words}).")
    return None


def _refusal(reason: Text) -> bytes:
    """All that the log of a refused attempt says."""
    return spool.record("v", spool.event("ended", state="failed", exit=None, reason=list(reason)))


def read_counts(config: Config) -> Counts:
    try:
        data = json.loads((config.state_dir / STATE).read_bytes())
        return Counts(int(data["refused"]), int(data["already"]), str(data["last_refusal"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Counts()
