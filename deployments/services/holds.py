"""Holds: NPUs kept for a person or team until a moment, with a reason; they end by themselves, with a notice."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit, clock
from console.errors import Conflict, Invalid, NotFound
from console.models import Alert, User
from deployments.models import Hold, Reservation, Server
from deployments.row_locks import lock_server
from deployments.services import history, jobs, reservations

MOST_DAYS = 366
MOST_TEAM, MOST_REASON = 100, 300
NOTICE = "hold-ended"
NOTICE_H = 24  # a notice ends by itself after so long
FIELD = "hold"


def make(
    server: Server, names: Sequence[str], *, team: str, reason: str, until: datetime | None, by: User, ticket: str = ""
) -> Hold:
    """Keep these NPUs. What runs on them goes on; no new job and no replica gets them. Raises ConsoleError."""
    jobs.check_may_operate(by)
    jobs.check_ticket(ticket)
    team, reason = team.strip(), reason.strip()
    _check_words(team, reason)
    moment = _checked(until)
    if not any(name.strip() for name in names):
        raise Invalid(_("No NPU was chosen."), _("Choose one or several of the server's NPUs."), code="no_npus")
    with transaction.atomic():
        server = lock_server(server.pk)
        jobs.check_present(server)
        hold = Hold.objects.create(server=server, team=team, reason=reason, ticket=ticket, until=moment, by=by)
        taken = reservations.take_for_hold(hold, names)
        kept = [row.npu for row in taken]
        history.record(server, FIELD, None, _told(hold, kept), by=by, reason=reason, ticket=ticket)
        audit.record(by, "hold.made", hold, server=server.name, npus=kept, team=team, until=moment.isoformat())
    return hold


def extend(hold: Hold, until: datetime | None, *, by: User) -> Hold:
    """Another end, later or earlier. Raises Conflict where it has ended."""
    jobs.check_may_operate(by)
    moment = _checked(until)
    with transaction.atomic():
        hold = _locked(hold)
        before, hold.until = hold.until, moment
        hold.save(update_fields=["until"])
        kept = _names(hold)
        history.record(hold.server, FIELD, clock.words(before, clock.LONG), _told(hold, kept), by=by)
        audit.record(by, "hold.extended", hold, server=hold.server.name, until=moment.isoformat())
    return hold


def end(hold: Hold, *, by: User) -> Hold:
    """Its NPUs are free at once. Raises Conflict where it has ended."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        hold = _locked(hold)
        kept = _close(hold, timezone.now(), by=by)
        audit.record(by, "hold.ended", hold, server=hold.server.name, npus=kept)
    return hold


def end_due(now: datetime | None = None) -> int:
    """End the holds whose time is over, and tell; how many. Notices of a day ago end, too."""
    at = now or timezone.now()
    ended = 0
    for hold in Hold.objects.filter(ended_at=None, until__lte=at).order_by("pk")[:500]:
        ended += _end_by_itself(hold, at)
    old = Alert.objects.filter(name=NOTICE, ended_at=None, last_at__lt=at - timedelta(hours=NOTICE_H))
    for subject in old.values_list("subject", flat=True):
        alerts.resolve(NOTICE, subject)
    return ended


def _end_by_itself(hold: Hold, at: datetime) -> bool:
    with transaction.atomic():
        server = lock_server(hold.server_id)
        row = Hold.objects.select_for_update(no_key=True).filter(pk=hold.pk, ended_at=None, until__lte=at).first()
        if row is None:
            return False
        row.server = server
        kept = _close(row, at, by=None)
        audit.record(None, "hold.ran_out", row, server=server.name, npus=kept)
        _notice(row, kept)
    return True


def _notice(hold: Hold, kept: list[str]) -> None:
    who = hold.by.username if hold.by else "—"
    npus, server = ", ".join(kept), hold.server.name
    alerts.fire(
        NOTICE,
        f"hold:{hold.pk}",
        severity="info",
        what=(
            f"{server} 上为 {hold.team} 保留的 NPU（{npus}）已到期释放，保留人 {who}。",
            f"The hold for {hold.team} on {server} has ended ({npus}); {who} had made it.",
        ),
        do=("仍需使用时，请重新保留。", "Hold them again where they are still needed."),
        link=reverse("deployments:hold-list"),
    )


def _close(hold: Hold, at: datetime, *, by: User | None) -> list[str]:
    kept = _names(hold)
    Reservation.objects.filter(hold=hold).delete()
    hold.ended_at = at
    hold.save(update_fields=["ended_at"])
    history.record(hold.server, FIELD, _told(hold, kept), None, by=by)
    transaction.on_commit(lambda: _release(hold.server_id))
    return kept


def _release(server: int) -> None:
    jobs.release([server])


def _locked(hold: Hold) -> Hold:
    """The row as it is now, locked after its server's. Raises Conflict for one that has ended."""
    server = lock_server(hold.server_id)
    row = Hold.objects.select_for_update(no_key=True).get(pk=hold.pk)
    row.server = server
    if row.ended_at is not None:
        raise Conflict(
            _("This hold ended at %(at)s.") % {"at": clock.words(row.ended_at, clock.LONG)},
            _("Make a new one where the NPUs are needed again."),
            code="hold_ended",
        )
    return row


def _names(hold: Hold) -> list[str]:
    return list(Reservation.objects.filter(hold=hold).order_by("npu").values_list("npu", flat=True))


def _told(hold: Hold, kept: Iterable[str]) -> str:
    return f"{hold.team}: {', '.join(kept)} → {clock.words(hold.until, clock.LONG)}"


def _check_words(team: str, reason: str) -> None:
    if not team or len(team) > MOST_TEAM:
        raise Invalid(
            _("It is not said for whom the NPUs are kept."),
            _("Name a person or team, in at most %(n)s characters.") % {"n": MOST_TEAM},
            code="no_team",
        )
    if not reason or len(reason) > MOST_REASON:
        raise Invalid(
            _("No reason was given, or a very long one."),
            _("Say in a few words why; everybody sees it."),
            code="no_reason",
        )
    if any(not char.isprintable() for char in team + reason):
        raise Invalid(_("The words hold characters that nobody can read."), _("Type them again."), code="bad_words")


def _checked(until: datetime | None) -> datetime:
    now = timezone.now()
    if until is None or until <= now or until > now + timedelta(days=MOST_DAYS):
        raise Invalid(
            _("The end is no moment within the next %(days)s days.") % {"days": MOST_DAYS},
            _("Give one in the future, such as 2026-12-31 18:00."),
            code="bad_until",
        )
    return until


def moment(text: str) -> datetime | None:
    """What a form or a call says, in the console's time zone where it names none; None where it is no moment."""
    try:
        found = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return found if found.tzinfo else timezone.make_aware(found)
    except (ValueError, OverflowError):
        return None


# ---------- lists ----------


def rows(*, ended: bool = False) -> QuerySet[Hold]:
    """Those that stand, the first to end first; or those that have ended, the last first."""
    found = Hold.objects.select_related("server", "by").prefetch_related("reservations").defer("server__facts")
    return (
        found.exclude(ended_at=None).order_by("-ended_at") if ended else found.filter(ended_at=None).order_by("until")
    )


def find(pk: int) -> Hold:
    """Raises NotFound."""
    hold = rows().filter(pk=pk).first() or rows(ended=True).filter(pk=pk).first()
    if hold is None:
        raise NotFound(
            _("There is no hold %(id)s.") % {"id": pk}, _("Choose one of the page NPU holds."), code="no_hold"
        )
    return hold


def as_json(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.pk,
        "server": hold.server.name,
        "simulated": hold.server.simulated,
        "npus": sorted(row.npu for row in hold.reservations.all()),
        "team": hold.team,
        "reason": hold.reason,
        "ticket": hold.ticket,
        "by": hold.by.username if hold.by else None,
        "created_at": hold.created_at.isoformat(),
        "until": hold.until.isoformat(),
        "ended_at": hold.ended_at.isoformat() if hold.ended_at else None,
    }
