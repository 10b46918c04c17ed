"""Container images of ours, by their names, against the chip of the server."""

import re

from deployments.kinds.check_probes.finding import Finding, ok, unknown, warning
from deployments.kinds.check_probes.host import Host
from deployments.kinds.check_probes.mix import family_of
from deployments.kinds.check_probes.stack import STACKS
from deployments.steps import Text

ENGINES = ("docker", "podman")
OURS = re.compile(r"(^|/)(vllm-ascend|cann|mindie|sglang-npu|lmdeploy-npu)(:|$)")
# Pieces of a tag that name a chip; a tag of vllm-ascend without any is for A2.
PIECES = {"310p": "310P", "a3": "A3", "a5": "A5", "950": "A5", "950dt": "A5", "910b": "A2", "a2": "A2"}


def images(host: Host) -> list[Finding]:
    """Left out where there is no engine; `container_runtime` says so."""
    return [found for engine in ENGINES if (found := _of(host, engine))]


def _of(host: Host, engine: str) -> Finding | None:
    answer = host.run(engine, "images", "--format", "{{.Repository}}:{{.Tag}}")
    if answer is None or answer.code == 127:
        return None
    if answer.code != 0:
        return _unlisted(engine, " ".join(answer.text.split())[:160])
    ours = [name for name in answer.text.split() if OURS.search(name.rpartition(":")[0] + ":")][:200]
    family = family_of(host)
    if family is None and ours:
        remedy = Text("不知道这台服务器的芯片，无法核对镜像。", "The chip of this server is not known.")
        return unknown(remedy, ", ".join(ours[:8]), about=engine)
    wrong = [name for name in ours if (meant := family_in(name)) and meant != family]
    if not wrong:
        return ok(f"{engine}: {len(ours)}", family or "—", about=engine)
    remedy = Text(
        f"这些镜像是给别的芯片的，在 {family} 上启动会报算子缺失或设备类型不符：拉取标签与 {family} 对应的镜像。",
        f"These images are for another chip; on {family} they end for want of operators: pull the tags for {family}.",
    )
    return warning(", ".join(wrong[:8]), tag_for(family), remedy, about=engine)


def _unlisted(engine: str, said: str) -> Finding:
    denied = "permission denied" in said.lower()
    more = Text("需要 root，或把代理账号加入 docker 组。", "It takes root, or the agent's account in the group docker.")
    remedy = Text(
        f"{engine} 没有列出镜像（{said}）。{more.zh if denied else ''}",
        f"{engine} did not list its images ({said}). {more.en if denied else ''}".strip(),
    )
    return unknown(remedy, about=engine)


def family_in(name: str) -> str | None:
    """The family that an image's name speaks of; None where it names none."""
    tag = name.rpartition(":")[2].lower()
    known = {image.family for row in STACKS.stacks.values() for image in row.images if image.tag == tag}
    if len(known) == 1:
        return known.pop()
    piece = next((PIECES[word] for word in re.split(r"[-_.]", tag) if word in PIECES), None)
    return piece or ("A2" if re.search(r"(^|/)vllm-ascend:v\d", name) else None)


def tag_for(family: str | None) -> str:
    return STACKS.default.image(family, None) or "—"
