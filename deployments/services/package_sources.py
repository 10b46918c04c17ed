"""Where this site's packages come from: its indexes, whom to trust for them, and as whom to sign in there.

Passwords leave the settings in one way alone: sealed for a server whose job asks for them (`for_attempt`), or in a
file of the agent on this machine. Everything else here masks them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from console import certificates
from console.errors import Invalid, NotAllowed
from deployments.agent import signing
from deployments.models import Attempt, Server
from deployments.models.job import ENDED
from deployments.stacks.indexes import Login, for_addresses, host_of
from deployments.stacks.options import Options

MASK = "•••"
KINDS = ("install", "gateway")


def addresses() -> tuple[str, ...]:
    """Those that the settings name."""
    return tuple(f"{settings.PACKAGE_INDEX} {settings.PACKAGE_EXTRA_INDEX}".split())


def logins() -> tuple[Login, ...]:
    return tuple(Login(*one) for one in settings.PACKAGE_PASSWORDS)


def authorities() -> str:
    """PEM, '' where the settings name none. Raises Invalid where the file is gone since the start."""
    path = settings.PACKAGE_INDEX_CA
    try:
        return Path(path).read_text() if path else ""
    except (OSError, ValueError) as error:
        raise Invalid(
            _("The authority of the package indexes, %(path)s, cannot be read.") % {"path": path},
            _("Put the file that PACKAGE_INDEX_CA names back, then try again."),
            code="no_index_ca",
        ) from error


def is_private(options: Options) -> bool:
    """Whether pip needs what only we know, for the indexes of these options. Raises Invalid."""
    if options.bundle or options.wheelhouse:
        return False
    called = f"{options.index} {options.extra_index}".split()
    mine = for_addresses(logins(), called)
    for address in called:
        if address.startswith("http://") and for_addresses(mine, [address]) and address not in addresses():
            raise Invalid(
                _("The password for %(host)s would go there unencrypted.") % {"host": host_of(address)},
                _("Name the index by https://, or as PACKAGE_INDEX has it."),
                code="index_plain",
            )
    return bool(mine or (settings.PACKAGE_INDEX_CA and called))


def _content(called: Iterable[str]) -> dict[str, Any]:
    """What deployments/agent/indexed.py reads, for these addresses."""
    return {"logins": [list(one) for one in for_addresses(logins(), called)], "ca": authorities()}


def own_file() -> str:
    """The same for the agent of this machine, whose folder nobody else may enter."""
    return json.dumps({"logins": [list(one) for one in logins()], "ca": authorities()})


def for_attempt(server: Server, attempt: str) -> bytes:
    """Sealed for this server, while it works on that attempt. Raises NotAllowed."""
    rows = Attempt.objects.filter(pk=attempt[:40], job__server=server, job__kind__in=KINDS, pushed_at__isnull=False)
    row = rows.exclude(state__in=ENDED).exclude(job__state__in=ENDED).select_related("job").first()
    if row is None:
        raise NotAllowed(
            _("No job that asks for packages runs on this server under that name."),
            _("Queue the installation anew."),
            code="no_such_attempt",
        )
    named = " ".join(str(row.job.params.get(name, "")) for name in ("index", "extra_index")).split()
    return signing.seal(server.key, json.dumps(_content([*addresses(), *named])).encode())


def as_json() -> dict[str, Any]:
    """For pages and REST, with every password masked; null is what is not set."""
    return {
        "index": settings.PACKAGE_INDEX or None,
        "extra_index": settings.PACKAGE_EXTRA_INDEX.split(),
        "ca": _authority(),
        "logins": [{"host": one.host, "user": one.user, "password": MASK} for one in logins()],
    }


def _authority() -> dict[str, Any] | None:
    if not settings.PACKAGE_INDEX_CA:
        return None
    made: dict[str, Any] = {"file": settings.PACKAGE_INDEX_CA, "subject": None, "day": None}
    try:
        found = certificates.read(authorities())
    except (Invalid, ValueError):
        return made
    return {**made, "subject": found.subject, "day": found.not_after.date().isoformat()}
