"""Copy a model from server to server: one job hands it out, another fetches it; the two know each other by a key that
the console gives to both, sealed."""

import secrets
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.artifacts import paths
from deployments.models import Job, Server
from deployments.models.job import ENDED
from deployments.services import jobs, model_downloads

PORTS = 20


@dataclass(frozen=True)
class Wish:
    """`target`, `address` and `port` may be left out ('' and 0)."""

    source: Server
    path: str
    server: Server
    target: str = ""
    address: str = ""
    port: int = 0

    @property
    def folder(self) -> str:
        """Where it goes. Raises Invalid."""
        return model_downloads.folder_for(self.server, self.target, PurePosixPath(self.path).name)

    @property
    def from_where(self) -> str:
        """The source's address for the other server, '' where nobody knows one."""
        return self.address.strip() or address_of(self.source)

    @property
    def by_port(self) -> int:
        """The one that was given, else the first that no other copy from there holds."""
        return self.port or free_port(self.source)


def free_port(server: Server) -> int:
    """Of PORTS from MODEL_COPY_PORT on; where all are held, the copy waits for the first."""
    open_ = server.jobs.filter(kind="model_serve").exclude(state__in=ENDED).values_list("params", flat=True)
    held = {params.get("port") for params in open_}
    first = int(settings.MODEL_COPY_PORT)
    return next((port for port in range(first, min(first + PORTS, 65536)) if port not in held), first)


def address_of(server: Server) -> str:
    """The one of the interface with the default route, as the agent tells; '' where it tells none."""
    rows = server.facts.get("addresses") if isinstance(server.facts, dict) else None
    known = [row for row in rows or [] if isinstance(row, dict) and not row.get("local")]
    known.sort(key=lambda row: (not row.get("default"), ":" in str(row.get("address", ""))))
    return str(known[0].get("address", ""))[:253] if known else ""


def check(wish: Wish) -> None:
    """Raises ConsoleError."""
    if problem := paths.problem(paths.tidy(wish.path)):
        raise Invalid(pick(problem), _("Mend the path, then try again."), code="bad_model")
    if wish.source.pk == wish.server.pk:
        raise Conflict(
            _("%(name)s has it already.") % {"name": wish.source.name},
            _("Choose another server, or download it from the shared path."),
            code="same_server",
        )
    if not wish.from_where:
        raise Invalid(
            _("Nobody knows an address of %(name)s.") % {"name": wish.source.name},
            _("Give the address by which the other server reaches it."),
            code="no_address",
        )
    for server in (wish.source, wish.server):
        if server.is_offline:
            raise Conflict(
                _("%(name)s is silent, so nothing was queued.") % {"name": server.name},
                _("Start its agent, then try again."),
                code="server_offline",
            )


def copy(wish: Wish, *, by: User, ticket: str = "") -> tuple[Job, Job]:
    """(the job that hands out, the job that fetches), both or none. Raises ConsoleError."""
    jobs.check_may_operate(by)
    check(wish)
    pair, path = secrets.token_hex(16), paths.tidy(wish.path)
    serve: dict[str, Any] = {"model": path, "pair": pair, "port": wish.by_port}
    fetch = {
        "server": wish.source.name, "model": path, "folder": wish.folder, "address": wish.from_where,
        "port": wish.by_port, "pair": pair,
    }  # fmt: skip
    with transaction.atomic():
        serving = jobs.queue_job(wish.source, "model_serve", serve, by=by, ticket=ticket)
        copying = jobs.queue_job(wish.server, "model_copy", fetch, by=by, ticket=ticket)
        audit.record(by, "model.copied", copying, source=wish.source.name, path=path)
    return serving, copying
