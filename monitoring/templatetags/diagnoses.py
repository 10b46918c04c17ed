"""What went wrong, beside a failed job's verdict."""

from django import template

from deployments.models import Attempt
from monitoring.models import Diagnosis
from monitoring.services import diagnosing

register = template.Library()


@register.simple_tag
def diagnosis_of(attempt: Attempt | None) -> Diagnosis | None:
    return diagnosing.of(attempt)


@register.filter
def in_language(words: dict[str, str]) -> str:
    """Of {"zh", "en"} the reader's."""
    from console.language import pick

    return pick((words.get("zh", ""), words.get("en", "")))
