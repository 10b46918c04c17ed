"""What a server has, read from its facts (deployments/agent/facts.py). None is what is not known, () is none."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from deployments.stacks.catalogue import Catalogue
from deployments.stacks.versions import in_range

ASCEND = "/usr/local/Ascend"
ROOT = "/opt/ascend-console/stacks"  # below it each stack has a folder of its own
DEBIAN = ("ubuntu", "debian", "velinux")
MOST = 64
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


class Part(NamedTuple):
    """One installed part: `version` is None where nothing names it."""

    version: str | None
    path: str


class Python(NamedTuple):
    """One interpreter; `packages` are (name with underscores, version)."""

    path: str
    version: str
    packages: tuple[tuple[str, str], ...] = ()

    def has(self, name: str) -> str | None:
        return dict(self.packages).get(name)


@dataclass(frozen=True)
class Installed:
    """Equal for servers that are alike, so that plans are made once for all of them.

    `known`: whether the agent has told anything. `family` is a key of the catalogue's families; `chip` what npu-smi
    prints. `python` is the version of the agent's own interpreter, the first choice for an environment.
    """

    known: bool = False
    arch: str | None = None
    system: str | None = None  # as os-release prints it
    debian: bool | None = None  # apt and Ubuntu images; False: yum and openEuler images
    kernel: str | None = None
    glibc: str | None = None
    chip: str | None = None
    family: str | None = None
    no_npu: bool = False  # it is known that no card is there
    driver: str | None = None
    driver_whole: bool | None = None
    firmware: str | None = None
    firmware_ranges: tuple[tuple[str, str], ...] | None = None
    cann: tuple[Part, ...] | None = None
    ops: tuple[Part, ...] | None = None
    nnal: tuple[Part, ...] | None = None
    python: str | None = None
    pythons: tuple[Python, ...] | None = None
    containers: tuple[str, ...] | None = None
    root: str = ROOT
    current: str | None = None  # the stack in use, '' for none

    @property
    def is_paired(self) -> bool | None:
        """Whether the driver accepts the firmware; None where one of both is not known."""
        if self.firmware is None or not self.firmware_ranges:
            return None
        return any(in_range(self.firmware, low, high) for low, high in self.firmware_ranges)


def read(facts: Mapping[str, Any], chip: str, catalogue: Catalogue) -> Installed:
    """Facts as an agent of any version sends them; what cannot be read is not known. `chip` is Server.family."""
    pci = _rows(facts.get("pci"))
    on_bus = next((f for row in pci or () if (f := catalogue.family_on_bus(_text(row, "device") or ""))), None)
    system = _word(facts.get("os"))
    return Installed(
        known=bool(facts.get("arch")),
        arch=_word(facts.get("arch")),
        system=system,
        debian=None if system is None else system.lower().startswith(DEBIAN),
        kernel=_word(facts.get("kernel")),
        glibc=_word(facts.get("glibc")),
        chip=chip or None,
        family=catalogue.family_of(chip) or on_bus,
        no_npu=pci == [] and not chip,
        driver=_word(facts.get("driver")),
        driver_whole=facts["driver_whole"] if isinstance(facts.get("driver_whole"), bool) else None,
        firmware=_word(facts.get("firmware")),
        firmware_ranges=_ranges(facts.get("firmware_range")),
        cann=_cann(facts),
        ops=_parts(facts.get("ops")),
        nnal=_parts(facts.get("nnal")),
        python=_word(facts.get("python")),
        pythons=_pythons(facts.get("pythons")),
        containers=_names(facts.get("containers")),
        root=_folder(facts.get("stacks_root")),
        current=_current(facts.get("stack_current")),
    )


def alike(has: Installed) -> Installed:
    """What a verdict rests on, without what differs from server to server and changes none: kernels, places.

    Equal for many servers, so that each verdict is found once for all of them.
    """
    pythons = None if has.pythons is None else tuple(sorted({_placeless(python, has.root) for python in has.pythons}))
    return dataclasses.replace(
        has, kernel=has.kernel and "0", system=has.system and "-", pythons=pythons, cann=_placeless_parts(has.cann),
        ops=_placeless_parts(has.ops), nnal=_placeless_parts(has.nnal), root=ROOT,
    )  # fmt: skip


def _folder(value: Any) -> str:
    """The folder with the stacks of a server, as its agent tells it."""
    word = _word(value) or ""
    return word if word.startswith("/") and ".." not in word.split("/") and word.isprintable() else ROOT


def _current(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return value if NAME.fullmatch(value) else ""


def _placeless(python: Python, root: str) -> Python:
    """Environments keep that they are some, and those of our stacks where they lie."""
    if python.path.startswith(f"{root}/"):
        return python._replace(path=ROOT + python.path.removeprefix(root))
    return python._replace(path="/-/venv/bin/python" if "/venv/" in python.path else "/-/bin/python")


def _placeless_parts(parts: tuple[Part, ...] | None) -> tuple[Part, ...] | None:
    """Versions, and whether they lie in the shared place."""
    if parts is None:
        return None
    found = {part._replace(path=f"{ASCEND}/cann-0" if part.path.startswith(ASCEND) else "/-/cann-0") for part in parts}
    return tuple(sorted(found, key=str))


def _word(value: Any) -> str | None:
    return value.strip()[:200] or None if isinstance(value, str) else None


def _text(row: Any, name: str) -> str | None:
    return _word(row.get(name)) if isinstance(row, Mapping) else None


def _rows(value: Any) -> list[Any] | None:
    return value[:MOST] if isinstance(value, list) else None


def _ranges(value: Any) -> tuple[tuple[str, str], ...] | None:
    """`7.0.0–7.9.99`, one or several."""
    rows = _rows(value)
    if rows is None:
        return None
    pairs = [text.replace("–", "-").split("-", 1) for text in rows if isinstance(text, str)]
    return tuple((pair[0].strip(), pair[1].strip()) for pair in pairs if len(pair) == 2) or None


def _parts(value: Any) -> tuple[Part, ...] | None:
    rows = _rows(value)
    if rows is None:
        return None
    return tuple(Part(_text(row, "version"), _text(row, "path") or "") for row in rows if isinstance(row, Mapping))


def _cann(facts: Mapping[str, Any]) -> tuple[Part, ...] | None:
    """All toolkits; an agent that tells of one only is believed about that one."""
    every = _parts(facts.get("cann_all"))
    if every is not None:
        return every
    one = _word(facts.get("cann"))
    if one:
        return (Part(one, f"{ASCEND}/cann"),)
    return () if "cann" in facts else None


def _pythons(value: Any) -> tuple[Python, ...] | None:
    rows = _rows(value)
    if rows is None:
        return None
    return tuple(
        Python(path, _text(row, "version") or "", _packages(row.get("packages")))
        for row in rows
        if (path := _text(row, "path"))
    )


def _packages(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        return ()
    return tuple(
        (name.lower().replace("-", "_")[:60], version[:60])
        for name, version in sorted(value.items())
        if isinstance(name, str) and isinstance(version, str)
    )


def _names(value: Any) -> tuple[str, ...] | None:
    rows = _rows(value)
    if rows is None:
        return None
    found = [_text(row, "name") if isinstance(row, Mapping) else _word(row) for row in rows]
    return tuple(name for name in found if name)
