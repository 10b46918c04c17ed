"""What a server asks of the pages by HTTP, signed with its own key: that it leaves, the agent's code, wheels, how to
get at indexes, parts of support bundles."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from console import untrusted
from console.errors import Conflict, NotAllowed
from deployments.agent import signing
from deployments.models import Rotation, Server
from deployments.services import (
    bundle,
    join,
    lifecycle,
    model_sources,
    model_uploads,
    package_sources,
    support_parts,
    wheel_bundles,
)

LEAVE_VALID_S = 600


def leave(body: str, mac: str) -> Server:
    """{"op": "leave", "server": id, "t": epoch}: it leaves. Raises NotAllowed for what it did not sign just now."""
    refusal = NotAllowed(
        _("This server's goodbye does not bear its signature."),
        _("Let it leave on the console's page “Join a server”."),
        code="bad_signature",
    )
    server, told = _read(body, mac, "leave", refusal)
    try:
        fresh = abs(time.time() - float(told["t"])) < LEAVE_VALID_S
    except (ValueError, TypeError, KeyError, OverflowError):
        raise refusal from None
    if not fresh:
        raise refusal
    if server.leaving_at:  # it was asked to
        with transaction.atomic():
            lifecycle.goodbye(server)
            lifecycle.finish(server)
        return server
    join.leave(server, by=None)
    return server


def code(body: str, mac: str) -> bundle.Bundle:
    """{"op": "code", "server": id, "digest": …}: the agent's bundle of that digest.

    No time stands in it, since the server's clock may be off: who repeats it gets the agent's code, which is no
    secret. Raises NotAllowed, and Conflict where the console has another one by now.
    """
    refusal = NotAllowed(
        _("This server's question does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    _server, told = _read(body, mac, "code", refusal)
    if not told.get("digest"):
        raise refusal
    own = bundle.agent()
    if str(told["digest"]) != own.digest:
        raise Conflict(
            _("The console has another version of the agent by now."),
            _("Start a new upgrade on the page “Agents”."),
            code="other_code",
        )
    return own


def wheels(body: str, mac: str) -> Path:
    """{"op": "wheels", "server": id, "bundle", "file"}: a file of a bundle that the console keeps, its manifest for ''.

    Raises NotAllowed, and NotFound where there is no such file.
    """
    refusal = NotAllowed(
        _("This server's question does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    _server, told = _read(body, mac, "wheels", refusal)
    return wheel_bundles.file_of(_word(told, "bundle"), _word(told, "file"))


def indexes(body: str, mac: str) -> bytes:
    """{"op": "indexes", "server": id, "attempt": id}: how to get at the site's indexes, sealed with the server's key,
    so that who repeats the question gets nothing that he can read. Raises NotAllowed."""
    refusal = NotAllowed(
        _("This server's question does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    server, told = _read(body, mac, "indexes", refusal)
    return package_sources.for_attempt(server, _word(told, "attempt"))


def _word(told: dict[str, Any], name: str) -> str:
    """What a server says, as a database and an answer can hold it."""
    return untrusted.text(str(told.get(name, "")), 300)


def models(body: str, mac: str) -> bytes:
    """{"op": "models", "server": id, "attempt": id}: tokens and authorities of the hubs for that job, sealed with the
    server's key. Raises NotAllowed."""
    refusal = NotAllowed(
        _("This server's question does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    server, told = _read(body, mac, "models", refusal)
    return model_sources.for_attempt(server, str(told.get("attempt", "")))


def upload(body: str, mac: str) -> tuple[Path, int]:
    """{"op": "upload", "server": id, "upload", "file", "begin"}: a file of an upload, its list for no name, for
    a server whose job fetches it.

    Raises NotAllowed, NotFound, Conflict.
    """
    refusal = NotAllowed(
        _("This server's question does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    server, told = _read(body, mac, "upload", refusal)
    if not model_uploads.is_for(server, str(told.get("upload", ""))):
        raise refusal
    path = model_uploads.file_of(str(told.get("upload", "")), str(told.get("file", "")))
    begin = str(told.get("begin", "0"))
    if not begin.isdecimal() or len(begin) > 18 or int(begin) > path.stat().st_size:
        raise refusal
    return path, int(begin)


def support(body: str, mac: str, piece: bytes) -> int:
    """{"op": "support", "server": id, "attempt": id, "source", "begin", "size", "sha256": of the piece}: the next
    bytes of what a job has collected; how many are there then. Who repeats it changes nothing: they are there already.

    Raises ConsoleError.
    """
    refusal = NotAllowed(
        _("This server's part does not bear its signature."), _("Let it join again."), code="bad_signature"
    )
    server, told = _read(body, mac, "support", refusal)
    begin, size = (untrusted.whole(told.get(name), 1 << 50) for name in ("begin", "size"))
    if begin is None or size is None or told.get("sha256") != hashlib.sha256(piece).hexdigest():
        raise refusal
    return support_parts.receive(server, _word(told, "attempt"), _word(told, "source"), begin, size, piece)


def _read(body: str, mac: str, op: str, refusal: NotAllowed) -> tuple[Server, dict[str, Any]]:
    """Who asks, and what it says. Raises `refusal` for another question, and for one that the server did not sign."""
    try:
        told = json.loads(body)
        server = Server.objects.filter(pk=int(told["server"])).first() if told["op"] == op else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise refusal from None
    if server is None or not mac.isascii() or not _is_signed(server, body, mac):
        raise refusal
    return server, told


def _is_signed(server: Server, body: str, mac: str) -> bool:
    """By the key that the server has; while its keys change, it may have the new one already."""
    keys = [server.key, *Rotation.objects.filter(server=server).values_list("key", flat=True)]
    return any(signing.is_signed(key, body, mac) for key in keys)
