"""What comes through a socket, read with care; and why it is refused, in words."""

import contextlib
import json
import re
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _

from console.errors import ConsoleError, Invalid, NotAllowed, NotFound, Unavailable
from console.live import MAX_NAME, Topic, topics

MAX_FRAME = 4096  # characters
MAX_TOPICS = 50
MAX_ERRORS = 100  # of one socket, before it is closed
MAX_LINE = 2**53  # the largest whole number that JavaScript holds
ATTEMPT = re.compile(r"[\w-]{1,40}", re.ASCII)


def read_frame(text: str | None) -> dict[str, Any]:
    """The object that a frame holds. Raises Invalid in words."""
    if text is None:
        raise Invalid(_("A binary frame cannot be read here."), _("Send JSON as text."), code="bad_frame")
    if len(text) > MAX_FRAME:
        raise Invalid(
            _("The frame is longer than %(most)s characters.") % {"most": MAX_FRAME},
            _("Send one subscription a frame."),
            code="too_large",
        )
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        frame = None
    if not isinstance(frame, dict):
        raise Invalid(
            _("The frame is not a JSON object."),
            _('Send for example {"op": "subscribe", "topic": "fleet"}.'),
            code="bad_json",
        )
    return frame


def read_place(frame: dict[str, Any]) -> tuple[str | None, int]:
    """(attempt, after): where the page wants to go on; `after` counts only together with an attempt."""
    attempt, after = frame.get("attempt"), frame.get("after")
    is_line = after is None or (isinstance(after, int) and not isinstance(after, bool) and 0 <= after < MAX_LINE)
    is_attempt = attempt is None or (isinstance(attempt, str) and ATTEMPT.fullmatch(attempt) is not None)
    if not is_line or not is_attempt:
        raise Invalid(
            _("“after” must be a line number, and “attempt” the name of an attempt."),
            _("Leave both out to begin at the start."),
            code="bad_place",
        )
    return attempt, after or 0


def find_topic(name: Any) -> tuple[Topic, re.Match[str]]:
    """The kind of topic that a name belongs to. Raises NotFound."""
    if isinstance(name, str) and len(name) <= MAX_NAME:
        for topic in topics():
            if match := re.fullmatch(topic.pattern, name, re.ASCII):
                return topic, match
    raise NotFound(
        _("There is no topic “%(name)s”.") % {"name": str(name)[:40]},
        _("Use fleet, jobs, server:ID or job:ID."),
        code="unknown_topic",
    )


def is_own_page(scope: dict[str, Any]) -> bool:
    """True when the page that opened the socket is ours: cookies go along with sockets of other sites too.

    Programs send no Origin. Ports are compared only where both are named: proxies drop them.
    """
    headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
    origin = headers.get(b"origin", "")
    if not origin or origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"//{headers.get(b'host', '')}")
        same_port = theirs.port is None or ours.port is None or theirs.port == ours.port
        return theirs.hostname is not None and theirs.hostname == ours.hostname and same_port
    except ValueError:
        return False


def language_of(scope: dict[str, Any]) -> str:
    """The language this page is shown in: its cookie, else the user's own, else the browser's, else the default."""
    headers = dict(scope.get("headers", ()))
    accepted = headers.get(b"accept-language", b"").decode("latin-1")[:200].replace(";", ",").split(",")
    wishes = [scope.get("cookies", {}).get(settings.LANGUAGE_COOKIE_NAME), getattr(scope.get("user"), "language", "")]
    for wish in (*wishes, *accepted):
        with contextlib.suppress(LookupError):
            if wish:
                return translation.get_supported_language_variant(wish.strip().lower())
    return settings.LANGUAGE_CODE


def check_may(topic: Topic, match: re.Match[str], user: Any) -> None:
    """Raises NotAllowed."""
    if not topic.may(user, match):
        raise NotAllowed(
            _("Your role may not read “%(topic)s”.") % {"topic": match.string},
            _("Ask an administrator for a role that may."),
        )


def too_many() -> ConsoleError:
    return Invalid(
        _("This page already reads %(most)s topics.") % {"most": MAX_TOPICS},
        _("Unsubscribe from one that is no longer shown."),
        code="too_many",
    )


def signed_out() -> ConsoleError:
    return NotAllowed(_("You are not signed in."), _("Sign in and open the page again."), code="not_signed_in")


def other_site() -> ConsoleError:
    return NotAllowed(
        _("The page that asks belongs to another site."),
        _("Open the console at its own address, or name the other one in CSRF_TRUSTED_ORIGINS."),
        code="other_site",
    )


def enough() -> ConsoleError:
    return Invalid(
        _("This socket sent %(most)s things that cannot be.") % {"most": MAX_ERRORS},
        _("Reload the page."),
        code="too_many_errors",
    )


def no_database() -> ConsoleError:
    return Unavailable(
        _("The database does not answer, so the topic was not opened."), _("Try again in a moment."), code="no_database"
    )
