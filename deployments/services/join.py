"""Other servers join by a one-time command, get credentials of their own, and leave."""

import re
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import addresses, audit, streams
from console.errors import Conflict, ConsoleError, Invalid, NotAllowed, NotFound, Unavailable
from console.models import User
from console.redis import client
from deployments.models import Enrolment, Job, Rotation, Server
from deployments.models.fleet import new_key
from deployments.models.job import UNDER_WAY
from deployments.row_locks import lock_server
from deployments.services import clones, enrol, history, inventory, join_news, lifecycle, orders

VALID = timedelta(hours=1)
MAX_PROBLEMS = 20
MAX_DETAIL = 300
NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
RESERVED = ("join", "agents", "keys", "gone", "edit")  # /servers/join/ is a page


# ---------- what an administrator does ----------


def make(
    name: str,
    rack: str = "",
    labels: dict[str, str] | None = None,
    *,
    by: User | None,
    root_helper: bool = True,
) -> Enrolment:
    """A one-time command for the server `name`, made anew or known already; commands made before for it end.

    `by` None is the shell of the console's own machine. The label `site` is where the server stands.

    Raises NotAllowed, Invalid for a name that cannot be one, Conflict for one that is taken, and for a
    console that other machines cannot or must not reach.
    """
    check_may_administer(by)
    check_reach()
    name = name.strip().lower()
    if not NAME.fullmatch(name):
        raise Invalid(
            _("“%(name)s” cannot be the name of a server.") % {"name": name[:63]} if name else _("No name was given."),
            _("Use up to 63 of a–z, 0–9, “-” and “_”, for example kp-01."),
            code="bad_name",
        )
    if name in RESERVED:
        raise Conflict(
            _("“%(name)s” is an address of the console itself.") % {"name": name}, _("Choose another name."),
            code="name_taken",
        )  # fmt: skip
    others = {key: value for key, value in (labels or {}).items() if key != "site"}
    said = inventory.clean({"rack": rack, "site": (labels or {}).get("site", ""), "labels": others})
    with transaction.atomic():
        server = Server.objects.select_for_update(no_key=True).filter(name=name).first()
        if server is None:
            server = Server.objects.create(name=name, **said)
            history.record(server, "server", None, "made", by=by)
        elif server.simulated or server.is_local:
            raise Conflict(
                _("%(name)s is a simulated server, or the console's own machine.") % {"name": name},
                _("Choose another name."),
                code="name_taken",
            )
        Enrolment.objects.filter(server=server, used_at=None).update(expires_at=timezone.now())
        enrolment = Enrolment(server=server, made_by=by, expires_at=timezone.now() + VALID, root_helper=root_helper)
        enrolment.digest = Enrolment.digest_of(enrolment.token)
        enrolment.save()
        audit.record(by, "server.join_command_made", server, enrolment=enrolment.pk)
    return enrolment


def check_reach() -> None:
    """Raises Conflict where a command of this console would be of no use to another machine, or not safe there."""
    url, redis_url = addresses.public_url(), addresses.public_redis_url()
    if is_local_only() or settings.ALLOW_PLAINTEXT:
        return
    if url.startswith("http://") or redis_url.startswith("redis://"):
        raise Conflict(
            _("Other machines would reach this console or its Redis without TLS (%(url)s).") % {"url": url},
            _("Leave TLS=0 out, or set PUBLIC_URL=https://…, PUBLIC_REDIS_URL=rediss://…, or ALLOW_PLAINTEXT=1."),
            code="plaintext",
        )


def is_local_only() -> bool:
    """True where only the console's own machine can reach it, as at first."""
    return addresses.is_loopback(_host(addresses.public_url()))


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def withdraw(enrolment: Enrolment, *, by: User | None) -> None:
    """End a command that was not used; the row of a server that never joined goes with it."""
    check_may_administer(by)
    server = enrolment.server
    with transaction.atomic():
        Enrolment.objects.filter(pk=enrolment.pk, used_at=None).update(expires_at=timezone.now())
        audit.record(by, "server.join_command_withdrawn", server, enrolment=enrolment.pk)
        join_news.moved(enrolment.pk)
        joined = Enrolment.objects.filter(server=server).exclude(used_at=None).exists()
        if not joined and server.last_seen_at is None and not server.jobs.exists():
            server.delete()


def rotate(server: Server) -> Server:
    """New credentials; what was known before is of no use from now on. Raises redis.RedisError.

    The key of payloads stays while a job is under way: its dispatch or a cancel of it is signed with that key.
    """
    server.redis_password = new_key()
    if not under_way(server):
        server.key = new_key()
    server.cut_off_at = server.cut_off_reason = None
    server.keys_changed_at = timezone.now()
    server.save(update_fields=["redis_password", "key", "cut_off_at", "cut_off_reason", "keys_changed_at"])
    Rotation.objects.filter(server=server).delete()
    server.refresh_from_db()
    connection = client()
    enrol.apply_rights(connection, server)
    enrol.hang_up(connection, server)
    return server


def under_way(server: Server) -> int:
    """How many jobs are queued or run on it."""
    return Job.objects.filter(server=server, state__in=UNDER_WAY).count()


def leave(server: Server, *, by: User | None) -> None:
    """Take a server's credentials away; its record stays. Raises NotAllowed, Conflict, Unavailable."""
    check_may_administer(by)
    if server.simulated or server.is_local:
        raise Conflict(
            _("%(name)s belongs to this console and cannot leave it.") % {"name": server.name},
            _("Choose a server that has joined."),
            code="own_server",
        )
    try:
        with transaction.atomic():
            server = lock_server(server.pk)
            # Whoever starts the console again gives the user back to Redis, but with a password that nobody has.
            server.key, server.redis_password = new_key(), secrets.token_hex(32)
            server.save(update_fields=["key", "redis_password"])
            audit.record(by, "server.left", server)
            history.record(server, "server", "joined", "left", by=by)
            history.record(server, "credentials", None, "revoked", by=by)
            clones.end(server.pk)
            connection = client()
            Rotation.objects.filter(server=server).delete()
            orders.drop(server)
            enrol.hang_up(connection, server)
            enrol.forget(connection, server.pk)
            enrol.save_users(connection)
    except redis.RedisError as error:
        raise _no_redis() from error


# ---------- what the server's script asks for ----------


def find(token: str, *, caller: str, secure: bool) -> Enrolment:
    """The enrolment of a token. Raises NotFound for a forged or forgotten one, Conflict where the way is not safe."""
    found = Enrolment.objects.select_related("server").filter(digest=Enrolment.digest_of(token)).first()
    if found is None:
        raise NotFound(
            _("The console knows no such command for joining."),
            _("Make a new one on its page “Join a server”, and paste it whole."),
            code="no_enrolment",
        )
    _check_way(caller, secure=secure)
    return found


def _check_way(caller: str, *, secure: bool) -> None:
    if addresses.is_loopback(caller):
        return
    if not secure and not settings.ALLOW_PLAINTEXT:
        raise Conflict(
            _("This console takes no servers over plain HTTP."),
            _("Let an administrator set PUBLIC_URL=https://…, or ALLOW_PLAINTEXT=1, then make a new command."),
            code="plaintext",
        )
    if addresses.is_loopback(_host(addresses.public_redis_url())):
        raise Conflict(
            _("The console's Redis can be reached from its own machine only, so no other server can join."),
            _("Let an administrator set PUBLIC_REDIS_URL to an address that this server reaches."),
            code="redis_on_loopback",
        )


def check_open(enrolment: Enrolment) -> None:
    """Raises ConsoleError (410) for a command whose time is over."""
    if enrolment.is_expired:
        raise ConsoleError(
            _("This command for joining has expired."),
            _("Make a new one for %(name)s on the page “Join a server”.") % {"name": enrolment.server.name},
            code="enrolment_expired",
            status=410,
        )


def copied(enrolment: Enrolment) -> None:
    """Note that the command was copied."""
    _reached(enrolment, "copied", timezone.now())


def called(enrolment: Enrolment, address: str) -> None:
    """Note the first call of a host."""
    if "called" not in enrolment.steps:
        Enrolment.objects.filter(pk=enrolment.pk).update(address=address or None)
        _reached(enrolment, "called", timezone.now())


def _reached(enrolment: Enrolment, step: str, at: datetime) -> None:
    """Note when a step was first reached; page and script write the row at the same time."""
    if step in enrolment.steps:
        return
    with transaction.atomic():
        row = Enrolment.objects.select_for_update().get(pk=enrolment.pk)
        row.steps.setdefault(step, at.isoformat())
        if step == "online":  # what went wrong before did not matter in the end; a clock that is off still does
            row.steps["problems"] = [one for one in row.steps.get("problems", []) if one["code"] == "clock"]
        row.save(update_fields=["steps"])
        join_news.moved(enrolment.pk)
    enrolment.steps = row.steps


def config(enrolment: Enrolment) -> dict[str, Any]:
    """The server's own config, once; the caller fills in `state_dir`. Raises ConsoleError (410, 409), Unavailable."""
    check_open(enrolment)
    try:
        with transaction.atomic():
            server = lock_server(enrolment.server_id)
            rows = Enrolment.objects.select_related("made_by").select_for_update(of=("self",))
            enrolment = rows.get(pk=enrolment.pk)
            if enrolment.used_at:
                raise Conflict(
                    _("This command was used already, and its credentials are handed out only once."),
                    _("Make a new one for %(name)s on the page “Join a server”.") % {"name": enrolment.server.name},
                    code="enrolment_used",
                )
            server = rotate(server)
            if server.is_gone:
                lifecycle.return_row(server, by=enrolment.made_by)
            elif history.has_left(server):
                history.record(server, "server", "left", "rejoined", by=enrolment.made_by)
            history.record(server, "credentials", None, "issued", by=enrolment.made_by)
            clones.end(server.pk)  # whoever had the old credentials is out
            enrolment.used_at = timezone.now()
            enrolment.steps["stream"] = last_entry(server)
            enrolment.save(update_fields=["used_at", "steps"])
            audit.record(None, "server.joined", server, enrolment=enrolment.pk, address=enrolment.address or "")
            join_news.moved(enrolment.pk)
    except redis.RedisError as error:
        raise _no_redis() from error
    return enrol.agent_config(server, addresses.public_redis_url(), Path(), addresses.redis_authority())


def _no_redis() -> Unavailable:
    return Unavailable(
        _("The console cannot reach its Redis just now."), _("Try again in a minute."), code="redis_unavailable"
    )


def last_entry(server: Server) -> str:
    """The id that the server's telemetry stream ended with, trimmed or not. Raises redis.RedisError."""
    try:
        found = client().xinfo_stream(streams.telemetry(server.pk))
    except redis.ResponseError:
        return "0-0"  # no stream yet
    entry = found["last-generated-id"]
    return entry.decode() if isinstance(entry, bytes) else str(entry)


def trouble(enrolment: Enrolment, code: str, detail: str) -> None:
    """Note what stopped the script; it came over the network, so it is bounded here and escaped where shown."""
    told = {
        "code": re.sub(r"[^a-z_]", "", code[:20]),
        "detail": "".join(char if char.isprintable() else " " for char in detail)[:MAX_DETAIL],
        "at": timezone.now().isoformat(),
    }
    with transaction.atomic():
        enrolment = Enrolment.objects.select_for_update().get(pk=enrolment.pk)
        problems = [old for old in enrolment.steps.get("problems", []) if old["code"] != told["code"]]
        enrolment.steps["problems"] = [*problems, told][-MAX_PROBLEMS:]
        enrolment.save(update_fields=["steps"])
        join_news.moved(enrolment.pk)


def progress(enrolment: Enrolment) -> str:
    """How far it has come: waiting, called, used, online or reading; times are noted when first seen."""
    server, steps = enrolment.server, enrolment.steps
    if enrolment.used_at is None:
        return "called" if "called" in steps else "waiting"
    seen = server.last_seen_at
    if seen and seen > enrolment.used_at:
        _reached(enrolment, "online", seen)
    if "online" in enrolment.steps and "reading" not in enrolment.steps and _has_read(enrolment):
        _reached(enrolment, "reading", timezone.now())
    return next((name for name in ("reading", "online") if name in enrolment.steps), "used")


def heard_s_ago(server: Server) -> float | None:
    return (timezone.now() - server.last_seen_at).total_seconds() if server.last_seen_at else None


def _has_read(enrolment: Enrolment) -> bool:
    try:
        return last_entry(enrolment.server) != str(enrolment.steps.get("stream", "0-0"))
    except redis.RedisError:
        return False


def check_may_administer(by: User | None) -> None:
    """Raises NotAllowed; None is whoever has the console's own shell."""
    if by is not None and not by.may("administrator"):
        raise NotAllowed(
            _("Only an administrator may let servers join and leave."), _("Ask one to do it."), code="not_allowed"
        )
