"""A new model's folder comes about beside its name, and gets the name when it is whole."""

import os
import shutil
from pathlib import Path

from deployments.artifacts import BadModel, paths
from deployments.artifacts.progress import amount
from deployments.steps import Text

PART = ".part"
SPARE = 256_000_000  # bytes that stay free


def part_of(target: Path) -> Path:
    """The folder that is written into. Whoever looks for models passes it over."""
    return target.parent / f".{target.name}{PART}"


def whole_of(part: str) -> str:
    """The path that a folder gets when it is whole; '' for one that is none of ours."""
    parent, _slash, name = part.rpartition("/")
    return f"{parent}/{name[1 : -len(PART)]}" if is_part(name) and len(name) > 1 + len(PART) else ""


def is_part(name: str) -> bool:
    return name.startswith(".") and name.endswith(PART)


def begin(target: Path) -> Path:
    """The folder to write into; it may hold what an earlier try has left. Raises BadModel."""
    check(target)
    part = part_of(target)
    try:
        part.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadModel(
            Text(
                f"无法新建 {part}（{error.strerror}）。请换一个目录，或让 Agent 的账号可以写入。",
                f"{part} cannot be made ({error.strerror}). Choose another folder, or let the agent write there.",
            )
        ) from error
    if part.is_symlink() or not part.is_dir():
        raise BadModel(Text(f"{part} 是链接。请把它移开。", f"{part} is a link. Move it away."))
    return part


def check(target: Path) -> None:
    """Raises BadModel where nothing can be put there: it exists and holds something, or its path is none."""
    if wrong := paths.problem(str(target)):
        raise BadModel(wrong)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BadModel(Text(f"{target} 已存在，而且不是目录。", f"{target} is there already, and is no folder."))
    try:
        if target.is_dir() and any(target.iterdir()):
            raise BadModel(
                Text(
                    f"{target} 不是空的。请换一个目录，或先删除那里的模型。",
                    f"{target} is not empty. Choose another folder, or delete the model there first.",
                )
            )
    except OSError as error:
        raise BadModel(
            Text(f"{target} 无法读取（{error.strerror}）。", f"{target} cannot be read ({error.strerror}).")
        ) from error


def finish(part: Path, target: Path) -> None:
    """Give the folder its name, at once; what was written is on the disk before. Raises BadModel."""
    for path in part.rglob("*"):
        _to_disk(path)
    _to_disk(part)
    check(target)
    if target.is_dir():
        target.rmdir()
    part.rename(target)
    _to_disk(target.parent)


def give_up(part: Path) -> None:
    """Take away what was written."""
    shutil.rmtree(part, ignore_errors=True)


def room(folder: Path, wanted: int) -> None:
    """Raises BadModel where the disk of that folder has less room than `wanted` bytes and a little more."""
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    free = shutil.disk_usage(at).free
    if free < wanted + SPARE:
        raise BadModel(
            Text(
                f"{at} 只剩 {amount(free)}，需要 {amount(wanted + SPARE)}。请清理磁盘，或换一个目录。",
                f"{at} has {amount(free)} left, and {amount(wanted + SPARE)} is needed. Make room or choose another.",
            )
        )


def _to_disk(path: Path) -> None:
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
