"""Asks an engine over HTTP: whether it is well, for one completion, for its metrics. Sockets alone: http.client and
urllib would cost every keeper some megabytes."""

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from deployments.steps import Text

HEALTH_S = 2.0
COMPLETION_S = 120.0  # the first one may compile
MOST = 8 * 1024 * 1024
OK = 200


class Answer(NamedTuple):
    """`status` is None where there was no answer; `problem` says why then."""

    status: int | None
    body: bytes = b""
    problem: str = ""


class Address(NamedTuple):
    """Where an engine is asked: never through a proxy."""

    host: str
    port: int
    key: str = ""


def address_of(spec: Mapping[str, Any]) -> Address:
    """Of an engine that listens everywhere, loopback is asked."""
    host = str(spec.get("address") or "")
    loopback = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    return Address(loopback.get(host, host), int(spec.get("port") or 0), str(spec.get("api_key") or ""))


def ask(at: Address, path: str, *, within_s: float, body: bytes | None = None, most: int = MOST) -> Answer:
    """One request, answered wholly `within_s` or not at all; never raises."""
    until = time.monotonic() + within_s
    try:
        with socket.create_connection((at.host, at.port), timeout=within_s) as line:
            line.sendall(_request(at, path, body))
            return _split(_read(line, until, most))
    except (OSError, ValueError) as error:
        return Answer(None, b"", "timeout" if isinstance(error, TimeoutError) else str(error)[:200])


def _request(at: Address, path: str, body: bytes | None) -> bytes:
    """HTTP/1.0, so that the end of the answer is the end of the connection."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.0", f"Host: {at.host}:{at.port}", "Connection: close"]
    if at.key:
        lines.append(f"Authorization: Bearer {at.key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def _read(line: socket.socket, until: float, most: int) -> bytes:
    """Until the other side closes, or its Content-Length is there."""
    data, whole = b"", None
    parts: list[bytes] = []
    size = 0
    while whole is None or size < whole:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        line.settimeout(left)
        part = line.recv(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > most:
            raise ValueError("the answer is too long")
        if whole is None and b"\r\n\r\n" in (data := b"".join(parts)):
            whole = _length(data)
            if whole is None:
                whole = most  # until it closes
    return b"".join(parts)


def _length(data: bytes) -> int | None:
    head, _, _ = data.partition(b"\r\n\r\n")
    for field in head.split(b"\r\n")[1:]:
        name, _, value = field.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return len(head) + 4 + int(value)
    return None


def _split(data: bytes) -> Answer:
    head, found, body = data.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split(b" ", 2)
    if not found or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return Answer(None, b"", "no HTTP")
    return Answer(int(words[1]), body)


def health(at: Address, within_s: float = HEALTH_S) -> Answer:
    return ask(at, "/health", within_s=within_s)


def completion(at: Address, model: str, within_s: float = COMPLETION_S) -> Text | None:
    """One real completion of one token: None where it worked, else what the engine said."""
    plain = {"model": model, "prompt": "1 2 3", "max_tokens": 1, "temperature": 0}
    chat = {"model": model, "messages": [{"role": "user", "content": "1 2 3"}], "max_tokens": 1, "temperature": 0}
    answer = ask(at, "/v1/completions", within_s=within_s, body=json.dumps(plain).encode())
    if answer.status is not None and 400 <= answer.status < 500:  # some models only chat
        other = ask(at, "/v1/chat/completions", within_s=within_s, body=json.dumps(chat).encode())
        answer = other if other.status == OK else answer
    if answer.status == OK and _has_choice(answer.body):
        return None
    words = answer.problem or f"HTTP {answer.status}: {' '.join(answer.body[:300].decode(errors='replace').split())}"
    return Text(f"引擎没有完成一次补全（{words}）。", f"The engine did not answer one completion ({words}).")


def _has_choice(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("choices"), list) and bool(found["choices"])
