"""An index of packages by HTTPS, with an authority of its own and a password, that can behave badly."""

import base64
import contextlib
import hashlib
import http.server
import ssl
import threading

from console import certificates

USER, PASSWORD = "ci-reader", "Geheim7-q.W~x"


class Index:
    """`behave`: well | hangs | breaks | lies | fails. `asked` are the paths of those who were let in."""

    def __init__(self, folder, wheels, *, password=PASSWORD):
        self.wheels = {path.name: path.read_bytes() for path in wheels}
        self.behave, self.asked, self.refused = "well", [], 0
        self.hangs_from = ""  # the one path at which it hangs
        self.wanted = "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()
        self.released = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)
        now = certificates.now()
        ca_key, key = certificates.new_key(), certificates.new_key()
        self.ca_pem = certificates.authority(ca_key, "Authority of the index", now=now)
        chain = certificates.server(key, self.ca_pem, ca_key, ["127.0.0.1", "localhost"], now=now)
        self.ca = folder / "index-ca.pem"
        self.ca.write_text(self.ca_pem)
        (folder / "index.pem").write_text(chain + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "index.pem")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Asked,), {"index": self}))
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"https://127.0.0.1:{self.server.server_port}/simple"

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


class Asked(http.server.BaseHTTPRequestHandler):
    index: Index
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words):
        pass

    def do_GET(self):
        index = self.index
        if self.headers.get("Authorization") != index.wanted:
            index.refused += 1
            return self.answer(401, b"", [("WWW-Authenticate", 'Basic realm="packages"')])
        index.asked.append(self.path)
        if index.behave == "hangs" or self.path == index.hangs_from:
            index.released.wait(120)
            return self.answer(503, b"")
        if index.behave == "fails":
            return self.answer(500, b"")
        part, name = self.path.strip("/").split("/", 1)
        if part == "files" and name in index.wheels:
            return self.wheel(index.wheels[name])
        found = [one for one in index.wheels if one.split("-")[0].replace("_", "-").lower() == name.strip("/")]
        if part != "simple" or not found:
            return self.answer(404, b"")
        rows = "".join(f'<a href="/files/{one}#sha256={self.digest(one)}">{one}</a>\n' for one in found)
        return self.answer(200, f"<!DOCTYPE html><html><body>{rows}</body></html>".encode())

    def digest(self, name):
        return "0" * 64 if self.index.behave == "lies" else hashlib.sha256(self.index.wheels[name]).hexdigest()

    def wheel(self, data):
        if self.index.behave == "breaks":
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        self.answer(200, data)

    def answer(self, status, data, headers=()):
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(len(data))), ("Content-Type", "text/html")]:
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)
