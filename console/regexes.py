"""Regular expressions that strangers write, by RE2: their time grows with the text alone, whatever they say."""

from typing import Any

import re2
from django.utils.translation import gettext as _

from console.errors import Invalid

MOST = 500  # characters
MEMORY = 8 << 20  # bytes of one expression, prepared


def compiled(pattern: str, *, case: bool = False, lines: bool = False) -> Any:
    """A prepared expression for bytes of UTF-8, with `search` as in `re`. With `lines` a text of many lines is searched
    as if each stood alone. Raises Invalid."""
    if len(pattern) > MOST:
        raise Invalid(
            _("The expression is longer than %(n)s characters.") % {"n": MOST},
            _("Search for a part of it."),
            code="bad_expression",
        )
    options = re2.Options()
    options.case_sensitive = case
    options.max_mem = MEMORY
    options.log_errors = False
    try:
        options.never_nl = lines
        return re2.compile((b"(?m)" if lines else b"") + pattern.encode("utf-8", "replace"), options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise Invalid(
            _("The expression cannot be read: %(why)s.") % {"why": why[:200]},
            _("Write it as RE2 takes it (no look-around, no back-references), or search for plain text."),
            code="bad_expression",
        ) from error
