"""From what a log says to the settings to try next, in order, with the arithmetic shown. Plain code.

Each remedy that names a `way` is worked out from the settings at hand, what the line said, and the sizing of the model
where that is known. A way that would change nothing is left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deployments.serving.failures import Remedy
from deployments.serving.findings import TABLES, Finding
from deployments.serving.remedy_case import Case, Worked
from deployments.serving.ways_graph import GRAPH_WAYS
from deployments.serving.ways_memory import MEMORY_WAYS
from deployments.serving.ways_setting import SETTING_WAYS, no_flag
from deployments.steps import Text

WAYS: dict[str, Callable[[Case], Worked | None]] = {**MEMORY_WAYS, **GRAPH_WAYS, **SETTING_WAYS}
KNOWN = {known.id: known for known in TABLES}


@dataclass(frozen=True)
class Offer:
    """One thing to do. `change`: fields of Settings with their new values, None takes a field back to its default;
    {} where settings do not help. `numbers` show how it was worked out. `job`: {"kind", "params"} or None."""

    key: str
    text: Text
    change: Mapping[str, Any] = field(default_factory=dict)
    numbers: tuple[Text, ...] = ()
    job: Mapping[str, Any] | None = None

    def applied(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with this change."""
        both = {**settings, **self.change}
        return {name: value for name, value in both.items() if value is not None}


def offers(finding: Finding, case: Case) -> list[Offer]:
    """In the order in which they are to be tried; each stands once."""
    found: dict[str, Offer] = {}
    for n, remedy in enumerate(finding.remedies):
        offer = _offer(finding, remedy, case, f"{finding.id}-{n}")
        if offer is not None and (not offer.change or offer.applied(case.data) != dict(case.data)):
            found.setdefault(offer.text.en, offer)
    return list(found.values())


def _offer(finding: Finding, remedy: Remedy, case: Case, key: str) -> Offer | None:
    if remedy.job is not None:
        return Offer(key, remedy.text, job=remedy.job)
    if remedy.change is not None:
        return Offer(key, remedy.text, remedy.change)
    if not remedy.way:
        return Offer(key, remedy.text)
    worked = work(remedy.way, case.saying(finding.numbers))
    if worked is None:  # what a rule names is words at least
        return None if finding.id in KNOWN else Offer(key, remedy.text)
    return Offer(key, remedy.text, worked.change, worked.numbers)


def work(way: str, case: Case) -> Worked | None:
    """What the way comes to here, None where it does not apply."""
    name, _colon, flag = way.partition(":")
    if flag:
        return no_flag(case.saying({"flag": flag}))
    return WAYS[name](case)


def from_json(row: Mapping[str, Any]) -> Finding | None:
    """A finding as a replica keeps it, with the remedies of today's tables, and its own where these do not know it;
    None where it is none."""
    try:
        known = KNOWN.get(row["id"])
        cause, numbers = Text(*map(str, row["cause"])), {str(k): str(v) for k, v in row.get("numbers", {}).items()}
        return Finding(
            str(row["id"]), int(row["line"]), str(row["text"]), cause, known.remedies if known else _kept(row), numbers
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _kept(row: Mapping[str, Any]) -> tuple[Remedy, ...]:
    """What it was told with: words, jobs, and the ways that there are. Changes are of tables alone."""
    return tuple(
        Remedy(Text(*map(str, one["text"])), job=one.get("job"), way=one["way"] if one.get("way") in WAYS else "")
        for one in row.get("remedies", [])
    )
