"""`python -m deployments.agent.cleanup look`, and `… --seen EPOCH remove -- CATEGORY:PATH …`.

`look` reports an item for each thing that may go, with its size and last use; `remove` looks again and takes away those
that are named, each for itself. The exit code is 1 where something that was named stayed as a whole.
"""

import argparse
import hashlib
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from deployments.agent import stack_root
from deployments.agent.cleanup import images, removing
from deployments.agent.cleanup.holders import Holders
from deployments.agent.cleanup.images import Image
from deployments.agent.cleanup.measure import PATIENCE_S, Size, measure
from deployments.agent.cleanup.places import IMAGES, Candidate, Server, candidates, server_of
from deployments.agent.config import load
from deployments.agent.pages import give_up, say
from deployments.kinds.check_probes.__main__ import tell
from deployments.kinds.check_probes.finding import Finding, Probe, item
from deployments.steps import Text

MOST_ITEMS = 300
MOST_LOOKING_S = 120.0  # to count all; what is left then is told as “at least”


def report(category: str, path: str, finding: Finding) -> None:
    digest = hashlib.sha256(path.encode()).hexdigest()[:12]
    tell(item(Probe(f"{category}.{digest}", Text(path, path), lambda _host: finding), finding))


def amount(count: int) -> str:
    """`1.2 GiB (1288490188 B)`: the page reads the second, people the first."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B ({count} B)" if unit == "B" else f"{size:.1f} {unit} ({count} B)"


def moment(epoch: float) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if epoch else "—"


# ---------- look ----------


def look(server: Server) -> None:
    """One item for each candidate, largest first."""
    holders, now = Holders(), time.time()
    until = time.monotonic() + MOST_LOOKING_S
    found = [(one, _counted(one, until)) for one in candidates(server)]
    found.sort(key=lambda pair: -pair[1].bytes)
    for one, size in found[:MOST_ITEMS]:
        if size.files:
            _shown(server, one, size, holders, now)
    if len(found) > MOST_ITEMS:
        more = len(found) - MOST_ITEMS
        say(f"另有 {more} 处较小的没有列出。", f"{more} smaller ones are not listed.")
    listed, problems = images.images(server.host)
    for image in listed:
        _told(IMAGES, image.path, amount(image.bytes), moment(image.made_at), image.why, now)
    for engine, words in problems:
        report(IMAGES, engine, Finding("unknown", remedy=words))
    total = sum(size.bytes for _one, size in found) + sum(image.bytes for image in listed)
    say(f"共 {amount(total)}。", f"{len(found) + len(listed)} places, {amount(total)}.")


def _counted(one: Candidate, until: float) -> Size:
    return measure(one.full, patience_s=min(PATIENCE_S, max(0.5, until - time.monotonic())))


def _shown(server: Server, one: Candidate, size: Size, holders: Holders, now: float) -> None:
    words = f"{'' if size.whole else '≥ '}{amount(size.bytes)}, {size.files}"
    why = removing.why_not(server, one, holders, size=size)
    _told(one.category, one.path, words, moment(size.used_at), why, now)


def _told(category: str, path: str, found: str, used: str, why: Text | None, now: float) -> None:
    params = {"targets": [f"{category}:{path}"], "seen": int(now)}
    job = None if why else {"kind": "cleanup", "params": params}
    report(category, path, Finding("unknown" if why else "ok", found, used, why, job))


# ---------- remove ----------


def remove(server: Server, targets: list[str], seen: float) -> bool:
    """Whether everything that was named went, as far as it was there."""
    holders, total, whole = Holders(), 0, True
    places = {one.name: one for one in candidates(server)}
    listed = images.images(server.host)[0] if any(name.startswith(f"{IMAGES}:") for name in targets) else []
    pictures = {f"{IMAGES}:{image.path}": image for image in listed}
    for name in dict.fromkeys(targets):
        if name in pictures:
            done = _image(server, pictures[name])
        elif name in places:
            done = removing.remove(server, places[name], holders, seen)
        else:
            words = "这不是可以清理的内容，或已不在：没有改动。", "It is nothing that may be cleaned up: left alone."
            done = removing.Done(refused=Text(*words))
        whole = whole and done.refused is None
        total += done.freed
        category, _colon, path = name.partition(":")
        report(category[:20] or "?", path[:1000] or "?", _finding(done))
    report("total", "total", Finding("ok", amount(total)))
    say(f"共释放 {amount(total)}。", f"Freed {amount(total)}.")
    return whole


def _image(server: Server, image: Image) -> removing.Done:
    refused = image.why or images.remove(server.host, image)
    return removing.Done(refused=refused) if refused else removing.Done(image.bytes, 1)


def _finding(done: removing.Done) -> Finding:
    if done.refused:
        return Finding("failed", remedy=done.refused)
    found = f"{amount(done.freed)}, {done.gone}"
    if not done.kept and not done.problems:
        return Finding("ok", found)
    why = "; ".join(done.problems[:3])
    remedy = Text(
        f"保留了 {done.kept} 个：使用中、查看后有改动，或属于别的账号。{why}",
        f"{done.kept} stayed: in use, changed since they were shown, or another account's. {why}".strip(),
    )
    return Finding("warning", found, remedy=remedy)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deployments.agent.cleanup")
    parser.add_argument("what", choices=("look", "remove"))
    parser.add_argument("--seen", type=int, default=0, help="epoch seconds of the look; 0: now")
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args(arguments)
    config = load(Path(os.environ["ASCEND_CONFIG"]))
    server = server_of(config, stack_root.of(config))
    if asked.what == "look":
        look(server)
        return 0
    if remove(server, asked.targets, asked.seen or time.time()):
        return 0
    give_up(
        Text(
            "勾选的内容没有全部删除：原因见报告里的各项。再看一次，然后重试。",
            "Not everything that was ticked went: the items of the report say why. Look again, then try once more.",
        )
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
