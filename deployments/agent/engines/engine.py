"""One start of an engine: what it is started with, who belongs to it, and how all of that is ended."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from deployments.agent import devices, processes
from deployments.agent.config import Config
from deployments.agent.environment import ENDINGS, passed_on
from deployments.stacks.cann_layer import with_env
from deployments.steps import Text

SEEN_S = 180.0  # torch with torch_npu takes long to load on a cold disk
SEEN = "import torch, torch_npu\nprint('devices', torch.npu.device_count())"
NAME = "ASCEND_ENGINE"  # in the environment of all that an engine starts
# There, too: its folder, by which it is known. Two agents on one machine may both have an engine of that name.
MARK = "ASCEND_ENGINE_FOLDER"
KILLED_S = 5.0
OURS = ("ASCEND_CONFIG", "ASCEND_STATE", "ASCEND_STACKS", "ASCEND_ITEMS", "ASCEND_REASON", "ASCEND_ATTEMPT")


class CannotStart(Exception):
    """`text` says what stands against it."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def environment(config: Config, spec: Mapping[str, Any], visible: str, name: str) -> dict[str, str]:
    """What the engine sees: no proxies, nothing that is ours; the key by VLLM_API_KEY only."""
    env = {key: value for key, value in passed_on().items() if not key.endswith(ENDINGS) and key not in OURS}
    env.setdefault("LANG", "C.UTF-8")
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace", **config.env}
    env |= {str(key): str(value) for key, value in (spec.get("env") or {}).items()}
    if spec.get("device") != "npu":
        env.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # torch_npu without CANN breaks the import of torch
    env.pop("ASCEND_RT_VISIBLE_DEVICES", None)
    env.pop("VLLM_API_KEY", None)
    if visible:
        env["ASCEND_RT_VISIBLE_DEVICES"] = visible
    if spec.get("api_key"):
        env["VLLM_API_KEY"] = str(spec["api_key"])
    return {**env, NAME: name, MARK: str(config.engines / name)}


def visible(config: Config, spec: Mapping[str, Any]) -> str:
    """The device indexes of its NPUs as they are now; '' without any. Raises CannotStart."""
    npus = [str(one) for one in spec.get("npus") or ()]
    if not npus:
        return ""
    try:
        return devices.visible(config.state_dir, npus)
    except devices.NoSuchNpu as error:
        raise CannotStart(error.text) from error


def command(spec: Mapping[str, Any], argv: Iterable[str]) -> list[str]:
    """Behind the stack's own environment, where the spec names one."""
    words = [str(word) for word in argv]
    return list(with_env([str(spec["activate"])], words)) if spec.get("activate") else words


def check_devices(
    spec: Mapping[str, Any], env: Mapping[str, str], visible: str, cwd: Path, is_wanted: Callable[[], bool]
) -> None:
    """Ask torch, in the engine's own environment, how many NPUs it sees. Raises CannotStart where that is another
    number than was chosen: an engine would serve with the wrong ones, or not at all."""
    if not visible or spec.get("device") != "npu" or spec.get("container"):
        return
    wanted, (code, said) = len(visible.split(",")), _asked(command(spec, ["python", "-c", SEEN]), env, cwd, is_wanted)
    seen = next((line.split()[1] for line in said.splitlines() if line.startswith("devices ")), None)
    if seen == str(wanted):
        return
    last = " ".join(said.split())[-300:]
    if seen is None:
        raise CannotStart(
            Text(
                f"启动前检查：torch 没能说出看见几个 NPU（退出码 {code}）：{last}。请检查软件栈的安装。",
                f"Before the start torch could not tell how many NPUs it sees (exit code {code}): {last}. Check the "
                "installation of the stack.",
            )
        )
    raise CannotStart(
        Text(
            f"启动前检查：选定 {wanted} 个 NPU（{visible}），torch 只看见 {seen} 个。请查看服务器页面上的 NPU 与占用。",
            f"{wanted} NPUs were chosen (device {visible}), but torch sees {seen}. Look at the NPUs on the server's "
            "page, and at who holds them.",
        )
    )


def _asked(argv: list[str], env: Mapping[str, str], cwd: Path, is_wanted: Callable[[], bool]) -> tuple[int | None, str]:
    """Exit code and last output of a program that is given SEEN_S, and ended when nobody wants it any more."""
    path = cwd / "devices.txt"
    try:
        with path.open("wb") as out:
            asked = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env), cwd=cwd, start_new_session=True
            )
    except OSError as error:
        return None, os.strerror(error.errno or 0)
    until = time.monotonic() + SEEN_S
    while asked.poll() is None and time.monotonic() < until and is_wanted():
        time.sleep(0.05)
    if asked.poll() is None:
        processes.signal_session(asked.pid, signal.SIGKILL)
        asked.wait()
    return asked.returncode, path.read_bytes()[-4000:].decode(errors="replace")


def start(argv: list[str], env: Mapping[str, str], cwd: Path, output: int) -> "subprocess.Popen[bytes]":
    """In a session of its own. Raises CannotStart."""
    try:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env), cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        words = os.strerror(error.errno or 0)
        raise CannotStart(
            Text(
                f"无法启动 {argv[0]}（{words}）。请检查软件栈的安装。",
                f"{argv[0]} cannot be started ({words}). Check the installation of the stack.",
            )
        ) from error


class Members:
    """Who belongs to an engine: its session, and all that were ever seen to descend from it, by identity.

    Children that made a session of their own are remembered while their parents still live, so that they are found
    when those are gone; `look` is to be called now and then.
    """

    def __init__(self, leader: processes.Identity, folder: Path) -> None:
        self.leader = leader
        self.mark = f"{MARK}={folder}".encode()
        self.seen: set[processes.Identity] = {leader}

    def look(self, *, deeply: bool = False) -> list[int]:
        """Pids of all that live. Read from /proc as a whole: now and then only; `deeply` where they are to end, so
        that those whose parents are gone are found by their environment."""
        found = _every()
        known = {who.pid for who in self.seen if who.pid in found and found[who.pid].started == who.started}
        children: dict[int, list[int]] = {}
        for pid, stat in found.items():
            children.setdefault(stat.ppid, []).append(pid)
        members, left = set[int](), [*known, *self._of_session(found, known)]
        while left:
            pid = left.pop()
            if pid not in members:
                members.add(pid)
                left += children.get(pid, ())
        if deeply:
            later = [pid for pid, stat in found.items() if stat.started >= self.leader.started and pid not in members]
            members |= {pid for pid in later if self._is_marked(pid)}
        self.seen = {processes.Identity(pid, found[pid].started, self.leader.boot_id) for pid in members} | {
            self.leader
        }
        return sorted(pid for pid in members if found[pid].state not in "ZX" and pid != os.getpid())

    def _of_session(self, found: Mapping[int, processes.Stat], known: set[int]) -> list[int]:
        """The session's number is given out again only when nothing is left of it."""
        there = found.get(self.leader.pid)
        if there is not None and there.started != self.leader.started:
            return []
        return [
            pid for pid, stat in found.items() if stat.sid == self.leader.pid and stat.started >= self.leader.started
        ]

    def _is_marked(self, pid: int) -> bool:
        """Whether our engine's mark is in its environment; vLLM's own processes overwrite theirs by their titles."""
        try:
            return self.mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def signal(self, number: int) -> list[int]:
        """Send it to all; returns who they were."""
        members = self.look(deeply=True)
        for pid in members:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass
        return members

    def kill(self) -> list[int]:
        """End all of it for good; returns those that are still there, which is nobody unless the kernel holds them."""
        until = time.monotonic() + KILLED_S
        while (left := self.signal(signal.SIGKILL)) and time.monotonic() < until:
            time.sleep(0.02)
        return left


def _every() -> dict[int, processes.Stat]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - as in processes.session_members
        if name.isdecimal() and (stat := processes.stat(int(name))):
            found[int(name)] = stat
    return found


def end_container(spec: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """What a container's client may have left running, where the engine is in one."""
    name, tool = str(spec.get("container") or ""), str(spec.get("route") or "")
    if name and tool in ("docker", "podman"):
        try:
            subprocess.run(
                [tool, "rm", "--force", name], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            pass
