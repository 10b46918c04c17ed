"""JSON as the REST API answers it, and files that are made while they are sent."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import JsonResponse, StreamingHttpResponse


class Answer(JsonResponse):
    """JSON in UTF-8, so that a terminal shows Chinese sentences; half a character pair becomes "?"."""

    def __init__(self, data: dict[str, Any], *, status: int = 200) -> None:
        super().__init__(data, status=status, json_dumps_params={"ensure_ascii": False})

    def make_bytes(self, value: object) -> bytes:
        return value.encode("utf-8", "replace") if isinstance(value, str) else super().make_bytes(value)


def file_in_parts(parts: Iterator[bytes], name: str, content_type: str) -> StreamingHttpResponse:
    """A file that is made while it is sent. An asynchronous server would collect what a plain iterator gives.

    `name` holds nothing that a header may not hold.
    """
    response = StreamingHttpResponse(_sent(parts), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "no-store"
    return response


async def _sent(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    def following() -> bytes:
        return next(parts, b"")

    while part := await sync_to_async(following)():
        yield part
