"""A folder that this server sees itself: shared storage, a disk that was brought, what the console keeps here."""

import os
import stat
from pathlib import Path

from deployments.artifacts import BadModel
from deployments.artifacts.digests import of_file
from deployments.artifacts.files import files_of
from deployments.artifacts.sources import Broken, File, Stream
from deployments.steps import Text

PIECE = 2 << 20
SMALL = 64 << 20  # bytes


class SharedPath:
    """Links are followed within the folder, and from a snapshot of Hugging Face's cache to its blobs beside it."""

    revision = ""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, str(folder)

    def files(self) -> list[File]:
        return [self._file(one.name, one.size) for one in files_of(self.folder)]

    def _file(self, name: str, size: int) -> File:
        path = self.folder / name
        self._check(path)
        try:
            return File(name, size, str(path), tag=tag_of(path.stat()))
        except OSError as error:
            raise unreadable(path, error) from error

    def _check(self, path: Path) -> None:
        """Raises BadModel where it is another place's file."""
        real, home = path.resolve(), self.folder.resolve()
        places = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
        if not any(real.is_relative_to(place) for place in places):
            raise BadModel(
                Text(
                    f"{path} 是指向该目录之外的链接（{real}），因此没有复制任何文件。请把它换成文件本身。",
                    f"{path} is a link that leads out of the folder (to {real}), so nothing was copied. Put the file "
                    "itself there.",
                )
            )

    def open(self, file: File, begin: int, tag: str) -> Stream:
        self._check(Path(file.url))
        return OpenFile(Path(file.url), begin, tag)

    def sha256(self, file: File) -> str:
        """Of small files, among them all that say how a model is read; large ones are not read twice."""
        if file.size is None or file.size > SMALL:
            return ""
        try:
            return of_file(Path(file.url)).sha256
        except OSError as error:
            raise unreadable(Path(file.url), error) from error


def tag_of(info: os.stat_result) -> str:
    """What tells one state of a file from a later one."""
    return f"{info.st_mtime_ns}-{info.st_ino}"


class OpenFile:
    """The Stream of a file on this machine."""

    total: int | None

    def __init__(self, path: Path, begin: int, tag: str) -> None:
        self.path = path
        try:
            self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise unreadable(path, error) from error
        info = os.fstat(self.file)
        if not stat.S_ISREG(info.st_mode):
            os.close(self.file)
            raise unreadable(path, OSError(0, "not a regular file"))
        self.tag, self.total = tag_of(info), info.st_size
        self.begins = begin if tag == self.tag and begin <= info.st_size else 0
        os.lseek(self.file, self.begins, os.SEEK_SET)

    def read(self) -> bytes:
        try:
            return os.read(self.file, PIECE)
        except OSError as error:  # storage on a network may come back
            raise Broken(f"{self.path}: {error.strerror}") from error

    def close(self) -> None:
        os.close(self.file)


def unreadable(path: Path, error: OSError) -> BadModel:
    return BadModel(
        Text(
            f"{path} 无法读取（{error.strerror}）。请让 Agent 的账号可以读取，再重试。",
            f"{path} cannot be read ({error.strerror}). Let the agent's account read it, then try again.",
        )
    )
