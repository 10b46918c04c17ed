"""How sizes of models are shown."""

from django import template

from deployments.artifacts.progress import amount

register = template.Library()


@register.filter("bytes")
def size(count: int | None) -> str:
    """In thousands, as disks are sold; — where nobody knows it."""
    return "—" if count is None else amount(count)
