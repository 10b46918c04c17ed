"""What a plan is made of, and the draft that the makers of its layers write into."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from deployments.stacks import actions
from deployments.stacks.catalogue import Catalogue, Stack
from deployments.stacks.installed import Installed, Part
from deployments.stacks.options import Options
from deployments.steps import Evidence, Step, Text

PIP_S, PACKAGE_S, BOOT_S = 3600.0, 3600.0, 1800.0


@dataclass(frozen=True)
class PlannedStep:
    """One step. Fields that Step of deployments/steps.py has as well mean the same there.

    `state`: satisfied (with `evidence`) | run | look (it runs only where it finds that it must: nothing is known).
    `argv` is the whole command; with `needs_root` it is what `action` stands for. `package` is the file of the vendor
    that it needs.
    """

    key: str
    layer: str  # host | cann | python | container
    title: Text
    state: str = "run"
    argv: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 600.0
    needs_root: bool = False
    reboot: bool = False
    reboot_s: float = BOOT_S
    may_fail: bool = False
    accepts: tuple[int, ...] = (0,)
    skips: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    reads: Evidence | None = None
    evidence: Evidence | None = None
    once: bool = False
    means: tuple[tuple[str, Text], ...] = ()
    unattended: bool = True
    fills: str = ""
    to_its_end: bool = False
    always: bool = False
    package: str = ""
    note: Text | None = None


def as_step(planned: PlannedStep) -> Step:
    """The step as a job runs it: every field that both have. What root does is asked for by its action."""
    both = {one.name for one in dataclasses.fields(Step)} & {one.name for one in dataclasses.fields(PlannedStep)}
    made = {name: getattr(planned, name) for name in both}
    made |= {"argv": list(planned.action or planned.argv), "env": dict(planned.env)}
    return Step(**made)


@dataclass(frozen=True)
class Refusal:
    """Why there is no way; `code` is stable."""

    code: str
    text: Text


@dataclass(frozen=True)
class Holder:
    """A process that holds an NPU. `ours`: the console started it, as part of `job` where that is known."""

    pid: int | None
    user: str = ""
    program: str = ""
    npu: str = ""
    container: str = ""
    ours: bool = False
    job: int | None = None


@dataclass
class Draft:
    """A plan in the making."""

    catalogue: Catalogue
    stack: Stack
    installed: Installed
    options: Options
    steps: list[PlannedStep] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    gaps: list[Text] = field(default_factory=list)  # what a person must name or put in place before
    warnings: list[Text] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)  # packages of the vendor that come with the bundle

    @property
    def family(self) -> str:
        return self.installed.family or ""

    @property
    def arch(self) -> str:
        return self.installed.arch or "aarch64"

    @property
    def folder(self) -> str:
        """Where the stack lies on the server."""
        return f"{self.installed.root}/{self.stack.name}"

    def usable(self, parts: tuple[Part, ...] | None) -> tuple[Part, ...] | None:
        """Those that this stack may use: not what lies in the folder of another one, and goes with it."""
        if parts is None:
            return None
        root, own = f"{self.installed.root}/", f"{self.folder}/"
        return tuple(part for part in parts if not part.path.startswith(root) or part.path.startswith(own))

    @property
    def cann(self) -> str:
        return self.stack.cann_for(self.installed.family)

    def add(self, step: PlannedStep) -> None:
        self.steps.append(step)

    def satisfied(self, key: str, layer: str, title: Text, file: str, value: str, note: Text | None = None) -> None:
        self.add(PlannedStep(key, layer, title, "satisfied", evidence=Evidence(file, value), note=note))

    def root(self, key: str, layer: str, title: Text, action: Sequence[str], **more: object) -> None:
        """A step that root does."""
        step = PlannedStep(
            key, layer, title, argv=actions.command(*action), action=tuple(action), needs_root=True, timeout_s=PACKAGE_S
        )
        self.add(dataclasses.replace(step, **more))  # type: ignore[arg-type]

    def refuse(self, code: str, zh: str, en: str) -> None:
        self.refusals.append(Refusal(code, Text(zh, en)))

    def warn(self, zh: str, en: str) -> None:
        if Text(zh, en) not in self.warnings:
            self.warnings.append(Text(zh, en))

    def ask(self, zh: str, en: str) -> None:
        if Text(zh, en) not in self.gaps:
            self.gaps.append(Text(zh, en))

    def calls(self, *addresses: str) -> None:
        self.addresses += [address for address in addresses if address and address not in self.addresses]

    def package(self, name: str) -> str:
        """The path of a package of the vendor on the server."""
        return f"{self.options.packages.rstrip('/')}/{name}"

    def root_package(self, name: str) -> str:
        """The path of one that root runs, which takes it from its own folder only."""
        return f"{actions.PACKAGES}/{name}"
