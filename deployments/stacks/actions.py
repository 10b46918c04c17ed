"""What a plan asks of root: named actions with arguments of a fixed form, never a command of its own.

The root helper of the agent is to take these actions; what an operator reads is the command that an action stands
for. Both come from this one table.
"""

import re
from typing import NamedTuple

PACKAGES = "/opt/ascend-console/packages"  # where packages of the vendor are put
RUN_USER = "HwHiAiUser"
KERNEL = r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,119}"
FILE = r"/(?:[A-Za-z0-9_+-][A-Za-z0-9._+-]*/)*[A-Za-z0-9_+-][A-Za-z0-9._+-]*\.run"
ACCOUNT = r"[a-z_][a-z0-9_-]{0,31}"

# How a package of the vendor is called. --quiet: no question may wait for an answer that nobody gives.
PACKAGE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "driver-first": ("--nox11", "--full", "--quiet", "--install-for-all"),
    "firmware-first": ("--nox11", "--full", "--quiet"),
    "upgrade": ("--nox11", "--upgrade", "--quiet"),
    "toolkit-first": ("--full", "--quiet"),
    "part-first": ("--install", "--quiet"),
    "part-upgrade": ("--upgrade", "--quiet"),
    "part-uninstall": ("--uninstall", "--quiet"),
}


class Action(NamedTuple):
    """`forms` are patterns of its arguments, one each; `command` has {1}, {2}, … where they go."""

    forms: tuple[str, ...]
    command: tuple[str, ...]


ACTIONS: dict[str, Action] = {
    "apt-driver-tools": Action(
        (KERNEL,),
        ("apt-get", "install", "-y", "make", "dkms", "gcc", "net-tools", "pciutils", "linux-headers-{1}"),
    ),
    "yum-driver-tools": Action(
        (KERNEL,),
        (
            *("yum", "install", "-y", "make", "dkms", "gcc", "net-tools", "pciutils"),
            *("kernel-headers-{1}", "kernel-devel-{1}"),
        ),
    ),
    "run-group": Action((), ("groupadd", "-f", RUN_USER)),
    "run-user": Action(
        (),
        (
            *("sh", "-c"),
            f"getent passwd {RUN_USER} >/dev/null || "
            f"useradd -g {RUN_USER} -d /home/{RUN_USER} -m {RUN_USER} -s /bin/bash",
        ),
    ),
    "join-run-group": Action((ACCOUNT,), ("usermod", "-aG", RUN_USER, "{1}")),
    "uninstall-driver": Action((), ("bash", "/usr/local/Ascend/driver/script/uninstall.sh")),
    "uninstall-firmware": Action((), ("bash", "/usr/local/Ascend/firmware/script/uninstall.sh")),
    **{
        f"package-{name}": Action((FILE,), ("bash", "{1}", *arguments)) for name, arguments in PACKAGE_ARGUMENTS.items()
    },
}


def command(action: str, *arguments: str) -> tuple[str, ...]:
    """The argument list that an action stands for. Raises ValueError for what is not in the table or does not fit."""
    found = ACTIONS.get(action)
    if found is None:
        raise ValueError(f"there is no action {action}")
    if len(arguments) != len(found.forms) or not all(
        re.fullmatch(form, word) for form, word in zip(found.forms, arguments, strict=True)
    ):
        raise ValueError(f"{action} does not take {' '.join(arguments)[:200]}")
    return tuple(_filled(word, arguments) for word in found.command)


def _filled(word: str, arguments: tuple[str, ...]) -> str:
    for number, value in enumerate(arguments, 1):
        word = word.replace(f"{{{number}}}", value)
    return word
