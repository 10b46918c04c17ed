"""What a download would fetch, told before anything is: files, bytes, room, whom it calls, what is left out."""

import argparse
import shutil
from pathlib import Path

from deployments.agent.pages import say
from deployments.artifacts import BadModel, target
from deployments.artifacts.progress import amount
from deployments.artifacts.read import read
from deployments.artifacts.sources import Source
from deployments.artifacts.sources.names import Chosen
from deployments.kinds.check_probes.__main__ import tell as tell_item
from deployments.kinds.check_probes.finding import Finding, Probe, item
from deployments.steps import Text

SHOWN = 8
WHY = {
    "pickle": Text("pickle 文件，加载会执行代码", "pickles, which run code when they are loaded"),
    "pattern": Text("按要求不取", "left out as asked"),
    "own": Text("仓库自己的文件", "of the repository itself"),
}
TITLES = {
    "source": Text("来源", "Source"),
    "revision": Text("版本", "Revision"),
    "files": Text("文件数", "Files"),
    "bytes": Text("总大小", "Size of all"),
    "checked": Text("带摘要的文件", "Files with a digest"),
    "left": Text("不取的文件", "Files that are left out"),
    "calls": Text("会访问的地址", "Addresses it calls"),
    "target": Text("写入目录", "Written to"),
    "room": Text("可用空间", "Free room"),
    "code": Text("自带代码", "Code of its own"),
}


def say_plan(source: Source, chosen: Chosen) -> None:
    size = exact(chosen.bytes)
    say(f"{source.said}：{len(chosen.files)} 个文件，{size}。", f"{source.said}: {len(chosen.files)} files, {size}.")
    if source.revision:
        say(f"版本 {source.revision}。", f"Revision {source.revision}.")
    if chosen.left:
        names = ", ".join(name for name, _why in chosen.left[:SHOWN])
        say(f"不取 {len(chosen.left)} 个文件：{names}。", f"Left out, {len(chosen.left)}: {names}.")


def exact(count: int) -> str:
    """`1.2 GB (1234567890 B)`: people read the first, programs the second."""
    return f"{amount(count)} ({count} B)"


def tell(options: argparse.Namespace, source: Source, chosen: Chosen) -> None:
    """An item for each. Raises BadModel, OSError."""
    say_plan(source, chosen)
    _item("source", Finding("ok", source.said))
    if source.revision:
        _item("revision", Finding("ok", source.revision))
    _item("files", Finding("ok", str(len(chosen.files))))
    _item("bytes", _bytes(chosen))
    told = sum(bool(file.digest) for file in chosen.files)
    _item("checked", Finding("ok" if told else "warning", str(told), str(len(chosen.files)), _unchecked(told, chosen)))
    for why in WHY:
        names = [name for name, reason in chosen.left if reason == why]
        if names:
            words = ", ".join(names[:SHOWN]) + (f" … +{len(names) - SHOWN}" if len(names) > SHOWN else "")
            _item("left", Finding("warning" if why == "pickle" else "ok", words, remedy=WHY[why]), about=why)
    web = getattr(source, "web", None)
    for one in web.called if web else ():
        _item("calls", Finding("ok", one), about=one)
    _item("target", _target(options.folder))
    _item("room", _room(options.folder, chosen))


def _item(key: str, finding: Finding, *, about: str = "") -> None:
    name = f"download.{key}" + (f".{about[:60]}" if about else "")
    tell_item(item(Probe(name, TITLES[key], lambda _host: finding), finding))


def _bytes(chosen: Chosen) -> Finding:
    if not chosen.of_unknown_size:
        return Finding("ok", exact(chosen.bytes))
    n = chosen.of_unknown_size
    words = Text(f"{n} 个文件没有给出大小", f"{n} files are listed without their size")
    return Finding("warning", f"≥ {exact(chosen.bytes)}", remedy=words)


def _unchecked(told: int, chosen: Chosen) -> Text | None:
    if told == len(chosen.files):
        return None
    return Text(
        "其余文件只按大小核对：来源没有给出摘要。",
        "The others are judged by their size alone: the source tells no digest.",
    )


def _target(folder: Path) -> Finding:
    try:
        target.check(folder)
    except BadModel as error:
        return Finding("warning", str(folder), remedy=error.text)
    if bytes_in(target.part_of(folder)):
        words = Text("上次的下载没有完成，会从中断处继续", "an earlier download was cut off, and goes on where it was")
        return Finding("ok", str(folder), remedy=words)
    return Finding("ok", str(folder))


def _room(folder: Path, chosen: Chosen) -> Finding:
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    free, need = shutil.disk_usage(at).free, max(0, chosen.bytes - bytes_in(target.part_of(folder)))
    try:
        target.room(folder, need)
    except BadModel as error:
        return Finding("failed", exact(free), exact(need), error.text)
    return Finding("ok", exact(free), exact(need))


def bytes_in(folder: Path) -> int:
    """Bytes that lie in a folder, 0 where there is none."""
    if not folder.is_dir():
        return 0
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def tell_in_place(folder: Path) -> None:
    """What lies there. Raises BadModel."""
    model = read(folder)
    _item("source", Finding("ok", str(folder), model.architecture or model.format))
    _item("files", Finding("ok", str(model.files)))
    _item("bytes", Finding("ok", exact(model.bytes)))
    for problem in model.problems[:SHOWN]:
        _item("target", Finding("warning", str(folder), remedy=problem.text), about=problem.code)
