"""What steps that are acted out see and change of a simulated server."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from deployments.demo import contents, root, systems, tools
from deployments.demo.fleet import DemoServer, Engine
from deployments.steps import Text

ARCH = "aarch64"


class Ended(NamedTuple):
    """How an acted program ended: its exit code, and why in words of its own where it says so."""

    code: int = 0
    reason: Text | None = None


class Bare(str):
    """Printed as it stands: no line end follows, as with a question."""


class Item(dict[str, Any]):
    """An item of a report."""


class Told(dict[str, Any]):
    """What a program tells the console (artifacts/tell.py): `told` and `data`."""


# A text is a line that is printed, a number of seconds a pause (at the usual speed).
Act = Generator[str | float | Item | Told, None, Ended]
DONE = Ended()


class Scene:
    """One simulated server with its root folder. `server` is as it is now; `changed` hears of every change."""

    def __init__(
        self, made: DemoServer, state_dir: Path, running: Callable[[], tuple[Engine, ...]] | None = None,
        changed: Callable[[DemoServer], None] = lambda server: None,
    ) -> None:  # fmt: skip
        self.made, self.state_dir, self.changed = made, state_dir, changed
        self.running = running or (lambda: made.engines)
        self.has = contents.read(made, state_dir)
        self.server = contents.present(made, self.has)
        self.files = root.files(self.server)

    # ---------- what is there ----------

    def exists(self, path: str) -> bool:
        name = path.strip("/")
        return name in self.files or any(one.startswith(f"{name}/") for one in self.files) or self._behind_link(name)

    def _behind_link(self, name: str) -> bool:
        """Whether a folder above is a link, and the file lies where that points."""
        return name != (real := self._real(name)) and self.exists(real)

    def _real(self, name: str) -> str:
        parts = name.split("/")
        for n in range(1, len(parts)):
            text = self.files.get("/".join(parts[:n]), "")
            if text.startswith(root.LINK):
                return "/".join([*parts[: n - 1], text.removeprefix(root.LINK), *parts[n:]])
        return name

    def read(self, path: str) -> str:
        """The text of a file, '' where there is none."""
        return self.files.get(self._real(path.strip("/")), "")

    def below(self, folder: str) -> list[str]:
        """The paths of the files in a folder, without the slash in front."""
        return [name for name in self.files if name.startswith(f"{folder.strip('/')}/")]

    def free_gib(self) -> float:
        """What df says of the system's disk."""
        _code, text = self.ask("df", "-Pk", "/")
        return int(text.splitlines()[-1].split()[3]) / 2**20

    def ask(self, *argv: str) -> tuple[int, str]:
        """What a tool says there now."""
        return tools.answer(self.server, list(argv), time.time(), self.running())

    @property
    def python(self) -> str:
        """The version of the agent's own interpreter."""
        return systems.of(self.server).python

    # ---------- what changes ----------

    def change(self, put: Mapping[str, str] | None = None, drop: Iterable[str] = (), **fields: Any) -> None:
        """Write files, take files and folders away (whole paths), set fields of the contents; first away, then anew."""
        away = [path.strip("/") for path in drop]
        new = {path.lstrip("/"): text for path, text in (put or {}).items()}
        kept = {name: text for name, text in self.has.files.items() if not root.is_below(name, away)}
        gone = tuple(dict.fromkeys([*self.has.gone, *away]))
        self.has = replace(self.has, files={**kept, **new}, gone=gone, **fields)
        contents.write(self.state_dir, self.has)
        before, self.server = self.files, contents.present(self.made, self.has)
        self.files = root.files(self.server)
        root.change(self.state_dir / "root", before, self.files)
        self.changed(self.server)
