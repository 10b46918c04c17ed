"""The NPUs of this server as npu-smi lists them now, by the names that replicas hold them under."""

from collections import Counter
from dataclasses import dataclass

from deployments.agent.serving.program import Stopped
from deployments.kinds.check_probes.host import Host, Trouble
from monitoring.parsers import ParseError, npu_smi_info
from monitoring.parsers.npu_smi_info import Info, Npu


@dataclass(frozen=True)
class Seen:
    """One NPU: its bus id, with `/chip` where several chips share it. `index` is its device index; `used_mb` is None
    where npu-smi does not print it; `pids` hold it."""

    name: str
    bus_id: str
    index: int
    chip: str | None
    health: str | None
    used_mb: int | None
    pids: tuple[int, ...]


def look(host: Host | None = None) -> list[Seen]:
    """In the order printed. Raises Stopped where npu-smi does not tell."""
    try:
        answer = (host or Host()).run(*npu_smi_info.COMMAND)
    except Trouble as trouble:
        raise _silent(trouble.reason.zh, trouble.reason.en) from trouble
    if answer is None:
        raise _silent("没有 npu-smi，未装驱动", "there is no npu-smi: no driver is installed")
    try:
        info = npu_smi_info.parse(answer.text)
    except ParseError as error:
        words = " ".join(answer.text.split())[:200]
        raise _silent(f"它的输出无法识别：{words}", f"its output cannot be understood: {words}") from error
    if not isinstance(info, Info):
        words = f"{info.meaning} ({info.code})"
        raise _silent(words, words)
    return seen(info)


def seen(info: Info) -> list[Seen]:
    shared = Counter(map(_bus, info.npus))
    pids: dict[tuple[int, int], list[int]] = {}
    for process in info.processes:
        pids.setdefault((process.npu, process.chip), []).append(process.pid)
    return [
        Seen(
            _bus(one) + (f"/{one.chip}" if shared[_bus(one)] > 1 else ""), _bus(one), index, one.name,
            one.health, one.hbm_used_mb if one.hbm_total_mb else one.memory_used_mb,
            tuple(pids.get((one.npu, one.chip), ())),
        )
        for index, one in enumerate(info.npus)
    ]  # fmt: skip


def _bus(npu: Npu) -> str:
    return (npu.bus_id or "").upper()


def _silent(zh: str, en: str) -> Stopped:
    return Stopped(
        f"npu-smi 没有列出 NPU（{zh}）。请先运行检查作业，按它的建议修好驱动，再重试。",
        f"npu-smi lists no NPUs ({en}). Run the job “Check a server” and mend the driver as it says, then try again.",
    )
