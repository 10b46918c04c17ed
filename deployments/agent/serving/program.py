"""How each program of these kinds begins and ends, and how it reports items."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from deployments.agent import pages
from deployments.agent.config import Config, ConfigError, load
from deployments.agent.pages import Stopped
from deployments.serving import asked
from deployments.serving.asked import Ask
from deployments.steps import Text

CANCELLED = 130
NOTHING = 3  # the exit code for: there was nothing to do
SERVED = "served"  # a file of the attempt: the engine has answered

__all__ = ["NOTHING", "SERVED", "Stopped", "item", "run", "say"]

say = pages.say


class Cancelled(Exception):
    """Somebody asked for the end of the step."""


def run(work: Callable[[Ask, Config], int], arguments: Sequence[str] | None = None) -> int:
    """The exit code of `work`; 1 with the reason told where it raises Stopped or the disk refuses something."""
    ask = asked.read(sys.argv[1:] if arguments is None else arguments, os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        return work(ask, load(Path(os.environ["ASCEND_CONFIG"])))
    except (Stopped, ConfigError) as stopped:
        pages.give_up(stopped.text)
    except OSError as error:
        pages.give_up(disk(error))
    except Cancelled:
        return CANCELLED
    return 1


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Cancelled


def disk(error: OSError) -> Text:
    where, why = error.filename or "—", error.strerror or type(error).__name__
    return Text(
        f"磁盘拒绝了读写：{where}（{why}）。请清出空间或检查权限，再重试。",
        f"The disk refused to read or write {where} ({why}). Free some space or mend the rights, then try again.",
    )


def item(
    key: str, title: Text, verdict: str, found: object = None, wanted: object = None, remedy: Text | None = None,
    job: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Report one item; outside a job there is nobody to report to."""
    path = os.environ.get("ASCEND_ITEMS")
    if not path:
        return
    data = {
        "key": key,
        "title": list(title),
        "verdict": verdict,
        "found": None if found is None else str(found),
        "wanted": None if wanted is None else str(wanted),
        "remedy": list(remedy) if remedy else None,
        "job": job,
    }
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(data) + "\n")
