"""Clean up a server: what the newest look has found there, and the job that takes away what was ticked of it.

Sizes and paths came from the server, so nothing here is trusted further than to be shown and sent back: the server
looks again itself before it removes anything.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.kinds.cleanup import CATEGORIES, category_of
from deployments.models import Job, JobState, Server
from deployments.models.job import ENDED
from deployments.services import jobs
from deployments.steps import Text

BYTES = re.compile(r"^(≥ )?.{0,40}?\((\d{1,18}) B\)(?:, (\d{1,9}))?$")
YEARS = (1970, 2199)  # beyond, no page could tell the age
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
MOST_TARGETS = 300


@dataclass(frozen=True)
class Found:
    """One thing that lies there. `target` is '' where it cannot be ticked, and `why` says why; `bytes`, `files` and
    `used_at` are None where the server did not tell, `at_least` where it gave up counting."""

    target: str
    category: str
    path: str
    bytes: int | None
    files: int | None
    at_least: bool
    used_at: datetime | None
    why: Text | None

    @property
    def size(self) -> str:
        return "—" if self.bytes is None else ("≥ " if self.at_least else "") + amount(self.bytes)


@dataclass(frozen=True)
class Look:
    """The newest look that has ended well. `stale` is the clean-up that came after it, None where none did."""

    job: Job
    seen: int
    found: list[Found]
    stale: Job | None

    @property
    def groups(self) -> list[tuple[Text, str, list[Found]]]:
        """(title, size of all, rows) of each category that has some, largest first."""
        rows = [(CATEGORIES[name], [one for one in self.found if one.category == name]) for name in CATEGORIES]
        return [(title, amount(sum(one.bytes or 0 for one in some)), some) for title, some in rows if some]


def amount(count: int) -> str:
    size, unit = float(count), "B"
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def newest(server: Server) -> Look | None:
    """None where nobody has looked yet."""
    done = server.jobs.filter(kind="cleanup_look", state=JobState.SUCCEEDED)
    job = done.select_related("server", "requester").order_by("-pk").first()
    attempt = job.attempts.filter(state=JobState.SUCCEEDED).last() if job else None
    if job is None or attempt is None:
        return None
    found = [one for item in attempt.report if (one := _found(item))]
    seen = max((_seen(item) for item in attempt.report), default=0)
    later = server.jobs.filter(kind="cleanup", pk__gt=job.pk, state__in=ENDED).order_by("-pk").first()
    return Look(job, seen, sorted(found, key=lambda one: -(one.bytes or 0)), later)


def under_way(server: Server) -> Job | None:
    """A look or a clean-up that has not ended."""
    mine = server.jobs.filter(kind__in=("cleanup", "cleanup_look")).exclude(state__in=[*ENDED, JobState.LOST])
    return mine.order_by("-pk").first()


def _found(item: dict[str, Any]) -> Found | None:
    """An item of the report; None for one of a category that is not known."""
    category = str(item.get("key", "")).partition(".")[0]
    if category not in CATEGORIES:
        return None
    params = _params(item)
    targets = params.get("targets")
    target = targets[0] if isinstance(targets, list) and len(targets) == 1 and isinstance(targets[0], str) else ""
    remedy = item.get("remedy")
    size = BYTES.match(item.get("found") or "")
    return Found(
        target=target if category_of(target) == category else "",
        category=category,
        path=str(item["title"][0])[:1000],
        bytes=int(size[2]) if size else None,
        files=int(size[3]) if size and size[3] else None,
        at_least=bool(size and size[1]),
        used_at=_moment(item.get("wanted")),
        why=Text(*remedy) if remedy else None,
    )


def _params(item: dict[str, Any]) -> dict[str, Any]:
    job = item.get("job")
    params = job.get("params") if isinstance(job, dict) and job.get("kind") == "cleanup" else None
    return params if isinstance(params, dict) else {}


def _seen(item: dict[str, Any]) -> int:
    seen = _params(item).get("seen")
    return seen if isinstance(seen, int) and 0 < seen < 2**40 else 0


def _moment(text: Any) -> datetime | None:
    """When it was used last; None for what is no moment, or one that no clock of a server can have shown."""
    try:
        found = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo and YEARS[0] <= found.year <= YEARS[1] else None


def ticked(look: Look, targets: Iterable[str]) -> list[Found]:
    """What was ticked, largest first. Raises Invalid where that is nothing, or not from this look."""
    wanted = set(targets)
    known = {one.target: one for one in look.found if one.target}
    if strange := sorted(wanted - known.keys()):
        raise Invalid(
            _("The look of job #%(id)s did not find “%(target)s”.") % {"id": look.job.pk, "target": strange[0][:200]},
            _("Tick what it lists, or look again."),
            code="not_found_by_look",
        )
    if not wanted:
        raise Invalid(_("Nothing was ticked."), _("Tick what is to be deleted."), code="nothing_ticked")
    if len(wanted) > MOST_TARGETS:
        raise Invalid(
            _("More than %(most)s things were ticked.") % {"most": MOST_TARGETS},
            _("Delete some first."),
            code="too_many",
        )
    return [one for one in look.found if one.target in wanted]


def find(server: Server, look_id: str) -> Look:
    """The look that was shown. Raises Conflict where there is none, or a newer one by now."""
    look = newest(server)
    if look is None or str(look.job.pk) != look_id:
        raise Conflict(
            _("%(server)s was looked at again meanwhile.") % {"server": server.name}
            if look
            else _("Nobody has looked yet what can be cleaned up on %(server)s.") % {"server": server.name},
            _("Tick again in what the page lists now.") if look else _("Look first."),
            code="look_changed",
        )
    return look


def queue_look(server: Server, *, by: User) -> Job:
    return jobs.queue_job(server, "cleanup_look", {}, by=by)


def queue(look: Look, found: list[Found], *, by: User, ticket: str = "") -> Job:
    """The job that takes away what was ticked."""
    params = {"targets": [one.target for one in found], "seen": look.seen}
    return jobs.queue_job(look.job.server, "cleanup", params, by=by, ticket=ticket)


def as_json(look: Look | None) -> dict[str, Any]:
    if look is None:
        return {"look": None, "found": []}
    rows = [
        {
            "target": one.target or None, "category": one.category, "path": one.path, "bytes": one.bytes,
            "files": one.files, "at_least": one.at_least, "used_at": one.used_at.isoformat() if one.used_at else None,
            "why": pick(one.why) or None,
        }
        for one in look.found
    ]  # fmt: skip
    ended = look.job.ended_at.isoformat() if look.job.ended_at else None
    return {
        "look": {"job": look.job.pk, "ended_at": ended, "seen": look.seen},
        "stale": look.stale.pk if look.stale else None,
        "found": rows,
    }
