"""Static files as they are served: a copy in VAR_DIR, made anew when the sources have changed, each beside its gzip.

The web server notes names and sizes when it starts. Served from the sources, a pull under a running console would cut
its pages' styles short; and a phone at night is glad of a quarter of the bytes.
"""

import hashlib
import shutil
from pathlib import Path

from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.test.utils import override_settings

STAMP = ".sources"
PACKED = {"staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"}}


def stamp_of_sources() -> str:
    """A digest of name, size and time of change of every static file, those of installed packages included."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in sorted(finder.list([]), key=lambda found: found[0]):
            state = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def collect(root: Path) -> bool:
    """Bring the copy in `root` up to date; False where it already was. A copy cut short is made again."""
    stamp = stamp_of_sources()
    kept = root / STAMP
    if kept.exists() and kept.read_text() == stamp:
        return False
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with override_settings(STATIC_ROOT=root, STORAGES=PACKED):
        call_command("collectstatic", interactive=False, verbosity=0)
    kept.write_text(stamp)
    return True
