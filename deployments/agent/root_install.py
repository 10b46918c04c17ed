"""Installs the root helper and its one line of sudo when a server joins as root, repairs both, and takes them away.

Both are worth nothing where somebody else can change the helper, its Python, or a folder on the way to either: then
none is installed, and the server works without the job kinds that need root.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from deployments.agent import as_root, root_helper
from deployments.steps import Text

SUDOERS = Path("/etc/sudoers.d/ascend-console")
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
RUN_BY_LEAVE = ("bin", "code", "current", "venv")  # and it reads etc/install.json and run/keeper, root's as well
OTHERS = ("site-packages", "dist-packages")  # of the Python itself: its virtual environments take nothing there
ASK_S = 10.0


class NotInstalled(Exception):
    """Why this server gets no root helper."""

    def __init__(self, zh: str, en: str) -> None:
        super().__init__(en)
        self.text = Text(zh, en)


def text(python: str) -> str:
    """The helper as installed: its source, run by a Python that takes nothing from its environment."""
    return f"#!{python} -I\n{as_root.SOURCE.read_text(encoding='utf-8')}"


def sudoers(account: str, path: str) -> str:
    """The whole file in /etc/sudoers.d."""
    return f"""\
# Ascend Console: the agent's account may run this one program as root, and no other.
Defaults!{path} env_reset, !setenv, !requiretty, !use_pty, !lecture
{account} ALL=(root) NOPASSWD: {path}
"""


def put(prefix: Path, account: str) -> None:
    """Install or repair. Raises NotInstalled, OSError; then neither file is there."""
    helper = prefix / "bin" / "root-helper"
    try:
        python = _python()
        _write(helper, text(python), 0o755)
        if not owned_by_root(helper):
            raise NotInstalled(
                f"{prefix} 或其上级目录不归 root 所有，或别人可写",
                f"{prefix} or a folder above it belongs to somebody else, or others may write there",
            )
        _allow(account, str(helper))
        _make_room(Path(root_helper.PACKAGES))
    except (NotInstalled, OSError):
        take_away(prefix)
        raise


def _make_room(folder: Path) -> None:
    """The folder of packages of the vendor; where it cannot be made, that is said when it is needed."""
    try:
        folder.mkdir(parents=True, mode=0o755, exist_ok=True)
    except OSError:
        return
    if folder.stat().st_uid == 0 and not any(folder.iterdir()):
        folder.chmod(0o755)


def _allow(account: str, helper: str) -> None:
    """Put the sudoers file in its place, after visudo has found it sound. Raises NotInstalled."""
    if not SUDOERS.parent.is_dir() or not shutil.which("visudo") or not shutil.which("sudo"):
        raise NotInstalled("这里没有 sudo", "there is no sudo here")
    aside = SUDOERS.with_name(".ascend-console.new")  # sudo reads no name with a dot in it
    try:
        _write(aside, sudoers(account, helper), 0o440)
        checked = subprocess.run(["visudo", "-c", "-q", "-f", str(aside)], capture_output=True, text=True, timeout=30)
        if checked.returncode:
            words = " ".join((checked.stdout + checked.stderr).split())[:200]
            raise NotInstalled(f"visudo 不接受该文件（{words}）", f"visudo does not take the sudoers file ({words})")
        aside.replace(SUDOERS)
    finally:
        aside.unlink(missing_ok=True)


def put_leave(prefix: Path) -> None:
    """The program of the action `leave`; none where somebody else can change what it runs as root: the agent's Python
    with all its modules, and the agent's code."""
    program = prefix / "bin" / "leave"
    program.unlink(missing_ok=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    python = owned_by_root(Path(sys.executable)) and all_of_roots(library, OTHERS)
    if python and all(all_of_roots(prefix / name) for name in RUN_BY_LEAVE):
        # In a second: the agent's answer goes out before.
        _write(program, f'#!/bin/sh\ncd /\nexec "{prefix}/bin/ascend-console" leave --after 1\n', 0o755)


def _tidy(folder: Path) -> None:
    """Take the folder of packages away where nothing lies in it, and what it lay in."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def take_away(prefix: Path) -> None:
    """Remove both; a sudoers file that names another installation's helper stays."""
    helper = prefix / "bin" / "root-helper"
    try:
        if os.geteuid() == 0 and f"NOPASSWD: {helper}\n" in SUDOERS.read_text(errors="replace"):
            SUDOERS.unlink()
            _tidy(Path(root_helper.PACKAGES))
    except OSError:
        pass  # there is none
    helper.unlink(missing_ok=True)
    helper.with_name("leave").unlink(missing_ok=True)


def _write(path: Path, content: str, mode: int) -> None:
    """Root's own file, whole or not at all."""
    new = path.with_name(f".{path.name.lstrip('.')}.part")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
    new.replace(path)


def owned_by_root(path: Path) -> bool:
    """Whether root alone can change what stands there: the file and every folder on the way, links followed."""
    whole, real = path.absolute(), path.resolve()
    return all(map(_is_roots, dict.fromkeys([whole, *whole.parents, real, *real.parents])))


def all_of_roots(folder: Path, but: tuple[str, ...] = ()) -> bool:
    """Whether that holds for all below a folder, too, but for folders of these names."""
    return owned_by_root(folder) and all(map(_is_roots, _below(folder, but)))


def _below(folder: Path, but: tuple[str, ...]) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in but]
        yield from (Path(place, name) for name in (*folders, *files))


def _is_roots(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX  # as /tmp: nobody moves what is root's
    return found.st_uid == 0 and (not open_to_others or bool(sticky))


def _python() -> str:
    """A Python that root alone can change: the system's, else the one that joins. Raises NotInstalled."""
    own, library = os.path.realpath(sys.executable), sysconfig.get_paths()["stdlib"]
    for name in (*SYSTEM_PYTHONS, own):
        if not owned_by_root(Path(name)) or (name == own and not owned_by_root(Path(library))):
            continue
        asked = [name, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 6))"]
        if subprocess.run(asked, capture_output=True, timeout=ASK_S).returncode == 0:
            return name
    raise NotInstalled(
        "没有只归 root 所有的 Python 3.6 或更新版本", "there is no Python 3.6 or newer that root alone can change"
    )
