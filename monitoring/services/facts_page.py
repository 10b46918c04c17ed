"""What the page of a server's facts shows: groups of single facts, and tables. No database, no Redis.

Facts come from a server: they may have any shape, and what has not the one that is meant is shown as unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext, gettext_noop

from console.language import pick

MOST_ROWS = 200
DASH = "—"


@dataclass(frozen=True)
class Fact:
    """One fact. `reason` is why it is not known, or ''; `css` is a class of state, or ''."""

    label: str
    value: str
    reason: str = ""
    css: str = ""


@dataclass(frozen=True)
class Group:
    title: str
    facts: list[Fact]


@dataclass(frozen=True)
class Table:
    """`rows` hold a text for each head; `reason` is why there are none, where that is not known."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    reason: str = ""


GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        gettext_noop("System"),
        (
            ("hostname", gettext_noop("Host name")),
            ("os", gettext_noop("Operating system")),
            ("kernel", gettext_noop("Kernel")),
            ("glibc", gettext_noop("glibc")),
            ("arch", gettext_noop("Architecture")),
            ("boot_at", gettext_noop("Booted")),
            ("boot_id", gettext_noop("Boot")),
            ("agent", gettext_noop("Agent")),
            ("python", gettext_noop("Agent's Python")),
        ),
    ),
    (
        gettext_noop("CPU and memory"),
        (
            ("cpu_model", gettext_noop("CPU")),
            ("cpus", gettext_noop("CPU cores")),
            ("sockets", gettext_noop("Sockets")),
            ("numa_nodes", gettext_noop("NUMA nodes")),
            ("mem_total_mb", gettext_noop("Memory")),
            ("swap_total_mb", gettext_noop("Swap")),
            ("hugepages", gettext_noop("Huge pages")),
        ),
    ),
    (
        gettext_noop("Ascend software"),
        (
            ("driver", gettext_noop("Driver")),
            ("driver_whole", gettext_noop("Driver is whole")),
            ("firmware", gettext_noop("Firmware")),
            ("firmware_range", gettext_noop("Firmware that the driver accepts")),
            ("paired", gettext_noop("Pairing")),
            ("cann", gettext_noop("CANN in use")),
            ("stack_current", gettext_noop("Stack in use")),
            ("stacks_root", gettext_noop("Folder of stacks")),
            ("models_root", gettext_noop("Folder of models")),
        ),
    ),
)


def groups(facts: Mapping[str, Any]) -> list[Group]:
    return [Group(gettext(title), [_fact(facts, key, gettext(label)) for key, label in rows]) for title, rows in GROUPS]


def reason_of(facts: Mapping[str, Any], key: str) -> str:
    """Why a fact is not known, in the reader's language, or ''."""
    reasons = facts.get("unknown")
    told = reasons.get(key) if isinstance(reasons, dict) else None
    known = isinstance(told, list) and len(told) == 2 and all(isinstance(words, str) for words in told)
    return pick(told)[:300] if known else ""


def _fact(facts: Mapping[str, Any], key: str, label: str) -> Fact:
    value = facts.get(key)
    if value in (None, "", []):
        return Fact(label, DASH, reason_of(facts, key))
    if key == "paired":
        words = (
            gettext("firmware fits the driver")
            if value is True
            else gettext("the driver does not accept this firmware")
        )
        return Fact(label, words, css="ok" if value is True else "critical")
    if key == "driver_whole":
        words = gettext("yes") if value is True else gettext("it is half installed: install the driver again")
        return Fact(label, words, css="ok" if value is True else "critical")
    return Fact(label, _words(key, value))


def _words(key: str, value: Any) -> str:
    if key in ("mem_total_mb", "swap_total_mb") and isinstance(value, (int, float)):
        return f"{value / 1024:,.1f} GiB"
    if key == "boot_at" and isinstance(value, (int, float)) and 0 < value < 4_000_000_000:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if key == "hugepages" and isinstance(value, dict):
        return f"{value.get('total', DASH)} × {value.get('size_kb', DASH)} kB"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)[:300]
    return str(value).strip()[:300] or DASH


def rows_of(facts: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The rows of a fact that is a list of objects."""
    value = facts.get(key)
    return [row for row in value[:MOST_ROWS] if isinstance(row, dict)] if isinstance(value, list) else []


def tables(facts: Mapping[str, Any], now: Mapping[str, Any], addresses: Sequence[Mapping[str, str]]) -> list[Table]:
    """Cards, addresses, CANN, Python environments, containers, NUMA nodes, disks; those that nobody told of are left
    out."""
    made = [
        _cards(facts, now),
        _addresses(facts, addresses),
        _cann(facts),
        _pythons(facts),
        _table(
            facts, "containers", gettext("Container runtimes"), ("name", "version"),
            [gettext("Runtime"), gettext("Version")],
        ),
        _table(
            facts, "numa", gettext("NUMA nodes"), ("node", "cpus", "mem_total_mb"),
            [gettext("Node"), gettext("CPUs"), gettext("Main memory MB")],
        ),
        _table(
            facts, "disks", gettext("Disks"), ("mount", "device", "fs", "total_gb"),
            [gettext("Mounted at"), gettext("Device"), gettext("File system"), "GB"],
        ),
    ]  # fmt: skip
    return [table for table in made if table.rows or table.reason]


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return DASH if value in (None, "") else str(value)[:300]


def _table(facts: Mapping[str, Any], key: str, title: str, names: Sequence[str], heads: list[str]) -> Table:
    rows = [[_text(row.get(name)) for name in names] for row in rows_of(facts, key)]
    return Table(title, heads, rows, "" if rows else reason_of(facts, key))


def _cards(facts: Mapping[str, Any], now: Mapping[str, Any]) -> Table:
    """Every card on the bus, and whether the driver shows it."""
    seen: dict[str, int] = {}
    for npu in now["npus"]:
        bus_id = str(npu.get("bus_id") or "").upper()
        seen[bus_id] = seen.get(bus_id, 0) + 1
    rows = []
    for card in rows_of(facts, "pci"):
        bus_id = str(card.get("bus_id") or "").upper()
        chips = seen.get(bus_id)
        word = (
            gettext("NPUs shown: %(n)s") % {"n": chips}
            if chips
            else gettext("not shown by the driver")
            if seen
            else DASH
        )
        rows.append([bus_id, f"19e5:{card.get('device', DASH)}", _text(card.get("family")), word])
    heads = [gettext("Bus id"), gettext("PCI id"), gettext("Family"), gettext("npu-smi")]
    return Table(gettext("NPU cards on the PCI bus"), heads, rows, "" if rows else reason_of(facts, "pci"))


def _addresses(facts: Mapping[str, Any], addresses: Sequence[Mapping[str, str]]) -> Table:
    words = {"management": gettext("management"), "service": gettext("service"), "bmc": gettext("BMC")}
    rows = []
    for row in addresses:
        role = words.get(row["role"], DASH)
        if row["source"] == "guess":
            role = gettext("%(role)s (guess)") % {"role": role}
        rows.append([row["address"], row["interface"] or DASH, role])
    heads = [gettext("Address"), gettext("Interface"), gettext("Role")]
    return Table(gettext("Addresses"), heads, rows, "" if rows else reason_of(facts, "addresses"))


def _cann(facts: Mapping[str, Any]) -> Table:
    parts = (("cann_all", "CANN toolkit"), ("ops", "CANN ops"), ("nnal", "NNAL"))
    rows = [
        [name, _text(row.get("version")), _text(row.get("path"))] for key, name in parts for row in rows_of(facts, key)
    ]
    return Table(gettext("CANN and NNAL"), [gettext("Part"), gettext("Version"), gettext("Folder")], rows)


def _pythons(facts: Mapping[str, Any]) -> Table:
    rows = []
    for row in rows_of(facts, "pythons"):
        found = row.get("packages")
        packages = found if isinstance(found, dict) else {}
        listed = ", ".join(f"{str(name).replace('_', '-')} {version}" for name, version in packages.items())[:400]
        rows.append([_text(row.get("path")), _text(row.get("version")), listed or DASH])
    heads = [gettext("Python"), gettext("Version"), gettext("Packages")]
    return Table(gettext("Python environments"), heads, rows, reason_of(facts, "pythons") if not rows else "")


def as_text(name: str, made: Sequence[Group], tabled: Sequence[Table]) -> str:
    """All of it as plain text, for a ticket."""
    lines = [name]
    for group in made:
        lines += ["", group.title, *(f"  {fact.label}: {fact.value}" for fact in group.facts)]
    for table in tabled:
        lines += ["", table.title, *("  " + "  ".join(row) for row in table.rows)]
    return "\n".join(lines)
