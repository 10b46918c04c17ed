"""How stacks are shown: verdicts, states and steps as word, shape and colour."""

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.templatetags.frame import icon
from deployments.models import Server
from deployments.services import stacks
from monitoring.services import stack_page

register = template.Library()
WORDS = {
    "state": stack_page.STATE_WORDS,
    "verdict": stack_page.VERDICT_WORDS,
    "drift": stack_page.DRIFT_WORDS,
    "step": stack_page.STEP_WORDS,
}


@register.simple_tag
def said(what: str, name: str, css: str = "state", n: int | None = None) -> SafeString:
    """`name` of one of WORDS as shape and word, with a number behind where there is one."""
    word, look, shape = WORDS[what][name]
    number = format_html(" {}", n) if n is not None else ""
    return format_html('<span class="{} {}">{}<span>{}{}</span></span>', css, look, icon(shape, ""), word, number)


@register.simple_tag
def count(what: str, name: str, n: int) -> SafeString:
    """A number with the shape of `name`; its word for who does not see it, and for the pointer."""
    word, look, shape = WORDS[what][name]
    return format_html(
        '<span class="state {}" title="{}">{}<span>{}</span></span>', look, word, icon(shape, "", str(word)), n
    )


@register.simple_tag
def stack_of(server: Server) -> SafeString:
    """The stack of a server for the line under its name: the wished one with its state, else the one it matches."""
    row = stacks.row_of(server)
    drifted = stacks.drift([row])
    if drifted and drifted[0].found:
        plan = reverse("monitoring:stack-plan", args=[row.wished, row.name])
        return format_html('<a href="{}">{}</a> {}', plan, row.wished, said("drift", drifted[0].state))
    if drifted:
        return format_html("{} {}", row.wished, said("drift", drifted[0].state))
    has = stacks.has_now(row)
    if has is None:
        return SafeString("—")
    return format_html('<a href="{}">{}</a>', reverse("monitoring:stack-detail", args=[has.name]), has.name)
