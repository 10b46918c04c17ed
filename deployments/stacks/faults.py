"""Faults that an operator has a simulated server act out while a stack is installed, and at which step each strikes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deployments.stacks.cann_layer import WITH_ENV
from deployments.stacks.indexes import SIGNED_IN
from deployments.steps import Step, Text

DRIVER_FILE = re.compile(r"-driver_[^/]+\.run")
CHIP_FILE = re.compile(r"(-driver_|-firmware_|-ops_|-kernels[-_])[^/]+\.run")
TOOLKIT_FILE = re.compile(r"-toolkit_[^/]+\.run")


def as_anybody(argv: Sequence[str]) -> list[str]:
    """The command without what signs in at the site's indexes."""
    return list(argv[len(SIGNED_IN) :] if tuple(argv[: len(SIGNED_IN)]) == SIGNED_IN else argv)


def unwrapped(argv: Sequence[str]) -> list[str]:
    """The command itself, without what signs in at indexes and the shell that reads set_env.sh files before."""
    words = as_anybody(argv)
    if words[:3] == ["bash", "-c", WITH_ENV] and "--" in words:
        return words[words.index("--") + 1 :]
    return words


def _package(step: Step, form: re.Pattern[str]) -> bool:
    """Whether the step installs a package whose file is called so."""
    words = unwrapped(step.argv)
    return "--check" not in words and not any("uninstall" in word for word in words) and any(map(form.search, words))


def _pip_install(step: Step) -> bool:
    words = unwrapped(step.argv)
    return words[1:4] == ["-m", "pip", "install"]


@dataclass(frozen=True)
class Fault:
    """`strikes` says whether it comes about at that step; the first one that runs it is."""

    title: Text
    strikes: Callable[[Step], bool]


FAULTS: dict[str, Fault] = {
    "dkms_fails": Fault(
        Text("驱动的 DKMS 编译失败", "The driver's DKMS build fails"), lambda step: _package(step, DRIVER_FILE)
    ),
    "lspci_missing": Fault(
        Text("服务器缺少 lspci", "The server has no lspci"), lambda step: _package(step, DRIVER_FILE)
    ),
    "prompt": Fault(
        Text("驱动安装程序提问并等待回答", "The driver's installer asks a question and waits"),
        lambda step: _package(step, DRIVER_FILE),
    ),
    "wrong_chip": Fault(
        Text("安装包属于另一种芯片", "A package is for another chip"), lambda step: _package(step, CHIP_FILE)
    ),
    "digest_mismatch": Fault(
        Text("安装包的摘要不符", "A package does not have its digest"), lambda step: "--check" in step.argv
    ),
    "index_hangs": Fault(
        Text("软件包索引不回答", "The index of packages hangs"),
        lambda step: _pip_install(step) and "--index-url" in step.argv,
    ),
    "disk_full": Fault(
        Text("安装中途磁盘写满", "The disk becomes full on the way"),
        lambda step: _pip_install(step) or _package(step, TOOLKIT_FILE),
    ),
    "no_return": Fault(
        Text("服务器重启后不再回来", "The server does not come back from its restart"), lambda step: step.reboot
    ),
}
CHOICES = ("", *FAULTS)


def possible(steps: Sequence[Step]) -> list[str]:
    """The faults for which these steps, those that are not satisfied already, give occasion."""
    open_ = [step for step in steps if step.evidence is None]
    return [name for name, fault in FAULTS.items() if any(map(fault.strikes, open_))]
