"""Texts of keys and values, line by line: files of the kernel and of the Ascend software."""

from deployments.kinds.check_probes.host import Host, Trouble
from deployments.steps import Text


def pairs(text: str, separator: str) -> dict[str, str]:
    """The lines that hold the separator; quotes around a value are dropped, the first line of a key counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, mark, value = line.partition(separator)
        if mark and not line.lstrip().startswith("#"):
            found.setdefault(name.strip(), value.strip().strip("\"'"))
    return found


def meminfo(host: Host) -> dict[str, int]:
    """/proc/meminfo: kB, or a count for huge pages. Raises Trouble when the total is missing."""
    values = pairs(host.read("/proc/meminfo") or "", ":")
    numbers = {name: int(value.split()[0]) for name, value in values.items() if value and value.split()[0].isdecimal()}
    if not numbers.get("MemTotal"):
        raise Trouble(Text("读不到 /proc/meminfo", "/proc/meminfo cannot be read"))
    return numbers


def number(host: Host, name: str) -> int | None:
    """A file that holds one whole number, None when it is missing or holds something else."""
    text = (host.read(name) or "").strip()
    return int(text) if text.isdecimal() and len(text) < 16 else None


def first_line(host: Host, name: str) -> str | None:
    text = host.read(name)
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else None
