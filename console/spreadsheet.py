"""Tables as CSV files that spreadsheets open, streamed in bounded memory."""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

BATCH = 500  # rows that are made and sent together
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def answer(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> StreamingHttpResponse:
    """`rows` under `head` as the file `name`. None becomes an empty cell, a text is never taken for a formula."""
    response = StreamingHttpResponse(_batches(head, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def _batches(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> AsyncIterator[bytes]:
    """UTF-8 with the mark by which spreadsheets know it. A sync iterator would be read whole first under ASGI."""
    lines: Iterator[Sequence[Any]] = chain([head], rows)
    mark = "\ufeff"
    while batch := await sync_to_async(lambda: list(islice(lines, BATCH)))():
        yield (mark + _text(batch)).encode()
        mark = ""


def _text(rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([harmless(cell) for cell in row] for row in rows)
    return out.getvalue()


def harmless(cell: Any) -> Any:
    """A text that no spreadsheet takes for a formula: names come from servers, which are not trusted."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell
