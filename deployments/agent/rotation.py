"""The orders `rotate` and `settle`: other keys for this server, and the end of the old ones.

    rotate {"key": hex, "password": text, "from": mark}   the agent tries the password, keeps this pair and the one
                                                          that the console goes by as yet, and answers done
    settle {"mark": mark}                                 the console goes by that pair: the other is forgotten

A mark is `credentials.mark(pair)`.

Whatever cuts this off, the server is left with one pair that the console takes: until `settle` both are kept here.
"""

import re
from collections.abc import Callable
from typing import Any

from deployments.agent import credentials
from deployments.agent.config import Config
from deployments.agent.credentials import Kept, Pair
from deployments.agent.orders import CannotObey

KEY = re.compile(r"[0-9a-f]{32,128}")
PASSWORD = re.compile(r"[A-Za-z0-9_-]{16,128}")


class Rotation:
    """`handlers` are those of the link. `reaches(url)` raises CannotObey where Redis does not take that address."""

    def __init__(self, current: Callable[[], Config], reaches: Callable[[str], None]) -> None:
        self.current = current
        self.reaches = reaches
        self.handlers = {"rotate": self.rotate, "settle": self.settle}

    def rotate(self, args: dict[str, Any]) -> str:
        key, password = args.get("key"), args.get("password")
        if not (isinstance(key, str) and KEY.fullmatch(key) and isinstance(password, str)):
            raise CannotObey("指令中没有密钥", "the order holds no keys")
        if not PASSWORD.fullmatch(password):
            raise CannotObey("指令中没有密码", "the order holds no password")
        config = self.current()
        now, wished = Pair(config.key, credentials.password_of(config.redis_url)), Pair(key, password)
        if now == wished:  # it was cut off after it was obeyed
            return ""
        self.reaches(credentials.with_password(config.redis_url, password))
        # Where an order before this one came to nothing, the console still goes by the pair before that.
        known = [pair for pair in (now, config.before) if pair and credentials.mark(pair) == args.get("from")]
        if not known:
            raise CannotObey(
                "指令所依据的密钥不是这台服务器的密钥", "the order goes out from keys that this server does not have"
            )
        credentials.write(config.state_dir, Kept(config.origin, wished, known[0]))
        return ""

    def settle(self, args: dict[str, Any]) -> str:
        config = self.current()
        now = Pair(config.key, credentials.password_of(config.redis_url))
        if args.get("mark") != credentials.mark(now):
            raise CannotObey("这台服务器用的是别的密钥", "this server goes by other keys")
        if config.before is not None:
            credentials.write(config.state_dir, Kept(config.origin, now))
        return ""
