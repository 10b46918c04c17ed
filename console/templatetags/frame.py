"""Tags that every page uses: icons of the sprite, ages, texts for scripts."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

register = template.Library()


@register.simple_tag
def icon(name: str, css: str = "icon", label: str = "") -> SafeString:
    """A symbol of static/icons.svg. Without `label` it is decoration and hidden from screen readers."""
    href = f"{static('icons.svg')}#{name}"
    if label:
        return format_html('<svg class="{}" role="img" aria-label="{}"><use href="{}"/></svg>', css, label, href)
    return format_html('<svg class="{}" aria-hidden="true"><use href="{}"/></svg>', css, href)


# The square of each occupancy, drawn in 12 × 12 as heatmap.js draws it.
CELLS = {
    "ours": '<rect width="12" height="12" rx="2" fill="currentColor" opacity=".75"/>',
    "free": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor"/>',
    "foreign": '<rect width="12" height="12" rx="2" fill="currentColor" opacity=".3"/>'
    '<circle cx="6" cy="6" r="2" fill="currentColor"/>',
    "unexplained": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor"/>'
    '<path d="M1 6h10v5H1z" fill="currentColor" opacity=".55"/>',
    "held": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor"/>'
    '<path d="M4 3.5h1.4v5H4zM6.6 3.5H8v5H6.6z" fill="currentColor"/>',
    "cordoned": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor"/>'
    '<path d="M2.5 5.2h7v1.6h-7z" fill="currentColor"/>',
    "unreadable": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor" '
    'stroke-dasharray="2 2"/>',
    "faulty": '<rect x=".75" y=".75" width="10.5" height="10.5" rx="1.5" fill="none" stroke="currentColor" '
    'stroke-width="1.5"/><path d="m3.5 3.5 5 5M8.5 3.5l-5 5" stroke="currentColor" stroke-width="1.5"/>',
    "stale": '<rect x=".5" y=".5" width="11" height="11" rx="1.5" fill="none" stroke="currentColor"/>'
    '<path d="M1 5l4-4M1 9l8-8M3 11l8-8M7 11l4-4" stroke="currentColor"/>',
    "dies": '<path d="M0 0h5.5v12H0zM6.5 0H12v12H6.5z" fill="currentColor" opacity=".5"/>',
}


@register.simple_tag
def cell(name: str) -> SafeString:
    """The little square that stands for an occupancy in counts and legends."""
    drawing = SafeString(CELLS[name])
    return format_html('<span class="cell-key" aria-hidden="true"><svg viewBox="0 0 12 12">{}</svg></span>', drawing)


def seconds_in_words(seconds: float | None) -> str:
    """A span in its largest fitting unit: "12 s", "4 min", "3 h", "2 d"; "—" where it is unknown."""
    if seconds is None:
        return "—"
    seconds = max(0, round(seconds))
    if seconds < 90:
        return gettext("%(n)s s") % {"n": seconds}
    if seconds < 90 * 60:
        return gettext("%(n)s min") % {"n": round(seconds / 60)}
    if seconds < 36 * 3600:
        return gettext("%(n)s h") % {"n": round(seconds / 3600)}
    return gettext("%(n)s d") % {"n": round(seconds / 86400)}


@register.filter
def span(seconds: float | None) -> str:
    return seconds_in_words(seconds)


@register.filter
def age(at: datetime | float | None) -> str:
    """How long ago a moment was: "12 s ago"; "—" where it is unknown. Takes a datetime or epoch seconds."""
    if at is None:
        return "—"
    then = at.timestamp() if isinstance(at, datetime) else at
    return gettext("%(span)s ago") % {"span": seconds_in_words(timezone.now().timestamp() - then)}


@register.filter
def figure(value: Any, digits: int = 0) -> str:
    """A number with thousands separators and `digits` decimals; "—" for None, never 0."""
    return "—" if value is None else f"{value:,.{digits}f}"


@register.filter
def get(mapping: Any, key: Any) -> Any:
    return mapping.get(key) if mapping else None


def texts_for_scripts(keys: Iterable[str]) -> dict[str, str]:
    """{English: the reader's language} for a json_script block that static/js/texts.js reads."""
    return {key: gettext(key) for key in keys}
