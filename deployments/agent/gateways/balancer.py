"""What is asked of a vllm-router by its own API on loopback: who its engines are, and that some come or go.

An engine that goes gets no new request; those that run go on to their end.
"""

import http.client
import json
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

ANSWER_S = 2.0
JOIN_S = 8.0  # it waits until the engine answers


class Away(Exception):
    """The router does not answer, or not as it should."""


def call(port: int, method: str, path: str, timeout_s: float = ANSWER_S) -> tuple[int, bytes]:
    """Raises Away."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20)
    except (OSError, http.client.HTTPException) as error:
        raise Away(str(error)) from error
    finally:
        connection.close()


def engines(port: int) -> dict[str, dict[str, Any]]:
    """{url: {"healthy", "load"}}. Raises Away."""
    status, body = call(port, "GET", "/workers")
    try:
        rows: list[dict[str, Any]] = json.loads(body)["workers"] if status == 200 else [{}]
        return {str(row["url"]): {"healthy": row["is_healthy"] is True, "load": row.get("load")} for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise Away(f"/workers: {status}") from error


def remove(port: int, url: str) -> None:
    """Raises Away."""
    call(port, "POST", f"/remove_worker?url={quote(url, safe='')}")


def answers(url: str) -> bool:
    """Whether an engine says that it is well: the router would wait for one that does not."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Joining:
    """Engines on their way into the router, each in a thread: one that does not answer keeps nobody waiting."""

    def __init__(self) -> None:
        self.threads: dict[str, threading.Thread] = {}

    def begin(self, port: int, urls: Iterable[str]) -> None:
        self.threads = {url: thread for url, thread in self.threads.items() if thread.is_alive()}
        for url in urls:
            if url not in self.threads:
                thread = threading.Thread(target=self._join, args=(port, url), daemon=True)
                self.threads[url] = thread
                thread.start()

    def _join(self, port: int, url: str) -> None:
        if answers(url):
            try:
                call(port, "POST", f"/add_worker?url={quote(url, safe='')}", JOIN_S)
            except Away:
                pass  # the next round tries again
