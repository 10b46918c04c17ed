"""CANN: toolkit, then the operators of the right chip, then NNAL, all of one version.

`own` puts them into the stack's folder, needs no root and leaves every other stack as it is. `shared` is
/usr/local/Ascend: there an older CANN is upgraded and a newer one uninstalled before.
"""

import dataclasses
import re

from deployments.stacks import actions
from deployments.stacks.activate import PACKAGES
from deployments.stacks.draft import PACKAGE_S, Draft, PlannedStep
from deployments.stacks.heard import REFUSED
from deployments.stacks.installed import ASCEND, Part
from deployments.stacks.package_words import CANN_MEANS, CHECK_MEANS
from deployments.stacks.versions import PLAIN, at_least, key, same
from deployments.steps import Evidence, Text, python_module

INFO = "ascend_toolkit_install.info"
NEW_LAYOUT = "8.5.0"  # from there on the folder is called cann
# Runs a command with set_env.sh files read before: with_env FILE … -- COMMAND …
WITH_ENV = 'while [ "$1" != -- ]; do . "$1"; shift; done; shift; exec "$@"'
TITLES = {
    "toolkit": Text("CANN toolkit", "CANN toolkit"),
    "ops": Text("CANN 算子包", "CANN operators"),
    "nnal": Text("NNAL 加速库", "NNAL"),
}


def with_env(files: list[str], argv: list[str]) -> tuple[str, ...]:
    """`argv` after the shell has read each file; the text of the shell is fixed."""
    return ("bash", "-c", WITH_ENV, "with-env", *files, "--", *argv)


def plan(draft: Draft) -> list[str]:
    """Write the steps; the set_env.sh files that this stack's programs need."""
    version, start = draft.cann, len(draft.steps)
    found = _found(draft, version)
    base = _base(found) if found else _place(draft)
    if found:
        file = f"{found.path}/{draft.arch}-linux/{INFO}"
        draft.satisfied("toolkit", "cann", TITLES["toolkit"], file, f"version={version}")
        home = _home_of(found, version)
    else:
        home = _home(base, version)
        if base == ASCEND:
            _uninstall_newer(draft)
        _install(draft, "toolkit", draft.catalogue.files["toolkit"], base)
    toolkit_env = f"{home}/set_env.sh"
    _ops(draft, version, base, fresh=found is None)
    _nnal(draft, version, base, toolkit_env, fresh=found is None)
    _fetch(draft, start)
    return [toolkit_env, f"{base}/nnal/atb/set_env.sh"]


def _found(draft: Draft, version: str) -> Part | None:
    """An installed toolkit of exactly this version."""
    return next((part for part in draft.usable(draft.installed.cann) or () if same(part.version, version)), None)


def _place(draft: Draft) -> str:
    return ASCEND if draft.options.cann == "shared" else f"{draft.folder}/ascend"


def _base(found: Part) -> str:
    """The folder in which a toolkit lies: /usr/local/Ascend of /usr/local/Ascend/cann-9.1.0."""
    return re.sub(r"/(?:cann[^/]*|ascend-toolkit/[^/]+)/?$", "", found.path) or ASCEND


def _home(base: str, version: str) -> str:
    return f"{base}/cann" if at_least(version, f"{NEW_LAYOUT[:3]}.X") else f"{base}/ascend-toolkit"


def _home_of(found: Part, version: str) -> str:
    """Where set_env.sh of an installed toolkit lies: in its own folder, in older ones one above."""
    if at_least(version, f"{NEW_LAYOUT[:3]}.X"):
        return found.path
    return f"{_base(found)}/ascend-toolkit"


def _file(draft: Draft, name: str, base: str) -> str:
    """The path of a package: of the bundle where that holds it, else where a person has put it. What root runs lies
    in root's own folder."""
    if base == ASCEND:
        return draft.root_package(name)
    if name not in draft.options.bundled.split():
        return draft.package(name)
    if not draft.options.bundled_in:
        draft.fetched.append(name)
    return f"{draft.options.bundled_in or f'{draft.folder}/{PACKAGES}'}/{name}"


def _fetch(draft: Draft, start: int) -> None:
    """Before the first of these steps: get the packages that the bundle holds."""
    if not draft.fetched:
        return
    name, _at, digest = draft.options.bundle.partition("@")
    argv = python_module("deployments.agent.wheels", name, digest, f"{draft.folder}/{PACKAGES}", *draft.fetched)
    title = Text(f"从控制台取得厂商安装包（{name}）", f"Fetch the vendor's packages from the console ({name})")
    draft.steps.insert(start, PlannedStep("packages_fetch", "cann", title, argv=tuple(argv), timeout_s=PACKAGE_S))


def _install(draft: Draft, part: str, pattern: str, base: str, before: list[str] | None = None) -> None:
    """Check and install one package; over an older one in the shared place it is an upgrade."""
    file = pattern.format(version=draft.cann, arch=draft.arch)
    path = _file(draft, file, base)
    by_hand = path if path.startswith(f"{draft.options.packages.rstrip('/')}/") else ""
    title, reads = TITLES[part], _reads(draft, part, base)
    draft.add(
        PlannedStep(
            f"check_{part}", "cann", Text(f"校验 {title.zh}", f"Check the package of {title.en}"),
            argv=("bash", path, "--check"), says=(r"all good",), means=CHECK_MEANS, package=by_hand,
        )
    )  # fmt: skip
    says = (r"install success",)
    if base == ASCEND:
        _shared(draft, part, file, says)
        return
    mode = "--full" if part == "toolkit" else "--install"
    argv = ["bash", path, mode, "--quiet", f"--install-path={base}"]
    draft.add(
        PlannedStep(
            part, "cann", Text(f"安装 {title.zh} {draft.cann}", f"Install {title.en} {draft.cann}"),
            argv=with_env(before, argv) if before else tuple(argv), timeout_s=PACKAGE_S, accepts=(0, 2), says=says,
            means=CANN_MEANS, package=by_hand, reads=reads, once=reads is not None,
        )
    )  # fmt: skip


def _there_in_shared(draft: Draft) -> str | None:
    """The newest CANN in /usr/local/Ascend."""
    there = [part.version for part in draft.installed.cann or () if part.version and _base(part) == ASCEND]
    return max((version for version in there if PLAIN.fullmatch(version)), key=key, default=None)


def _uninstall_newer(draft: Draft) -> None:
    """CANN has no downgrade: in the shared place a newer one goes before, the last part first."""
    there = _there_in_shared(draft)
    if there is None or key(there) <= key(draft.cann):
        return
    for part in ("nnal", "ops", "toolkit"):
        pattern = _pattern(draft, part, there)
        if pattern:
            file = pattern.format(version=there, arch=draft.arch)
            words = Text(f"卸载 {TITLES[part].zh} {there}", f"Uninstall {TITLES[part].en} {there}")
            draft.root(
                f"uninstall_{part}",
                "cann",
                words,
                actions.package("part-uninstall", file),
                means=REFUSED,
                to_its_end=True,
                package=draft.root_package(file),
            )
    draft.warn(
        f"/usr/local/Ascend 里的 CANN {there} 会被卸载，用它的软件栈随之不可用；装在软件栈自己的目录则互不影响。",
        f"CANN {there} in /usr/local/Ascend is uninstalled, and stacks that use it stop working; "
        "in the stack's own folder each keeps its own.",
    )


def _shared(draft: Draft, part: str, file: str, says: tuple[str, ...]) -> None:
    """In /usr/local/Ascend: an upgrade over something older, else an installation."""
    title, version, there = TITLES[part], draft.cann, _there_in_shared(draft)
    words = Text(f"安装 {title.zh} {version}", f"Install {title.en} {version}")
    name = {"toolkit": "toolkit-first", "nnal": "nnal-first"}.get(part, "part-first")
    if there is not None and key(there) < key(version):
        words = Text(f"{title.zh} 从 {there} 升级到 {version}", f"Upgrade {title.en} from {there} to {version}")
        name = "nnal-upgrade" if part == "nnal" else "part-upgrade"
    draft.root(
        part, "cann", words, actions.package(name, file), accepts=(0, 2), says=says, package=draft.root_package(file),
        reads=_reads(draft, part, ASCEND), means=(*REFUSED, *CANN_MEANS), to_its_end=True,
    )  # fmt: skip


def _pattern(draft: Draft, part: str, version: str) -> str | None:
    if part == "ops":
        return draft.catalogue.ops_file(draft.family, version, draft.arch)
    return draft.catalogue.files[part]


def _reads(draft: Draft, part: str, base: str) -> Evidence | None:
    """What is there afterwards; None for the operators, of which no file is documented."""
    if part == "ops":
        return None
    if part == "nnal":
        return Evidence(f"{base}/nnal/atb/set_env.sh", "")
    newest = "" if at_least(draft.cann, f"{NEW_LAYOUT[:3]}.X") else "/latest"
    return Evidence(f"{_home(base, draft.cann)}{newest}/{draft.arch}-linux/{INFO}", f"version={draft.cann}")


def _ops(draft: Draft, version: str, base: str, *, fresh: bool) -> None:
    """The operators of this chip. One folder never takes those of two chips."""
    pattern = draft.catalogue.ops_file(draft.family, version, draft.arch)
    if pattern is None:
        draft.refuse(
            "no_operators",
            f"CANN {version} 没有 {draft.family} 的算子包。",
            f"CANN {version} has no operator package for {draft.family}.",
        )
        return
    there = None if fresh else _there(draft.usable(draft.installed.ops), version)
    if there:
        draft.satisfied("ops", "cann", TITLES["ops"], there.path, f"version={version}")
        return
    start = len(draft.steps)
    _install(draft, "ops", pattern, base)
    if not fresh and not draft.installed.ops:
        _only_look(draft, start)  # no file of theirs is documented: none seen does not say that none is there


def _nnal(draft: Draft, version: str, base: str, toolkit_env: str, *, fresh: bool) -> None:
    every = () if fresh else draft.usable(draft.installed.nnal) or ()
    there = _there(every, version)
    if there:
        draft.satisfied("nnal", "cann", TITLES["nnal"], there.path, f"version={version}")
        return
    nameless = next((part for part in every if part.version is None), None)
    if nameless:
        note = Text("没有文件写明它的版本。", "No file names its version.")
        draft.satisfied("nnal", "cann", TITLES["nnal"], f"{nameless.path}/set_env.sh", "", note)
        return
    start = len(draft.steps)
    _install(draft, "nnal", draft.catalogue.files["nnal"], base, [toolkit_env])
    if not fresh and draft.installed.nnal is None:
        _only_look(draft, start)


def _there(parts: tuple[Part, ...] | None, version: str) -> Part | None:
    return next((part for part in parts or () if same(part.version, version)), None)


def _only_look(draft: Draft, start: int) -> None:
    """What was written since `start` runs only where the server, asked then, lacks it."""
    draft.steps[start:] = [dataclasses.replace(step, state="look") for step in draft.steps[start:]]
