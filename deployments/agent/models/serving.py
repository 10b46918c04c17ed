"""Step of the job `model_serve`: hand the files of one folder to the one server that holds this copy's key.

    python -m deployments.agent.models.serving FOLDER PORT PAIR

It ends when the other side says that it is done, or has not asked for anything for a long while.
"""

import contextlib
import hashlib
import http.server
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from deployments.agent.config import Config
from deployments.agent.models import ending, secrets, signed_http
from deployments.agent.pages import say
from deployments.artifacts import BadModel, digests
from deployments.artifacts.files import unreadable
from deployments.artifacts.paths import tidy
from deployments.artifacts.progress import Progress, amount
from deployments.artifacts.read import read
from deployments.artifacts.sources.shared_path import SharedPath
from deployments.artifacts.tensors import open_regular
from deployments.steps import Text

PIECE = 1 << 20
MOST_WRONG = 1000  # requests without a signature, after which somebody means ill


def idle_s() -> float:
    """Seconds without a request after which nobody will come any more; tests set ASCEND_IDLE_S."""
    return float(os.environ.get("ASCEND_IDLE_S", "1800"))


class Serving(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, folder: Path, port: int, key: str, known: "digests.Manifest | None") -> None:
        self.folder, self.key = folder, key
        listed = SharedPath(folder).files()
        self.sizes = {file.name: file.size or 0 for file in listed}
        self.digests = {name: row.sha256 for name, row in known.files.items()} if known else {}
        self.making, self.done, self.wrong = threading.Lock(), False, 0
        self.heard = time.monotonic()
        self.progress = Progress(sum(self.sizes.values()))
        super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # IPv4, too
        super().server_bind()

    def digest(self, name: str) -> str:
        """SHA-256 of a file, made at the first question. Raises OSError."""
        with self.making:
            if name not in self.digests:
                self.digests[name] = digests.of_file(self.folder / name).sha256
            return self.digests[name]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is nothing to tell."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Serving
    protocol_version = "HTTP/1.1"
    timeout = 120

    def log_message(self, *_words: Any) -> None:
        pass

    def version_string(self) -> str:
        return "ascend-console"

    def do_GET(self) -> None:
        serving, ranged, header = self.server, self.headers.get("Range", ""), self.headers.get(signed_http.HEADER, "")
        if not signed_http.is_signed(serving.key, header, self.path, ranged):
            serving.wrong += 1
            self.say(403, b"", header)
            return
        serving.heard = time.monotonic()
        what, _slash, n = self.path.lstrip("/").partition("/")
        names = list(serving.sizes)
        if what == "files":
            self.say(200, json.dumps(list(serving.sizes.items())).encode(), header)
        elif what == "done":
            serving.done = True
            self.say(200, b"{}", header)
        elif what in ("file", "digest") and n.isdecimal() and len(n) < 8 and int(n) < len(names):
            (self.file if what == "file" else self.sum)(names[int(n)], header, ranged)
        else:
            self.say(404, b"", header)

    def sum(self, name: str, header: str, _ranged: str) -> None:
        try:
            self.say(200, json.dumps({"sha256": self.server.digest(name)}).encode(), header)
        except OSError:
            self.say(404, b"", header)

    def file(self, name: str, header: str, ranged: str) -> None:
        try:
            descriptor = open_regular(self.server.folder / name)
        except OSError:
            self.say(404, b"", header)
            return
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            tag = '"' + hashlib.sha256(f"{info.st_size} {info.st_mtime_ns}".encode()).hexdigest()[:32] + '"'
            begin = 0
            if ranged and self.headers.get("If-Range", tag) == tag:
                begin = int(ranged.removeprefix("bytes=").removesuffix("-") or "0")
            if begin > info.st_size:
                self.say(416, b"", header)
                return
            self.head(206 if begin else 200, info.st_size - begin, tag)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{info.st_size - 1}/{info.st_size}")
            self.end_headers()
            self.send_all(file, begin, info.st_size)

    def send_all(self, file: Any, begin: int, size: int) -> None:
        at = begin
        while at < size:
            sent = os.sendfile(self.connection.fileno(), file.fileno(), at, min(PIECE, size - at))
            if not sent:
                self.close_connection = True  # it is shorter by now
                return
            at += sent
            self.server.heard = time.monotonic()
            self.server.progress.add(sent)

    def head(self, status: int, length: int, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if tag:
            self.send_header("ETag", tag)

    def say(self, status: int, body: bytes, header: str) -> None:
        self.head(status, len(body))
        if status == 200:
            self.send_header(signed_http.HEADER, signed_http.answer(self.server.key, header, body.decode()))
        self.end_headers()
        self.wfile.write(body)


def serve(config: Config, folder: Path, port: int, pair: str) -> None:
    """Raises BadModel, OSError, Stopped."""
    if not folder.is_dir():
        raise unreadable(folder, FileNotFoundError(2, "No such file or directory"))
    read(folder)  # nothing but a model is handed out
    found = secrets.ask(config, pair)
    with _listening(folder, port, found.key, digests.known(config.state_dir, folder)) as serving:
        size = amount(sum(serving.sizes.values()))
        say(f"在端口 {port} 等待另一台服务器，{size}。", f"Waiting for the other server on port {port}: {size}.")
        threading.Thread(target=serving.serve_forever, args=(0.2,), daemon=True).start()
        _until_done(serving)
        serving.shutdown()
    say("对方已取得全部文件。", "The other server has all of it.")


def _listening(folder: Path, port: int, key: str, known: "digests.Manifest | None") -> Serving:
    try:
        return Serving(folder, port, key, known)
    except OSError as error:
        words = os.strerror(error.errno or 0)
        raise BadModel(
            Text(
                f"无法在端口 {port} 上监听（{words}）。请换一个端口，再重试。",
                f"Nobody can listen on port {port} here ({words}). Choose another port, then try again.",
            )
        ) from error


def _until_done(serving: Serving) -> None:
    """Raises BadModel where nobody comes, or somebody means ill."""
    while not serving.done:
        time.sleep(0.1)
        if serving.wrong > MOST_WRONG:
            raise BadModel(
                Text("有太多没有签名的请求，已停止监听。请检查是谁在访问这个端口。",
                     "Too many requests bear no signature, so this port was closed. See who calls it.")
            )  # fmt: skip
        if time.monotonic() - serving.heard > idle_s():
            raise BadModel(
                Text(
                    f"{idle_s():.0f} 秒内没有人来取。请查看另一台服务器上的作业，并检查两台服务器之间的网络和防火墙。",
                    f"Nobody has asked for {idle_s():.0f} s. See the job on the other server, and look at network and "
                    "firewall between the two.",
                )
            )


def main(argv: list[str] | None = None) -> int:
    folder, port, pair = sys.argv[1:] if argv is None else argv
    with contextlib.suppress(KeyboardInterrupt):
        return ending.run(lambda config: serve(config, Path(tidy(folder)), int(port), pair))
    return 130


if __name__ == "__main__":
    sys.exit(main())
