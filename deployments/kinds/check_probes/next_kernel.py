"""Which kernel the next restart boots, as far as an ordinary account can read it."""

import re
from typing import NamedTuple

from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.textfiles import pairs
from deployments.steps import Text

GRUB_FOLDERS = ("/boot/grub2", "/boot/grub", "/boot/efi/EFI/openEuler", "/boot/efi/EFI/kylin")
KERNEL = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+\S*/?vmlinu[xz]-(\S+)", re.MULTILINE)
UNREADABLE = Text(
    "引导配置要 root 才能读。以 root 运行 grubby --default-kernel（Debian 系：看 /boot/grub/grub.cfg）核对。",
    "The boot loader's configuration takes root. As root run grubby --default-kernel (on Debian see "
    "/boot/grub/grub.cfg) and compare.",
)
UNCLEAR = Text(
    "看不出引导配置选了哪个内核：以 root 运行 grubby --default-kernel 核对。",
    "The boot loader's configuration does not tell which kernel it takes: as root run grubby --default-kernel.",
)


class Coming(NamedTuple):
    """`kernel` is None where nobody can tell, and `why` says so; `source` is the file that tells."""

    kernel: str | None
    source: str = ""
    why: Text = UNCLEAR


def next_kernel(host: Host, running: str) -> Coming:
    """By the saved entry of grub, else by its first entry; by what lies in /boot where there is one kernel alone."""
    installed = sorted(name.removeprefix("vmlinuz-") for name in host.look("/boot") if KERNEL.fullmatch(name[8:]))
    if not installed:
        return Coming(None, why=Text("/boot 里没有内核（容器，或读不到）。", "/boot holds no kernel (a container?)."))
    if len(installed) == 1:
        return Coming(installed[0], "/boot")
    try:
        return _saved(host, installed) or _first(host, installed) or Coming(None)
    except Trouble:
        return Coming(None, why=UNREADABLE)


def _saved(host: Host, installed: list[str]) -> Coming | None:
    """`saved_entry=` of grubenv names the kernel, or an entry that does. Raises Trouble where it takes root."""
    for folder in GRUB_FOLDERS:
        text = host.read(f"{folder}/grubenv")
        entry = pairs((text or "").replace("#", ""), "=").get("saved_entry", "")
        found = _named(entry, installed)
        if found:
            return Coming(found, f"{folder}/grubenv")
    return None


def _first(host: Host, installed: list[str]) -> Coming | None:
    """The entry that GRUB_DEFAULT names, or the first. Raises Trouble where that takes root."""
    default = pairs(host.read("/etc/default/grub") or "", "=").get("GRUB_DEFAULT", "0")
    if found := _named(default, installed):
        return Coming(found, "/etc/default/grub")
    if default not in ("", "0", "saved"):  # submenus make other numbers a riddle
        return None
    for folder in GRUB_FOLDERS:
        if entries := LINUX.findall(host.read(f"{folder}/grub.cfg") or ""):
            return Coming(entries[0], f"{folder}/grub.cfg")
    return None


def _named(entry: str, installed: list[str]) -> str | None:
    """The kernel whose version an entry's name holds, the longest that fits."""
    return max((one for one in installed if one in entry), key=len, default=None)
