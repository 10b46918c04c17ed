"""JSON as the REST API answers it."""

from typing import Any

from django.http import JsonResponse


class Answer(JsonResponse):
    """JSON in UTF-8, so that a terminal shows Chinese sentences; half a character pair becomes "?"."""

    def __init__(self, data: dict[str, Any], *, status: int = 200) -> None:
        super().__init__(data, status=status, json_dumps_params={"ensure_ascii": False})

    def make_bytes(self, value: object) -> bytes:
        return value.encode("utf-8", "replace") if isinstance(value, str) else super().make_bytes(value)
