"""What is said of an engine: why it ended, why it is not well."""

import os
from collections.abc import Mapping
from typing import Any

from deployments.artifacts import engine_failures
from deployments.steps import Text

STOPPED = Text("已按请求停止。", "Stopped on request.")
RESTARTED = Text("引擎运行期间服务器重启了。", "The server restarted while the engine ran.")
CORE_GONE = Text(
    "引擎核心进程意外终止。请看它最后的输出与服务器的 dmesg。",
    "The engine's core process ended unexpectedly. See its last lines and the server's dmesg.",
)
GONE = Text(
    "引擎在没有看守进程的时候结束了，退出码未知。请看它最后的输出。",
    "The engine ended while nobody kept it; its exit code is not known. See its last lines.",
)
HEAD_GONE = Text(
    "首节点的引擎退出了：这个节点与它一起重新启动。",
    "The engine of the first node has ended: this node is started again with it.",
)
PORT_TAKEN = Text(
    "端口已被其他程序占用。请停止占用它的程序，或给这个副本换一个端口。",
    "Another program holds the port. Stop that program, or give this replica another port.",
)
SECRET = ("--api-key", "--hf-token")


def ended(code: int | None, output: str) -> Text:
    """Why an engine is gone that was not to end; vLLM's exit code alone says nothing."""
    if found := engine_failures.meaning(output):
        return found
    if "address already in use" in output.lower():
        return PORT_TAKEN
    if "EngineDeadError" in output or "Engine core proc" in output:
        return CORE_GONE
    return GONE if code is None else engine_failures.ended_early(code, "")


def unwell(status: int | None) -> Text:
    if status is None:
        return Text("引擎不回应健康检查（/health）。", "The engine does not answer /health.")
    return Text(
        f"引擎的健康检查报告故障（HTTP {status}）。", f"The engine says that it is not well (/health: HTTP {status})."
    )


def not_ready(limit_s: float, trouble: Text | None) -> Text:
    more = trouble or Text(
        "请看它最后的输出；大模型请加长启动时限。", "See its last lines; give a large model more time to start."
    )
    return Text(
        f"引擎在 {limit_s:g} 秒内没有就绪，已被停止。{more.zh}",
        f"The engine was not ready within {limit_s:g} s and was stopped. {more.en}",
    )


def hung(limit_s: float, trouble: Text | None) -> Text:
    more = trouble or unwell(None)
    return Text(
        f"引擎连续 {limit_s:g} 秒不正常，已被停止。{more.zh}",
        f"The engine was not well for {limit_s:g} s and was stopped. {more.en}",
    )


def again(pause_s: float, trouble: Text) -> Text:
    return Text(f"{trouble.zh} {pause_s:g} 秒后重新启动。", f"{trouble.en} It is started again in {pause_s:g} s.")


def anew(trouble: Text) -> Text:
    return Text(f"上次退出，现在重新启动：{trouble.zh}", f"It ended and is being started again: {trouble.en}")


def loop(times: int, trouble: Text) -> Text:
    return Text(
        f"引擎在 10 分钟内退出了 {times} 次，不再重新启动。最后一次的原因：{trouble.zh}",
        f"The engine ended {times} times within 10 minutes and is not started again. The last time: {trouble.en}",
    )


def no_room(error: OSError) -> Text:
    words = os.strerror(error.errno or 0)
    return Text(
        f"引擎没有启动：状态目录无法写入（{words}）。请清出空间，之后会自动再试。",
        f"The engine was not started: its state folder cannot be written ({words}). Free some space; "
        "it is tried again.",
    )


def masked(spec: Mapping[str, Any]) -> list[str]:
    """The command as an operator may read it: no key in it, and within the size of a record."""
    key, shown, hide = str(spec.get("api_key") or ""), [], False
    for word in [str(one) for one in spec["argv"]][:100]:
        clear = word.replace(key, "***") if len(key) >= 8 else word
        shown.append("***" if hide else clear[:300])
        hide = word in SECRET
    return shown
