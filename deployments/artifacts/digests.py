"""SHA-256 of every file of a model. The manifest lies in the agent's state, never beside the model itself."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from deployments.artifacts.files import files_of
from deployments.artifacts.tensors import open_regular
from deployments.steps import Text

CHUNK = 4 * 1024 * 1024
AT_ONCE = 4  # hashlib lets go of the interpreter, so that a fast disk is read by several


class Digested(NamedTuple):
    size: int
    sha256: str


class Manifest(NamedTuple):
    """`files`: {path within the folder: (bytes, SHA-256)}."""

    files: dict[str, Digested]

    @property
    def digest(self) -> str:
        """One digest of all: that of their list."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        return json.dumps({name: list(row) for name, row in sorted(self.files.items())}, separators=(",", ":"))


def read(text: str) -> Manifest:
    """Raises ValueError."""
    data = json.loads(text)
    try:
        return Manifest({str(name): Digested(int(size), str(sha256)) for name, (size, sha256) in data.items()})
    except (AttributeError, TypeError) as error:
        raise ValueError("no manifest") from error


def of_file(path: Path, count: Callable[[int], None] = lambda n: None) -> Digested:
    """Raises OSError."""
    descriptor, found, size = open_regular(path), hashlib.sha256(), 0
    try:
        while data := os.read(descriptor, CHUNK):
            found.update(data)
            size += len(data)
            count(len(data))
    finally:
        os.close(descriptor)
    return Digested(size, found.hexdigest())


def make(folder: Path, count: Callable[[int], None] = lambda n: None) -> Manifest:
    """Raises OSError, BadModel. `count` is told of bytes read, from several threads."""
    names = [one.name for one in files_of(folder)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Manifest(dict(zip(names, pool.map(lambda name: of_file(folder / name, count), names), strict=True)))


def differences(wanted: Manifest, found: Mapping[str, Digested]) -> list[Text]:
    """What differs, by file; empty where both are the same."""
    said = []
    for name in sorted({*wanted.files, *found}):
        if name not in found:
            said.append(Text(f"缺少 {name}", f"{name} is missing"))
        elif name not in wanted.files:
            said.append(Text(f"多出 {name}", f"{name} is there in addition"))
        elif wanted.files[name] != found[name]:
            said.append(Text(f"{name} 的内容不同", f"{name} has another content"))
    return said


def kept(state: Path, folder: Path) -> Path:
    """Where the manifest of that folder lies."""
    return state / "artifacts" / f"{hashlib.sha256(str(folder).encode()).hexdigest()}.json"


def keep(state: Path, folder: Path, manifest: Manifest) -> None:
    path = kept(state, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}")
    new.write_text(manifest.text(), encoding="utf-8")
    new.replace(path)


def known(state: Path, folder: Path) -> Manifest | None:
    """The manifest that was kept, None where there is none that can be read."""
    try:
        return read(kept(state, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
