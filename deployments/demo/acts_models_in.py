"""Jobs that bring models to simulated servers, acted out: nothing is fetched and no address is called.

What is known of a model is its row of the catalogue; one that is not in it cannot be simulated.
"""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from deployments.agent.models.asked import asked
from deployments.artifacts import known, sample
from deployments.artifacts.paths import tidy
from deployments.artifacts.progress import Progress, amount
from deployments.artifacts.read import Model
from deployments.artifacts.there import THERE
from deployments.demo import models
from deployments.demo.scene import DONE, Act, Ended, Item, Scene, Told
from deployments.steps import Text

SPEED = 1.2e9  # bytes a second
MOST_S = 60.0
FREE = 5e12
VIA = {"upload": "uploaded", "server": "copied", "path": "copied"}


def make_sample(scene: Scene, folder: str, kind: str, layers: str) -> Act:
    if folder in models.there(scene):
        yield Told(told="artifact", data=models.there(scene)[folder])
        return Ended(THERE)
    yield 1.0
    shapes = sample.shapes(kind, int(layers))
    count = sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes.values())
    name = PurePosixPath(folder).name
    model = Model(
        path=folder, name=name, format="hf", bytes=4 * count + 60_000, files=5, dtype="F32", parameters=count,
        fingerprint=models.fingerprint(f"sample {kind} {layers}"), architecture=sample.ARCHITECTURES[kind],
        model_type=kind, layers=int(layers), hidden=sample.HIDDEN, heads=sample.HEADS, kv_heads=sample.HEADS,
        head_dim=32, vocab=sample.VOCABULARY, max_position=sample.LONGEST, shards=1, weight_bytes=4 * count,
        dtypes={"F32": 4 * count}, tokenizer=True,
    )  # fmt: skip
    yield Told(told="artifact", data=models.put(scene, folder, model.as_json(), via="sample"))
    return DONE


def download(scene: Scene, words: list[str]) -> Act:
    """What deployments/agent/models/download.py prints and tells."""
    options = asked(words)
    row = _row(options.model, options.source)
    folder = tidy(str(options.folder))
    if row is None:
        return Ended(1, _unknown(options.model))
    told = models.of_catalogue(PurePosixPath(folder).name, row)
    size = int(str(told["model"]["bytes"]))
    yield f"{options.model}：{told['model']['files']} 个文件，{amount(size)}。 {amount(size)}."
    if options.look:
        yield from _items(options.model, folder, told["model"]["files"], size)
        return DONE
    if folder in models.there(scene):
        yield Told(told="artifact", data=models.there(scene)[folder])
        return Ended(THERE)
    yield from _coming(size)
    via = VIA.get(options.source, "downloaded")
    yield Told(told="artifact", data=models.put(scene, folder, told["model"], via=via))
    return DONE


def _row(model: str, source: str) -> known.Known | None:
    """By its name on the hub, or by the last part of an address or a path."""
    rows = known.built_in().rows
    if model in rows or source == "huggingface":
        return rows.get(model)
    last = PurePosixPath(urlsplit(model).path).name
    return next((row for name, row in rows.items() if name.rpartition("/")[2] == last), None)


def _unknown(model: str) -> Text:
    return Text(
        f"模拟服务器只能下载模型目录里的模型，{model[:100]} 不在其中。请换一个，或使用真实的服务器。",
        f"Simulated servers fetch models of the catalogue alone, and {model[:100]} is none of them. Choose another, or "
        "a real server.",
    )


def _items(model: str, folder: str, files: int, size: int) -> Act:
    rows = (
        ("source", ("来源", "Source"), model), ("files", ("文件数", "Files"), str(files)),
        ("bytes", ("总大小", "Size of all"), f"{amount(size)} ({size} B)"),
        ("target", ("写入目录", "Written to"), folder),
        ("room", ("可用空间", "Free room"), f"{amount(FREE)} ({int(FREE)} B)"),
    )  # fmt: skip
    for key, title, found in rows:
        yield 0.1
        yield Item(
            key=f"download.{key}", title=list(title), verdict="ok", found=found, wanted="—", remedy=None, job=None
        )
    return DONE


def _coming(size: int) -> Act:
    """As many lines of progress as a real one would print, but never for long."""
    took = min(MOST_S, size / SPEED)
    beats = max(1, round(took / 2))
    progress = Progress(size, say=lambda _text: None)
    for beat in range(1, beats + 1):
        yield took / beats
        progress.done = size * beat // beats
        left = took * (beats - beat) / beats
        words = f"{amount(progress.done)} / {amount(size)} ({100 * beat // beats} %), {amount(size / took)}/s"
        yield f"{words}, {left:.0f} s left 剩余"
    return DONE
