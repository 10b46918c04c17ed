"""Which of two languages the reader has. Texts of kinds, servers and tools come as pairs (zh, en)."""

from collections.abc import Sequence

from django.utils.translation import get_language


def is_chinese() -> bool:
    """True where the active language is Chinese in any script."""
    return (get_language() or "").startswith("zh")


def pick(pair: Sequence[str] | None) -> str:
    """One of (zh, en) in the active language; '' for None."""
    if not pair:
        return ""
    return pair[0] if is_chinese() else pair[1]
