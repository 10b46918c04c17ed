"""Ask an engine over HTTP and pass on what it answers as it comes: bounded, with back-pressure, ended when nobody
listens any more (the engine sees the connection close and drops the request)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import h11

CONNECT_S = 5.0
SILENT_S = 120.0  # between two pieces; a long prompt is read without a word
MOST_BYTES = 16 << 20  # of one answer
MOST_WORDS = 2000  # of a refusal
PIECE = 16 * 1024


class Away(Exception):
    """The engine is not reached, or hung up in the middle."""


class Silent(Exception):
    """It did not say anything for SILENT_S."""


class TooMuch(Exception):
    """It says more than MOST_BYTES."""


class Refused(Exception):
    """It answered with an error; `words` are its own."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.words = words


@dataclass(frozen=True)
class Engine:
    """Where one answers, and what it asks for."""

    address: str
    port: int
    key: str


async def post(engine: Engine, path: str, body: bytes) -> AsyncIterator[bytes]:
    """The pieces of the answer's body as they come. Raises Away, Silent, Refused, TooMuch."""
    try:
        opening = asyncio.open_connection(engine.address, engine.port, limit=PIECE)
        reader, writer = await asyncio.wait_for(opening, CONNECT_S)
    except (OSError, TimeoutError) as error:
        raise Away from error
    try:
        async for piece in _exchange(reader, writer, engine, path, body):
            yield piece
    except (OSError, h11.RemoteProtocolError) as error:
        raise Away from error
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 1.0)


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Engine, path: str, body: bytes
) -> AsyncIterator[bytes]:
    talk = h11.Connection(h11.CLIENT)
    headers = [
        ("Host", f"{engine.address}:{engine.port}"),
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *([("Authorization", f"Bearer {engine.key}")] if engine.key else []),
    ]
    for event in (h11.Request(method="POST", target=path, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        writer.write(talk.send(event) or b"")
    await writer.drain()
    status, refusal, total = 0, b"", 0
    while True:
        told = talk.next_event()
        if told is h11.NEED_DATA:
            try:
                talk.receive_data(await asyncio.wait_for(reader.read(PIECE), SILENT_S))
            except TimeoutError as error:
                raise Silent from error
        elif isinstance(told, h11.Response):
            status = told.status_code
        elif isinstance(told, h11.Data):
            total += len(told.data)
            if total > MOST_BYTES:
                raise TooMuch
            if status == 200:
                yield bytes(told.data)
            elif len(refusal) < MOST_WORDS:
                refusal += bytes(told.data)
        elif isinstance(told, (h11.EndOfMessage, h11.ConnectionClosed)):
            break
    if status != 200:
        raise Refused(status, refusal[:MOST_WORDS].decode(errors="replace"))
