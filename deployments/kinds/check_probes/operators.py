"""The operators that CANN brings for a chip: each chip has its own package, and a toolkit alone has none."""

import re

from deployments.kinds.check_probes.finding import Finding, failed, job, ok, unknown
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.mix import family_of
from deployments.kinds.check_probes.pci import npu_devices
from deployments.kinds.check_probes.stack import ARCHES, ASCEND, NO_NPU, STACKS, cann_versions
from deployments.steps import Text

KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"  # below a CANN folder, one folder per chip
CHIPS = {"A2": ("ascend910b",), "A3": ("ascend910_93",), "310P": ("ascend310p",), "A5": ("ascend910_95", "ascend950")}
INFO = re.compile(r"ascend_\w*(?:ops|kernels)\w*_install\.info", re.ASCII | re.IGNORECASE)
NO_CANN = Text("没有安装 CANN，见“CANN”一项。", "No CANN is installed; see the item CANN.")


def operators(host: Host) -> list[Finding]:
    """One finding for each CANN that is installed."""
    canns = cann_versions(host)
    if not canns:
        return [unknown(NO_CANN if npu_devices(host) else NO_NPU, wanted="ops")]
    family = family_of(host)
    if family not in CHIPS:
        return [unknown(Text("不知道需要哪种芯片的算子包。", "It is not known for which chip operators are needed."))]
    several = len(canns) > 1
    return [
        _of(host, version, f"{ASCEND}/{folder}", family, version if several else "")
        for version, folder in canns.items()
    ]


def _of(host: Host, version: str, folder: str, family: str, about: str) -> Finding:
    has = [name for name in host.look(f"{folder}/{KERNELS}") if name.startswith("ascend")]
    wanted = STACKS.families[family].ops or CHIPS[family][0]
    if any(name in CHIPS[family] for name in has):
        return ok(f"CANN {version}: {', '.join(has)}", wanted, about=about)
    told = [name for arch in ARCHES for name in host.look(f"{folder}/{arch}") if INFO.fullmatch(name)]
    if told and not has:
        remedy = Text(
            "算子包装了，但看不出是哪种芯片的：看安装日志核对。",
            "Operators are installed, but no folder tells for which chip: see the log of their installation.",
        )
        return unknown(remedy, f"CANN {version}: {', '.join(told)}", wanted, about=about)
    remedy = Text(
        f"缺少这种芯片的算子包，模型找不到算子：安装 CANN {version} 的 {wanted} 算子包（toolkit 之后、NNAL 之前）。",
        f"The operators of this chip are missing, so models end for want of them: install the {wanted} operators of "
        f"CANN {version}, after the toolkit and before NNAL.",
    )
    return failed(f"CANN {version}: {', '.join(has) or '—'}", wanted, remedy, about=about, job=job("install"))
