"""Tokens and authorities of the site's hubs, for the one job that asks: sealed on their way, in memory alone here."""

import json
import os
from typing import Any, NamedTuple

from deployments.agent import pages
from deployments.agent.config import Config
from deployments.agent.indexed import opened
from deployments.agent.models import signed_http
from deployments.agent.pages import Stopped

OWN = "models.json"  # beside the config of the agent that runs on the console's own machine
MAX_ANSWER = 512 * 1024


class Secrets(NamedTuple):
    """`tokens`: {host or origin: token}; `ca`: PEM; `key` (hex) is shared by both ends of one copy."""

    tokens: dict[str, str]
    ca: str
    key: str


def ask(config: Config, pair: str = "") -> Secrets:
    """With the key of the copy of that number, where there is one. Raises Stopped."""
    attempt = os.environ.get("ASCEND_ATTEMPT", "")
    own = config.path.with_name(OWN)
    try:
        if own.is_file():
            return _read(json.loads(own.read_bytes()), pair)
        return _read(json.loads(opened(config, pages.ask(config, "models", attempt=attempt).read(MAX_ANSWER))), "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Stopped(
            "控制台给出的模型站点令牌无法使用。请检查本机与控制台之间是否有代理，再重试。",
            "What the console says of its hubs cannot be used. Look for a proxy between this server and the console, "
            "then try again.",
        ) from error


def _read(told: dict[str, Any], pair: str) -> Secrets:
    tokens = {str(where): str(token) for where, token in told["tokens"].items()}
    key = signed_http.key_of(str(told["seed"]), pair) if pair else str(told.get("key", ""))
    return Secrets(tokens, str(told["ca"]), key)
