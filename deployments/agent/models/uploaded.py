"""A model that somebody has uploaded to the console through the browser."""

import http.client
import json
import re
from pathlib import Path

from deployments.agent import pages
from deployments.agent.config import Config
from deployments.artifacts import BadModel
from deployments.artifacts.sources import Broken, File, Stream
from deployments.artifacts.sources.hubs import SHA256, hex_of, size_of
from deployments.artifacts.sources.shared_path import OpenFile
from deployments.steps import Text

PIECE = 2 << 20
MAX_LIST = 8 << 20
ID = re.compile(r"[0-9a-f]{16}")


class Uploaded:
    """`here` is the upload's folder where the console keeps it on this very machine, '' elsewhere."""

    revision = ""

    def __init__(self, config: Config, upload: str, here: str = "") -> None:
        self.config, self.upload, self.here = config, upload, Path(here) if here else None
        self.said = f"upload {upload}"
        if not ID.fullmatch(upload):
            raise BadModel(Text("上传编号不对。", "That is no number of an upload."))

    def files(self) -> list[File]:
        data = (self.here / "upload.json").read_bytes() if self.here else self._ask("", 0).read(MAX_LIST)
        try:
            rows = json.loads(data)["files"]
            return [File(str(one["name"]), size_of(one["size"]), sha256=hex_of(one["sha256"], SHA256)) for one in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise BadModel(
                Text(
                    "控制台上的上传没有完成。请先在页面上传完。", "The upload is not whole yet. Finish it on its page."
                )
            ) from error

    def _ask(self, name: str, begin: int) -> http.client.HTTPResponse:
        return pages.ask(self.config, "upload", upload=self.upload, file=name, begin=str(begin))

    def open(self, file: File, begin: int, tag: str) -> Stream:
        if self.here:
            return OpenFile(self.here / "files" / file.name, begin, tag)
        return Sent(self._ask(file.name, begin), begin, file)

    def sha256(self, file: File) -> str:
        return file.sha256


class Sent:
    """The Stream of what the console sends."""

    def __init__(self, answer: http.client.HTTPResponse, begin: int, file: File) -> None:
        self.answer, self.begins, self.total, self.tag = answer, begin, file.size, file.sha256
        self.left = (file.size or 0) - begin

    def read(self) -> bytes:
        if self.left <= 0:
            return b""
        try:
            data = self.answer.read1(min(PIECE, self.left))
        except (OSError, http.client.HTTPException) as error:
            raise Broken(f"the console: {error}") from error
        if not data:
            raise Broken(f"the console broke off, {self.left:,} bytes before the end")
        self.left -= len(data)
        return data

    def close(self) -> None:
        self.answer.close()
