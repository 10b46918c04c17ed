"""A web server of models that can behave badly: a hub as Hugging Face or ModelScope speaks, or a plain folder."""

import contextlib
import hashlib
import html
import http.server
import json
import ssl
import threading
import time
from urllib.parse import parse_qs, quote, unquote, urlsplit

from console import certificates

TOKEN = "hf_Geheim7qWx"
COMMIT = "5e" * 20
PIECE = 1 << 16
ODD = ("?C=M;O=A", "/etc/passwd", "http://elsewhere.example/x", "//elsewhere.example/y", "#top", "http://[x")  # links


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """`files`: {name: bytes}. `behave`: {name: how} of single files, `asked`: [(method, path, headers)].

    well | breaks (once, halfway) | always breaks | hangs | trickles | long | short | html | gzip | changes | 503
    | no ranges | elsewhere (redirects to `other`) | circle | wrong (other content of the same size)
    """

    def __init__(self, files, *, token="", other=None, speed=0, tls=None):
        self.files, self.token, self.other, self.speed = dict(files), token, other, speed
        self.behave, self.asked, self.broke = {}, [], set()
        self.no_head = False
        self.listing = "html"  # of the plain folder: html | none | forbidden
        self.told = {}  # {name: changes of its row in the listing}
        self.released, self.reached = threading.Event(), threading.Event()
        self.server = Server(("127.0.0.1", 0), type("Asked", (Asked,), {"hub": self}))
        if tls:
            self.ca_pem = self.wrap(tls)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"

    def wrap(self, folder):
        """Speak TLS with a certificate of an authority that no system knows; its PEM."""
        now = certificates.now()
        ca_key, key = certificates.new_key(), certificates.new_key()
        ca_pem = certificates.authority(ca_key, "Authority of the hub", now=now)
        (folder / "hub.pem").write_text(certificates.server(key, ca_pem, ca_key, ["127.0.0.1"], now=now) + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "hub.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        return ca_pem

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def ranges(self, name):
        """The Range headers with which a file was asked for, '' for none."""
        return [h.get("Range", "") for m, path, h in self.asked if m == "GET" and unquote(path).endswith(f"/{name}")]

    def rows(self):
        """As /api/models/<id>/tree has them."""
        for name, data in self.files.items():
            row = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if name.endswith((".safetensors", ".bin")):
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            yield {**row, **self.told.get(name, {})}


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128


class Asked(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words):
        pass

    def do_HEAD(self):
        if self.hub.no_head:
            return self.answer(501, b"")
        self.do_GET()

    def do_GET(self):
        hub, parts = self.hub, urlsplit(self.path)
        hub.asked.append((self.command, self.path, dict(self.headers)))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.answer(401, b"{}")
        path = unquote(parts.path)
        if path.startswith("/api/models/"):
            return self.hugging_face(path.removeprefix("/api/models/"), parse_qs(parts.query))
        if path.startswith("/api/v1/models/"):
            return self.model_scope(path.removeprefix("/api/v1/models/"), parse_qs(parts.query))
        if "/resolve/" in path:
            return self.file(path.split("/resolve/", 1)[1].split("/", 1)[1])
        return self.folder(path.removeprefix("/models/"))

    def hugging_face(self, path, query):
        name, _, rest = path.partition("/revision/") if "/revision/" in path else path.partition("/tree/")
        if name != "org/tiny" or rest not in ("main", COMMIT):
            return self.answer(404, b'{"error":"Repository not found"}')
        if "/revision/" in path:
            return self.json({"id": name, "sha": COMMIT})
        rows = [{"type": "directory", "path": "original"}, *self.hub.rows()]
        at = int(query.get("cursor", ["0"])[0])
        more = [("Link", f'<{self.hub.url}/api/models/{path}?recursive=1&cursor={at + 3}>; rel="next"')]
        return self.json(rows[at : at + 3], more if at + 3 < len(rows) else [])

    def model_scope(self, path, query):
        if not path.startswith("org/tiny/repo"):
            return self.json({"Code": 10010205001, "Message": "no such model", "Success": False})
        if path.endswith("/files"):
            rows = [
                {"Type": "blob", "Path": row["path"], "Name": row["path"], "Size": row["size"],
                 "Sha256": hashlib.sha256(self.hub.files[row["path"]]).hexdigest()}
                for row in self.hub.rows()
            ]  # fmt: skip
            return self.json({"Code": 200, "Data": {"Files": [{"Type": "tree", "Path": "x"}, *rows]}})
        return self.file(query["FilePath"][0])

    def folder(self, path):
        files = self.hub.files
        if path in files:
            return self.file(path)
        below = [name.removeprefix(path) for name in files if name.startswith(path)]
        if not below or self.hub.listing == "none":
            return self.answer(404, b"")
        if self.hub.listing == "forbidden":
            return self.answer(403, b"")
        names = dict.fromkeys(n.split("/")[0] + ("/" if "/" in n else "") for n in below)
        links = "".join(f'<a href="{quote(one)}">{html.escape(one)}</a>\n' for one in ["../", *names])
        links += "".join(f'<a href="{one}">x</a>' for one in ODD)
        return self.answer(200, f"<html><body>{links}</body></html>".encode(), [("Content-Type", "text/html")])

    def file(self, name):
        hub = self.hub
        how, data = hub.behave.get(name, "well"), hub.files.get(name)
        if data is None:
            return self.answer(404, b"")
        if how == "elsewhere" or how == "circle":
            to = hub.other.url if how == "elsewhere" else hub.url
            return self.answer(302, b"", [("Location", f"{to}/x/resolve/main/{quote(name)}")])
        if how == "503":
            return self.answer(503, b"", [("Retry-After", "0")])
        if how == "html":
            return self.answer(200, b"<html>Please log in</html>", [("Content-Type", "text/html")])
        if how == "gzip":
            return self.answer(200, data, [("Content-Encoding", "gzip")])
        if how == "wrong":
            data = bytes(len(data))
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        begin = self.begin(how, tag, len(data))
        if begin is None:
            return self.answer(416, b"", [("Content-Range", f"bytes */{len(data)}")])
        headers = [("ETag", tag), ("Content-Type", "application/octet-stream")]
        if begin:
            headers.append(("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}"))
        told = data[begin:] + (b"more" if how == "long" else b"")
        told = told[:-4] if how == "short" else told
        self.begin_answer(206 if begin else 200, len(told), headers)
        self.send_how(name, how, told)

    def begin(self, how, tag, size):
        """Where the client wants to go on, 0 for the whole, None where that lies behind the end."""
        wanted = self.headers.get("Range", "")
        if how == "no ranges" or not wanted or self.headers.get("If-Range", tag) != tag:
            return 0
        begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        return begin if begin < size else None

    def send_how(self, name, how, data):
        hub = self.hub
        breaks = how == "always breaks" or (how in ("breaks", "changes") and name not in hub.broke)
        if self.command == "HEAD":
            return
        if how == "hangs" or how == "trickles":
            self.send(data[: len(data) // 2])
            hub.reached.set()
            while how == "trickles" and not hub.released.wait(0.02):
                self.send(b"x")
            hub.released.wait(60)
        elif breaks:
            self.send(data[: len(data) // 2] if how != "always breaks" else b"")
            hub.broke.add(name)
            if how == "changes":
                hub.files[name] = bytes(reversed(hub.files[name]))
        else:
            self.send(data)
            return
        self.close_connection = True

    def send(self, data):
        with contextlib.suppress(OSError):
            for at in range(0, len(data), PIECE):
                self.wfile.write(data[at : at + PIECE])
                if self.hub.speed:
                    self.hub.reached.set()
                    time.sleep(PIECE / self.hub.speed)

    def begin_answer(self, status, length, headers):
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(length))]:
            self.send_header(name, value)
        self.end_headers()

    def answer(self, status, data, headers=()):
        self.begin_answer(status, len(data), headers)
        if self.command != "HEAD":
            self.send(data)

    def json(self, data, headers=()):
        self.answer(200, json.dumps(data).encode(), [*headers, ("Content-Type", "application/json")])
