"""Tell the console of a model that lies on this server."""

from pathlib import Path

from deployments.artifacts.read import Model, read
from deployments.artifacts.tell import tell


def found(model: Model, *, via: str = "found", parent: str = "", digest: str = "", seen: str = "") -> None:
    """`parent` is the fingerprint of what it was made of; `seen` the path by which people know it."""
    path = seen or model.path
    tell("artifact", {"path": path, "via": via, "model": model.as_json(), "parent": parent, "digest": digest})


def made(folder: Path, *, via: str, parent: str = "", digest: str = "") -> Model:
    """Read a folder that a job has made, and tell of it. Raises BadModel."""
    model = read(folder)
    found(model, via=via, parent=parent, digest=digest)
    return model


def gone(path: Path) -> None:
    tell("artifact_gone", {"path": str(path)})
