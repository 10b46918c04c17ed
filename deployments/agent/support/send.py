"""A part on its way to the console: in pieces, each signed with the server's key, going on where it broke off.

The body of POST /join/support is one line of JSON {"body", "mac"} and the piece behind it. `body` is JSON {op, server,
attempt, source, begin, size, sha256}: of the piece, whose bytes so are signed, too. Without a piece it asks how much is
there. The answer is JSON {"here": bytes}. The agent on the console's own machine puts the part into a folder instead.
"""

import hashlib
import http.client
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deployments.agent import fetch, pages, signing
from deployments.agent.config import Config
from deployments.agent.pages import Stopped
from deployments.artifacts.tell import tell

PIECE = 2 << 20
OWN = "support.json"  # beside the config of the agent that runs on the console's own machine: {"inbox": folder}
TOLD = "support_part"
TRIES_S = 120.0  # without any progress, after which it is given up
PAUSE_S = 2.0
ANSWER_S = 60.0


def send(config: Config, source: str, data: "Path | bytes") -> None:
    """Raises Stopped."""
    own = config.path.with_name(OWN)
    if own.is_file():
        _put(Path(json.loads(own.read_bytes())["inbox"]), source, data)
        return
    attempt = os.environ.get("ASCEND_ATTEMPT", "")
    size = len(data) if isinstance(data, bytes) else data.stat().st_size
    upload(size, lambda begin: _piece(data, begin), lambda head, piece: _ask(config, attempt, source, head, piece))


def upload(
    size: int, read: Callable[[int], bytes], ask: Callable[[dict[str, Any], bytes], int],
    sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """`ask` says how many bytes are there, raising OSError where it could not. Raises Stopped."""
    here, best, until = -1, -1, clock() + TRIES_S
    while here < size:
        try:
            head = {"begin": max(0, here), "size": size}
            found = ask(head, read(here) if here >= 0 else b"")
            if found <= here:
                raise OSError("the console stands still")
            if found > best:
                best, until = found, clock() + TRIES_S
            here = found
        except (OSError, http.client.HTTPException) as error:
            if clock() >= until:
                raise Stopped(
                    f"送不到控制台（{error}）。请检查本机到控制台网页地址的网络，再重新收集。",
                    f"It cannot be sent to the console ({error}). Look at the network from here to its pages, then "
                    "collect again.",
                ) from error
            here = -1  # how much of it has arrived nobody knows
            sleep(PAUSE_S)


def _piece(data: "Path | bytes", begin: int) -> bytes:
    if isinstance(data, bytes):
        return data[begin : begin + PIECE]
    with data.open("rb") as file:
        file.seek(begin)
        return file.read(PIECE)


def _ask(config: Config, attempt: str, source: str, head: dict[str, Any], piece: bytes) -> int:
    """Raises OSError to try again, Stopped where the console refuses."""
    place = None if config.console else pages.place_of(config)
    web, pin = (place.console, place.pin) if place else (config.console, config.pin)
    told = {"op": "support", "server": config.server_id, "attempt": attempt, "source": source, **head}
    body = json.dumps({**told, "sha256": hashlib.sha256(piece).hexdigest()})
    sent = json.dumps({"body": body, "mac": signing.sign(config.key, body)}).encode() + b"\n" + piece
    answer = fetch.ask("POST", f"{web}/join/support", pin, sent, timeout_s=ANSWER_S)
    said = answer.read(2000)
    if answer.status >= 500 and answer.status != 507:
        raise OSError(f"the console answers {answer.status}")
    if answer.status != 200:
        words = " ".join(said.decode(errors="replace").split())[:400]
        raise Stopped(f"控制台不收：{words}", f"The console refuses: {words}")
    try:
        return int(json.loads(said)["here"])
    except (ValueError, KeyError, TypeError) as error:
        raise OSError("the console's answer could not be understood") from error


def _put(inbox: Path, source: str, data: "Path | bytes") -> None:
    """Raises OSError."""
    name = f"{secrets.token_hex(16)}.zip"
    with (inbox / f".{name}").open("wb") as target:
        if isinstance(data, bytes):
            target.write(data)
        else:
            with data.open("rb") as file:
                while piece := file.read(PIECE):
                    target.write(piece)
    (inbox / f".{name}").rename(inbox / name)
    tell(TOLD, {"source": source, "inbox": name})
