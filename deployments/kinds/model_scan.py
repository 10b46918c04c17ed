"""Look for models in a folder of the server: every folder below it that holds one is told to the console.

Headers are read, no weights; with `digests` each file is read whole once, so that copies can be checked against it.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH
from deployments.steps import Step, Text, param, python_module

TITLE = Text("查找模型", "Look for models")
ACTED = True
STEP_TIMEOUT_S = 24 * 3600.0  # digests of terabytes on a slow storage


@dataclass(frozen=True)
class Params:
    folder: str = param(
        "text",
        zh="目录",
        en="Folder",
        pattern=PATH,
        example=EXAMPLE,
        help=Text(
            "模型本身的目录，或放着许多模型的目录；向下找四层。",
            "The folder of a model, or one that holds many; four levels below it are looked at.",
        ),
    )
    digests: bool = param(
        "flag",
        zh="计算摘要",
        en="Make digests",
        default=False,
        help=Text(
            "把每个文件完整读一遍（SHA-256），以便之后核对副本。",
            "Reads every file whole (SHA-256), so that copies can be checked later.",
        ),
    )
    also: list[str] = param(
        "texts",
        zh="更多目录",
        en="Further folders",
        default=[],
    )
    known: bool = param(
        "flag",
        zh="已知的副本",
        en="Known copies",
        default=False,
        help=Text(
            "这些是已知模型的目录：不在了的会记下来，不算失败。",
            "These are folders of known models: one that is gone is noted, and is no failure.",
        ),
    )


def locks(p: Params) -> list[str]:
    """Nothing: it only reads."""
    return []


def steps(p: Params) -> list[Step]:
    flags = [*(["--digests"] if p.digests else []), *(["--known"] if p.known else [])]
    argv = python_module("deployments.artifacts.scan", *flags, "--", p.folder, *p.also)
    more = f" (+{len(p.also)})" if p.also else ""
    title = Text(f"查找 {p.folder}{more} 里的模型", f"Look for models in {p.folder}{more}")
    return [Step(title, argv, timeout_s=STEP_TIMEOUT_S)]


def undo(p: Params) -> list[Step]:
    """Nothing: it only reads."""
    return []
