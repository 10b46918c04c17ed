"""A bound on what any request may hold. Django writes a body of any length to the disk before it asks who sends it."""

import io
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.utils import translation

from console.answers import Answer
from console.failures import too_large
from console.middleware import wants_json

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

MOST_BYTES = 8 << 20  # beyond what any page or call takes: their own limits are lower and say more


class Bounded:
    """The application `inner`; who sends it more than MOST_BYTES gets a 413, and seems to it to have hung up."""

    def __init__(self, inner: Application) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if _told(scope) > MOST_BYTES:
            await _refuse(scope, send)
            return
        read, refused = 0, False

        async def counted() -> Message:
            nonlocal read, refused
            message = await receive()
            read += len(message.get("body", b""))
            if read <= MOST_BYTES or refused:
                return message
            refused = True
            await _refuse(scope, send)
            return {"type": "http.disconnect"}

        await self.inner(scope, counted, send)


def _told(scope: Any) -> int:
    """How long the sender says that the body is; 0 where it does not."""
    text = dict(scope["headers"]).get(b"content-length", b"0")
    return int(text[:18]) if text.isdigit() else 0


async def _refuse(scope: Any, send: Send) -> None:
    request = ASGIRequest(scope, io.BytesIO())
    with translation.override(translation.get_language_from_request(request)):
        error = too_large(MOST_BYTES >> 20)
    answer = (
        Answer(error.as_json(), status=error.status)
        if wants_json(request)
        else HttpResponse(f"{error.what} {error.do}\n", content_type="text/plain; charset=utf-8", status=error.status)
    )
    answer.headers["Connection"] = "close"  # the rest of it is not read
    answer.headers["Content-Length"] = str(len(answer.content))
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})
