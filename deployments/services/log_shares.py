"""Links by which somebody without an account reads one log until a time: made, opened and withdrawn on the record.

Off unless the site sets LOG_SHARE=1. A token holds 256 bits and is shown once; the row keeps its digest alone.
"""

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, ConsoleError, Invalid, NotFound
from console.models import User
from deployments.models import Attempt, EngineLog, Job, LogShare, Replica
from deployments.services import jobs, log_keeping

HOURS = (1, 8, 24, 72, 168)  # what the page offers; REST takes any from the first to the last
MOST_AT_ONCE = 20  # links to one log that work
NOTED_AGAIN = timedelta(seconds=60)  # a link that is opened over and over is on the record once a minute
TOKEN = re.compile(r"[\w-]{43}", re.ASCII)


@dataclass(frozen=True)
class Made:
    """`token` is shown once, and is nowhere afterwards."""

    share: LogShare
    token: str

    @property
    def path(self) -> str:
        return f"/shared/log/{self.token}"


def make(head: Attempt | EngineLog, hours: int, *, by: User) -> Made:
    """A link to this log. Raises NotAllowed, Conflict where links are off or many, Invalid, 410 where it was deleted.

    Logs of agents are not shared: they tell of the console and of all that runs on a server, not of one piece of work.
    """
    jobs.check_may_operate(by)
    _check_on()
    log_keeping.check_kept(head)
    if not HOURS[0] <= hours <= HOURS[-1]:
        raise Invalid(
            _("A link to a log works from %(least)s to %(most)s hours.") % {"least": HOURS[0], "most": HOURS[-1]},
            _("Choose how long it is to work, then make it again."),
            code="wrong_hours",
        )
    of: dict[str, Any] = {"attempt": head} if isinstance(head, Attempt) else {"piece": head}
    now = timezone.now()
    if LogShare.objects.filter(**of, revoked_at=None, until__gt=now).count() >= MOST_AT_ONCE:
        raise Conflict(
            _("There are %(most)s links to this log that work.") % {"most": MOST_AT_ONCE},
            _("Withdraw one that nobody needs, then make another."),
            code="many_links",
        )
    token = secrets.token_urlsafe(32)
    share = LogShare.objects.create(digest=digest_of(token), until=now + timedelta(hours=hours), made_by=by, **of)
    audit.record(by, "log_share.made", share, log=head.pk, hours=hours)
    return Made(share, token)


def _check_on() -> None:
    if not settings.LOG_SHARE:
        raise Conflict(
            _("Links to logs are off on this console."),
            _("Where somebody without an account is to read a log, set LOG_SHARE=1 and start the console again."),
            code="links_off",
        )


def revoke(share: LogShare, *, by: User) -> LogShare:
    """Whoever has the link reads nothing more. Also where links are off by now. Raises NotAllowed."""
    jobs.check_may_operate(by)
    if LogShare.objects.filter(pk=share.pk, revoked_at=None).update(revoked_at=timezone.now(), revoked_by=by):
        audit.record(by, "log_share.revoked", share, log=share.head.pk)
    share.refresh_from_db()
    return share


def find(pk: int) -> LogShare:
    """The link of that number, for those who administer it. Raises NotFound."""
    found = _rows().filter(pk=pk).first() if pk < 2**63 else None
    if found is None:
        raise NotFound(_("There is no such link to a log."), _("Look on the page of its job or replica."))
    return found


def by_token(token: str) -> LogShare:
    """The link that works. Raises NotFound for what was never one or whose log is gone, 410 for one that worked."""
    found = None
    if settings.LOG_SHARE and TOKEN.fullmatch(token):
        found = _rows().filter(digest=digest_of(token)).first()
    if found is None:
        raise NotFound(
            _("There is no such link to a log."),
            _("Copy the whole address again, or ask whoever sent it for a new one."),
            code="no_such_link",
        )
    left = found.made_by is not None and not found.made_by.is_active  # who may sign in no longer opens no door either
    if not found.works or left:
        raise ConsoleError(
            _("This link to a log works no longer."),
            _("Ask whoever sent it for a new one."),
            code="link_over",
            status=410,
        )
    return found


def opened(share: LogShare, address: str) -> None:
    """Count it, and put it on the record."""
    now = timezone.now()
    fresh = Q(opened_at=None) | Q(opened_at__lt=now - NOTED_AGAIN)
    row = LogShare.objects.filter(pk=share.pk)
    if row.filter(fresh).update(opens=F("opens") + 1, opened_at=now):
        audit.record(None, "log_share.opened", share, log=share.head.pk, address=address)
    else:
        row.update(opens=F("opens") + 1)


def of_job(job: Job) -> list[LogShare]:
    """Links to the logs of all its attempts, newest first."""
    return list(_rows().filter(attempt__job=job)[:100])


def of_replica(replica: Replica) -> list[LogShare]:
    return list(_rows().filter(piece__replica=replica)[:100])


def _rows() -> QuerySet[LogShare]:
    more = ("attempt__job__server", "piece__replica__deployment", "piece__server", "made_by", "revoked_by")
    return LogShare.objects.select_related(*more)


def as_json(share: LogShare) -> dict[str, Any]:
    return {
        "id": share.pk,
        "log": share.head.pk,
        "until": share.until.isoformat(),
        "made_at": share.made_at.isoformat(),
        "made_by": share.made_by.username if share.made_by else None,
        "revoked_at": share.revoked_at.isoformat() if share.revoked_at else None,
        "opens": share.opens,
        "opened_at": share.opened_at.isoformat() if share.opened_at else None,
        "works": share.works and bool(settings.LOG_SHARE),
    }


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Rate:
    """So many calls a minute from each address, in this process; what is beyond is refused."""

    MOST_KEPT = 10_000

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self.minute = 0
        self.counts: dict[str, int] = {}

    def is_over(self, address: str) -> bool:
        self._turn()
        return self.counts.get(address, 0) >= self.per_minute

    def count(self, address: str) -> None:
        self._turn()
        if address in self.counts or len(self.counts) < self.MOST_KEPT:
            self.counts[address] = self.counts.get(address, 0) + 1

    def _turn(self) -> None:
        if (minute := int(time.monotonic() // 60)) != self.minute:
            self.minute, self.counts = minute, {}


CALLS = Rate(240)  # eight pages behind one address, each asking every two seconds
GUESSES = Rate(20)


def check_rate(address: str) -> None:
    """Raises 429 for who calls too often, or has guessed too often."""
    if CALLS.is_over(address) or GUESSES.is_over(address):
        raise ConsoleError(
            _("Too many calls come from your address."), _("Wait a minute, then open the link again."),
            code="too_many", status=429,
        )  # fmt: skip
    CALLS.count(address)
