"""Doubt: so many servers fell silent at once that the console suspects itself or the network (promise 9).

Ingest judges it (deployments/services/silence.py) and keeps it here, in a key of the console's own; pages show it, and
what would act on silence asks `is_on` first. Real servers and simulated ones are doubted apart.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import redis
from django.utils.translation import gettext as _

from console import audit, live, streams
from console.errors import Conflict, NotAllowed, Unavailable
from console.models import User
from console.redis import client

AWAY_S = 5.0  # with Redis away, pages do not wait for it again and again
_away_until = 0.0


@dataclass(frozen=True)
class Doubt:
    """`silent` of `of` servers, since `since` (epoch, the console's clock). `ids` are all that fell silent in it."""

    simulated: bool
    since: float
    silent: int
    of: int
    ids: tuple[int, ...] = ()

    @property
    def fallen(self) -> int:
        """How many the banner names: just after a restart none counts as silent again yet, though the doubt stands."""
        return self.silent or len(self.ids)


def read() -> list[Doubt]:
    """What is doubted now; nothing where Redis does not answer."""
    global _away_until
    if time.monotonic() < _away_until:
        return []
    try:
        kept = client().get(streams.DOUBT)
    except redis.RedisError:
        _away_until = time.monotonic() + AWAY_S
        return []
    return parse(kept)


def parse(kept: bytes | None) -> list[Doubt]:
    rows: list[dict[str, Any]] = json.loads(kept) if kept else []
    return [Doubt(**{**row, "ids": tuple(row["ids"])}) for row in rows]


def is_on(simulated: bool) -> bool:
    """Whether nothing is to be done for now because servers of this sort are silent."""
    return any(doubt.simulated == simulated for doubt in read())


def write(connection: Any, doubts: Iterable[Doubt]) -> None:
    """Keep it, and tell every page. Raises redis.RedisError."""
    rows = [asdict(doubt) for doubt in doubts]
    if rows:
        connection.set(streams.DOUBT, json.dumps(rows))
    else:
        connection.delete(streams.DOUBT)
    connection.publish(*live.message("doubt", "moved", {"on": bool(rows)}))


def end_by_hand(*, by: User) -> None:
    """Somebody knows that those servers are really down. Raises NotAllowed, Conflict, Unavailable."""
    if not by.may("administrator"):
        raise NotAllowed(_("Only an administrator may end the doubt."), _("Ask one to do it."))
    try:
        on = parse(client().get(streams.DOUBT))
        if not on:
            raise Conflict(_("Nothing is doubted any more."), _("Reload the page."), code="no_doubt")
        client().set(streams.DOUBT_ENDED, by.username, ex=60)
    except redis.RedisError as error:
        raise Unavailable(
            _("The console cannot reach its Redis just now."), _("Try again in a minute."), code="redis_unavailable"
        ) from error
    audit.record(by, "doubt.ended", by, silent=sum(doubt.silent for doubt in on))
