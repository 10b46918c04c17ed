"""The server as the probes see it: files below ASCEND_ROOT, tools by PATH. Every read and run is bounded."""

import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from deployments.stacks.installed import ROOT
from deployments.steps import Text
from monitoring.parsers import ParseError, npu_smi_info
from monitoring.parsers.failures import Unreadable

MOST_BYTES = 256 * 1024  # of one file; the largest that is asked for has 10 KB on real servers
MOST_OUTPUT = 1024 * 1024
MOST_NAMES = 4096
TOOL_TIMEOUT_S = 15.0  # npu-smi hangs on a sick card
NO_TOOL = Text("没有该命令", "there is no such command")


class Trouble(Exception):
    """The question cannot be answered on this server; holds the reason in both languages."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.reason = reason


class Answer(NamedTuple):
    """What a tool printed (standard output and error together) and its exit code."""

    code: int
    text: str


class Host:
    """`root` holds the server's files ("/" on a real one). `deep` asks for the slow questions too.

    `env` is the environment that programs get from the agent; `state` the agent's own folder, None where a person runs
    the probes by hand; `stacks` the folder with this server's stacks.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, *, deep: bool = False) -> None:
        self.root = Path(root if root is not None else os.environ.get("ASCEND_ROOT") or "/")
        self.deep = deep
        self.env: Mapping[str, str] = os.environ
        self.state = _state_folder()
        self.stacks = _stacks_of(self.root, self.state)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """The text of a file, its first MOST_BYTES; None when there is none. Raises Trouble when it cannot be read."""
        try:
            handle = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(name, error) from error
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Trouble(Text(f"{name} 不是普通文件", f"{name} is not a plain file"))
            return _read_all(handle).decode("utf-8", "replace")
        except OSError as error:
            raise _unreadable(name, error) from error
        finally:
            os.close(handle)

    def exists(self, name: str) -> bool:
        try:
            return self.path(name).exists()
        except OSError as error:
            raise _unreadable(name, error) from error

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted, at most MOST_NAMES; empty when there is no such folder."""
        try:
            with os.scandir(self.path(folder)) as entries:
                found = [entry.name for entry, _ in zip(entries, range(MOST_NAMES), strict=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error) from error
        return sorted(found)

    def look(self, folder: str) -> list[str]:
        """The names in a folder; none where we may not look."""
        try:
            return self.names(folder)
        except Trouble:
            return []

    def peek(self, name: str) -> str:
        """The text of a file; '' where there is none, or we may not read it."""
        try:
            return self.read(name) or ""
        except Trouble:
            return ""

    def run(self, *argv: str, timeout_s: float = TOOL_TIMEOUT_S) -> Answer | None:
        """Run a tool in the C locale; None when PATH has none. Raises Trouble when it hangs or cannot start."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(argv[0], error) from error
        return _collect(process, argv, time.monotonic() + timeout_s)

    def tool(self, *argv: str, timeout_s: float = TOOL_TIMEOUT_S) -> str:
        """What a tool printed. Raises Trouble when it is missing or ends with an error."""
        answer = self.run(*argv, timeout_s=timeout_s)
        if answer is None:
            raise Trouble(Text(f"{argv[0]}：{NO_TOOL.zh}", f"{argv[0]}: {NO_TOOL.en}"))
        if answer.code != 0:
            said = answer.text.strip()[:200]
            raise Trouble(
                Text(f"{argv[0]} 退出码 {answer.code}：{said}", f"{argv[0]} ended with code {answer.code}: {said}")
            )
        return answer.text

    @cached_property
    def npu_smi(self) -> npu_smi_info.Info | Unreadable | Trouble | None:
        """What `npu-smi info` says, None when there is no such tool. Asked once, whatever happens."""
        try:
            answer = self.run("npu-smi", "info")
            return None if answer is None else npu_smi_info.parse(answer.text)
        except Trouble as trouble:
            return trouble
        except ParseError:
            assert answer is not None
            said = answer.text.strip()[:200]
            return Trouble(
                Text(f"看不懂 npu-smi info 的输出：{said}", f"npu-smi info printed what no parser understands: {said}")
            )

    @property
    def npus(self) -> tuple[npu_smi_info.Npu, ...]:
        """The NPUs that npu-smi shows; empty when it shows none."""
        return self.npu_smi.npus if isinstance(self.npu_smi, npu_smi_info.Info) else ()

    @property
    def processes(self) -> tuple[npu_smi_info.Process, ...]:
        """The processes that npu-smi shows; empty when it shows none."""
        return self.npu_smi.processes if isinstance(self.npu_smi, npu_smi_info.Info) else ()


def _state_folder() -> Path | None:
    """The agent's own folder: the program of a step begins in the attempt's, which lies in it."""
    try:
        folder = Path.cwd()
    except OSError:
        return None
    return folder.parent.parent if folder.parent.name == "attempts" else None


def _stacks_of(root: Path, state: Path | None) -> str:
    """The common folder of stacks where this account may write there, as the agent decides it, else its own."""
    if root == Path("/") and state is not None and not os.access(ROOT, os.W_OK | os.X_OK):
        return str(state / "stacks")
    return ROOT


def _unreadable(name: str, error: OSError) -> Trouble:
    reason = error.strerror or type(error).__name__
    return Trouble(Text(f"读不到 {name}：{reason}", f"{name} cannot be read: {reason}"))


def _read_all(handle: int) -> bytes:
    found = bytearray()
    while len(found) < MOST_BYTES:
        part = os.read(handle, MOST_BYTES - len(found))
        if not part:
            break
        found += part
    return bytes(found)


def _collect(process: "subprocess.Popen[bytes]", argv: tuple[str, ...], deadline: float) -> Answer:
    """The output up to MOST_OUTPUT. The tool's whole group is ended with it, however it goes."""
    assert process.stdout is not None
    output, handle = bytearray(), process.stdout.fileno()
    try:
        while True:
            if len(output) > MOST_OUTPUT:
                raise Trouble(Text(f"{argv[0]} 的输出没完没了", f"{argv[0]} never stops printing"))
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([handle], [], [], left)[0]:
                raise Trouble(Text(f"{argv[0]} 超时，没有回答", f"{argv[0]} did not answer in time"))
            part = os.read(handle, 65536)
            if not part:
                break
            output += part
        return Answer(_code(process, argv, deadline), output.decode("utf-8", "replace"))
    finally:
        process.stdout.close()
        _end(process)


def _code(process: "subprocess.Popen[bytes]", argv: tuple[str, ...], deadline: float) -> int:
    try:
        return process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise Trouble(Text(f"{argv[0]} 不退出", f"{argv[0]} does not end")) from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the tool's whole group. A process stuck in the driver cannot be killed: it is left, not waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        pass
