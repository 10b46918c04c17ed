"""Tell the console of a model that lies on this server."""

from pathlib import Path
from typing import Any

from deployments.artifacts.read import Model, read
from deployments.artifacts.tell import tell, travels


def found(model: Model, *, via: str = "found", parent: str = "", digest: str = "", seen: str = "") -> None:
    """`parent` is the fingerprint of what it was made of; `seen` the path by which people know it."""
    shown = model.as_json()
    told = {"path": seen or model.path, "via": via, "model": shown, "parent": parent, "digest": digest}
    while not travels("artifact", told) and _shorten(shown):
        pass
    tell("artifact", told)


def _shorten(model: dict[str, Any]) -> bool:
    """Leave out half of what is listed; one problem stays, for without it the model were whole."""
    lists = [model[name] for name in ("problems", "pickles")]
    longest = max(lists, key=lambda rows: len(str(rows)) if len(rows) > 1 else 0)
    del longest[max(1, len(longest) // 2) :]
    return any(len(rows) > 1 for rows in lists)


def made(folder: Path, *, via: str, parent: str = "", digest: str = "") -> Model:
    """Read a folder that a job has made, and tell of it. Raises BadModel."""
    model = read(folder)
    found(model, via=via, parent=parent, digest=digest)
    return model


def gone(path: Path) -> None:
    tell("artifact_gone", {"path": str(path)})
