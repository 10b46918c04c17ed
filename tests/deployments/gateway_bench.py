"""A whole gateway on loopback: real nginx, real vllm-router, the keeper as a process, and engines that pretend.

Engines answer as vLLM does, at once or word by word, and can be killed. `Bench` has a client of its own.
"""

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deployments.agent.gateways import balancer, front
from deployments.agent.gateways import folder as folders
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
ROUTER = Path(os.environ.get("ROUTER_PYTHON", ROOT / ".router/bin/python"))
ENGINE_KEY = "engines-own-key"


def is_there() -> bool:
    return front.find() is not None and ROUTER.exists()


needs_gateway = pytest.mark.skipif(
    not is_there(),
    reason="no gateway here: it takes nginx with njs (apt install nginx-light libnginx-mod-http-js) and vllm-router in "
    "an environment that ROUTER_PYTHON names, or in .router (make router)",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


ENGINE = r"""
import asyncio, json, sys
port, key, pause = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])

async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
            lines = head.split("\r\n")
            method, path, _ = lines[0].split(" ", 2)
            headers = {k.lower(): v for k, v in (l.split(": ", 1) for l in lines[1:] if ": " in l)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await answer(writer, method, path.split("?")[0], headers, body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()

def whole(writer, status, data, kind="application/json"):
    text = data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)

async def answer(writer, method, path, headers, body):
    if path == "/health":
        return whole(writer, 200, b"")
    if path in ("/metrics", "/reset_prefix_cache"):
        return whole(writer, 200, b"secret of the engine")
    if path.endswith("/render"):
        return whole(writer, 200, {"request_id": "r", "token_ids": list(range(20))})
    if key != "-" and headers.get("authorization") != "Bearer " + key:
        return whole(writer, 401, {"error": {"message": "the engine refuses " + headers.get("authorization", "none")}})
    asked = json.loads(body or b"{}")
    if asked.get("model") == "none":
        return whole(writer, 404, {"error": {"message": "The model `none` does not exist.", "code": 404}})
    words, prompt = asked.get("max_tokens", 5), 7
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + words, "completion_tokens": words,
             "prompt_tokens_details": {"note": 'a "}" in it'}}
    text = 'he said \\"usage\\":{\\"prompt_tokens\\":999} 你好' if asked.get("odd") else "hi"
    about = {"id": "x", "model": "m", "port": port}
    if path == "/v1/models":
        return whole(writer, 200, {"object": "list", "data": [{"id": "m"}]})
    if not asked.get("stream"):
        await asyncio.sleep(pause * words)
        done = {**about, "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}], "usage": usage}
        return whole(writer, 200, done)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    events = [{**about, "choices": [{"index": 0, "delta": {"content": text}}]} for _ in range(words)]
    events.append({**about, "choices": [], "usage": usage})
    for event in [*map(json.dumps, events), "[DONE]"]:
        piece = ("data: " + event + "\n\n").encode()
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(pause)
    writer.write(b"0\r\n\r\n")

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()

asyncio.run(main())
"""


@dataclass
class Engine:
    pause: float = 0.002
    port: int = field(default_factory=free_port)
    key: str = ENGINE_KEY

    def start(self) -> "Engine":
        argv = [sys.executable, "-c", ENGINE, str(self.port), self.key or "-", str(self.pause)]
        self.process = subprocess.Popen(argv)
        until(lambda: balancer.answers(f"http://127.0.0.1:{self.port}"))
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def key_row(n: int, secret: str, **more) -> dict:
    return {
        "id": n,
        "digest": hashlib.sha256(secret.encode()).hexdigest(),
        "until": 0,
        "allowed": True,
        "rate": 0,
    } | more


class Bench:
    """A gateway in `folder`; what `spec` holds can be changed and put again."""

    def __init__(self, folder: Path, engines: list[Engine], *, with_nginx: bool = True) -> None:
        self.folder = folder / "g7"
        self.engines = engines
        self.keys = [key_row(1, "sk-one")]
        self.spec = {
            "gateway": 7, "deployment": 3, "version": 1, "port": free_port(), "router_port": free_port(),
            "metrics_port": free_port(), "engine_key": ENGINE_KEY, "policy": "round_robin",
        }  # fmt: skip
        found = front.find() or ("", "")
        self.programs = {"python": str(ROUTER), "nginx": found[0] if with_nginx else "", "module": found[1]}
        self.keepers: list[subprocess.Popen] = []

    @property
    def port(self) -> int:
        return self.spec["port"]

    def put(self, **more) -> None:
        self.spec |= more
        self.spec["version"] += 1
        rows = [{"address": "127.0.0.1", "port": one.port} for one in self.engines]
        folders.write(self.folder, {**self.spec, "engines": rows, "keys": self.keys}, self.programs)

    def start(self) -> "Bench":
        self.put()
        folders.set_wish(self.folder, "run")
        self.keep()
        until(lambda: self.now().get("state") == "ready", timeout=20)
        return self

    def keep(self) -> subprocess.Popen:
        argv = [sys.executable, "-m", "deployments.agent.gateways.keeper", str(self.folder)]
        out = (self.folder / "keeper.out").open("ab")
        self.keepers.append(subprocess.Popen(argv, cwd=ROOT, start_new_session=True, stdout=out, stderr=out))
        return self.keepers[-1]

    def now(self) -> dict:
        return folders.now(self.folder)

    def settle(self) -> None:
        """Until the keeper has taken the newest spec."""
        until(lambda: self.now().get("version") == self.spec["version"])

    def close(self) -> None:
        folders.set_wish(self.folder, "stop")
        if not any(keeper.poll() is None for keeper in self.keepers):
            self.keep()
        for name in ("nginx", "router"):  # its requests are over
            if (who := folders.identity(self.folder, name)) is not None:
                os.kill(who.pid, signal.SIGTERM)
        for keeper in self.keepers:
            keeper.wait(timeout=30)
        left = [pid for name in ("nginx", "router") for pid in folders.left(self.folder, name)]
        assert left == [], "no test may leave a process"

    def ask(self, path="/v1/chat/completions", body=None, key="sk-one", method=None, headers=None, port=None):
        """(status, body as JSON or bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=20)
        sent = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {key}"} if key else {}),
            **(headers or {}),
        }
        data = json.dumps(body) if body is not None else None
        connection.request(method or ("POST" if body is not None else "GET"), path, data, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def chat(self, key="sk-one", **more):
        return self.ask(body={"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}, key=key)


class Load:
    """Clients that ask without a pause, each on a connection of its own that it keeps, half of them streaming."""

    def __init__(self, port: int, clients: int = 6, key: str = "sk-one", fresh: bool = False) -> None:
        self.port, self.key, self.fresh = port, key, fresh
        self.ended = threading.Event()
        self.results: list[tuple[float, bool, str]] = []
        self.tokens = [0, 0, 0]  # requests, prompt, completion that clients were told
        self.threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_args) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join(30)

    def _run(self, n: int) -> None:
        connection = None
        while not self.ended.is_set():
            began = time.monotonic()
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                told = self._one(connection, n)
                self.results.append((began, told != "", told))
            except (OSError, http.client.HTTPException) as error:
                self.results.append((began, False, repr(error)))
                connection = None
            if self.fresh and connection:
                connection.close()
                connection = None

    def _one(self, connection, n: int) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": f"client {n}"}], "max_tokens": 4}
        body["stream"] = bool(n % 2)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200 or '"completion_tokens": 4' not in text.replace('":4', '": 4'):
            raise OSError(f"{answer.status} {text[:120]}")
        if body["stream"] and "[DONE]" not in text:
            raise OSError("cut off")
        self.tokens[0] += 1
        self.tokens[1] += 7
        self.tokens[2] += 4
        return "ok"

    @property
    def failed(self) -> list[tuple[float, bool, str]]:
        return [one for one in self.results if not one[1]]

    def count_reaches(self, more: int) -> bool:
        return len(self.results) >= more
