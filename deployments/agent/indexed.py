"""Run a step's pip with the authorities and logins of the site's indexes.

    python -m deployments.agent.indexed COMMAND …

They come sealed from the console when the step runs, for this attempt alone, and stand in two files of a folder that
nobody but this user may enter; it goes when the command has ended. So they are in no payload, command, log or plan.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from deployments.agent import pages, processes, signing
from deployments.agent.config import Config
from deployments.agent.pages import Stopped
from deployments.stacks import indexes

OWN = "indexes.json"  # beside the config of the agent that runs on the console's own machine
PREFIX = ".indexes-"
MAX_ANSWER = 512 * 1024


def ask(config: Config, attempt: str) -> tuple[tuple[indexes.Login, ...], str]:
    """The logins and the authorities (PEM). Raises Stopped."""
    own = config.path.with_name(OWN)
    try:
        if own.is_file():
            return _read(json.loads(own.read_bytes()))
        return _read(json.loads(opened(config, pages.ask(config, "indexes", attempt=attempt).read(MAX_ANSWER))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Stopped(
            "控制台给出的索引登录信息无法使用。请检查本机与控制台之间是否有代理，再重试。",
            "What the console says of its indexes cannot be used. Look for a proxy between this server and the "
            "console, then try again.",
        ) from error


def opened(config: Config, sealed: bytes) -> bytes:
    """While keys change, the console may go by the one before. Raises ValueError."""
    for key in config.keys[1:]:
        with contextlib.suppress(ValueError):
            return signing.unseal(key, sealed)
    return signing.unseal(config.key, sealed)


def _read(told: dict[str, Any]) -> tuple[tuple[indexes.Login, ...], str]:
    logins = tuple(indexes.Login(*map(str, one)) for one in told["logins"])
    return logins, str(told["ca"])


def check(argv: list[str], logins: tuple[indexes.Login, ...], authorities: str) -> None:
    """Try each index once: pip says nothing of one that does not let it in. Raises Stopped."""
    for word, address in itertools.pairwise(argv):
        if word in ("--index-url", "--extra-index-url"):
            problem = indexes.unheard(address, logins, authorities)
            if problem:
                raise Stopped(
                    f"软件包索引 {address} 不可用：{problem}。请检查网络，以及控制台的 PACKAGE_INDEX_CA 与 "
                    "PACKAGE_PASSWORDS，再重试。",
                    f"The index {address} cannot be used: {problem}. Look at the network, and at PACKAGE_INDEX_CA and "
                    "PACKAGE_PASSWORDS of the console, then try again.",
                )


def run(argv: list[str], env: dict[str, str]) -> int:
    """Its exit code. Signals are for the command, which is in the same group: we stay until it has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    try:
        code = subprocess.Popen(argv, env=env).wait()
    except OSError as error:
        words = os.strerror(error.errno or 0)
        raise Stopped(f"无法启动 {argv[0]}（{words}）。", f"{argv[0]} could not be started ({words}).") from error
    return code if code >= 0 else 128 - code


def sweep(attempts: Path) -> None:
    """Take away what a step left that was killed together with us."""
    for folder in attempts.glob(f"*/{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).split("-")[0]
        if not pid.isdecimal() or processes.identity(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    command = sys.argv[1:] if argv is None else argv
    ended = []

    def work(config: Config) -> None:
        sweep(config.attempts)
        logins, ca = ask(config, os.environ["ASCEND_ATTEMPT"])
        with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=Path.cwd()) as folder:
            own = indexes.write(Path(folder), logins, ca)
            env = {**os.environ, **own}
            check(command, logins, own.get("PIP_CERT", ""))
            for name in ("PYTHONPATH", "ASCEND_CONFIG"):  # ours, and not those of the environment's own Python
                env.pop(name, None)
            ended.append(run(command, env))

    code = pages.step(work)
    return ended[0] if ended else code


if __name__ == "__main__":
    sys.exit(main())
