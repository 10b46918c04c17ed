"""What the console asks of this server, in the variable ASCEND_SUPPORT of the step."""

import json
import os
from dataclasses import dataclass

from deployments.agent.pages import Stopped
from deployments.kinds.support_bundle import VARIABLE

MOST_NAMES = 400


@dataclass(frozen=True)
class Asked:
    """`since` and `until` are epoch seconds, 0 for no bound; `names` are names of servers to be replaced, unless
    `hosts` says that they may stand; `salt` makes the replacements of all servers of one bundle the same."""

    bundle: int
    since: int = 0
    until: int = 0
    hosts: bool = False
    names: tuple[str, ...] = ()
    salt: str = ""
    most_mb: int = 256
    seconds: int = 300
    engines: tuple[str, ...] = ()


def read(text: "str | None" = None) -> Asked:
    """Raises Stopped for what no console of ours says."""
    try:
        told = json.loads(text if text is not None else os.environ[VARIABLE])
        return Asked(
            bundle=int(told["bundle"]),
            since=int(told["since"]),
            until=int(told["until"]),
            hosts=told["hosts"] is True,
            names=tuple(str(name) for name in told["names"][:MOST_NAMES]),
            salt=str(told["salt"]),
            most_mb=max(1, int(told["most_mb"])),
            seconds=max(1, int(told["seconds"])),
            engines=tuple(str(name) for name in told["engines"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Stopped(
            "没有说明要收集什么。请在控制台重新建立支持包。",
            "It was not said what to collect. Make the support bundle anew on the console.",
        ) from error
