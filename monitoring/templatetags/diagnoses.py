"""What went wrong, beside a failed job's verdict and beside a replica's reason."""

from collections.abc import Iterable
from typing import Any

from django import template

from console.models import User
from deployments.models import Attempt, EngineLog, Replica
from monitoring.diagnoses import agreeing
from monitoring.models import Diagnosis
from monitoring.services import diagnosed_places, diagnosing, remedy_buttons, replica_diagnosing

register = template.Library()


@register.simple_tag
def diagnosis_of(attempt: Attempt | None) -> Diagnosis | None:
    return diagnosing.of(attempt)


@register.simple_tag
def diagnosis_of_piece(piece: EngineLog | None) -> Diagnosis | None:
    return replica_diagnosing.of_piece(piece)


@register.simple_tag
def diagnoses_of(lines: Iterable[Any], more: Iterable[Any] = ()) -> dict[int, Diagnosis]:
    """{replica id: diagnosis} for lines of the page of a deployment; one query."""
    rows: list[Replica] = [line.replica for line in (*lines, *more)]
    return replica_diagnosing.newest(rows)


@register.simple_tag(takes_context=True)
def remedies_of(context: template.Context, diagnosis: Diagnosis, log_page: str = "") -> list[dict[str, Any]]:
    """[{"words", "button"}] of its best finding; `button` is None where the reader can do nothing. Beside others, where
    `log_page` leads to its log, changes have no button of their own, for that would ask for each."""
    reader = getattr(context.get("request"), "user", None) or context.get("user")
    known = remedy_buttons.known_of(diagnosis)
    if not log_page:
        known = remedy_buttons.with_offers(known)
    best = diagnosis.findings[0]
    rows = []
    for n, one in enumerate(best["remedies"]):
        may = isinstance(reader, User)
        button = remedy_buttons.button(one, f"{best['id']}-{n}", known, reader) if may else None  # type: ignore[arg-type]
        rows.append({"words": one, "button": button})
    return rows


@register.filter
def says(diagnosis: Diagnosis | None, reason: Any) -> bool:
    """Whether its card says what this reason, [zh, en], says: then one of them is enough."""
    return bool(diagnosis and diagnosis.findings and agreeing.says(diagnosis.findings[0], reason))


@register.filter
def page_of(diagnosis: Diagnosis) -> str:
    """The page of its log, without a line."""
    return diagnosed_places.address(diagnosis)


@register.filter
def line_of(diagnosis: Diagnosis) -> str:
    """The decisive line in its log."""
    return diagnosed_places.of_line(diagnosis)


@register.filter
def sum_of(counts: dict[str, int]) -> int:
    return sum(counts.values())


@register.filter
def in_language(words: dict[str, str]) -> str:
    """Of {"zh", "en"} the reader's."""
    from console.language import pick

    return pick((words.get("zh", ""), words.get("en", "")))
