"""Check a server before anything is changed on it: it reads, and changes nothing; of hccn.conf it keeps a note.

Each step runs one group of probes on the server (`deployments.kinds.check_probes`). The job succeeds when
the probes ran; what they found is in the items of the report, each `ok`, `warning`, `failed` or `unknown`
with its remedy. A step fails only when a probe itself broke, and the other groups run all the same.
"""

from dataclasses import dataclass

from deployments.steps import Step, Text, param, python_module

TITLE = Text("检查服务器", "Check a server")

GROUPS: list[tuple[str, Text]] = [
    ("system", Text("检查系统", "Check the system")),
    ("limits", Text("检查 Python 与资源限制", "Check Python and limits")),
    ("surroundings", Text("检查运行环境", "Check the surroundings")),
    ("driver", Text("检查驱动与内核", "Check driver and kernel")),
    ("stack", Text("检查昇腾软件栈", "Check the Ascend stack")),
    ("software", Text("检查 Python 环境与镜像", "Check Python environments and images")),
    ("npus", Text("检查 NPU", "Check the NPUs")),
    ("links", Text("检查网络链路", "Check the network links")),
    ("tuning", Text("检查主机调优", "Check the host's tuning")),
]
STEP_TIMEOUT_S = 300.0  # 16 devices, two questions each, a tool that hangs on some of them


@dataclass(frozen=True)
class Params:
    deep: bool = param(
        "flag",
        zh="深入检查链路",
        en="Look deeper at the links",
        default=False,
        help=Text(
            "另外读取每个网口的错误计数与光模块，约多用一分钟。",
            "Also reads the error counters and the optics of each port; takes about a minute more.",
        ),
    )


def locks(p: Params) -> list[str]:
    """Nothing: a check may run beside any other job."""
    return []


def steps(p: Params) -> list[Step]:
    deep = ["--deep"] if p.deep else []
    return [
        Step(
            title,
            python_module("deployments.kinds.check_probes", group, *deep),
            timeout_s=STEP_TIMEOUT_S,
            may_fail=True,
        )
        for group, title in GROUPS
    ]


def undo(p: Params) -> list[Step]:
    """Nothing: a check changes nothing."""
    return []
