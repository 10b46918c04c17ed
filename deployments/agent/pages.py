"""What an agent asks of the console's pages by HTTP, signed with its own key, and how a step says why it could not.

It goes by HTTP, as at joining, and not through Redis, where megabytes would be in everybody's way. Who stands between
us and the console does not matter: the digest of what comes was signed.
"""

import http.client
import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from deployments.agent import chosen, fetch, signing, spool
from deployments.agent.config import Config, ConfigError, load
from deployments.agent.install import Install
from deployments.steps import Text

ANSWER_S = 60.0


class Stopped(Exception):
    """What keeps the step from being done; nothing has changed."""

    def __init__(self, zh: str, en: str) -> None:
        super().__init__(en)
        self.text = Text(zh, en)


def say(zh: str, en: str) -> None:
    """A line of the job's log, which readers of both languages see."""
    print(f"{zh} {en}", flush=True)


def place_of(config: Config) -> Install:
    """Raises Stopped where the agent did not join by the console's command."""
    place = chosen.installed(config)
    if place is None:
        raise Stopped(
            "这个代理随控制台一起安装与升级，不能单独升级。",
            "This agent comes with the console and is upgraded with it, not by itself.",
        )
    return place


def ask(config: Config, op: str, **question: str) -> http.client.HTTPResponse:
    """The answer of POST /join/<op>, its status 200 and its body unread. Raises Stopped."""
    place = None if config.console else place_of(config)
    web, pin = (place.console, place.pin) if place else (config.console, config.pin)
    body = json.dumps({"op": op, "server": config.server_id, **question})
    sent = json.dumps({"body": body, "mac": signing.sign(config.key, body)}).encode()
    try:
        answer = fetch.ask("POST", f"{web}/join/{op}", pin, sent, timeout_s=ANSWER_S)
    except (OSError, http.client.HTTPException) as error:
        host = urlsplit(web).netloc
        raise Stopped(
            f"连不到控制台的网页地址 {host}（{error}）。请放通本机到该端口的 TCP 连接，再重试。",
            f"The console's pages at {host} cannot be reached from here ({error}). Let this server reach that TCP "
            "port, then try again.",
        ) from error
    if answer.status != 200:
        words = " ".join(answer.read(600).decode(errors="replace").split())
        raise Stopped(f"控制台不给：{words}", f"The console refuses: {words}")
    return answer


def give_up(text: Text) -> None:
    """Say why in the log, and in the job's own words: the runner reads them when the step has failed."""
    say(*text)
    path = os.environ.get("ASCEND_REASON")
    if path:
        spool.write_whole(Path(path), json.dumps(list(text)).encode())


def step(work: Callable[[Config], object]) -> int:
    """Do the work of a step with this agent's config; its exit code."""
    try:
        work(load(Path(os.environ["ASCEND_CONFIG"])))
    except (Stopped, ConfigError) as stopped:
        give_up(stopped.text)
        return 1
    return 0
