"""Bring a model to a server: from a hub or its mirror, a folder on the web, a shared path, or an upload.

What has come stays when it is cut off, and the next job goes on there. The folder gets its name when all of it is
there and checked; until then nothing of it is offered. `download_look` tells before what would be fetched.
"""

from dataclasses import dataclass

from deployments.artifacts.paths import EXAMPLE, PATH, lock
from deployments.artifacts.there import THERE
from deployments.steps import Step, Text, param, python_module

TITLE = Text("下载模型", "Download a model")
OWN_PAGE = True
ACTED = True  # on simulated servers, and never run there
FILLED = ("folder", "endpoint", "private")
SOURCES = ("huggingface", "modelscope", "web", "path", "upload")
STEP_TIMEOUT_S = 7 * 24 * 3600.0  # terabytes by a thin line
MOST_AT_ONCE = 16


@dataclass(frozen=True)
class Params:
    source: str = param("choice", zh="来源", en="Source", choices=SOURCES)
    model: str = param(
        "text", zh="模型", en="Model", pattern=r"[^\x00-\x1f\x7f]{1,1000}",
        help=Text("名称、地址、路径或上传编号。", "Its name, address, path, or the number of an upload."),
    )  # fmt: skip
    revision: str = param(
        "text", zh="版本", en="Revision", default="", pattern=r"([A-Za-z0-9][A-Za-z0-9._/+-]{0,199})?"
    )
    target: str = param("new_folder", zh="目录", en="Folder", default="", pattern=f"({PATH})?", example=EXAMPLE)
    only: list[str] = param("texts", zh="只要", en="Only", default=[])
    leave_out: list[str] = param("texts", zh="不要", en="Leave out", default=[])
    pickles: bool = param(
        "flag", zh="也要 pickle 文件", en="Pickles, too", default=False,
        help=Text("加载 .bin、.pt 文件会执行其中的代码。", "Loading a .bin or .pt file runs what stands in it."),
    )  # fmt: skip
    in_place: bool = param(
        "flag", zh="就地登记，不复制", en="List it where it lies, without a copy", default=False,
    )  # fmt: skip
    at_once: int = param("integer", zh="同时下载的文件数", en="Files at once", default=4, least=1, most=MOST_AT_ONCE)
    folder: str = param("text", zh="写入", en="Written to", default="", pattern=f"({PATH})?", example=EXAMPLE)
    endpoint: str = param("text", zh="站点", en="Hub", default="")
    private: bool = param("flag", zh="用本站的令牌", en="With this site's tokens", default=False)


def locks(p: Params) -> list[str]:
    return [] if p.in_place else [lock(p.folder)]


def arguments(p: Params) -> list[str]:
    """Of the program, without its first: --source=… so that no value is ever taken for an option."""
    made = [f"--source={p.source}", f"--model={p.model}"]
    made += [f"--{name}={value}" for name in ("endpoint", "revision") if (value := getattr(p, name))]
    made += [f"--only={one}" for one in p.only] + [f"--leave-out={one}" for one in p.leave_out]
    made += [f"--{name.replace('_', '-')}" for name in ("pickles", "in_place", "private") if getattr(p, name)]
    return [*made, f"--at-once={p.at_once}", "--", p.folder or p.model]


def steps(p: Params) -> list[Step]:
    argv = python_module("deployments.agent.models.download", *arguments(p))
    title = Text(f"登记 {p.model}", f"List {p.model}") if p.in_place else Text(f"下载 {p.model}", f"Fetch {p.model}")
    return [Step(title, argv, timeout_s=STEP_TIMEOUT_S, skips=(THERE,))]


def undo(p: Params) -> list[Step]:
    """Nothing here: models are deleted on their own page, and half ones by a clean-up."""
    return []
