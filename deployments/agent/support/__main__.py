"""One step of the job `support_bundle`: gather a source, send it, leave nothing behind."""

import os
import shutil
import socket
import sys
import time
from pathlib import Path

from deployments.agent.cleanup.__main__ import amount
from deployments.agent.config import Config
from deployments.agent.pages import Stopped, give_up, say, step
from deployments.agent.support import asked, send, sources
from deployments.agent.support.masking import Masks
from deployments.agent.support.part import NO_ROOM, Full, Part, only
from deployments.kinds.check_probes.__main__ import tell
from deployments.kinds.support_bundle import SOURCES
from deployments.steps import Text

EXPIRED_S = 3 * 3600.0


def collect(config: Config, source: str) -> None:
    """Raises Stopped where it could not be sent, or the disk is full."""
    wanted = asked.read()
    folder = config.state_dir / "support"
    sweep(folder)
    own = folder / os.environ.get("ASCEND_ATTEMPT", "by-hand")
    names = [*wanted.names, config.name, *_own_names()]
    masks = Masks(wanted.salt, names, hosts=wanted.hosts)
    try:
        path, part = own / f"{source}.zip", None
        try:
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = Part(path, masks, wanted.most_mb << 20, time.monotonic() + wanted.seconds)
            data = _gathered(part, config, wanted, source)
        except (Full, OSError) as error:
            if part is not None:
                part.drop()
            reason = error.text if isinstance(error, Full) else sources._words(error)
            send.send(config, source, only(path, [{"what": source, "why": list(reason)}]))
            raise Stopped(*reason) from error
        send.send(config, source, data)
        _report(source, part)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _gathered(part: Part, config: Config, wanted: asked.Asked, source: str) -> Path:
    """The packed part. Raises Full where the disk has no room even for that."""
    part.check()
    try:
        sources.BY_NAME[source](sources.place_of(part, config, wanted, os.environ.get("ASCEND_STACKS", "")))
    except Full as full:
        if full.text is NO_ROOM:
            raise
        part.lacks(source, full.text)
    except OSError as error:
        part.lacks(source, sources._words(error))
    return part.close()


def _report(source: str, part: Part) -> None:
    """An item of the report: how much there is, and what could not be had."""
    size = sum(one["size"] for one in part.entries)
    lacks = [Text(*one["why"]) for one in part.missing]
    first = part.missing[0]["what"] if part.missing else ""
    say(f"{len(part.entries)} 个文件，{amount(size)}。", f"{len(part.entries)} files, {amount(size)}.")
    for one in part.missing:
        say(f"没有 {one['what']}：{one['why'][0]}。", f"Without {one['what']}: {one['why'][1]}.")
    tell({
        "key": source, "title": list(SOURCES[source]), "verdict": "ok" if part.entries else "unknown",
        "found": f"{len(part.entries)}, {amount(size)}", "wanted": None,
        "remedy": [f"{first}：{lacks[0].zh}", f"{first}: {lacks[0].en}"] if lacks else None,
    })  # fmt: skip


def _own_names() -> list[str]:
    """What this machine is called."""
    name = socket.gethostname()
    return [name, name.partition(".")[0]]


def sweep(folder: Path, now: "float | None" = None) -> None:
    """Take away what jobs left that were killed."""
    try:
        left = list(folder.iterdir())
    except OSError:
        return
    for one in left:
        try:
            if (now or time.time()) - one.stat().st_mtime > EXPIRED_S:
                shutil.rmtree(one, ignore_errors=True)
        except OSError:
            continue


def main(argv: "list[str] | None" = None) -> int:
    (source,) = sys.argv[1:] if argv is None else argv
    if source not in sources.BY_NAME:
        give_up(Text("没有这个来源。", "There is no such source."))
        return 2
    os.nice(10)  # engines go first
    return step(lambda config: collect(config, source))


if __name__ == "__main__":
    sys.exit(main())
