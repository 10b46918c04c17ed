"""What pages and REST ask of logs: which one, which lines, what is looked for, from when to when."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from console.errors import Invalid, NotFound
from deployments import log_levels
from deployments.models import Attempt, Job, Replica
from deployments.services import deployments, log_search, logs, logs_everywhere

FARTHEST = 10**15  # no log has as many lines


def find_job(job_id: int) -> Job:
    found = Job.objects.select_related("server", "requester").filter(pk=job_id).first() if job_id < 2**63 else None
    if found is None:
        raise NotFound(_("There is no job #%(id)s.") % {"id": job_id}, _("GET /api/v1/jobs lists them."))
    return found


def find_replica(name: str, n: int) -> Replica:
    rows = deployments.find(name).replica_set.select_related("deployment", "revision", "server")
    found = rows.filter(n=n).first() if 0 < n < 2**31 else None
    if found is None:
        raise NotFound(
            _("“%(name)s” has no replica %(n)s.") % {"name": name, "n": n},
            _("GET /api/v1/deployments/NAME/replicas lists them."),
            code="no_such_replica",
        )
    return found


def find_attempt(job: Job, log: str) -> Attempt | None:
    """The attempt of that id, none: the newest."""
    rows = job.attempts.order_by("-n")
    return (rows.filter(pk=log) if log else rows).first()


def range_of(request: HttpRequest) -> tuple[int | None, int | None, int]:
    """after=, before= or neither (the last lines), at most n= of them: what logs.asked takes. Raises Invalid."""
    after = number(request, "after", 0, FARTHEST) if "after" in request.GET else None
    before = number(request, "before", 1, FARTHEST) if "before" in request.GET else None
    return after, before, number(request, "n", 500, logs.MAX_LINES)


def number(request: HttpRequest, name: str, default: int, most: int) -> int:
    """What stands in the address, at most `most`. Raises Invalid."""
    raw = request.GET.get(name, "")
    if not raw:
        return default
    if not raw.isascii() or not raw.isdigit() or len(raw) > 15:
        raise Invalid(
            _("%(name)s must be a whole number from 0.") % {"name": name}, _("Mend the address and ask again.")
        )
    return min(int(raw), most)


def query_of(given: Any) -> log_search.Query:
    """What q=, regex=, case=, level=, rank= say. Raises Invalid."""
    text, level = given.get("q", ""), given.get("level", "")
    if len(text) > 1000:
        raise Invalid(_("The text to search for is longer than 1,000 characters."), _("Search for a part of it."))
    if level and level not in log_levels.LEVELS:
        raise Invalid(
            _("There is no level “%(level)s”.") % {"level": level[:20]},
            _("Choose one of: %(levels)s.") % {"levels": ", ".join(log_levels.LEVELS)},
        )
    flags = {name: given.get(name, "") in ("1", "true") for name in ("regex", "case")}
    return log_search.Query(text=text, level=level, rank=given.get("rank", "")[:60], **flags)


def asked_of(given: Any) -> logs_everywhere.Asked:
    """Raises Invalid."""
    kind = given.get("kind", "")
    if kind and kind not in logs_everywhere.KINDS:
        raise Invalid(
            _("There is no kind of log “%(kind)s”.") % {"kind": kind[:20]},
            _("Choose one of: %(kinds)s.") % {"kinds": ", ".join(logs_everywhere.KINDS)},
        )
    return logs_everywhere.Asked(
        query=query_of(given),
        server=given.get("server", "").strip()[:63],
        deployment=given.get("deployment", "").strip()[:63],
        kind=kind,
        since=moment(given.get("since", "")),
        until=moment(given.get("until", "")),
        before=given.get("before", "")[:80],
    )


def moment(text: str) -> datetime | None:
    """2026-11-30T14:00, in the time of this console where it names no other; None for ''. Raises Invalid."""
    if not text:
        return None
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise Invalid(
            _("“%(text)s” is no time.") % {"text": text[:40]},
            _("Write it as 2026-11-30T14:00, with +08:00 or without."),
        )
    return found if timezone.is_aware(found) else timezone.make_aware(found)
