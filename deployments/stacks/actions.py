"""What a plan asks of root: named actions with arguments of a fixed form, never a command of its own.

The root helper of the agent takes these actions (`agent/root_helper.py` has the same table, and a test holds the two
together); what an operator reads is the command that an action stands for. A package is named by its file in root's
own folder and by its SHA-256, which the console knows and the helper looks at.
"""

import re
from typing import NamedTuple

PACKAGES = "/opt/ascend-console/packages"  # where root puts packages of the vendor
ASCEND = "/usr/local/Ascend"
RUN_USER = "HwHiAiUser"
KERNEL = r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,119}"
FILE = r"(?:Ascend|Atlas)-[A-Za-z0-9][A-Za-z0-9._+-]{0,180}\.run"
DIGEST = r"[0-9a-f]{64}"
TO_BE_KNOWN = "0" * 64  # stands for a digest that the console does not know yet

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
# NNAL asks the environment for the toolkit that it is for.
NNAL_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "nnal-first": ("--install", "--quiet"),
    "nnal-upgrade": ("--upgrade", "--quiet"),
}
WITH_TOOLKIT = (
    'for file in "$1"/cann/set_env.sh "$1"/ascend-toolkit/set_env.sh; do '
    'if [ -e "$file" ]; then . "$file"; break; fi; done; shift; exec /bin/bash "$@"'
)
# What changes driver or firmware, and must not be cut off.
CHANGES_HOST = ("uninstall-driver", "uninstall-firmware", "package-driver-first", "package-firmware-first",
                "package-upgrade")  # fmt: skip


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
    "join-run-group": Action((), ("usermod", "-aG", RUN_USER, "$SUDO_USER")),
    "uninstall-driver": Action((), ("bash", f"{ASCEND}/driver/script/uninstall.sh")),
    "uninstall-firmware": Action((), ("bash", f"{ASCEND}/firmware/script/uninstall.sh")),
    **{
        f"package-{name}": Action((FILE, DIGEST), ("bash", f"{PACKAGES}/{{1}}", *arguments))
        for name, arguments in PACKAGE_ARGUMENTS.items()
    },
    **{
        f"package-{name}": Action(
            (FILE, DIGEST), ("bash", "-c", WITH_TOOLKIT, "with-toolkit", ASCEND, f"{PACKAGES}/{{1}}", *arguments)
        )
        for name, arguments in NNAL_ARGUMENTS.items()
    },
    "start-exporters": Action((), ("systemctl", "start", "npu-exporter")),
    "reboot": Action((r"\{attempt\}",), ("shutdown", "-r", "now")),
}


def package(name: str, file: str, digest: str = TO_BE_KNOWN) -> tuple[str, ...]:
    """The action that does `name` with a package."""
    return (f"package-{name}", file, digest)


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
