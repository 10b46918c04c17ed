"""Container images of ours that no container uses, running or not. Found by the engine, and taken away by it."""

import re
from datetime import datetime
from typing import NamedTuple

from deployments.kinds.check_probes.host import Host, Trouble
from deployments.kinds.check_probes.images import ENGINES, OURS
from deployments.steps import Text

REFERENCE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,300}", re.ASCII)
MOST = 100
TIMEOUT_S = 30.0


class Image(NamedTuple):
    """`why` says why it stays; None where it may go. `made_at` is epoch seconds."""

    engine: str
    name: str
    bytes: int
    made_at: float
    why: Text | None

    @property
    def path(self) -> str:
        return f"{self.engine}/{self.name}"


def images(host: Host) -> tuple[list[Image], list[tuple[str, Text]]]:
    """Those of ours by each engine, and why an engine could not be asked: [(engine, words)]."""
    found: list[Image] = []
    problems: list[tuple[str, Text]] = []
    for engine in ENGINES:
        try:
            found += _of(host, engine)
        except Trouble as trouble:
            problems.append((engine, trouble.reason))
    return found[:MOST], problems


def _of(host: Host, engine: str) -> list[Image]:
    """Raises Trouble where the engine is there and does not answer."""
    listed = _ask(host, engine, "images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
    if listed is None:
        return []
    rows = [row.split() for row in listed.splitlines()]
    ours = [(row[0], row[1]) for row in rows if len(row) == 2 and REFERENCE.fullmatch(row[0]) and is_ours(row[0])]
    if not ours:
        return []
    used = used_ids(host, engine)
    return [_image(host, engine, name, number, used) for name, number in ours[:MOST]]


def is_ours(name: str) -> bool:
    return bool(OURS.search(name.rpartition(":")[0] + ":"))


def used_ids(host: Host, engine: str) -> dict[str, str]:
    """Image (name or id without its algorithm) -> a container that uses it. Raises Trouble."""
    told = _ask(host, engine, "ps", "-a", "--no-trunc", "--format", "{{.Image}} {{.Names}}") or ""
    rows = [row.split(maxsplit=1) for row in told.splitlines() if row.strip()]
    used = {row[0].removeprefix("sha256:"): (row[1] if len(row) > 1 else "?") for row in rows}
    for name in [name for name in used if REFERENCE.fullmatch(name)][:MOST]:
        answer = host.run(engine, "image", "inspect", "--format", "{{.Id}}", name, timeout_s=TIMEOUT_S)
        if answer and answer.code == 0:
            used.setdefault(answer.text.strip().removeprefix("sha256:"), used[name])
    return used


def _image(host: Host, engine: str, name: str, number: str, used: dict[str, str]) -> Image:
    number = number.removeprefix("sha256:")
    told = _ask(host, engine, "image", "inspect", "--format", "{{.Size}} {{.Created}}", number) or ""
    cells = told.split()
    size = int(cells[0]) if cells and cells[0].isdecimal() else 0
    holder = used.get(number) or used.get(name)
    why = Text(f"容器 {holder[:80]} 在用。", f"The container {holder[:80]} uses it.") if holder else None
    return Image(engine, name, size, _epoch(cells[1]) if len(cells) > 1 else 0.0, why)


def _epoch(text: str) -> float:
    try:
        return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _ask(host: Host, engine: str, *words: str) -> str | None:
    """What it prints; None where there is no such engine. Raises Trouble with its own words."""
    answer = host.run(engine, *words, timeout_s=TIMEOUT_S)
    if answer is None or answer.code == 127:
        return None
    if answer.code != 0:
        said = " ".join(answer.text.split())[:160]
        raise Trouble(
            Text(
                f"{engine} 没有回答（{said}）。以 root 查看：{engine} images",
                f"{engine} did not answer ({said}). As root see: {engine} images",
            )
        )
    return answer.text


def remove(host: Host, image: Image) -> Text | None:
    """Why it could not be taken away; None when it is gone. Never by force: what a container uses stays."""
    answer = host.run(image.engine, "rmi", image.name, timeout_s=300.0)
    if answer and answer.code == 0:
        return None
    said = "" if answer is None else " ".join(answer.text.split())[:160]
    return Text(f"{image.engine} 拒绝：{said}", f"{image.engine} refuses: {said}")
