"""Bring the files of a source into a folder: several at once, each checked by size and digest, and resumed where it
was cut off. It knows nothing of where they come from (`sources`)."""

import errno
import hashlib
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from deployments import locks
from deployments.artifacts import BadModel
from deployments.artifacts.digests import Digested, Manifest, of_file
from deployments.artifacts.halves import Half
from deployments.artifacts.sources import Broken, File, OutOfRange, Source, Stream
from deployments.artifacts.sources.names import OWN
from deployments.steps import Text

TRIES = 5  # in a row without a step forward
STEP = 1 << 20  # bytes that count as one
WRONG = 2  # times that a digest may be another before it is the source's fault
LONGEST_WAIT_S = 60.0
TICK_S = 2.5
READ = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


def wait_s() -> float:
    """Seconds before the first repetition; each further one waits twice as long. Tests set ASCEND_RETRY_S."""
    return float(os.environ.get("ASCEND_RETRY_S", "1"))


def pause(after_s: float, tries: int) -> None:
    """Before the next repetition."""
    time.sleep(_wait(after_s, tries))


def _wait(after_s: float, tries: int) -> float:
    return min(max(after_s, wait_s() * 2.0 ** (tries - 1)), LONGEST_WAIT_S)


class Fetch:
    """`count` is told of bytes that have come, and of those that were here already (`there`)."""

    def __init__(
        self, source: Source, part: Path, *, count: Callable[[int], None] = lambda n: None, at_once: int = 4
    ) -> None:
        self.source, self.part, self.at_once = source, part, at_once
        self.stopped = threading.Event()
        self.counting = threading.Lock()
        self._count = count
        self.counted: dict[str, int] = {}

    def count(self, file: File, n: int) -> None:
        with self.counting:
            self.counted[file.name] = self.counted.get(file.name, 0) + n
            self._count(n)

    def count_anew(self, file: File) -> None:
        """What was counted of it is read or fetched once more."""
        self.count(file, -self.counted.get(file.name, 0))

    def all(self, files: Sequence[File]) -> Manifest:
        """Raises BadModel; what has come stays, and the next try goes on there."""
        held, ended = self._hold(), threading.Event()
        threading.Thread(target=self._tick, args=(ended,), daemon=True).start()
        try:
            with ThreadPoolExecutor(self.at_once) as pool:
                running = {pool.submit(self._one, file): file for file in files}
                done, _rest = wait(running, return_when=FIRST_EXCEPTION)
                failed = [one for one in done if one.exception()]
                if failed:
                    self.stopped.set()
                    for one in running:
                        one.cancel()
            if failed:
                raise failed[0].exception() or AssertionError
            return Manifest({file.name: one.result() for one, file in running.items()})
        except OSError as error:
            raise unwritable(self.part, error) from error
        finally:
            ended.set()
            os.close(held)

    def _tick(self, ended: threading.Event) -> None:
        """Count nothing now and then, so that something is told while nothing comes."""
        while not ended.wait(TICK_S):
            with self.counting:
                self._count(0)

    def _hold(self) -> int:
        """Raises BadModel where another process writes into the same folder."""
        try:
            (self.part / OWN).mkdir(exist_ok=True)
            held = locks.try_lock(self.part / OWN / "lock")
        except OSError as error:
            raise unwritable(self.part, error) from error
        if held is None:
            raise BadModel(
                Text(
                    f"另一个作业正在写 {self.part}。请等它结束，再重试。",
                    f"Another job writes into {self.part} just now. Wait until it has ended, then try again.",
                )
            )
        return held

    def _one(self, file: File) -> Digested:
        """Raises BadModel, OSError."""
        half = Half(self.part, file)
        if self._is_here(file, half):
            self.count(file, int(half.done["size"]))
            return Digested(int(half.done["size"]), str(half.done["sha256"]))
        tries, wrong, furthest = 0, 0, half.size
        while True:
            try:
                return self._go_on(file, half)
            except WrongContent as error:
                wrong, problem = wrong + 1, str(error)
                half.drop()
                if wrong >= WRONG:
                    raise _wrong(file, self.source, problem) from error
            except Broken as error:
                if half.size >= furthest + STEP:
                    tries, furthest = 0, half.size
                tries += 1
                if tries >= TRIES:
                    raise _gave_up(file, self.source, str(error)) from error
                print(f"{file.name[:200]}: {error}; {tries}/{TRIES}", flush=True)
                if self.stopped.wait(_wait(error.after_s, tries)):
                    raise Stopped from error

    def _is_here(self, file: File, half: Half) -> bool:
        """Whether an earlier try has brought it, and the source still has the same."""
        if not half.is_whole(file):
            return False
        if not half.is_on_disk and of_file(half.final).sha256 != half.done["sha256"]:
            return False
        try:
            wanted, has = self.source.sha256(file), str(half.done["sha256"])
            return wanted in ("", has)
        except Broken:
            return False

    def _go_on(self, file: File, half: Half) -> Digested:
        """Fetch what is missing, then judge the whole. Raises Broken, WrongContent, BadModel, OSError."""
        self.count_anew(file)
        begin = half.size
        if file.size is not None and begin > file.size:
            half.drop()
            begin = 0
        if begin and begin == file.size:
            return self._judge(file, half, begin, self._digest_of(file, half))
        try:
            stream = self.source.open(file, begin, half.tag)
        except OutOfRange:
            half.drop()
            raise
        try:
            return self._receive(file, half, stream)
        finally:
            stream.close()

    def _receive(self, file: File, half: Half, stream: Stream) -> Digested:
        if None not in (file.size, stream.total) and file.size != stream.total:
            raise Broken(f"{stream.total:,} bytes are offered, and {file.size:,} are listed")
        is_rest = stream.begins and stream.begins == half.size and (stream.tag == half.tag or file.digest)
        if stream.begins and not is_rest:
            half.drop()
            raise Broken("it has changed since the part that lies here")
        hasher = Hasher(file)
        try:
            if is_rest:
                self._feed(file, half.data, hasher)
            half.begin(stream.tag)
            end = file.size if file.size is not None else stream.total
            size = self._write(file, half, stream, hasher, end)
        except BaseException:
            hasher.close()
            raise
        return self._judge(file, half, size, hasher)

    def _write(self, file: File, half: Half, stream: Stream, hasher: "Hasher", end: int | None) -> int:
        """How long the file is then. Raises Broken, OSError."""
        at = stream.begins
        with half.data.open("r+b" if at else "wb") as out:
            out.seek(at)
            out.truncate()
            while data := stream.read():
                if self.stopped.is_set():
                    raise Stopped
                at += len(data)
                if end is not None and at > end:
                    raise Broken(f"more than {end:,} bytes come")
                hasher.feed(data)
                out.write(data)
                self.count(file, len(data))
        if end is not None and at < end:
            raise Broken(f"it ended at {at:,} of {end:,} bytes")
        return at

    def _feed(self, file: File, path: Path, hasher: "Hasher") -> None:
        with path.open("rb") as here:
            while data := here.read(READ):
                hasher.feed(data)
                self.count(file, len(data))

    def _digest_of(self, file: File, half: Half) -> "Hasher":
        hasher = Hasher(file)
        self._feed(file, half.data, hasher)
        return hasher

    def _judge(self, file: File, half: Half, size: int, hasher: "Hasher") -> Digested:
        """Raises WrongContent."""
        sha256, git = hasher.end()
        if half.data.stat().st_size != size:
            raise Broken("the disk holds another number of bytes than came")
        wanted = file.sha256 or self.source.sha256(file)
        if wanted and wanted != sha256:
            raise WrongContent(f"SHA-256 {sha256[:12]}…, and {wanted[:12]}… is listed")
        if file.git and git and file.git != git:
            raise WrongContent(f"git {git[:12]}…, and {file.git[:12]}… is listed")
        half.finish(size, sha256)
        return Digested(size, sha256)


class WrongContent(Exception):
    """It came whole, and is another than was listed."""


class Stopped(Exception):
    """Another file has failed for good."""


class Hasher:
    """Digests in a thread of its own: hashlib lets go of the interpreter, so that the next bytes come meanwhile."""

    def __init__(self, file: File) -> None:
        self.sha256, self.git = hashlib.sha256(), None
        if file.git and file.size is not None:
            self.git = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
        self.given: queue.Queue[bytes] = queue.Queue(4)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while data := self.given.get():
            self.sha256.update(data)
            if self.git:
                self.git.update(data)

    def feed(self, data: bytes) -> None:
        self.given.put(data)

    def close(self) -> None:
        self.given.put(b"")
        self.thread.join()

    def end(self) -> tuple[str, str]:
        """SHA-256 and, where it is wanted, the SHA-1 that git makes."""
        self.close()
        return self.sha256.hexdigest(), self.git.hexdigest() if self.git else ""


def clear(part: Path) -> None:
    """Take away what only a download needs."""
    shutil.rmtree(part / OWN, ignore_errors=True)


def unwritable(part: Path, error: OSError) -> BadModel:
    if error.errno in FULL:
        return BadModel(
            Text(
                f"磁盘已满：{part} 写不下了。已取得的部分保留。请清出空间，再重试，会从中断处继续。",
                f"The disk is full: nothing more fits into {part}. What has come stays. Make room, then try again; it "
                "goes on where it was.",
            )
        )
    words = os.strerror(error.errno or 0)
    return BadModel(
        Text(
            f"写不了 {part}（{words}）。请检查权限和磁盘，再重试。",
            f"{part} cannot be written ({words}). Look at its rights and the disk, then try again.",
        )
    )


def _gave_up(file: File, source: Source, why: str) -> BadModel:
    return BadModel(
        Text(
            f"{file.name[:200]} 连续 {TRIES} 次没有取得（{why}）。已取得的部分保留；请检查到 {source.said} 的网络，"
            "再重试，会从中断处继续。",
            f"{file.name[:200]} did not come in {TRIES} attempts in a row ({why}). What has come stays; look at the "
            f"network to {source.said}, then try again, and it goes on where it was.",
        )
    )


def _wrong(file: File, source: Source, why: str) -> BadModel:
    return BadModel(
        Text(
            f"{file.name[:200]} 取了 {WRONG} 次，内容都与来源列出的不符（{why}）。请检查 {source.said} 和中间的代理，"
            "或换一个镜像。",
            f"{file.name[:200]} came {WRONG} times with another content than its source lists ({why}). Look at "
            f"{source.said} and for a proxy in between, or choose another mirror.",
        )
    )
