"""Group `npus`: the NPUs on the bus, as the driver shows them, and how they feel."""

from deployments.kinds.check_probes.finding import Finding, Probe, failed, ok, unknown, warning
from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.pci import npu_devices
from deployments.steps import Text
from monitoring.parsers import failures, npu_smi_health, npu_smi_info
from monitoring.parsers.failures import Unreadable, values_of

Npu = npu_smi_info.Npu
HOT_C = 80  # no limit is published; full load was seen at 77–78 °C (910B2C)
LEAST_IDLE_MB = 4096  # a chip without work holds 2.9 to 3.4 GB, more on the large ones
IDLE_SHARE = 0.085
NO_NPU = Text(
    "PCI 总线上没有昇腾 NPU。若机箱里有卡，检查插槽、供电与 BMC 日志；若没有，这台服务器只能做准备工作。",
    "There is no Ascend NPU on the PCI bus. If a card is fitted, check slot, power and the BMC's log; "
    "if not, this server can only prepare work.",
)
NONE_HERE = Text("没有昇腾 NPU，无从检查。", "There is no Ascend NPU to ask about.")
NOT_SEEN = Text("npu-smi 没有给出任何 NPU，见上面各项。", "npu-smi shows no NPU; see the items above.")
UNSUPPORTED = ("910A", "910PRO", "910PREMIUM", "310B")


def why_none(host: Host) -> Text:
    """Why there is no NPU to look at."""
    return NOT_SEEN if npu_devices(host) else NONE_HERE


def chip_name(name: str | None) -> str:
    """`Ascend910` and `910B3` as `910` and `910B3`, in capitals."""
    return (name or "").upper().removeprefix("ASCEND").strip()


def name_of(npu: Npu) -> str:
    return f"{npu.npu}.{npu.chip}"


def on_bus(host: Host) -> Finding:
    devices = npu_devices(host)
    if not devices:
        return warning("0", "≥ 1", NO_NPU)
    kinds = sorted({f"{device.family} 19e5:{device.device}" for device in devices})
    return ok(f"{len(devices)} × {', '.join(kinds)}", "≥ 1")


def readable(host: Host) -> Finding:
    """Does npu-smi answer?"""
    answer = host.npu_smi
    if isinstance(answer, Trouble):
        raise answer
    if answer is None:
        if npu_devices(host):
            return failed(
                "—",
                "npu-smi info",
                Text(
                    "没有 npu-smi 命令：驱动没有安装，或不在 PATH 里。",
                    "There is no npu-smi: the driver is not installed, or not on the PATH.",
                ),
            )
        return unknown(NONE_HERE, wanted="npu-smi info")
    if isinstance(answer, Unreadable):
        remedy = Text(failures.sentences(answer.meaning, chinese=True), failures.sentences(answer.meaning))
        return failed("—" if answer.code is None else str(answer.code), "npu-smi info", remedy)
    return ok(f"{len(answer.npus)} × {', '.join(sorted({npu.name or '?' for npu in answer.npus}))}", "npu-smi info")


def seen_and_fitted(host: Host) -> Finding:
    """NPUs on the bus against NPUs that npu-smi shows. Both chips of a 300I Duo print one bus id."""
    fitted = {device.bus_id for device in npu_devices(host)}
    if not fitted or not host.npus:
        return unknown(why_none(host), f"PCI {len(fitted)}, npu-smi {len(host.npus)}")
    printed = {npu.bus_id.upper() for npu in host.npus if npu.bus_id}
    if not printed:
        return unknown(
            Text("npu-smi 没有打印 bus id，无法逐张核对。", "npu-smi prints no bus ids, so cards cannot be matched.")
        )
    found = f"PCI {len(fitted)}, npu-smi {len(printed)}"
    lost = sorted(fitted - printed)
    if not lost:
        return ok(found, f"{len(fitted)}")
    remedy = Text(
        f"总线上有、驱动看不到：{'、'.join(lost)}。查看 dmesg 与 BMC 日志；重启后仍缺则更换该卡。",
        f"On the bus but not shown by the driver: {', '.join(lost)}. See dmesg and the BMC's log; "
        "if it is still missing after a restart, replace the card.",
    )
    return failed(found, f"{len(fitted)}", remedy)


def family(host: Host) -> Finding:
    """Does vLLM-Ascend run on these chips?"""
    names = sorted({npu.name or "?" for npu in host.npus})
    if not names:
        names = sorted({device.family for device in npu_devices(host)})
    wanted = "910B, A3, 310P, 950"
    if not names:
        return unknown(NONE_HERE, wanted=wanted)
    found = ", ".join(names)
    words = [chip_name(name) for name in names]
    old = {device.family for device in npu_devices(host)} & {"910", "310", "310B"}
    if old or any(word.startswith(UNSUPPORTED) or word == "310" for word in words):
        remedy = Text(
            "vLLM-Ascend 不支持这种芯片，也没有支持计划：大模型服务请用 910B、A3 或 950 的服务器；"
            "这里可用 MindIR、OM 推理。",
            "vLLM-Ascend does not support this chip and plans none: serve language models on 910B, A3 or 950; "
            "MindIR and OM models still run here.",
        )
        return failed(found, wanted, remedy)
    if any(word.startswith("310P") for word in words):
        remedy = Text(
            "310P 的支持是试验性的：用 -310p 镜像、--dtype float16，写明 --max-model-len，不装 triton。",
            "Support for 310P is experimental: use a -310p image, --dtype float16, "
            "an explicit --max-model-len, and no triton.",
        )
        return warning(found, wanted, remedy)
    return ok(found, wanted)


def health(host: Host) -> list[Finding]:
    """One finding for all that are well, one for each that is not, with its error."""
    if not host.npus:
        return [unknown(why_none(host), wanted="OK")]
    sick = [npu for npu in host.npus if npu.health != "OK"]
    found = [] if len(sick) == len(host.npus) else [ok(f"{len(host.npus) - len(sick)} × OK", "OK")]
    return found + [_sick(host, npu) for npu in sick]


def _sick(host: Host, npu: Npu) -> Finding:
    if npu.health is None:
        return unknown(Text("npu-smi 没有打印健康状态。", "npu-smi prints no health."), wanted="OK", about=name_of(npu))
    answer = host.run("npu-smi", "info", "-t", "health", "-i", str(npu.npu), "-c", str(npu.chip))
    told = values_of(npu_smi_health, answer.text) if answer else {}
    code, words = told.get("Error Code"), told.get("Error Information")
    error = ("" if code is None else f" {code}") + ("" if words is None else f" ({words})")
    remedy = Text(
        "先停掉这张卡上的任务。告警可复位则 npu-smi set -t reset；仍在则收集日志、报修换卡。",
        "Stop the work on this card. Try npu-smi set -t reset; if the alarm stays, "
        "collect the logs and have the card replaced.",
    )
    verdict = warning if npu.health == "Warning" else failed
    return verdict(f"{npu.health}{error}", "OK", remedy, about=name_of(npu))


def temperature(host: Host) -> Finding:
    known = [(npu.temp_c, npu) for npu in host.npus if npu.temp_c is not None]
    wanted = f"≤ {HOT_C} °C"
    if not known:
        return unknown(why_none(host), wanted=wanted)
    hottest, npu = max(known, key=lambda pair: pair[0])
    found = f"{hottest:g} °C (NPU {name_of(npu)})"
    if hottest <= HOT_C:
        return ok(found, wanted)
    return warning(
        found, wanted, Text("温度偏高：检查风扇、风道与机房温度。", "It runs hot: check fans, air flow and the room.")
    )


def processes(host: Host) -> Finding:
    if not host.npus:
        return unknown(why_none(host), wanted="0")
    if not host.processes:
        return ok("0", "0")
    found = ", ".join(f"NPU {p.npu}.{p.chip}: {p.pid} {p.name or '?'} {p.memory_mb} MB" for p in host.processes)
    remedy = Text(
        "NPU 正在使用：升级驱动前须停掉这些进程；新任务请选空闲的 NPU。",
        "NPUs are in use: stop these processes before a driver upgrade; choose free NPUs for new work.",
    )
    return warning(f"{len(host.processes)}: {found}", "0", remedy)


def used_mb(npu: Npu) -> tuple[int, int] | None:
    """MB in use and in total of the memory that models live in: HBM, or DDR where there is no HBM."""
    if npu.hbm_total_mb and npu.hbm_used_mb is not None and (npu.hbm_used_mb or not npu.memory_total_mb):
        return npu.hbm_used_mb, npu.hbm_total_mb
    if npu.memory_total_mb and npu.memory_used_mb is not None:
        return npu.memory_used_mb, npu.memory_total_mb
    return None


def memory_without_process(host: Host) -> list[Finding]:
    wanted = f"≤ {LEAST_IDLE_MB} MB"
    if not host.npus:
        return [unknown(why_none(host), wanted=wanted)]
    busy = {(process.npu, process.chip) for process in host.processes}
    found = []
    for npu in host.npus:
        amount = used_mb(npu)
        if (npu.npu, npu.chip) in busy or amount is None:
            continue
        used, total = amount
        if used > max(LEAST_IDLE_MB, total * IDLE_SHARE):
            found.append(_held(npu, used, total, wanted))
    return found or [ok("0", wanted)]


def _held(npu: Npu, used: int, total: int, wanted: str) -> Finding:
    remedy = Text(
        "显存被占但看不到进程，多半是另一个容器，或没有退干净的进程：查看 docker ps 与 fuser -v /dev/davinci*。",
        "Memory is held but no process is shown: mostly another container, or one that did not end. "
        "See docker ps and fuser -v /dev/davinci*.",
    )
    return warning(f"{used} / {total} MB", wanted, remedy, about=name_of(npu))


PROBES = [
    Probe("npu_bus", Text("PCI 总线上的 NPU", "NPUs on the PCI bus"), on_bus),
    Probe("npu_smi", Text("npu-smi", "npu-smi"), readable),
    Probe("npu_seen", Text("总线与驱动所见是否一致", "NPUs on the bus and seen"), seen_and_fitted),
    Probe("family", Text("vLLM-Ascend 支持的芯片", "Chip supported by vLLM-Ascend"), family),
    Probe("health", Text("NPU 健康", "NPU health"), health),
    Probe("temperature", Text("NPU 温度", "NPU temperature"), temperature),
    Probe("processes", Text("NPU 上的进程", "Processes on NPUs"), processes),
    Probe("memory_held", Text("无主显存", "Memory without a process"), memory_without_process),
]
