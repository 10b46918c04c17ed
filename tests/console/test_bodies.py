"""Bodies without end are refused before they fill the disk, whoever sends them."""

import json

import pytest

from console import bodies


class Server:
    """The web server's side: gives `pieces` of a body and keeps what is answered."""

    def __init__(self, pieces, headers=(), path="/join/left"):
        self.pieces, self.given, self.told = iter(pieces), 0, []
        self.scope = {"type": "http", "method": "POST", "path": path, "headers": [*headers], "query_string": b""}

    async def receive(self):
        piece = next(self.pieces, None)
        self.given += len(piece or b"")
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def send(self, message):
        self.told.append(message)

    @property
    def status(self):
        return self.told[0]["status"]

    @property
    def body(self):
        return self.told[1]["body"].decode()


async def reads_all(scope, receive, send):
    """As Django does: all of it first."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"read"})


async def test_a_body_that_says_how_long_it_is_is_refused_unread():
    headers = [(b"content-length", b"99999999999"), (b"accept-language", b"en")]
    server = Server([b"x"], headers)
    await bodies.Bounded(reads_all)(server.scope, server.receive, server.send)
    assert (server.status, server.given) == (413, 0)
    assert server.body == "The request is longer than 8 MB. Send less at once.\n"
    assert (b"connection", b"close") in server.told[0]["headers"]


async def test_a_body_that_does_not_say_it_is_cut_off_once():
    server = Server((b"x" * 65536 for _piece in range(10**6)), path="/api/v1/jobs")
    await bodies.Bounded(reads_all)(server.scope, server.receive, server.send)
    assert server.status == 413 and len(server.told) == 2
    assert server.given <= bodies.MOST_BYTES + 65536
    assert json.loads(server.body)["error"]["code"] == "too_large"


@pytest.mark.parametrize("length", [b"5", b"-1", b"five"])
async def test_others_pass(length):
    server = Server([b"five!"], [(b"content-length", length)])
    await bodies.Bounded(reads_all)(server.scope, server.receive, server.send)
    assert (server.status, server.body) == (200, "read")
