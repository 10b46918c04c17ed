"""`python -m deployments.agent.serving.look e12 …`: whether the engine can be started here, before anything is changed.

Each question is an item of the report; the first that fails is the reason of the job.
"""

import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from deployments.agent.config import Config
from deployments.agent.serving import engine, idle, links, npus, program
from deployments.agent.serving.npus import Seen
from deployments.agent.serving.program import Stopped
from deployments.artifacts import BadModel
from deployments.artifacts import read as models
from deployments.serving.asked import Ask
from deployments.serving.idle import LOOSE_MB
from deployments.steps import Text

SHOWN = 8
BF16 = ("bfloat16", "bf16")
RUNTIME_S = 60
WELL = (None, "OK", "Warning")
WHY = {
    "no_systemd": Text(
        "这台服务器没有 systemd：引擎作为普通进程运行，由代理看护；重启服务器后由代理重新启动。",
        "This server has no systemd: the engine runs as a plain process that the agent looks after, also after a "
        "restart of the server.",
    ),
    "no_root": Text(
        "代理没有 root 助手，放不了 systemd 单元：引擎作为普通进程运行，由代理看护。"
        "以 root 重新运行加入命令后即可用 systemd。",
        "The agent has no root helper to put a unit of systemd: the engine runs as a plain process that the agent "
        "looks after. Run the command for joining again as root to have units.",
    ),
    "old_helper": Text(
        "root 助手是旧版本，不认识引擎的单元：引擎作为普通进程运行，由代理看护。"
        "以 root 重新运行加入命令后即可用 systemd。",
        "The root helper is of an older version and knows no units of engines: the engine runs as a plain process that "
        "the agent looks after. Run the command for joining again as root to have units.",
    ),
}


def work(ask: Ask, config: Config) -> int:
    problems: list[Stopped] = []
    for question in (route, model, stack, ports, cards, links.check):
        try:
            question(ask, config)
        except Stopped as stopped:
            problems.append(stopped)
    for further in problems[1:]:
        program.say(*further.text)
    if problems:
        raise problems[0]
    return 0


def route(ask: Ask, config: Config) -> None:
    """Raises Stopped where the engine runs already."""
    title = Text("方式", "Route")
    if ask.why:
        program.item("route", title, "warning", ask.route, "systemd", WHY[ask.why])
        program.say(*WHY[ask.why])
    own = engine.of(config, ask.name)
    if own.members():
        raise Stopped(
            f"引擎 {ask.name} 已在运行（PID {own.members()[0]}）。请先停止它，再启动。",
            f"The engine {ask.name} runs already (PID {own.members()[0]}). Stop it first, then start it.",
        )


def model(ask: Ask, config: Config) -> None:
    """Raises Stopped where the folder is not there, not whole, or holds another model than the revision was made of."""
    title = Text("模型", "Model")
    try:
        found = models.read(Path(ask.model))
    except BadModel as bad:
        program.item("model", title, "failed", ask.model)
        raise Stopped(
            f"{bad.text.zh} 模型可能在此期间被删除或移走了。",
            f"{bad.text.en} The model may have been deleted or moved meanwhile.",
        ) from bad
    if ask.fingerprint and found.fingerprint != ask.fingerprint:
        program.item("model", title, "failed", found.fingerprint[:12], ask.fingerprint[:12])
        raise Stopped(
            f"{ask.model} 路径相同，但里面是另一份文件："
            f"指纹 {found.fingerprint[:12]}，版本要求 {ask.fingerprint[:12]}。"
            "请用现在的模型新建一个版本，或把原来的文件放回去。",
            f"{ask.model} is the same path with new files: their fingerprint is {found.fingerprint[:12]}, that of the "
            f"revision {ask.fingerprint[:12]}. Make a new revision of the model as it is now, or put the files back.",
        )
    if not found.whole:
        words = found.problems[0].text
        program.item("model", title, "failed", words.en)
        raise Stopped(f"模型不完整：{words.zh}", f"The model is not whole: {words.en}")
    dtype = str(ask.settings.get("dtype", "auto"))
    if ask.family.startswith("310P") and dtype in BF16:
        raise Stopped(
            "310P 没有 bfloat16。请把数据类型改为 float16，新建一个版本。",
            "310P has no bfloat16. Choose the data type float16 in a new revision.",
        )
    program.item("model", title, "ok", f"{found.bytes / 1e9:.1f} GB · {found.fingerprint[:12]}")


def stack(ask: Ask, config: Config) -> None:
    """Raises Stopped where there is no environment, or no image, to run the engine in."""
    title = Text("软件栈", "Stack")
    if ask.in_container:
        return image(ask)
    if not Path(ask.activate).is_file():
        program.item("stack", title, "failed", ask.activate)
        raise Stopped(
            f"没有 {ask.activate}：这台服务器没有在用的软件栈。请先安装软件栈，再重试。",
            f"There is no {ask.activate}: no stack is in use on this server. Install one, then try again.",
        )
    program.item("stack", title, "ok", os.path.realpath(f"{ask.stacks}/current").rpartition("/")[2])


def image(ask: Ask) -> None:
    name, title = str(ask.settings.get("image") or ""), Text("镜像", "Image")
    if not shutil.which(ask.route):
        program.item("image", title, "failed", ask.route)
        raise Stopped(
            f"这台服务器上没有 {ask.route}。请安装它，或换一种方式。",
            f"There is no {ask.route} on this server. Install it, or choose another route.",
        )
    try:
        asked = subprocess.run(
            [ask.route, "image", "inspect", "--format", "{{.Id}}", name], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=RUNTIME_S,
        )  # fmt: skip
        told, code = (asked.stdout + asked.stderr).strip()[:300], asked.returncode
    except subprocess.TimeoutExpired:
        told, code = f"{RUNTIME_S} s", 1
    if code:
        program.item("image", title, "failed", name)
        raise Stopped(
            f"{ask.route} 没有镜像 {name}（{told}）。请先用容器方式安装软件栈，或载入镜像。",
            f"{ask.route} has no image {name} ({told}). Install the stack by the container route first, or load the "
            "image.",
        )
    program.item("image", title, "ok", name)


def ports(ask: Ask, config: Config) -> None:
    """Raises Stopped for a port that somebody has, or an address that is not of this server."""
    wanted = {} if ask.is_follower else {"http": ask.port}
    wanted |= {name: port for name, port in ask.ports.items() if ask.rank == 0 and name != "hccl"}
    for name, port in wanted.items():
        title = Text(f"端口 {port}", f"Port {port}")
        try:
            probe(ask.address, port)
        except OSError as error:
            program.item(f"port:{name}", title, "failed", error.strerror)
            raise _taken(ask.address, port, error) from error
        program.item(f"port:{name}", title, "ok", ask.address)


def probe(address: str, port: int) -> None:
    """Raises OSError where nobody could listen there now."""
    kind, _type, _proto, _name, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(kind, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(where)
        tried.listen(1)


def _taken(address: str, port: int, error: OSError) -> Stopped:
    if error.errno == errno.EADDRINUSE:
        return Stopped(
            f"{address} 的端口 {port} 已被占用。请停止占用它的程序（ss -ltnp 会列出），再重试。",
            f"Port {port} of {address} is taken. Stop the program that has it (ss -ltnp lists it), then try again.",
        )
    words = error.strerror or str(error)
    return Stopped(
        f"无法在 {address} 的端口 {port} 上监听（{words}）。请检查这台服务器的地址。",
        f"Nobody can listen on port {port} of {address} ({words}). Look at the address of this server.",
    )


def cards(ask: Ask, config: Config) -> None:
    """Raises Stopped for NPUs that are not listed, sick, or in use by somebody."""
    if ask.device == "cpu" or not ask.npus:
        return
    there = {one.name: one for one in npus.look()}
    lost = [name for name in ask.npus if name not in there]
    for name in lost:
        program.item(f"npu:{name}", Text(f"NPU {name}", f"NPU {name}"), "failed", "—")
    if lost:
        raise Stopped(
            f"npu-smi 现在没有列出 {', '.join(lost)}，列出的是：{', '.join(there) or '—'}。"
            "请查看服务器页面，把副本放到存在的 NPU 上。",
            f"npu-smi does not list {', '.join(lost)} now, but: {', '.join(there) or '—'}. Look at the server's page, "
            "and place the replica on NPUs that are there.",
        )
    chosen = [there[name] for name in ask.npus]
    most = idle.limits(ask, {}, chosen, LOOSE_MB)
    for one in chosen:
        bad = one.pids or one.health not in WELL or idle.busy([one], most)
        verdict = "failed" if bad else "ok" if one.health in (None, "OK") else "warning"
        wanted = f"≤ {most[one.name]} MB" if one.name in most else None
        program.item(f"npu:{one.name}", Text(f"NPU {one.name}", f"NPU {one.name}"), verdict, said(one), wanted)
    for judge in (_held, _sick, _full):
        judge(chosen, lambda some: idle.busy(some, most))


def said(one: Seen) -> str:
    held = f" · PID {', '.join(map(str, one.pids[:SHOWN]))}" if one.pids else ""
    return f"{one.health or '—'} · {'—' if one.used_mb is None else one.used_mb} MB{held}"


Busy = Callable[[list[Seen]], list[Seen]]


def _held(chosen: list[Seen], busy: Busy) -> None:
    if held := [one for one in chosen if one.pids]:
        words = "; ".join(f"{one.name}: PID {', '.join(map(who, one.pids[:SHOWN]))}" for one in held)
        raise Stopped(
            f"选定的 NPU 上有其他进程：{words}。它们没有被触碰。请等其结束，或换空闲的 NPU。",
            f"Other processes hold NPUs that were chosen: {words}. They were left alone. Wait until they have ended, "
            "or choose free NPUs.",
        )


def who(pid: int) -> str:
    """`4242 (python)`, the number alone where the process belongs to another container."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return str(pid)
    return f"{pid} ({name[:40]})"


def _sick(chosen: list[Seen], busy: Busy) -> None:
    if sick := [one for one in chosen if one.health not in WELL]:
        words = ", ".join(f"{one.name} {one.health}" for one in sick)
        raise Stopped(
            f"NPU 不健康：{words}。请运行检查作业，或换其他 NPU。",
            f"NPUs are not well: {words}. Run the job “Check a server”, or choose others.",
        )


def _full(chosen: list[Seen], busy: Busy) -> None:
    if full := busy(chosen):
        words = ", ".join(f"{one.name} {one.used_mb} MB" for one in full)
        raise Stopped(
            f"没有进程，但 NPU 的显存仍被占用：{words}。请复位它们，再重试。",
            f"No process holds them, but NPUs have memory in use: {words}. Reset them, then try again.",
        )


if __name__ == "__main__":
    raise SystemExit(program.run(work))
