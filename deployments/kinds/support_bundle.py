"""Collect what a vendor asks for from one server: it reads, and changes nothing; engines go on meanwhile.

The console queues it for each server of a support bundle (services/support_bundles.py). Each source is a step that
fails alone and says why; what it has gathered goes to the console, and nothing of it stays here.
"""

import json
from dataclasses import asdict, dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("收集支持包", "Collect for a support bundle")
OWN_PAGE = True
ACTED = True
SEND_S = 900.0  # a slow line, after the time for gathering
VARIABLE = "ASCEND_SUPPORT"  # of each step: the parameters as JSON
SOURCES: dict[str, Text] = {
    "readings": Text("NPU 与网口的读数", "Readings of NPUs and links"),
    "system": Text("系统、版本与内核消息", "System, versions, messages of the kernel"),
    "plog": Text("CANN 日志（plog）", "Logs of CANN (plog)"),
    "engines": Text("引擎在服务器上的文件", "Files of engines on the server"),
    "device": Text("设备日志（msnpureport）", "Device logs (msnpureport)"),
    "install": Text("安装日志（ascend_seclog）", "Logs of installations (ascend_seclog)"),
}


@dataclass(frozen=True)
class Params:
    bundle: int = param("integer", zh="支持包", en="Support bundle", least=1)
    since: int = param("integer", zh="从（epoch 秒）", en="From (epoch seconds)", default=0, least=0)
    until: int = param("integer", zh="事发时刻（epoch 秒）", en="When it happened (epoch seconds)", default=0, least=0)
    hosts: bool = param("flag", zh="保留主机名与地址", en="Keep host names and addresses", default=False)
    names: list[str] = param("texts", zh="要替换的主机名", en="Host names to replace", default=[])
    salt: str = param("text", zh="替换用的盐", en="Salt of the replacements", default="")
    most_mb: int = param("integer", zh="每个来源至多（MiB）", en="At most of each source (MiB)", default=256,
                         least=1, most=4096)  # fmt: skip
    seconds: int = param("integer", zh="每个来源至多（秒）", en="At most for each source (s)", default=300,
                         least=5, most=3600)  # fmt: skip
    engines: list[str] = param("texts", zh="引擎", en="Engines", default=[])


def locks(p: Params) -> list[str]:
    """Nothing: it may run beside any other job."""
    return []


def steps(p: Params) -> list[Step]:
    asked = json.dumps(asdict(p))
    return [
        Step(
            title,
            python_module("deployments.agent.support", source),
            env={VARIABLE: asked},
            timeout_s=p.seconds + SEND_S,
            may_fail=True,
        )
        for source, title in SOURCES.items()
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: it changes nothing."""
    return []
