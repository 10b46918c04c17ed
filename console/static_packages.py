"""Scripts that installed packages bring in their data: served like our own, without a copy in the repository."""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.files.storage import FileSystemStorage, Storage

SCRIPTS = {"plotly/plotly.min.js": ("plotly", "package_data", "plotly.min.js")}  # 4.8 MB: on pages with a plot alone


class OneFile(FileSystemStorage):
    """The folder that holds one file, which is called by a name of ours."""

    def __init__(self, name: str, location: str) -> None:
        super().__init__(location=location)
        self.prefix = name.rpartition("/")[0]


class PackagedScripts(BaseFinder):
    """Finds SCRIPTS; a package that is not installed has none."""

    def __init__(self, app_names: Any = None, *args: Any, **kwargs: Any) -> None:
        self.found: dict[str, tuple[str, str]] = {}  # name -> (folder, file)
        for name, (package, *parts) in SCRIPTS.items():
            try:
                path = files(package).joinpath(*parts)
            except ModuleNotFoundError:
                continue
            if path.is_file():
                folder, _slash, file = str(path).rpartition("/")
                self.found[name] = (folder, file)
        super().__init__(*args, **kwargs)

    def check(self, **_kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **_kwargs: Any) -> Any:
        if path not in self.found:
            return []
        whole = "/".join(self.found[path])
        return [whole] if find_all else whole

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, Storage]]:
        for name, (folder, file) in self.found.items():
            if not matches_patterns(file, ignore_patterns or ()):  # whitenoise gives None
                yield file, OneFile(name, folder)
