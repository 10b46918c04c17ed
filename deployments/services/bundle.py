"""The agent as the console hands it out: its own plain code, and the pure-Python packages that it imports.

The same console always makes the same bytes, so that a command can name their digest.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import Unavailable

# Below lib/: what every child of the agent finds by PYTHONPATH.
CODE = (
    "deployments/__init__.py", "deployments/steps.py", "deployments/locks.py", "deployments/agent",
    "deployments/kinds", "deployments/stacks", "deployments/artifacts", "deployments/serving",
    "monitoring/__init__.py", "monitoring/parsers",
)  # fmt: skip
# Below site/: only the agent's own environment has them, so that they never stand before a job's own packages.
PACKAGES = ("async-timeout", "redis", "rq")
LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


class Bundle(NamedTuple):
    data: bytes
    digest: str  # SHA-256, hex

    @property
    def code(self) -> str:
        """What an agent of it calls its code: deployments.agent.code()."""
        return self.digest[:16]


@lru_cache(maxsize=1)
def agent() -> Bundle:
    """A .tar.gz of lib/ and site/. Raises Unavailable where a package is missing from the console's environment."""
    files = sorted([*_code(Path(settings.BASE_DIR)), *_packages()])
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    data = out.getvalue()
    return Bundle(data, hashlib.sha256(data).hexdigest())


def _code(base: Path) -> Iterator[tuple[str, Path]]:
    for name in CODE:
        top = base / name
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"lib/{path.relative_to(base)}", path


def _packages() -> Iterator[tuple[str, Path]]:
    for name in PACKAGES:
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            raise Unavailable(
                _("The console's own environment lacks the package %(name)s, which agents need.") % {"name": name},
                _("Run “make setup” on the console, then try again."),
                code="no_package",
            ) from None
        for file in files:
            path = Path(str(file.locate()))
            inside = ".." not in file.parts and "__pycache__" not in file.parts
            if inside and file.name not in LEFT_OUT and path.is_file():
                yield f"site/{file}", path
