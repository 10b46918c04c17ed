"""The demo fleet: `python -m deployments.demo --config var/demo/config.json`.

The file holds {"redis_url": "redis://…", "servers": [{…}]}: a Redis user who may touch the prefixes of all simulated
servers, and for each of them what its agent would be told (`deployments/agent/config.py`); the name decides how it
is simulated. Tools are written to `bin` beside the file, each server's files below its own `state_dir`. Once there is
a file `removed` beside it, an administrator has removed the fleet, and the process ends with exit code 0.
"""

import argparse
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import redis

from deployments.agent.config import Config, ConfigError, parse, spoken
from deployments.demo.loop import Loop
from deployments.steps import Text


def read(path: Path) -> tuple[str, list[Config]]:
    """The Redis address and the agents' configs. Raises ConfigError with what to do."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return str(data["redis_url"]), [parse(path, fields) for fields in data["servers"]]
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigError(
            Text(
                f"读不了演示配置 {path}（{reason}）。请用 make up 重新启动。",
                f"The demo's config {path} cannot be read ({reason}). Start again with make up.",
            )
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            Text(
                f"看不懂演示配置 {path}（{error}）。请用 make up 重新启动。",
                f"The demo's config {path} is not whole ({error}). Start again with make up.",
            )
        ) from error


class Stop:
    """Set by SIGTERM and SIGINT."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="deployments.demo")
    parser.add_argument("--config", type=Path, required=True)
    path = parser.parse_args(argv).config.absolute()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        url, configs = read(path)
        loop = Loop(configs, connect(url), path.parent)
    except (ConfigError, LookupError) as error:
        print(spoken(error.text) if isinstance(error, ConfigError) else error, file=sys.stderr)
        return 2
    logging.info("%s simulated servers, a sample of each every %.1f s", len(configs), loop.interval_s)
    stop, removed = Stop(), path.with_name("removed")
    while not stop.asked and not removed.exists():
        time.sleep(loop.turn())
    if removed.exists():
        logging.info("an administrator has removed the demo; it ends")
    return 0


def connect(url: str) -> "redis.Redis":
    return redis.Redis.from_url(url, socket_timeout=10.0, socket_connect_timeout=5.0, socket_keepalive=True, retry=None)


if __name__ == "__main__":
    sys.exit(main())
