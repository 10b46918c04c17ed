"""Words of the quantizing page."""

from django import template

from deployments.artifacts.progress import amount

register = template.Library()


@register.filter
def bytes_words(count: int | None) -> str:
    return "—" if count is None else amount(count)
