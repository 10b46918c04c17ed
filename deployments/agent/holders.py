"""`python -m deployments.agent.holders [--devices 0,1 --places 0.0,1.0]`: end with 0 only where nobody holds an NPU of
this server, or one of those that are named: /dev/davinci0, and NPU 0, chip 0, of npu-smi.

Who holds one is read by the root helper from the open devices of every process, and from npu-smi, which may know of
more. Known exporters are stopped by the helper, which notes them and starts them again (action start-exporters).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from deployments.agent import as_root
from deployments.agent.config import Config, load
from deployments.kinds.check_probes.host import Host
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

PATIENCE_S = 20.0  # the agent's own npu-smi holds them for a moment, again and again
ASK_S = 60.0
SHOWN = 12
Ask = Callable[[str], "subprocess.CompletedProcess[str]"]


class NotAsked(Exception):
    """The root helper did not answer; `text` says why."""

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.holders")
    parser.add_argument("--devices", default="")
    parser.add_argument("--places", default="")
    asked = parser.parse_args(arguments)
    names = {f"davinci{one}" for one in asked.devices.split(",") if one}
    names |= {f"NPU {one}" for one in asked.places.split(",") if one}
    config, attempt = load(Path(os.environ["ASCEND_CONFIG"])), os.environ.get("ASCEND_ATTEMPT", "")
    try:
        return ended(problem(lambda action: ask_root(config, action, attempt), of_npu_smi, names))
    except as_root.NoRoot as error:
        return ended(error.text)
    except NotAsked as error:
        return ended(error.text)


def ask_root(config: Config, action: str, attempt: str) -> "subprocess.CompletedProcess[str]":
    """Raises NoRoot where this agent has no root helper."""
    argv = as_root.command(config, [action], attempt)
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S)


def of_npu_smi() -> list[dict[str, Any]]:
    """The processes that npu-smi shows, as the helper tells of its own; none where it shows nothing."""
    return [{"pid": one.pid, "name": one.name, "devices": [f"NPU {one.npu}.{one.chip}"]} for one in Host().processes]


def problem(
    ask: Ask, listed: Callable[[], list[dict[str, Any]]], names: Set[str] = frozenset(), patience_s: float = PATIENCE_S
) -> Text:
    """Who holds NPUs still, in words; FINE where nobody does. Stops known exporters once. `names` are those that
    matter, all where there are none. Raises NotAsked."""
    until, stopped = time.monotonic() + patience_s, False
    while True:
        there = _that_matter(_together(_read(ask("npu-holders")), listed()), names)
        if not there:
            print("0")
            return FINE
        if not stopped and any(one.get("exporter") for one in there):
            stopped = True
            told = ask("stop-exporters")
            print(told.stdout + told.stderr, flush=True)
            continue
        if time.monotonic() >= until:
            return words(there)
        time.sleep(0.25)


def _read(answer: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    if answer.returncode:
        said = " ".join((answer.stderr or answer.stdout).split())[:300]
        raise NotAsked(
            Text(
                f"root 助手没有说出谁在使用 NPU（{said}），因此没有开始。请以 root 重新运行加入命令，再重试。",
                f"The root helper did not tell who holds NPUs ({said}), so nothing was begun. Run the command for "
                "joining again as root, then try again.",
            )
        )
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def _together(opened: list[dict[str, Any]], listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that have a device open, and those that only npu-smi knows; who is told of twice is there once."""
    known = {one.get("pid") for one in opened}
    return opened + [one for one in listed if one.get("pid") not in known and _lives(one.get("pid"))]


def _that_matter(there: list[dict[str, Any]], names: Set[str]) -> list[dict[str, Any]]:
    return [one for one in there if not names or one.get("exporter") or names & set(one["devices"])]


def _lives(pid: Any) -> bool:
    """npu-smi may show a process that has ended, or whose number it does not know."""
    return not isinstance(pid, int) or Path(f"/proc/{pid}").exists()


def words(there: list[dict[str, Any]]) -> Text:
    """Who they are: [{"pid", "user", "name", "devices", …}]."""
    zh, en = "；".join(map(_line_zh, there[:SHOWN])), "; ".join(map(_line_en, there[:SHOWN]))
    more = f" (+{len(there) - SHOWN})" if len(there) > SHOWN else ""
    return Text(
        f"NPU 正被占用，因此没有开始，什么也没有改动：{zh}{more}。请等其所有者结束这些进程，再重试。",
        f"NPUs are held, so it was not begun and nothing was changed: {en}{more}. Let the owners of these processes "
        "end them, then try again.",
    )


def _line_en(one: dict[str, Any]) -> str:
    return _line(one, "container", "a job of ours", "started by hand: stop it yourself", "Kubernetes: take it off here")


def _line_zh(one: dict[str, Any]) -> str:
    return _line(one, "容器", "本控制台的作业", "手动启动：请自行停止", "Kubernetes：请先让它离开本机")


def _line(one: dict[str, Any], container: str, ours: str, by_hand: str, kubernetes: str) -> str:
    """`PID 4242 (zhangwei, container 0a1b2c) python: davinci0`."""
    who = [str(one.get("user") or "?")]
    if one.get("container"):
        who.append(f"{container} {str(one['container'])[:12]}")
    elif one.get("unit"):
        who.append(str(one["unit"]))
    if attempt := _attempt(one.get("pid")):
        who.append(f"{ours} #{attempt[1:].split('-')[0]}")
    if one.get("kubernetes"):
        who.append(kubernetes)
    elif one.get("exporter"):
        who.append(by_hand)
    return f"PID {one.get('pid') or '?'} ({', '.join(who)}) {one.get('name') or '?'}: {', '.join(one['devices'][:4])}"


def _attempt(pid: Any) -> str:
    """The run of a job of ours that the process belongs to, ''."""
    if not isinstance(pid, int):
        return ""
    try:
        found = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    told = next((word for word in found if word.startswith(b"ASCEND_ATTEMPT=a")), b"")
    return told.partition(b"=")[2].decode(errors="replace")[:40]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
