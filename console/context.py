"""What the frame of every page needs."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext, gettext_noop

from console import alerts, doubt
from console.models import User
from console.templatetags.frame import texts_for_scripts


@dataclass(frozen=True)
class Place:
    """One entry of the rail."""

    url: str
    title: str
    icon: str
    here: bool
    tally: int = 0
    critical: bool = False


# URL name, title, icon, and the beginnings of the URL names of the pages that belong to it.
PLACES = [
    ("monitoring:fleet", gettext_noop("Fleet"), "fleet", ("monitoring:fleet",)),
    (
        "monitoring:server-list",
        gettext_noop("Servers"),
        "server",
        (
            "monitoring:server", "deployments:join", "deployments:server", "deployments:key", "deployments:change",
            "deployments:hold", "deployments:engine",
        ),
    ),
    (
        "deployments:deployment-list",
        gettext_noop("Deployments"),
        "deployment",
        (
            "deployments:deployment", "deployments:replica", "deployments:revision", "deployments:rollout",
            "deployments:gateway", "deployments:benchmark", "deployments:playground",
        ),
    ),
    ("deployments:job-list", gettext_noop("Jobs"), "job", ("deployments:job", "deployments:batch")),
    ("deployments:campaign-list", gettext_noop("Campaigns"), "report", ("deployments:campaign",)),
    ("deployments:queue-list", gettext_noop("Queues"), "queue", ("deployments:queue", "django_rq:")),
    ("deployments:model-list", gettext_noop("Models"), "model", ("deployments:model", "deployments:serving")),
    ("monitoring:alert-list", gettext_noop("Alerts"), "alert", ("monitoring:alert",)),
    ("monitoring:stack-list", gettext_noop("Stacks"), "stack", ("monitoring:stack", "deployments:stack")),
]  # fmt: skip

FOR_OPERATORS = ("queue",)

# What the scripts of every page say; see static/js/texts.js.
TEXTS = [
    gettext_noop("%(n)s s"),
    gettext_noop("%(n)s min"),
    gettext_noop("%(n)s h"),
    gettext_noop("%(n)s d"),
    gettext_noop("%(span)s ago"),
    gettext_noop("live"),
    gettext_noop("polling"),
    gettext_noop("stalled"),
    gettext_noop("stalled %(span)s"),
    gettext_noop("Values arrive as they are measured."),
    gettext_noop("Websockets do not get through, so this page asks again every few seconds."),
    gettext_noop("Nothing has arrived. What you see is the last that was known."),
    # why the page is not live: static/js/live.js
    gettext_noop("The connection to the console broke. Trying again."),
    gettext_noop(
        "Websockets do not get through, probably a proxy on the way. The page asks every few seconds instead."
    ),
    gettext_noop("The console does not answer. Values stand still until it does."),
    gettext_noop("The console has stopped answering. Values stand still until it goes on."),
    gettext_noop("The console cannot reach its Redis. Values stand still until it can."),
    gettext_noop("You are signed out. Sign in again to go on."),
    gettext_noop("Copied"),
    gettext_noop("Nothing matches."),
    gettext_noop("Search did not answer. Try again."),
]


def places(request: HttpRequest) -> list[Place]:
    """The rail: only pages that exist."""
    match = getattr(request, "resolver_match", None)
    name = match.view_name if match else ""
    may_operate = isinstance(request.user, User) and request.user.may("operator")
    result = []
    for url_name, title, icon, owns in PLACES:
        try:
            url = reverse(url_name)
        except NoReverseMatch:
            continue
        if icon in FOR_OPERATORS and not may_operate:
            continue
        here = name.startswith(owns)
        tally = alerts.counts() if icon == "alert" else alerts.Counts(0, 0)
        result.append(Place(url, gettext(title), icon, here, tally.open, tally.critical > 0))
    return result


def frame(request: HttpRequest) -> dict[str, Any]:
    user: User | AnonymousUser = getattr(request, "user", AnonymousUser())
    known = isinstance(user, User)
    theme = request.COOKIES.get("theme", "")
    return {
        "console_version": settings.VERSION,
        "doubts": doubt.read() if known else [],
        "plaintext": settings.ALLOW_PLAINTEXT and known,
        "theme": theme if theme in ("light", "dark") else "",
        "may_operate": isinstance(user, User) and user.may("operator"),
        "may_administer": isinstance(user, User) and user.may("administrator"),
        "places": places(request) if known else [],
        "frame_texts": texts_for_scripts(TEXTS),
    }
