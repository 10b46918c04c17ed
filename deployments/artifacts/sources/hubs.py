"""Hugging Face, ModelScope and their mirrors, by the public API of each: what files there are, with sizes and digests.

The hubs' own libraries are not used: the agent's Python has neither, and one downloader for hub, mirror and folder
resumes, checks and tells alike. `huggingface_hub` and `modelscope` are two, with caches and settings of their own.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from deployments.artifacts import BadModel
from deployments.artifacts.sources import File, Stream
from deployments.artifacts.sources.web import NotThere, Web, not_it, origin
from deployments.steps import Text

MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
REVISION = r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}"
MOST_PAGES = 100
SHA256, SHA1 = 64, 40  # hexadecimal digits


def range_headers(begin: int, tag: str) -> dict[str, str]:
    """What asks for the rest of a file, or all of it where it is another by now."""
    if not begin:
        return {}
    strong = tag.startswith('"')  # If-Range takes no weak one
    return {"Range": f"bytes={begin}-", **({"If-Range": tag} if strong else {})}


def hex_of(value: Any, digits: int) -> str:
    text = value.lower() if isinstance(value, str) else ""
    return text if len(text) == digits and set(text) <= set("0123456789abcdef") else ""


def size_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 50 else None


class HuggingFace:
    """A model of a hub that speaks as huggingface.co does. The revision is pinned to its commit first, so that files
    are of one state however long it takes."""

    def __init__(self, web: Web, endpoint: str, model: str, revision: str = "") -> None:
        self.web, self.endpoint, self.model = web, endpoint.rstrip("/"), model
        self.wanted, self.revision = revision or "main", ""
        self.said = f"{self.endpoint}/{model}"

    def files(self) -> list[File]:
        told, _more = self.web.json(f"{self._api}/revision/{quote(self.wanted, safe='')}")
        self.revision = hex_of(told.get("sha") if isinstance(told, dict) else None, SHA1) or self.wanted
        return [file for row in self._rows() if (file := self._file(row))]

    @property
    def _api(self) -> str:
        return f"{self.endpoint}/api/models/{self.model}"

    def _rows(self) -> Iterator[Any]:
        url = f"{self._api}/tree/{quote(self.revision, safe='')}?recursive=1"
        for _page in range(MOST_PAGES):
            told, url = self.web.json(url)
            if not isinstance(told, list):
                raise not_it(self.endpoint, "no list")
            yield from told
            if not url:
                return
        raise not_it(self.endpoint, f"> {MOST_PAGES} pages")

    def _file(self, row: Any) -> File | None:
        if not isinstance(row, dict) or row.get("type") != "file":
            return None
        name, large = str(row.get("path", "")), row.get("lfs")
        url = f"{self.endpoint}/{self.model}/resolve/{quote(self.revision, safe='')}/{quote(name)}"
        if isinstance(large, dict):
            return File(name, size_of(large.get("size")), url, sha256=hex_of(large.get("oid"), SHA256))
        return File(name, size_of(row.get("size")), url, git=hex_of(row.get("oid"), SHA1))

    def open(self, file: File, begin: int, tag: str) -> Stream:
        return self.web.open(file.url, range_headers(begin, tag))

    def sha256(self, file: File) -> str:
        return file.sha256


class ModelScope:
    """A model of modelscope.cn. Each file has a digest in the list, so that one that changes meanwhile is noticed."""

    def __init__(self, web: Web, endpoint: str, model: str, revision: str = "") -> None:
        self.web, self.endpoint, self.model = web, endpoint.rstrip("/"), model
        self.revision = revision or "master"
        self.said = f"{self.endpoint}/models/{model}"

    @property
    def _api(self) -> str:
        return f"{self.endpoint}/api/v1/models/{self.model}/repo"

    def files(self) -> list[File]:
        told, _more = self.web.json(f"{self._api}/files?{urlencode({'Revision': self.revision, 'Recursive': 'True'})}")
        data = told.get("Data") if isinstance(told, dict) else None
        rows = data.get("Files") if isinstance(data, dict) else None
        if not isinstance(rows, list):
            raise self._refused(told)
        return [file for row in rows if (file := self._file(row))]

    def _refused(self, told: Any) -> BadModel:
        """It answers 200 with a code of its own."""
        if not isinstance(told, dict) or "Code" not in told:
            return not_it(self.endpoint, "no list")
        words = str(told.get("Message") or told.get("Code"))[:200]
        return NotThere(
            Text(
                f"{origin(self.endpoint)} 没有给出 {self.model} 的文件列表：{words}。请检查名称和版本。",
                f"{origin(self.endpoint)} does not list {self.model}: {words}. Look at the name and the revision.",
            )
        )

    def _file(self, row: Any) -> File | None:
        if not isinstance(row, dict) or row.get("Type") != "blob":
            return None
        name = str(row.get("Path", ""))
        url = f"{self._api}?{urlencode({'Revision': self.revision, 'FilePath': name})}"
        return File(name, size_of(row.get("Size")), url, sha256=hex_of(row.get("Sha256"), SHA256))

    def open(self, file: File, begin: int, tag: str) -> Stream:
        return self.web.open(file.url, range_headers(begin, tag))

    def sha256(self, file: File) -> str:
        return file.sha256
