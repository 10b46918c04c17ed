"""How jobs that bring a model end: its folder gets its name, its digests are kept, the console hears of it."""

from collections.abc import Callable
from pathlib import Path

from deployments.agent.config import Config
from deployments.agent.pages import Stopped, say, step
from deployments.artifacts import BadModel, digests, fetch, report, target
from deployments.artifacts.digests import Manifest
from deployments.artifacts.progress import amount
from deployments.artifacts.read import Model, read
from deployments.artifacts.sources import Broken
from deployments.artifacts.there import THERE


class Satisfied(Exception):
    """What was asked for lies there already."""


def put(config: Config, part: Path, folder: Path, manifest: Manifest, *, via: str, parent: str = "") -> Model:
    """Raises BadModel; what was written then stays where it is."""
    fetch.clear(part)
    read(part)  # what is no model gets no name
    target.finish(part, folder)
    digests.keep(config.state_dir, folder, manifest)
    return tell(folder, manifest, via=via, parent=parent)


def tell(folder: Path, manifest: Manifest, *, via: str, parent: str = "") -> Model:
    model = report.made(folder, via=via, parent=parent, digest=manifest.digest)
    for problem in model.problems:
        say(*problem.text)
    if model.remote_code:
        say(
            "这个模型带有自己的代码（config.json 的 auto_map），只有允许后引擎才会执行。",
            "This model brings code of its own (auto_map of config.json), which engines run only where they are told.",
        )
    size = amount(model.bytes)
    say(
        f"{folder}：{model.files} 个文件，{size}。", f"{folder}: {model.files} files, {size}, digest {manifest.digest}."
    )
    return model


def run(work: Callable[[Config], None]) -> int:
    """Do a step's work; its exit code. What goes wrong is told in a sentence."""
    satisfied = []

    def worded(config: Config) -> None:
        try:
            work(config)
        except Satisfied:
            satisfied.append(True)
        except (BadModel, Broken, OSError) as error:
            raise Stopped(*_words(error)) from error

    code = step(worded)
    return THERE if satisfied else code


def _words(error: Exception) -> tuple[str, str]:
    if isinstance(error, BadModel):
        return error.text
    words = str(error)[:400]
    return (
        f"没有成功：{words}。请检查网络与磁盘，再重试。",
        f"It did not work: {words}. Look at network and disk, then try again.",
    )
