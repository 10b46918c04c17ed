"""Which releases of vLLM-Ascend load a model on a family of chips, as far as somebody wrote it down."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from deployments.artifacts.known import Support
from deployments.stacks import versions
from deployments.stacks.catalogue import Stack
from deployments.steps import Text

# How the lists of vLLM-Ascend name families.
FAMILIES = {"A2": "A2", "A3": "A3", "300I Duo": "310P", "950": "A5"}
RELEASE = re.compile(r"v(\d+\.\d+\.\d+)")
SURE = ("core", "extended")  # the lists say of each family whether it is supported
UNSURE = ("experimental", "tutorial", "tool")
DOCUMENTED = "0.23.0"  # the release whose lists models.json was made of


class Loaded(NamedTuple):
    """`level` of the list: core, extended, experimental, tutorial, tool, none, or '' where the model is not known;
    `stacks` are names of rows whose vLLM-Ascend is that of the list or newer, `since`. `elsewhere`: the list of all
    that is supported has it for other families, and not for this one."""

    level: str
    stacks: tuple[str, ...]
    text: Text
    since: str = ""
    elsewhere: bool = False


def of(support: Support | None, family: str, stacks: Iterable[Stack]) -> Loaded:
    if support is None:
        unknown = Text(
            "不知道 vLLM-Ascend 能否加载它：先试一张卡。", "Whether it loads is not known: try one NPU first."
        )
        return Loaded("", (), unknown)
    chips = [FAMILIES.get(chip, chip) for chip in support.chips]
    since = (RELEASE.search(support.text) or [None, DOCUMENTED])[1] or DOCUMENTED
    if not chips:
        text = Text(
            f"vLLM-Ascend {since} 的列表里没有它：先试一张卡。",
            f"It is not in the lists of vLLM-Ascend {since}: try one NPU first.",
        )
        return Loaded(support.level, (), text)
    if family not in chips:
        words = ", ".join(chips)
        text = Text(
            f"vLLM-Ascend {since} 的列表里它只有 {words}，没有 {family}。",
            f"The lists of vLLM-Ascend {since} name {words} for it, not {family}.",
        )
        return Loaded(support.level, (), text, since, support.level in SURE)
    rows = [one for one in stacks if one.vllm_ascend and family in one.families]
    names = tuple(one.name for one in rows if versions.at_least(one.vllm_ascend, since))
    words = ", ".join(names) or "—"
    sure = Text("（实验性）", " (experimental)") if support.level in UNSURE else Text("", "")
    return Loaded(
        support.level,
        names,
        Text(
            f"vLLM-Ascend {since} 的文档列有它{sure.zh}；有这一版或更新版本的软件栈：{words}。更旧的版本没有记录。",
            f"The documents of vLLM-Ascend {since} list it{sure.en}; stacks with that release or a newer one: {words}. "
            "Of older ones nothing is written.",
        ),
        since,
    )
