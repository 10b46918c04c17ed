"""The files of a model's folder."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deployments.artifacts import BadModel
from deployments.steps import Text

MOST_FILES = 20_000
DEEPEST = 4
SKIPPED = {".git", ".cache", "__pycache__", ".huggingface", ".locks"}


class Found(NamedTuple):
    """`name` is the path within the folder, '/' between its parts."""

    name: str
    size: int


def files_of(folder: Path) -> list[Found]:
    """Every file, sorted; links to files count as what they point to, links to folders are not followed.

    Raises BadModel where the folder cannot be read, a link leads nowhere or in a circle, or there are too many files.
    """
    found = []
    for one in _walk(folder, "", 0):
        found.append(one)
        if len(found) > MOST_FILES:
            raise BadModel(
                Text(
                    f"{folder} 里的文件超过 {MOST_FILES} 个：请选择模型自己的目录。",
                    f"{folder} holds more than {MOST_FILES} files: choose the folder of the model itself.",
                )
            )
    return sorted(found)


def _walk(folder: Path, before: str, depth: int) -> Iterator[Found]:
    try:
        entries = sorted(os.scandir(folder), key=lambda one: one.name)
    except OSError as error:
        raise unreadable(folder, error) from error
    for entry in entries:
        if entry.name in SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST:
                yield from _walk(folder / entry.name, f"{before}{entry.name}/", depth + 1)
            continue
        try:
            info = entry.stat()
        except OSError as error:
            raise _bad_link(folder / entry.name, error) from error
        if stat.S_ISREG(info.st_mode):
            yield Found(before + entry.name, info.st_size)


def _bad_link(path: Path, error: OSError) -> BadModel:
    return BadModel(
        Text(
            f"链接 {path} 指向的文件不可用（{error.strerror}）。请修正链接，或重新下载。",
            f"The link {path} leads to no file ({error.strerror}). Mend it, or download the model again.",
        )
    )


def unreadable(folder: Path, error: OSError) -> BadModel:
    if isinstance(error, FileNotFoundError):
        return BadModel(Text(f"没有 {folder} 这个目录。", f"There is no folder {folder}."))
    if isinstance(error, NotADirectoryError):
        return BadModel(Text(f"{folder} 不是目录。", f"{folder} is no folder."))
    return BadModel(
        Text(
            f"{folder} 无法读取（{error.strerror}）。请让 Agent 的账号可以读取。",
            f"{folder} cannot be read ({error.strerror}). Let the agent's account read it.",
        )
    )
