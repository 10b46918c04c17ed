"""The one way to root: a helper in a file of its own, and the one line of sudo that allows it.

The agent and its jobs run as an ordinary account. A step that needs root names an action of the helper's table
(`root_helper.py`); joining as root installs the helper (`root_install.py`).
"""

import os
import subprocess
import sys
from pathlib import Path

from deployments.agent.config import Config
from deployments.steps import ATTEMPT, Text

SOURCE = Path(__file__).with_name("root_helper.py")
ASK_S = 10.0


class NoRoot(Exception):
    """This agent has no way to root; `text` says what to do."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


NONE = Text(
    "这一步需要 root 权限，而这台服务器没有 root 助手。请以 root 重新运行加入命令（不带 NO_ROOT_HELPER），再重试。",
    "This step needs root, and this server has no root helper. Run the command for joining again as root, "
    "without NO_ROOT_HELPER, then try again.",
)


# ---------- on a running agent ----------


def helper(config: Config) -> Path:
    """Where joining puts it."""
    return config.path.parent.parent / "bin" / "root-helper"


def command(config: Config, words: list[str], attempt: str) -> list[str]:
    """The argument list by which this agent has an action done as root. Raises NoRoot."""
    asked = [attempt if word == ATTEMPT else word for word in words]
    if config.simulated:
        return ["root-helper", *asked]
    if os.geteuid() == 0:
        return [sys.executable, "-I", str(SOURCE), *asked]
    if not helper(config).exists():
        raise NoRoot(NONE)
    return ["sudo", "-n", str(helper(config)), *asked]


def state(config: Config) -> str:
    """How this agent gets to root: "root" (it is), "helper", "old" (a helper of another version of ours), "none", or
    "refused" where sudo does not let it."""
    if config.simulated:
        return "helper"
    if os.geteuid() == 0:
        return "root"
    if not helper(config).exists():
        return "none"
    try:
        asked = subprocess.run(
            ["sudo", "-n", "-l", str(helper(config))], stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S
        )
    except (OSError, subprocess.SubprocessError):
        return "refused"
    if asked.returncode or no_new_privileges():
        return "refused"
    return "helper" if _is_ours(helper(config)) else "old"


def _is_ours(path: Path) -> bool:
    """Whether the helper is of this version; its first line names the Python that was found there."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[2] == SOURCE.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def no_new_privileges() -> bool:
    """Whether the kernel lets nobody among us become another user, as hardened units have it."""
    try:
        return "\nNoNewPrivs:\t1\n" in Path("/proc/self/status").read_text()
    except OSError:
        return False
