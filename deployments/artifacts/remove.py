"""`python -m deployments.artifacts.remove PATH FINGERPRINT`: delete a model's folder, for good.

Only where it still holds that content and nothing besides, is no link, and no process uses it. It gets another name
first, so that half a model is never offered, and nobody opens it any more while it is looked at once more.
"""

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from deployments.artifacts import BadModel, digests, in_use, paths, read, report
from deployments.artifacts.files import SKIPPED, unreadable
from deployments.artifacts.progress import amount
from deployments.artifacts.state import folder as state_folder
from deployments.artifacts.target import part_of
from deployments.stacks.said import FINE, ended
from deployments.steps import Text

SHOWN = 5
DEEPEST = 20
# What repositories of models and our own jobs put into a model's folder; every other file is somebody's own.
SUFFIXES = {
    ".json", ".jsonl", ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".model", ".tiktoken", ".txt",
    ".md", ".py", ".jinja", ".yaml", ".yml", ".om", ".mindir", ".onnx", ".air", ".data", ".gguf", ".msgpack", ".h5",
    ".ot", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".incomplete", ".part", ".aria2", ".tmp",
    ".crdownload", ".download", ".lock", ".metadata", ".rst", ".prototxt",
}  # fmt: skip
NAMES = {"license", "notice", "readme", "use_policy", ".gitattributes", ".gitignore", ".msc", ".mv", "configuration"}


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("It takes: PATH FINGERPRINT.", file=sys.stderr)
        return 2
    return ended(remove(*arguments))


def remove(path: str, fingerprint: str) -> Text:
    """FINE where it is gone, else why it was not deleted."""
    if wrong := paths.problem(path):
        return wrong
    folder = Path(paths.tidy(path))
    aside = part_of(folder.with_name(f"deleted-{hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]}"))
    if not os.path.lexists(folder):
        return _rest(folder, aside)
    try:
        check(folder, fingerprint)
        size = read.read(folder).bytes
        shutil.rmtree(aside, ignore_errors=True)  # what an earlier try has left
        folder.rename(aside)
    except BadModel as error:
        return error.text
    except OSError as error:
        return Text(
            f"{folder} 没有删除（{error.strerror}）。请让 Agent 的账号可以改动 {folder.parent}。",
            f"{folder} was not deleted ({error.strerror}). Let the agent's account change {folder.parent}.",
        )
    if changed := _changed(aside, folder, fingerprint):
        return changed
    print(f"{folder}: {amount(size)}", flush=True)
    return _rest(folder, aside)


def _changed(aside: Path, folder: Path, fingerprint: str) -> Text | None:
    """Look once more at what has the other name by now: it may have been put there since the first look. What may not
    go gets its name back."""
    try:
        check(aside, fingerprint)
        return None
    except BadModel as error:
        why = error.text
    except OSError as error:
        why = unreadable(aside, error).text
    try:
        if os.path.lexists(folder):
            raise FileExistsError(17, "File exists")
        aside.rename(folder)
        return Text(*(words.replace(str(aside), str(folder)) for words in why))
    except OSError as error:
        return Text(
            f"{why.zh} 它现在在 {aside}，没能改回原名（{error.strerror}）。请手动改回。",
            f"{why.en} It lies in {aside} now, and could not get its name back ({error.strerror}). Give it back by "
            "hand.",
        )


def check(folder: Path, fingerprint: str) -> None:
    """Raises BadModel where that folder may not be deleted: it is a link, another content by now, or in use."""
    if folder.is_symlink():
        raise BadModel(
            Text(
                f"{folder} 是链接，没有删除。请删除它指向的目录，或自行移走链接。",
                f"{folder} is a link, and was not deleted. Delete what it points to, or take the link away yourself.",
            )
        )
    if wrong := paths.problem(os.path.realpath(folder)):
        raise BadModel(wrong)
    found = read.read(folder)
    if found.fingerprint != fingerprint:
        raise BadModel(
            Text(
                f"{folder} 里现在是另一个内容（{amount(found.bytes)}），没有删除。请再查找一次模型，再决定。",
                f"{folder} holds another content by now ({amount(found.bytes)}), and was not deleted. Look for models "
                "again, then decide.",
            )
        )
    if strange := list(_first(foreign(folder))):
        names = ", ".join(strange)
        raise BadModel(
            Text(
                f"{folder} 里有不属于模型的内容（{names}），没有删除。请先把它们移走。",
                f"{folder} holds what is no part of a model ({names}), and was not deleted. Move that away first.",
            )
        )
    if used := who_uses(folder, folder):
        raise BadModel(used)


def _first(names: Iterator[str]) -> Iterator[str]:
    for _n, name in zip(range(SHOWN), names, strict=False):
        yield name[:200]


def foreign(folder: Path) -> Iterator[str]:
    """Paths in the folder that belong to no model: other files, another model, devices, other file systems."""
    yield from _foreign(folder, "", folder.lstat().st_dev, 0)


def _foreign(folder: Path, before: str, device: int, depth: int) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        name, info = before + entry.name, entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            if entry.is_dir():
                yield f"{name}/"
            continue  # it goes, what it points to stays
        if stat.S_ISDIR(info.st_mode):
            inside = Path(entry.path)
            if info.st_dev != device or depth >= DEEPEST or (inside / "config.json").exists():
                yield f"{name}/"
            elif entry.name not in SKIPPED:
                yield from _foreign(inside, f"{name}/", device, depth + 1)
        elif not stat.S_ISREG(info.st_mode) or not _is_usual(entry.name):
            yield name


def _is_usual(name: str) -> bool:
    plain = name.lower()
    return (
        PurePosixPath(plain).suffix in SUFFIXES
        or plain in NAMES
        or plain.partition(".")[0] in NAMES
        or (plain.startswith(("license", "notice", "readme")))
    )


def who_uses(now: Path, folder: Path) -> Text | None:
    """Which processes use the files that lie in `now`, which people know as `folder`; None where nobody does."""
    looked = in_use.look(now)
    if looked.hidden:
        n = looked.hidden
        print(f"无法查看其他账号的 {n} 个进程 {n} processes of other accounts cannot be looked into", flush=True)
    if not looked.uses:
        return None
    shown = "; ".join(f"PID {one.pid} ({one.name}): {one.file[:100]}" for one in looked.uses[:SHOWN])
    more = f" (+{len(looked.uses) - SHOWN})" if len(looked.uses) > SHOWN else ""
    return Text(
        f"{folder} 正在使用，没有删除：{shown}{more}。请先结束这些进程，再重试。",
        f"{folder} is in use, and was not deleted: {shown}{more}. End these processes, then try again.",
    )


def _rest(folder: Path, aside: Path) -> Text:
    """Take away what lies aside, of an earlier try perhaps, and tell that the model is gone."""
    report.gone(folder)
    digests.kept(state_folder(), folder).unlink(missing_ok=True)
    if not os.path.lexists(aside):
        print(f"{folder}: 已经没有 already gone")
        return FINE
    try:
        shutil.rmtree(aside)
    except OSError as error:
        return Text(
            f"{folder} 已不能使用，但 {aside} 没有完全删除（{error.strerror}）。请修正权限，再重试本作业。",
            f"{folder} can no longer be used, but {aside} was not deleted whole ({error.strerror}). Mend its rights, "
            "then retry this job.",
        )
    print(f"{folder}: 已删除 deleted")
    return FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
