"""Collecting for a support bundle acted out: what the simulated tools print, in a part that says it is simulated."""

import base64
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deployments.agent.support import asked
from deployments.agent.support.files import shown
from deployments.agent.support.masking import Masks
from deployments.agent.support.part import Part
from deployments.agent.support.send import TOLD
from deployments.agent.support.sources import NOT_THERE, VERSIONS
from deployments.artifacts.tell import MOST_BYTES
from deployments.demo.scene import DONE, Act, Ended, Item, Scene, Told
from deployments.kinds.support_bundle import SOURCES
from deployments.steps import Text

NAME = "deployments.agent.support"
MARK = "simulated: 以下内容是演示出来的 / what follows is acted out\n"
MOST_CHIPS = 4  # a part travels in one message
ROOM = 2000
SIMULATED = Text("模拟服务器上没有", "a simulated server has none")


def of(words: list[str], told: str, scene: Scene) -> Act:
    source = words[0] if words else ""
    if source not in SOURCES:
        return Ended(2)
    wanted = asked.read(told)
    masks = Masks(wanted.salt, [*wanted.names, scene.server.name], hosts=wanted.hosts)
    with tempfile.TemporaryDirectory() as folder:
        part = Part(Path(folder) / "part.zip", masks, 4 << 20, time.monotonic() + 30)
        FILL.get(source, _nothing)(part, scene, source)
        data = base64.b64encode(part.close().read_bytes()).decode()
    yield 1.0
    if len(data) > MOST_BYTES - ROOM:
        return Ended(1, Text("演示的内容太长。", "What was acted out is too long to travel."))
    yield f"simulated: {len(part.entries)}"
    yield Told(told=TOLD, data={"source": source, "zip": data})
    yield Item(
        key=source, title=list(SOURCES[source]), verdict="ok" if part.entries else "unknown",
        found=f"{len(part.entries)}", wanted=None, remedy=list(part.missing[0]["why"]) if part.missing else None,
    )  # fmt: skip
    return DONE


def _ask(part: Part, scene: Scene, *words: str) -> None:
    code, text = scene.ask(*words)
    if code == 127:
        part.lacks(words[0], NOT_THERE)
        return
    name = "_".join(word.strip("-") for word in words[1:]) or words[0]
    part.text(f"{words[0]}/{shown(name)}.txt", f"{MARK}$ {' '.join(words)}\n{text}\n(exit code {code})\n")


def _readings(part: Part, scene: Scene, _source: str) -> None:
    _ask(part, scene, "npu-smi", "info")
    if part.missing:
        return
    _ask(part, scene, "npu-smi", "info", "-m")
    for index, chip in enumerate(scene.server.chips[:MOST_CHIPS]):
        _ask(part, scene, "npu-smi", "info", "-t", "board", "-i", str(chip.npu))
        _ask(part, scene, "npu-smi", "info", "-t", "health", "-i", str(chip.npu), "-c", str(chip.chip))
        _ask(part, scene, "hccn_tool", "-i", str(index), "-link", "-g")


def _system(part: Part, scene: Scene, _source: str) -> None:
    for name in VERSIONS:
        if text := scene.read(name):
            part.text(shown("versions", *name.strip("/").split("/")), MARK + text)
    if text := scene.read("/etc/hccn.conf"):
        part.text("hccn.conf", text)
    else:
        part.lacks("/etc/hccn.conf", NOT_THERE)


def _nothing(part: Part, _scene: Scene, source: str) -> None:
    part.lacks(source, SIMULATED)


FILL: dict[str, Callable[[Part, Scene, str], None]] = {"readings": _readings, "system": _system}
