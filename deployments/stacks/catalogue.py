"""The stacks there are: rows of stacks.json and those that a site adds, with the tables they rest on.

In the data null stands for what no source told (None here) and "" for what does not belong to a row.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from deployments.stacks.fields import FIELDS, OPTIONAL, Problem, check, shown
from deployments.stacks.versions import at_least, key
from deployments.steps import Text

BUILT_IN = Path(__file__).parent / "stacks.json"
MOST_BYTES = 1024 * 1024
MOST_ROWS = 200


class Image(NamedTuple):
    family: str
    os: str
    tag: str


class Family(NamedTuple):
    """One family of chips. `chips` matches the name that npu-smi prints, in capitals and without ASCEND."""

    name: str
    title: str
    chips: str
    pci: tuple[str, ...]
    supported: bool
    hdk: str | None  # how the file names of its driver and firmware begin
    apt_driver: str | None
    ops: str | None  # what its operator packages are called after
    soc_version: str | None
    device_type: str | None  # of torch_npu


class Cann(NamedTuple):
    version: str
    driver_min: str | None
    hdk_paired: tuple[str, ...]
    sources: tuple[str, ...]


class OpsFile(NamedTuple):
    since: str
    families: tuple[str, ...]
    name: str
    yum: str | None


@dataclass(frozen=True)
class Stack:
    """One row, pinned exactly. `cann_by_family` holds (family, CANN) where a family needs another one."""

    name: str
    kind: str
    vllm_ascend: str
    vllm: str
    python: str
    cann: str
    nnal: str
    torch: str
    torch_npu: str
    triton_ascend: str | None
    mooncake: str | None
    driver_min: str | None
    glibc_min: str | None
    wheel: bool | None  # False: its packages are compiled on the server
    wheel_pythons: tuple[str, ...] | None
    families: tuple[str, ...]
    images: tuple[Image, ...]
    state: str
    released: str | None
    default: bool
    notes: Text
    sources: tuple[str, ...]
    pins: tuple[str, ...] = ()
    cann_by_family: tuple[tuple[str, str], ...] = ()
    site: bool = False

    def cann_for(self, family: str | None) -> str:
        return dict(self.cann_by_family).get(family or "", self.cann)

    def image(self, family: str | None, system: str | None) -> str | None:
        """The tag for a chip and a system (`ubuntu` where it is not known), None where there is none."""
        found = {image.os: image.tag for image in self.images if image.family == family}
        return found.get(system or "ubuntu") or found.get("ubuntu")


class BadCatalogue(ValueError):
    """The built-in rows cannot be read; a mistake of ours."""


@dataclass(frozen=True, eq=False)  # one is equal to itself alone: what was found out with it can be kept by it
class Catalogue:
    """Everything of stacks.json. `problems` are those of the site's file, whose rows are then left out."""

    version: str
    about: Mapping[str, Any]
    families: Mapping[str, Family]
    cann: Mapping[str, Cann]
    firmware: Mapping[tuple[str, str], str]  # (family, driver in lower case) -> firmware seen with it
    files: Mapping[str, str]
    ops_files: tuple[OpsFile, ...]
    addresses: Mapping[str, Any]
    stacks: Mapping[str, Stack]  # by name, in the order of the file
    problems: tuple[Problem, ...] = ()

    @property
    def default(self) -> Stack:
        return next((stack for stack in self.stacks.values() if stack.default), next(iter(self.stacks.values())))

    def driver_min(self, stack: Stack) -> str | None:
        """The oldest driver that the row or its CANN names; None where no source told."""
        if stack.driver_min is not None:
            return stack.driver_min
        row = self.cann.get(stack.cann.lower())
        return row.driver_min if row else None

    def cann_driver_min(self, cann: str) -> str | None:
        """The oldest driver of a CANN, by its own row, else by that of its line (8.5.3 as 8.5.2)."""
        row = self.cann.get(cann.lower())
        line = cann.lower().split(".")[:2]
        rows = [row] if row else [r for r in self.cann.values() if r.version.lower().split(".")[:2] == line]
        return next((r.driver_min for r in rows if r and r.driver_min), None)

    def row_for(self, cann: str) -> Stack | None:
        """The stack that is pinned to a CANN: the default, else the newest final one, else the newest."""
        rows = [stack for stack in self.stacks.values() if stack.kind == "npu" and stack.cann.lower() == cann.lower()]
        return max(
            (stack for stack in rows if stack.state != "withdrawn"),
            key=lambda stack: (stack.default, stack.state == "stable", key(stack.vllm_ascend)),
            default=None,
        )

    def family_of(self, chip: str | None) -> str | None:
        """The family of a chip by the name that npu-smi prints (`910B3`, `Ascend910`, `310P3`)."""
        name = (chip or "").upper().removeprefix("ASCEND").strip(" _")
        return next((f.name for f in self.families.values() if name and re.fullmatch(f.chips, name)), None)

    def family_on_bus(self, device: str) -> str | None:
        """The family of a PCI device id such as `d802`."""
        return next((f.name for f in self.families.values() if device.lower() in f.pci), None)

    def ops_file(self, family: str, version: str, arch: str) -> str | None:
        """The file name of the operator package of a chip, None where no source names one."""
        row, ops = self._ops(family, version), self.families[family].ops
        return row.name.format(ops=ops, version=version, arch=arch) if row and ops else None

    def _ops(self, family: str, version: str) -> OpsFile | None:
        for row in self.ops_files:
            if not row.since or at_least(version, row.since):
                return row if family in row.families else self._older(row, family)
        return None

    def _older(self, newer: OpsFile, family: str) -> OpsFile | None:
        return next((row for row in self.ops_files if row.since == newer.since and family in row.families), None)


# ---------- reading ----------


def make(row: Mapping[str, Any], *, site: bool = False) -> Stack:
    """The row as a Stack. It has been checked."""
    full = {**OPTIONAL, **row}
    made = {name: full[name] for name in FIELDS}
    made["images"] = tuple(Image(item["family"], item["os"], item["tag"]) for item in full["images"])
    made["notes"] = Text(full["notes"]["zh"], full["notes"]["en"])
    made["cann_by_family"] = tuple(sorted(full["cann_by_family"].items()))
    for name in ("families", "sources", "pins"):
        made[name] = tuple(full[name])
    made["wheel_pythons"] = None if full["wheel_pythons"] is None else tuple(full["wheel_pythons"])
    return Stack(**made, site=site)


def read(data: Mapping[str, Any]) -> Catalogue:
    """The built-in catalogue. Raises BadCatalogue naming row and field."""
    families = {name: Family(name, **{**row, "pci": tuple(row["pci"])}) for name, row in data["families"].items()}
    problems = [p for row in data["stacks"] for p in check(row, str(row.get("name", "?")), families)]
    if problems:
        raise BadCatalogue("; ".join(problem.text.en for problem in problems))
    files = data["files"]
    return Catalogue(
        version=data["version"],
        about=data["about"],
        families=families,
        cann={
            row["version"].lower(): Cann(
                row["version"], row["driver_min"], tuple(row["hdk_paired"]), tuple(row["sources"])
            )
            for row in data["cann"]
        },
        firmware={(row["family"], row["driver"].lower()): row["firmware"] for row in data["firmware"]},
        files={name: value for name, value in files.items() if isinstance(value, str)},
        ops_files=tuple(OpsFile(row["since"], tuple(row["families"]), row["name"], row["yum"]) for row in files["ops"]),
        addresses=data["addresses"],
        stacks={row["name"]: make(row) for row in data["stacks"]},
    )


@lru_cache(maxsize=1)
def built_in() -> Catalogue:
    return read(json.loads(BUILT_IN.read_text(encoding="utf-8")))


def _rows(path: Path) -> "list[Any] | Problem | None":
    """The rows of a site's file, None where there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Problem("", "", Text(f"{path.name} 读不到：{why}。", f"{path.name} cannot be read: {why}."))
    if len(raw) > MOST_BYTES:
        return Problem("", "", Text(f"{path.name} 超过 1 MB。", f"{path.name} is larger than 1 MB."))
    try:
        data = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        where = str(error)[:160]
        return Problem("", "", Text(f"{path.name} 不是 JSON：{where}。", f"{path.name} is no JSON: {where}."))
    rows = data.get("stacks") if isinstance(data, dict) else data
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        words = Text(
            f'{path.name} 须为一个列表，或 {{"stacks": […]}}，至多 {MOST_ROWS} 行。',
            f'{path.name} is to hold a list, or {{"stacks": […]}}, of at most {MOST_ROWS} rows.',
        )
        return Problem("", "", words)
    return rows


def _based(row: Any, known: Mapping[str, Any]) -> tuple[Any, Text | None]:
    """A row with `base` takes all that it does not say from the built-in row of that name."""
    if not isinstance(row, dict) or "base" not in row:
        return row, None
    base = row["base"]
    if not isinstance(base, str) or base not in known:
        return row, Text("内置目录里没有这个名字。", "no built-in row has this name.")
    return {**known[base], "default": False, **{name: value for name, value in row.items() if name != "base"}}, None


def with_site_rows(path: Path, catalogue: Catalogue | None = None) -> Catalogue:
    """The built-in rows and those of a site's file, which may replace one by its name.

    A file with a mistake is left out as a whole: `problems` names rows and fields.
    """
    base = catalogue or built_in()
    rows = _rows(path)
    if rows is None:
        return base
    if isinstance(rows, Problem):
        return dataclasses.replace(base, problems=(rows,))
    known = {row["name"]: row for row in json.loads(BUILT_IN.read_text(encoding="utf-8"))["stacks"]}
    problems: list[Problem] = []
    made: dict[str, Stack] = {}
    for number, given in enumerate(rows, 1):
        label = f"{path.name} #{number}"
        if isinstance(given, dict) and isinstance(given.get("name"), str):
            label += f" ({shown(given['name'], 63)})"
        row, wrong = _based(given, known)
        found = [Problem(label, "base", wrong)] if wrong else check(row, label, base.families)
        if not found and row["name"] in made:
            found = [Problem(label, "name", Text("这个名字出现了两次。", "the name is there twice."))]
        problems += found
        if not found:
            made[row["name"]] = make(row, site=True)
    if sum(stack.default for stack in made.values()) > 1:
        problems.append(Problem(path.name, "default", Text("只能有一行是默认。", "one row only may be the default.")))
    if problems:
        return dataclasses.replace(base, problems=tuple(problems[:50]))
    stacks = dict(base.stacks)
    if any(stack.default for stack in made.values()):
        stacks = {name: dataclasses.replace(stack, default=False) for name, stack in stacks.items()}
    return dataclasses.replace(base, stacks={**made, **{n: s for n, s in stacks.items() if n not in made}})


def newest_first(stacks: Mapping[str, Stack]) -> list[Stack]:
    """NPU stacks by version, newest first, then those for the CPU."""
    return sorted(
        stacks.values(), key=lambda stack: (stack.kind == "npu", key(stack.vllm_ascend or stack.vllm)), reverse=True
    )
