"""`python -m deployments.artifacts.scan [--digests] [--known] [--] FOLDER…`: tell the console of all models in them."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from deployments.artifacts import BadModel, digests, paths, report
from deployments.artifacts.files import SKIPPED, unreadable
from deployments.artifacts.progress import Progress, amount
from deployments.artifacts.read import ADAPTER, GRAPHS, Model, read
from deployments.artifacts.state import folder as state_folder
from deployments.artifacts.target import is_part
from deployments.artifacts.tell import tell
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

DEEPEST = 4
MOST_FOLDERS = 200_000
MOST_SAID = 10  # problems of one model in the log
FLAGS = ("--digests", "--known", "--")


def main(arguments: list[str]) -> int:
    flags, folders = {word for word in arguments if word in FLAGS}, [word for word in arguments if word not in FLAGS]
    if not folders:
        print("It takes: [--digests] [--known] [--] FOLDER….", file=sys.stderr)
        return 2
    said = [scan(one, with_digests="--digests" in flags, known="--known" in flags) for one in folders]
    return ended(next((problem for problem in said if problem != FINE), FINE))


def scan(folder: str, *, with_digests: bool, known: bool = False) -> Text:
    """Tell of every model. What went wrong, FINE when nothing did: that a `known` model's folder is gone is no fault,
    as long as the folder that held it is there."""
    if wrong := paths.problem(folder):
        return wrong
    root = Path(paths.tidy(folder))
    unread: list[Path] = []
    if known and not root.exists() and root.parent.is_dir():
        report.gone(root)
        print(f"{root}: 已经没有 gone")
        return FINE
    try:
        count = sum(_tell_of(path, with_digests=with_digests) for path in models_in(root, unread))
    except OSError as error:
        return unreadable(root, error).text
    if not unread:  # else what lies there may be anything
        tell("scan_done", {"path": str(root)})
    disk = shutil.disk_usage(root)
    print(f"{count} 个模型 models: {root}; {amount(disk.free)} / {amount(disk.total)} 可用 free")
    return FINE


def models_in(root: Path, unread: list[Path]) -> Iterator[Path]:
    """Folders that hold a model, in order; below one nothing is looked for. `unread` gets those that cannot be read.

    Raises OSError where there is no root.
    """
    os.scandir(root).close()
    yield from _below(root, 0, set(), unread)


def _below(folder: Path, depth: int, seen: set[tuple[int, int]], unread: list[Path]) -> Iterator[Path]:
    info = folder.stat()
    if (info.st_dev, info.st_ino) in seen or len(seen) > MOST_FOLDERS:
        return  # a link that leads back, or the same folder by another name
    seen.add((info.st_dev, info.st_ino))
    try:
        entries = sorted(os.scandir(folder), key=lambda one: one.name)
    except OSError as error:
        print(f"{folder}: {error.strerror}", file=sys.stderr)
        unread.append(folder)
        return
    names = {one.name for one in entries}
    if _is_model(names):
        yield folder
        return
    for entry in entries:
        if depth < DEEPEST and entry.name not in SKIPPED and not is_part(entry.name) and _is_folder(entry):
            yield from _below(folder / entry.name, depth + 1, seen, unread)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _is_model(names: set[str]) -> bool:
    return bool({"config.json", ADAPTER} & names) or any(Path(name).suffix.lower() in GRAPHS for name in names)


def _tell_of(path: Path, *, with_digests: bool) -> bool:
    """Whether a model was told of; what is wrong with a folder is said on the log."""
    if wrong := paths.problem(str(path)):  # nobody could name it to us again
        print(f"{str(path).encode('unicode_escape').decode()}: {wrong.zh} {wrong.en}", file=sys.stderr)
        return False
    try:
        model = read(path)
        digest = _digest(model, path) if with_digests else ""
        report.found(model, digest=digest)
    except BadModel as error:
        print(f"{path}: {error.text.zh} {error.text.en}", file=sys.stderr)
        return False
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return False
    print(_line(model))
    return True


def _digest(model: Model, path: Path) -> str:
    progress = Progress(model.bytes)
    manifest = digests.make(path, progress.add)
    progress.end()
    digests.keep(state_folder(), path, manifest)
    return manifest.digest


def _line(model: Model) -> str:
    words = [model.format, model.architecture or "—", model.dtype or "—", amount(model.bytes)]
    if model.parameters:
        words.append(f"{model.parameters / 1e9:.3g} B parameters")
    wrong = "; ".join(f"{one.text.zh[:200]} {one.text.en[:200]}" for one in model.problems[:MOST_SAID])
    more = f"; +{len(model.problems) - MOST_SAID}" if len(model.problems) > MOST_SAID else ""
    return f"{model.path}: {', '.join(words)}" + (f" — {wrong}{more}" if wrong else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
