"""What root alone may read comes from the root helper as a tar on its output, and lies nowhere as ours."""

import os
import selectors
import subprocess
import tarfile
import tempfile
import time
from typing import IO, Any

from deployments.agent import as_root
from deployments.agent.config import Config
from deployments.agent.support.files import shown
from deployments.agent.support.part import TOO_LONG, Full, Part
from deployments.steps import Text

AFTER_S = 20.0  # for the helper to take away what it made


class NotHad(Exception):
    """Root gave nothing; `text` says why."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def take(part: Part, config: Config, action: str, words: list[str], name: str, *, raw: bool = False) -> int:
    """Put what the action gives into the part, below `name`; how many files. Raises NotHad, Full, OSError."""
    argv = _command(config, action, words)
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        assert process.stdout is not None and process.stdin is not None
        count, broken = 0, False
        try:
            count = _unpack(part, _Timed(process.stdout, part.until), name, raw)
        except tarfile.TarError:
            broken = True
        finally:
            process.stdout.close()
            process.stdin.close()
            code = _ended(process)
        if code or broken:
            said.seek(0)
            why = _why(action, code, said.read(2000).decode(errors="replace"))
            if not count:
                raise NotHad(why)
            part.lacks(name, why)
    return count


def run(part: Part, config: Config, action: str, words: list[str], name: str) -> None:
    """The same of an action that prints a text. Raises NotHad, Full, OSError."""
    argv = _command(config, action, words)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        raise NotHad(TOO_LONG) from None
    if done.returncode:
        raise NotHad(_why(action, done.returncode, done.stderr.decode(errors="replace")))
    part.text(name, done.stdout.decode("utf-8", "replace"))


def _command(config: Config, action: str, words: list[str]) -> list[str]:
    attempt = os.environ.get("ASCEND_ATTEMPT", "a0-1-00000000")
    try:
        return as_root.command(config, [action, attempt, *words], attempt)
    except as_root.NoRoot:
        raise NotHad(
            Text(
                "需要 root 权限，而这台服务器没有 root 助手。请以 root 重新运行加入命令，再重新收集。",
                "It needs root, and this server has no root helper. Run the command for joining again as root, then "
                "collect again.",
            )
        ) from None


def _unpack(part: Part, stream: "_Timed", name: str, raw: bool) -> int:
    count = 0
    with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]  # all that it takes is `read`
        for member in tar:
            if member.name == "_problem":
                part.lacks(name, _problem(tar.extractfile(member)))
                continue
            if not member.isreg():
                continue
            file = tar.extractfile(member)
            assert file is not None
            cut = int(member.pax_headers.get("cut", "0") or 0)
            part.add(f"{name}/{shown(*member.name.split('/'))}", file.read, cut=cut, raw=raw)
            count += 1
    return count


def _problem(file: "IO[bytes] | None") -> Text:
    words = " ".join((file.read(400) if file else b"").decode(errors="replace").split())
    return Text(words, words)


class _Timed:
    """Reads a pipe, and no longer than until then."""

    def __init__(self, pipe: IO[bytes], until: float) -> None:
        self.pipe, self.until = pipe, until

    def read(self, n: int) -> bytes:
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            while len(found) < n:
                if not selector.select(max(0.0, self.until - time.monotonic())):
                    raise Full(TOO_LONG)
                data = os.read(self.pipe.fileno(), n - len(found))
                if not data:
                    break
                found += data
        return bytes(found)


def _ended(process: "subprocess.Popen[Any]") -> int:
    """Its input has closed, by which the helper knows that nobody listens."""
    try:
        return process.wait(AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _why(action: str, code: int, said: str) -> Text:
    words = " ".join(said.split())[:300].removeprefix("root-helper: ")
    if code == 69:
        return Text("这台服务器没有该命令或目录", "it is not there on this server")
    if "there is no such action" in words:
        return Text(
            "root 助手是旧版本。请以 root 重新运行加入命令，再重新收集。",
            "The root helper is of an older version. Run the command for joining again as root, then collect again.",
        )
    return Text(f"root 助手没有给出（{words or code}）", f"the root helper did not give it ({words or code})")
