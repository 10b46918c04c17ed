"""Take away what was ticked and nothing else, by descriptors of folders, so that no link can lead elsewhere."""

import os
import shlex
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from deployments.agent import spool
from deployments.agent.cleanup.holders import JUST_NOW_S, Holders, writer_lives
from deployments.agent.cleanup.measure import Size, is_mine, measure
from deployments.agent.cleanup.places import SPOOLS, STACKS, Candidate, Server, straight
from deployments.steps import Text

MayGo = Callable[[str, os.stat_result], bool]
LINKED = Text("途中有链接，不会删除。", "A link lies on the way to it: it is left alone.")


@dataclass
class Done:
    """Bytes that the disk has back, files that went and that stayed, and why it was refused as a whole."""

    freed: int = 0
    gone: int = 0
    kept: int = 0
    refused: Text | None = None
    problems: list[str] = field(default_factory=list)


def top_of(server: Server, one: Candidate) -> Path:
    """The folder from which the path down to a candidate must be free of links."""
    return server.config.state_dir if one.full.is_relative_to(server.config.state_dir) else server.host.root


def why_not(
    server: Server, one: Candidate, holders: Holders, seen: float | None = None, size: Size | None = None
) -> Text | None:
    """Why a candidate stays; None where it may go. With `seen` (epoch) also what has changed since then."""
    if not straight(one.full, top_of(server, one)):
        return LINKED
    size = size or measure(one.full)
    if one.inside:  # each of its files is judged when it is its turn
        return by_root(one) if size.files and size.foreign >= size.files else None
    who = holders.who_works_with(one.full) if one.category == STACKS else holders.who(one.full)
    if who:
        return Text(f"正在使用：{who[:160]}。", f"It is in use: {who[:160]}.")
    if size.foreign:
        return by_root(one)
    if one.category != SPOOLS and time.time() - size.changed_at < JUST_NOW_S:
        return Text("刚刚还在改动，按使用中处理。", "It changed only just now, and counts as in use.")
    if seen is not None and size.changed_at > seen:
        return Text("查看之后有改动：请再看一次。", "It has changed since it was shown: look again.")
    return None


def by_root(one: Candidate) -> Text:
    """Words with the command for what is not this account's own."""
    path = shlex.quote(one.path)
    command = f"find {path} -xdev -type f -mmin +10 -delete" if one.inside else f"rm -r -- {path}"
    return Text(f"属于别的账号。以 root 运行：{command}", f"It belongs to another account. As root run: {command}")


def remove(server: Server, one: Candidate, holders: Holders, seen: float) -> Done:
    """Take it away where that may be."""
    try:
        return _removed(server, one, holders, seen)
    except OSError as error:
        why = error.strerror or type(error).__name__
        return Done(refused=Text(f"删不掉：{why}。", f"It cannot be deleted: {why}."))


def _removed(server: Server, one: Candidate, holders: Holders, seen: float) -> Done:
    """Raises OSError where the folder above does not let us."""
    if not one.full.exists():
        return Done()  # with something that was ticked as well
    if why := why_not(server, one, holders, seen):
        return Done(refused=why)
    if one.category == SPOOLS:
        before = measure(one.full).bytes
        spool.mark_shipped(one.full)  # the claim stays, against the same payload coming again
        return Done(max(0, before - measure(one.full).bytes), 1)
    try:
        parent = opened(top_of(server, one), one.full.parent)
    except OSError:
        return Done(refused=LINKED)
    try:
        if stat.S_ISDIR(os.stat(one.full.name, dir_fd=parent, follow_symlinks=False).st_mode):
            return clear(one, parent, holders, seen) if one.inside else fell(one, parent)
        done = Done()
        _file(one.full.name, parent, lambda _name, _found: True, done)
        return done
    finally:
        os.close(parent)


def opened(top: Path, folder: Path) -> int:
    """A descriptor of a folder below `top`, step by step so that nobody can put a link into the way meanwhile.

    Raises OSError where there is one.
    """
    handle = os.open(os.path.realpath(top), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in folder.relative_to(top).parts:
        try:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        finally:
            os.close(handle)
        handle = deeper
    return handle


def fell(one: Candidate, parent: int) -> Done:
    """A whole folder: renamed first, so that from here on nobody can begin to use it."""
    name = one.full.name
    if one.category == STACKS and not name.startswith(".gone-"):
        name = f".gone-{one.full.name}-{time.time_ns()}"
        os.rename(one.full.name, name, src_dir_fd=parent, dst_dir_fd=parent)
    done = _walk(name, parent, lambda _name, _found: True)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        done.problems.append(f"{name}: {error.strerror}")
    return done


def clear(one: Candidate, parent: int, holders: Holders, seen: float) -> Done:
    """The files of a folder that has to stay: what was changed after the look, is held open or not ours is kept."""
    held = {path for path in holders.paths if path.startswith(f"{os.path.realpath(one.full)}/")}
    names = {Path(path).name for path in held}

    def may_go(name: str, found: os.stat_result) -> bool:
        lately = found.st_mtime > min(seen, time.time() - JUST_NOW_S)
        return not lately and name not in names and not writer_lives(name) and is_mine(found)

    return _walk(one.full.name, parent, may_go)


def _walk(top: str, parent: int, may_go: MayGo) -> Done:
    """Every file below `top` in the folder `parent` that may go, then the folders that are empty by then."""
    done = Done()
    for _folder, folders, files, handle in os.fwalk(top, topdown=False, follow_symlinks=False, dir_fd=parent):
        for name in files:
            _file(name, handle, may_go, done)
        for name in folders:
            try:
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):  # a link to a folder is a file to us
                    _file(name, handle, may_go, done)
                else:
                    os.rmdir(name, dir_fd=handle)
            except OSError:
                continue  # it holds something that stayed
    return done


def _file(name: str, handle: int, may_go: MayGo, done: Done) -> None:
    try:
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if not may_go(name, found):
            done.kept += 1
            return
        os.unlink(name, dir_fd=handle)
    except FileNotFoundError:
        return
    except OSError as error:
        done.kept += 1
        done.problems.append(f"{name}: {error.strerror}")
        return
    done.gone += 1
    done.freed += found.st_blocks * 512 if found.st_nlink == 1 else 0
