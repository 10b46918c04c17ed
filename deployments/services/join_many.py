"""Lists of hosts that join by SSH: made, confirmed, cancelled, tried again. What runs on them: join_runner.py."""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import alerts, audit
from console.errors import Conflict, Invalid
from console.models import User
from deployments.models import HostKey, JoinMany, JoinRow
from deployments.models.join_many import MOVING, RETRIABLE, Phase, RowState
from deployments.services import host_list, join, join_news, ssh
from deployments.services.host_list import Line

MOST_AT_ONCE = 50
AT_ONCE = 10
KEPT_DAYS = 90
KEY_ALERT = "host-key-changed"
UNSURE = ("interrupted", "lost", "late")  # what was begun on the host may have come to its end without us


def create(lines: Sequence[Line], *, at_once: int = AT_ONCE, by: User | None) -> JoinMany:
    """A list whose keys are to be read. Raises NotAllowed, Conflict, Invalid for lines with problems."""
    join.check_may_administer(by)
    join.check_reach()
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise Invalid(
            _("%(n)s hosts at once is not between 1 and %(most)s.") % {"n": at_once, "most": MOST_AT_ONCE},
            _("Use 10 unless the network is slow."),
            code="bad_at_once",
        )
    wrong = next((line for line in lines if line.problems), None)
    if wrong or not lines:
        raise Invalid(
            _("Line %(n)s: %(problem)s") % {"n": wrong.n, "problem": wrong.problems[0]} if wrong
            else _("The list names no host."),
            _("Mend the list, then start again."),
            code="bad_line",
        )  # fmt: skip
    with transaction.atomic():
        many = JoinMany.objects.create(made_by=by, at_once=at_once)
        JoinRow.objects.bulk_create(_row(many, line) for line in lines)
        audit.record(by, "join_many.made", many, hosts=[line.address for line in lines][:200], n=len(lines))
    return many


def _row(many: JoinMany, line: Line) -> JoinRow:
    return JoinRow(
        many=many, n=line.n, name=line.name, host=line.host, port=line.port, user=line.user, rack=line.rack,
        labels=line.labels, prefix=line.prefix,
    )  # fmt: skip


def confirm(many: JoinMany, chosen: set[int], *, by: User | None) -> int:
    """Accept the keys of the chosen rows, by line, and let those join; the others are left out. How many join.

    Raises NotAllowed, Conflict, Invalid where none is chosen.
    """
    join.check_may_administer(by)
    with transaction.atomic():
        many = JoinMany.objects.select_for_update().get(pk=many.pk)
        if many.phase != Phase.ASKING:
            raise _not_now()
        rows = list(many.rows.filter(state=RowState.KEYED))
        going = [row for row in rows if row.n in chosen]
        if not going:
            raise Invalid(
                _("No host key was accepted, so no server would join."),
                _("Compare the fingerprints, tick those that are right, then start again."),
                code="none_chosen",
            )
        _keep_keys(going, by)
        ids = [row.pk for row in going]
        many.rows.filter(pk__in=ids).update(state=RowState.READY, problem={})
        many.rows.filter(state=RowState.KEYED).update(state=RowState.LEFT_OUT)
        JoinMany.objects.filter(pk=many.pk).update(phase=Phase.JOINING, ended_at=None, beat_at=timezone.now())
        told = [f"{row.address} {ssh.fingerprint(row.key)}" for row in going if not row.key_known]
        audit.record(by, "join_many.keys_confirmed", many, keys=told[:200], n=len(going))
    return len(going)


def _keep_keys(rows: Sequence[JoinRow], by: User | None) -> None:
    for row in rows:
        if row.key_known:
            continue
        HostKey.objects.update_or_create(
            host=row.host, port=row.port, defaults={"key": row.key, "confirmed_by": by, "confirmed_at": timezone.now()}
        )


def retry(many: JoinMany, *, by: User | None) -> int:
    """Ask the hosts again that did not join; how many. Raises NotAllowed, Conflict."""
    join.check_may_administer(by)
    with transaction.atomic():
        many = JoinMany.objects.select_for_update().get(pk=many.pk)
        if many.is_under_way:
            raise _not_now()
        count = many.rows.filter(state__in=RETRIABLE).update(
            state=RowState.NEW, problem={}, began_at=None, ended_at=None, key="", key_known=False
        )
        if not count:
            raise Conflict(
                _("No host of this list is left to be tried again."), _("Make a new list."), code="none_left"
            )
        JoinMany.objects.filter(pk=many.pk).update(phase=Phase.READING, ended_at=None, beat_at=timezone.now())
        audit.record(by, "join_many.retried", many, n=count)
    return count


def cancel(many: JoinMany, *, by: User | None) -> None:
    """End it: what is connected is cut off, what waits does not begin. Raises NotAllowed, Conflict."""
    join.check_may_administer(by)
    with transaction.atomic():
        many = JoinMany.objects.select_for_update().get(pk=many.pk)
        if many.phase == Phase.ENDED:
            raise _not_now()
        JoinMany.objects.filter(pk=many.pk).update(cancel_asked=True)
        audit.record(by, "join_many.cancelled", many)
    if many.phase == Phase.ASKING or many.is_abandoned:
        finish(many, "cancelled")


def forget_key(host: str, port: int, *, by: User | None) -> bool:
    """Forget the key that was confirmed for a host; whether there was one. Raises NotAllowed."""
    join.check_may_administer(by)
    with transaction.atomic():
        found = HostKey.objects.select_for_update().filter(host=host, port=port).first()
        if found:
            audit.record(by, "host_key.forgotten", found, host=str(found), key=ssh.fingerprint(found.key))
            found.delete()
            alerts.resolve(KEY_ALERT, f"host:{host_list.address(host, port)}")
    return found is not None


def trust_anew(row: JoinRow, *, by: User | None) -> None:
    """Forget the old key of a host that shows another; it can be tried again. Raises NotAllowed, Conflict."""
    if row.state != RowState.FAILED or row.problem.get("code") != "key_changed":
        raise _not_now()
    forget_key(row.host, row.port, by=by)
    JoinRow.objects.filter(pk=row.pk).update(problem={"code": "key_forgotten", "detail": ""})
    moved(row.many_id)


# ---------- what the process that works on it does ----------


def claim(many: JoinMany) -> str:
    """A new name for the process that is to work on it; one that did before stops."""
    token = secrets.token_hex(8)
    JoinMany.objects.filter(pk=many.pk).update(runner=token, beat_at=timezone.now(), cancel_asked=False)
    return token


def beat(many_id: int, token: str) -> str:
    """Say that it is worked on; "" or why to stop: cancelled, replaced."""
    if not JoinMany.objects.filter(pk=many_id, runner=token).update(beat_at=timezone.now()):
        return "replaced"
    return "cancelled" if JoinMany.objects.filter(pk=many_id, cancel_asked=True).exists() else ""


def keyed(row: JoinRow, key: str) -> None:
    """Note the key that a host shows; one other than the confirmed one is refused."""
    known = HostKey.objects.filter(host=row.host, port=row.port).first()
    if known and known.key != key:
        detail = f"{ssh.kind(known.key)} {ssh.fingerprint(known.key)} → {ssh.kind(key)} {ssh.fingerprint(key)}"
        fail(row, {"code": "key_changed", "detail": detail})
        warn_of_key(row)
        return
    if known:
        alerts.resolve(KEY_ALERT, f"host:{row.address}")
    change(row, state=RowState.KEYED, key=key, key_known=known is not None, problem={})


def warn_of_key(row: JoinRow) -> None:
    """Somebody may stand between: that concerns more people than whoever made the list."""
    alerts.fire(
        KEY_ALERT,
        f"host:{row.address}",
        what=(f"{row.address} 出示的 SSH 主机密钥与已确认的不同。",
              f"{row.address} shows another SSH key than the confirmed one."),
        do=("可能有人冒充，或主机已重装。确认重装后再忘记旧密钥。",
            "Somebody may stand between, or it was set up anew. Only in that case forget the old key."),
        link=f"/servers/join/many/{row.many_id}/",
    )  # fmt: skip


def known_key(row: JoinRow) -> str:
    found = HostKey.objects.filter(host=row.host, port=row.port).first()
    return found.key if found else ""


def change(row: JoinRow, **values: Any) -> None:
    """Write some columns of a row, and tell the page."""
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))
    moved(row.many_id)


def fail(row: JoinRow, problem: dict[str, Any], state: str = RowState.FAILED) -> None:
    change(row, state=state, problem=problem, ended_at=timezone.now())


def moved(many_id: int) -> None:
    transaction.on_commit(lambda: join_news.tell(f"join-many:{many_id}", many_id))


def finish(many: JoinMany, why: str = "") -> None:
    """The process has ended: what is still under way has not, for the reason `why` (cancelled, interrupted, late)."""
    many.refresh_from_db()
    cancelled = why == "cancelled"
    with transaction.atomic():
        unfinished = [RowState.NEW, *MOVING, *([RowState.KEYED] if cancelled else [])]
        state = RowState.CANCELLED if cancelled else RowState.FAILED
        if cancelled:
            for row in many.rows.filter(state=RowState.INSTALLING).select_related("enrolment__server"):
                if row.enrolment:
                    join.withdraw(row.enrolment, by=None)
        many.rows.filter(state__in=unfinished).update(
            state=state, problem={"code": why or "interrupted", "detail": ""}, ended_at=timezone.now()
        )
        asks = many.rows.filter(state=RowState.KEYED).exists()
        phase = Phase.ASKING if asks else Phase.ENDED
        ended_at = None if asks else timezone.now()
        JoinMany.objects.filter(pk=many.pk).update(phase=phase, ended_at=ended_at, runner="", cancel_asked=False)
        moved(many.pk)


def prune() -> int:
    """Lists of long ago go with what their hosts said; confirmed keys stay. How many."""
    old = JoinMany.objects.filter(phase=Phase.ENDED, ended_at__lt=timezone.now() - timedelta(days=KEPT_DAYS))
    return old.delete()[1].get("deployments.JoinMany", 0)


def settle(many: JoinMany) -> JoinMany:
    """The list as it truly is: nobody works on it any more, or a host has come online without us."""
    if many.is_abandoned:
        finish(many, "interrupted")
    for row in many.rows.filter(state=RowState.FAILED).select_related("enrolment__server"):
        if (
            row.problem.get("code") in UNSURE
            and row.enrolment
            and join.progress(row.enrolment) in ("online", "reading")
        ):
            change(row, state=RowState.JOINED, problem={}, server=row.enrolment.server)
    many.refresh_from_db()
    return many


def _not_now() -> Conflict:
    return Conflict(
        _("The list has moved on, so this was not done."), _("Look at the page again, then choose."), code="not_now"
    )
