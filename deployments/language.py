"""Texts of kinds and servers come as [zh, en]; this picks the reader's."""

from collections.abc import Sequence

from django.utils.translation import get_language


def pick(pair: Sequence[str] | None) -> str:
    """One of (zh, en) in the active language; '' for None."""
    if not pair:
        return ""
    return pair[0] if (get_language() or "").startswith("zh") else pair[1]
