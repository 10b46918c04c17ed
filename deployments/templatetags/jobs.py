"""How jobs are shown: states as word, shape and colour; durations and moments; texts of kinds."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext
from django.utils.translation import gettext_lazy as _

from console import clock as moments
from console.language import pick
from console.templatetags.frame import icon
from deployments import kinds
from deployments.models import CampaignState, JobState
from deployments.services.job_page import command_text
from deployments.stacks import options

register = template.Library()
register.filter("pick", pick)

# class and shape of each state of a job, a step and an item
LOOKS = {
    "draft": ("", "state-unknown"),
    "waiting_approval": ("", "state-queued"),
    "queued": ("", "state-queued"),
    "running": ("info", "state-running"),
    "waiting_reboot": ("info", "state-queued"),
    "succeeded": ("ok", "state-succeeded"),
    "failed": ("critical", "state-failed"),
    "cancelled": ("", "state-cancelled"),
    "lost": ("stale", "state-stale"),
    "paused": ("warning", "pause"),
    "stopped": ("warning", "state-cancelled"),
    "skipped": ("", "state-cancelled"),
    "waiting": ("", "state-queued"),
    "ok": ("ok", "state-ok"),
    "warning": ("warning", "state-warning"),
    "unknown": ("stale", "state-unknown"),
    # campaigns: the whole, what a server does, a ring
    "approved": ("ok", "state-succeeded"),
    "rejected": ("critical", "state-failed"),
    "withdrawn": ("", "state-cancelled"),
    "expired": ("stale", "state-stale"),
    "satisfied": ("ok", "state-succeeded"),
    "runs": ("info", "state-queued"),
    "reboots": ("warning", "state-warning"),
    "cannot": ("critical", "state-failed"),
    "passed": ("ok", "state-succeeded"),
    "now": ("info", "state-running"),
    "watched": ("info", "state-queued"),
    "held": ("warning", "state-warning"),
}
WORDS: dict[str, Any] = {
    **{state.value: state.label for state in JobState},
    "paused": _("Paused"),
    "stopped": _("Stopped"),
    "skipped": _("Skipped"),
    "waiting": _("Waiting"),
    "ok": _("OK"),
    "warning": _("Warning"),
    "unknown": _("Unknown"),
    **{state.value: state.label for state in CampaignState},
    "satisfied": _("Has it already"),
    "runs": _("Runs"),
    "reboots": _("Runs, with a restart"),
    "cannot": _("Cannot"),
    "passed": _("Passed"),
    "now": _("Under way"),
    "watched": _("Being watched"),
    "held": _("Held back"),
}
UNKNOWN_LOOK = ("stale", "state-unknown")


def word(state: str) -> str:
    """The state in the reader's language; a state that is not known is shown as it is."""
    return str(WORDS.get(state, state))


@register.simple_tag
def state(name: str, css: str = "state") -> SafeString:
    """A state as shape, colour and word; `css="chip"` draws it as a chip."""
    look, shape = LOOKS.get(name, UNKNOWN_LOOK)
    return format_html('<span class="{} {}">{}<span>{}</span></span>', css, look, icon(shape, ""), word(name))


@register.simple_tag
def state_cell(name: str) -> SafeString:
    """A cell of a matrix: the shape, its word for who does not see it."""
    return _state_cell(name, get_language() or "")


@lru_cache(maxsize=64)
def _state_cell(name: str, language: str) -> SafeString:
    look, shape = LOOKS.get(name, UNKNOWN_LOOK)
    return format_html('<td class="cell {}">{}</td>', look or name, icon(shape, "", word(name)))


@register.simple_tag
def state_shape(name: str) -> SafeString:
    """The shape alone, for places where the word stands beside it or in a label."""
    return icon(LOOKS.get(name, UNKNOWN_LOOK)[1], "", word(name))


@register.filter
def look(name: str) -> str:
    """The colour class of a state."""
    return LOOKS.get(name, UNKNOWN_LOOK)[0]


@register.filter
def state_word(name: str) -> str:
    return word(name)


@register.filter
def kind_title(kind: str) -> str:
    """The title of a job kind; a kind that is gone keeps its name."""
    return pick(kinds.title(kind))


register.filter("command", command_text)


@register.filter
def with_job(reason: str) -> str | SafeString:
    """The reason of a change; one that is the number of a job leads to it."""
    number = reason.removeprefix("#")
    if number == reason or not (number.isascii() and number.isdecimal() and len(number) < 19):
        return reason
    return format_html('<a href="{}">{}</a>', reverse("deployments:job-detail", args=[int(number)]), reason)


@register.filter
def choice_word(name: str, value: str) -> str:
    """How a choice of a stack's plan reads: `{{ "cann"|choice_word:value }}`."""
    return pick(options.word(name, value))


@register.filter
def lock_words(locks: list[str]) -> str:
    """What a job holds, to read: of a model its folder, of an NPU its bus address, others as they are."""
    return ", ".join(_lock_word(*lock.partition(":")) for lock in locks)


def _lock_word(what: str, _colon: str, name: str) -> str:
    if what == "artifact":
        return gettext("folder %(path)s") % {"path": name}
    return f"NPU {name}" if what == "npu" else f"{what}{_colon}{name}"


@register.filter
def took(seconds: float | None) -> str:
    """A duration to read: "0.4 s", "12 s", "2 min 20 s", "3 h 5 min"; "—" where unknown. As static/js/times.js."""
    if seconds is None:
        return "—"
    if seconds < 9.95:
        return gettext("%(n)s s") % {"n": f"{max(0.0, seconds):.1f}"}
    whole = round(seconds)
    if whole < 60:
        return gettext("%(n)s s") % {"n": whole}
    if whole < 3600:
        return gettext("%(m)s min %(s)s s") % {"m": whole // 60, "s": whole % 60}
    return gettext("%(h)s h %(m)s min") % {"h": whole // 3600, "m": whole % 3600 // 60}


@register.filter
def job_took(job: Any) -> float | None:
    """Seconds from start to end, or until now; None before the start and for a lost job, whose end is unknown."""
    if job.started_at is None or (job.ended_at is None and job.state == JobState.LOST):
        return None
    took_s: float = ((job.ended_at or timezone.now()) - job.started_at).total_seconds()
    return max(0.0, took_s)


@register.filter
def clock(at: datetime | None) -> str | SafeString:
    """A moment with its offset: "14:03:21 +08:00", with the date where it is not today; "—" for None."""
    if at is None:
        return "—"
    today = timezone.localtime(at).date() == timezone.localdate()
    text = moments.words(at, moments.SHORT if today else moments.LONG)
    return format_html('<time datetime="{}">{}</time>', at.isoformat(), text)


@register.filter
def stamp(at: datetime | None) -> str:
    """A moment with its day and offset, as plain text: "2026-03-01 14:03:21 +08:00"; "—" for None."""
    return "—" if at is None else moments.words(at, moments.LONG)


@register.filter
def brief_clock(at: datetime | None) -> str | SafeString:
    """A moment for a narrow column: the time today, else day and time; the whole in its title."""
    if at is None:
        return "—"
    local = timezone.localtime(at)
    text = local.strftime("%H:%M:%S" if local.date() == timezone.localdate() else "%m-%d %H:%M")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), local.isoformat(" ", "seconds"), text
    )
