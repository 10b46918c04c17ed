"""/healthz: this process answers. /readyz: what it needs answers too, part by part."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from console import streams
from console.answers import Answer
from console.errors import brief
from console.redis import client

SILENT_S = 10.0  # ingest says each second that it lives
LAG_S = 10.0


@dataclass(frozen=True)
class Part:
    """One thing the console needs; `what` and `do` are empty while it is well."""

    part: str
    ok: bool
    what: str = ""
    do: str = ""


@login_not_required
def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
def readyz(request: HttpRequest) -> Answer:
    """{"ready", "parts": [{"part", "ok", …}]}; 503 when a part fails. Only who is signed in reads the details."""
    parts = [database(), redis_part(), ingest()]
    ready = all(part.ok for part in parts)
    shown = [vars(part) if _is_known(request) else {"part": part.part, "ok": part.ok} for part in parts]
    return Answer({"ready": ready, "parts": shown}, status=200 if ready else 503)


def _is_known(request: HttpRequest) -> bool:
    try:
        return bool(request.user.is_authenticated)
    except DatabaseError:
        return False


def database() -> Part:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        what = _("The database does not answer: %(error)s") % {"error": brief(error)}
        return Part("database", False, what, _("Start it, or correct DATABASE_URL and restart the console."))
    return Part("database", True)


def redis_part() -> Part:
    return _asking_redis("redis", _ping)


def ingest() -> Part:
    return _asking_redis("ingest", _ingest)


def _asking_redis(name: str, ask: Callable[[], Part]) -> Part:
    try:
        return ask()
    except (redis.RedisError, OSError) as error:
        what = _("Redis does not answer: %(error)s") % {"error": brief(error)}
        return Part(name, False, what, _("Start it, or correct REDIS_URL and restart the console."))


def _ping() -> Part:
    client().ping()
    return Part("redis", True)


def _ingest() -> Part:
    raw = client().get(streams.INGEST_ALIVE)
    if raw is None:
        return _ingest_fails(_("Ingest has not reported since Redis started."))
    try:
        said = json.loads(raw)
        age_s, lag_s = time.time() - float(said["t"]), float(said["lag_ms"]) / 1000
    except (ValueError, TypeError, KeyError):
        return _ingest_fails(_("Ingest reports what nobody understands."))
    if age_s > SILENT_S:
        return _ingest_fails(_("Ingest has been silent for %(seconds)d s.") % {"seconds": age_s})
    if lag_s > LAG_S:
        return _ingest_fails(_("Ingest is %(seconds)d s behind.") % {"seconds": lag_s})
    return Part("ingest", True)


def _ingest_fails(what: str) -> Part:
    return Part("ingest", False, what, _("Read var/log/ingest.log; `make up` starts ingest again by itself."))
