"""What needs somebody's attention: an alert is open from the first `fire` until `resolve`, however often it fires.

`name` says what is wrong ("payload-refused"), `subject` where ("server:7"; "" is the console itself). Texts are
(zh, en), so that each reader gets their own. Pages are told on the topic `alerts`: "moved" {open}.
"""

import contextlib
from datetime import timedelta
from typing import Any, NamedTuple

import redis
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit, live
from console.errors import NotAllowed, NotFound
from console.models import Alert, Severity, User

KEPT_DAYS = 90
BATCH = 5000


class Counts(NamedTuple):
    """Open alerts, and how many of them are critical."""

    open: int
    critical: int


def fire(
    name: str, subject: str = "", *, what: tuple[str, str], do: tuple[str, str], severity: str = "warning",
    link: str = "",
) -> Alert:  # fmt: skip
    """Open the alert, or count it up and renew its words where it is open already. `link` is a page of ours."""
    now = timezone.now()
    words = {"severity": Severity(severity).value, "what": list(what), "do": list(do), "link": link, "last_at": now}
    if not _again(name, subject, words):
        try:
            with transaction.atomic():
                made = Alert.objects.create(name=name, subject=subject, started_at=now, **words)
        except IntegrityError:  # somebody else fired it in this moment
            _again(name, subject, words)
        else:
            transaction.on_commit(tell)
            return made
    # Whoever ends it in this moment does not make the call fail.
    return Alert.objects.filter(name=name, subject=subject).latest("pk")


def _again(name: str, subject: str, words: dict[str, Any]) -> int:
    return Alert.objects.filter(name=name, subject=subject, ended_at=None).update(count=F("count") + 1, **words)


def renew(alert: Alert, *, what: tuple[str, str], do: tuple[str, str], link: str = "") -> bool:
    """Other words for one that is open, because more is known of its cause by now; whether it still was."""
    rows = Alert.objects.filter(pk=alert.pk, ended_at=None)
    if (alert.what, alert.do, alert.link) == (list(what), list(do), link):
        return rows.exists()
    renewed = rows.update(what=list(what), do=list(do), link=link)
    if renewed:
        transaction.on_commit(tell)
    return bool(renewed)


def resolve(name: str, subject: str = "") -> bool:
    """End the alert, because its cause is gone; whether one was open."""
    ended = Alert.objects.filter(name=name, subject=subject, ended_at=None).update(ended_at=timezone.now())
    if ended:
        transaction.on_commit(tell)
    return bool(ended)


def resolve_by_hand(by: User, pk: int) -> Alert:
    """End it because somebody says that it is settled; it comes back where its cause does. Raises ConsoleError."""
    if not by.may("operator"):
        raise NotAllowed(_("Only an operator may resolve alerts."), _("Ask one, or an administrator for the role."))
    found = Alert.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound(_("There is no alert %(id)s.") % {"id": pk}, _("Open the list of alerts and choose one."))
    if Alert.objects.filter(pk=pk, ended_at=None).update(ended_at=timezone.now(), resolved_by=by):
        audit.record(by, "alert.resolved", found, name=found.name, about=found.subject)
        transaction.on_commit(tell)
    found.refresh_from_db()
    return found


def counts() -> Counts:
    """One query."""
    severities = list(Alert.objects.filter(ended_at=None).order_by().values_list("severity", flat=True))
    return Counts(len(severities), severities.count(Severity.CRITICAL))


def tell() -> None:
    """Pages draw their alerts anew; without Redis they will see them when they are opened."""
    now = counts()
    with contextlib.suppress(redis.RedisError):
        live.publish("alerts", "moved", {"open": now.open, "critical": now.critical})


def prune() -> int:
    """Alerts that ended KEPT_DAYS ago go."""
    limit, pruned = timezone.now() - timedelta(days=KEPT_DAYS), 0
    while keys := list(Alert.objects.filter(ended_at__lt=limit).order_by().values_list("pk", flat=True)[:BATCH]):
        pruned += Alert.objects.filter(pk__in=keys).delete()[0]
    return pruned


def as_json(alert: Alert) -> dict[str, Any]:
    """One alert as REST and scripts get it; times are RFC 3339, texts in both languages."""
    return {
        "id": alert.pk,
        "name": alert.name,
        "subject": alert.subject,
        "severity": alert.severity,
        "state": "firing" if alert.ended_at is None else "resolved",
        "what": dict(zip(("zh", "en"), alert.what, strict=True)),
        "do": dict(zip(("zh", "en"), alert.do, strict=True)),
        "count": alert.count,
        "started_at": alert.started_at.isoformat(),
        "last_at": alert.last_at.isoformat(),
        "ended_at": alert.ended_at and alert.ended_at.isoformat(),
        "link": alert.link or None,
    }
