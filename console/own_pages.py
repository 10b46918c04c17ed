"""Pages for administrators about the console itself: its certificate, and what its firewall must let through."""

import csv
import io
from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console import addresses, ports, spreadsheet, tls
from console.certificates import Facts
from console.errors import NotAllowed, NotFound

SOON = timedelta(days=30)


def _must_administer(request: HttpRequest) -> None:
    if not request.user.may("administrator"):  # type: ignore[union-attr]
        raise NotAllowed(_("Only an administrator sees this page."), _("Ask one, or ask one for the role."))


def _language() -> int:
    """0 for Chinese, 1 for English, as texts of (zh, en) are ordered."""
    return 0 if (translation.get_language() or "").startswith("zh") else 1


@require_GET
def certificate(request: HttpRequest) -> HttpResponse:
    """What others see, its faults, and how systems come to trust the authority."""
    _must_administer(request)
    shown, ca, language = tls.facts(), tls.authority_facts(), _language()
    faults = tls.troubles(addresses.shown_names())
    context = {
        "shown": shown,
        "authority": ca,
        "own": tls.is_own(),
        "ends": _ends(shown),
        "authority_ends": _ends(ca),
        "faults": [(fault.what[language], fault.do[language]) for fault in faults],
        "https": settings.HTTPS,
        "front": addresses.has_front(),
        "url": addresses.public_url(),
        "redis_place": urlsplit(addresses.public_redis_url()).netloc.rpartition("@")[2],
    }
    return render(request, "console/certificate.html", context)


def _ends(facts: Facts | None) -> tuple[str, int] | None:
    """(class of the state, days left)."""
    if facts is None:
        return None
    left = facts.not_after - timezone.now()
    return "critical" if left < timedelta(0) else "warning" if left < SOON else "ok", left.days


@require_GET
def authority(request: HttpRequest) -> HttpResponse:
    """The authority's certificate, for whoever is signed in: it is no secret, and their browser needs it."""
    found = tls.shown()
    if found is None or not found.ca:
        raise NotFound(
            _("This console has no authority whose certificate systems would need."),
            _("An administrator sees on the page “Certificate” what it shows."),
        )
    response = HttpResponse(found.ca, content_type="application/x-x509-ca-cert")
    response["Content-Disposition"] = 'attachment; filename="ascend-console-ca.crt"'
    return response


@require_GET
def port_list(request: HttpRequest) -> HttpResponse:
    _must_administer(request)
    ways, language = ports.ways(), _language()
    rows = [(way, ports.cells(way, language)) for way in ways]
    context = {
        "groups": [
            (_("Over the network"), [row for row in rows if not row[0].inside]),
            (_("Inside this machine"), [row for row in rows if row[0].inside]),
        ],
        "text": _text(language),
    }
    return render(request, "console/ports.html", context)


@require_GET
def port_file(request: HttpRequest) -> HttpResponse:
    """The same as a file; it begins with the mark by which spreadsheets know UTF-8."""
    _must_administer(request)
    response = HttpResponse("\ufeff" + _text(_language()), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="ascend-console-ports.csv"'
    return response


def _text(language: int) -> str:
    """The table as CSV."""
    out = io.StringIO()
    rows = [ports.HEAD[language].split(","), *(ports.cells(way, language) for way in ports.ways())]
    csv.writer(out, lineterminator="\n").writerows([spreadsheet.harmless(cell) for cell in row] for row in rows)
    return out.getvalue()
