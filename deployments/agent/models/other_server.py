"""A model on another server, whose job `model_serve` hands it out."""

import json
from collections.abc import Mapping
from typing import Any

from deployments.agent.models import signed_http
from deployments.artifacts import BadModel
from deployments.artifacts.sources import Broken, File, Stream
from deployments.artifacts.sources.hubs import SHA256, hex_of, range_headers, size_of
from deployments.artifacts.sources.web import NotThere, Web
from deployments.steps import Text


class OtherServer:
    """`endpoint` is http://HOST:PORT, `key` (hex) that of this copy."""

    revision = ""

    def __init__(self, endpoint: str, key: str, folder: str) -> None:
        self.web, self.endpoint, self.key, self.said = Web(straight=True), endpoint, key, f"{endpoint} {folder}"
        if not key:
            raise BadModel(Text("控制台没有给出这次复制的密钥。", "The console has given no key for this copy."))

    def files(self) -> list[File]:
        rows = self._asked("/files")
        if not isinstance(rows, list):
            raise self._not_ours()
        found = []
        for n, row in enumerate(rows):
            name, size = row if isinstance(row, list) and len(row) == 2 else ("", None)
            found.append(File(str(name), size_of(size), f"/file/{n}"))
        return found

    def _asked(self, path: str) -> Any:
        """A signed answer. Raises Broken, BadModel."""
        header = signed_http.sign(self.key, path, "")
        answer = self._open(path, {signed_http.HEADER: header})
        try:
            body = answer.read_all().decode(errors="replace")
            if not signed_http.same(signed_http.answer(self.key, header, body), answer.header(signed_http.HEADER)):
                raise self._not_ours()
            return json.loads(body)
        except ValueError as error:
            raise self._not_ours() from error
        finally:
            answer.close()

    def _open(self, path: str, headers: Mapping[str, str]) -> Any:
        try:
            return self.web.open(self.endpoint + path, headers)
        except NotThere as error:
            raise Broken(f"{self.endpoint} has not that file any more") from error
        except BadModel as error:
            raise self._not_ours() from error

    def _not_ours(self) -> BadModel:
        return BadModel(
            Text(
                f"{self.endpoint} 上应答的不是这次复制的另一端。请查看另一台服务器上的作业，再重新复制。",
                f"What answers at {self.endpoint} is not the other end of this copy. See the job on the other server, "
                "then begin the copy anew.",
            )
        )

    def open(self, file: File, begin: int, tag: str) -> Stream:
        ranged = range_headers(begin, tag)
        header = signed_http.sign(self.key, file.url, ranged.get("Range", ""))
        stream: Stream = self._open(file.url, {**ranged, signed_http.HEADER: header})
        return stream

    def sha256(self, file: File) -> str:
        """As the other server makes it of what lies there now."""
        told = self._asked(file.url.replace("/file/", "/digest/"))
        found = hex_of(told.get("sha256") if isinstance(told, dict) else None, SHA256)
        if not found:
            raise self._not_ours()
        return found

    def done(self) -> None:
        """Let the other end stop. Raises Broken, BadModel."""
        self._asked("/done")
