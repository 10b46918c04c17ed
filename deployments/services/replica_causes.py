"""Who knows why a replica failed, and who is told what its log says: `deployments` does not know what watches it.

`knows` names one that gives a Cause of a replica, `reads` one that hears which findings a piece of its log has. Their
modules are imported by an app's `ready`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from deployments.models import EngineLog, Replica

log = logging.getLogger(__name__)


class Cause(NamedTuple):
    """Why, [zh, en] each: `what` in a sentence, `do` the first remedy; `link` leads to the decisive line."""

    what: tuple[str, str]
    do: tuple[str, str] | None
    link: str


Knows = Callable[[Replica], Cause | None]
Reads = Callable[[EngineLog, Sequence[Mapping[str, Any]]], None]
Rows = Callable[[Replica], "list[dict[str, Any]] | None"]
KNOWS: list[Knows] = []
READS: list[Reads] = []
ROWS: list[Rows] = []


def knows(act: Knows) -> Knows:
    KNOWS.append(act)
    return act


def reads(act: Reads) -> Reads:
    READS.append(act)
    return act


def rows(act: Rows) -> Rows:
    """`act(replica)` gives all that is known of its log in the shape of `Replica.findings`, None for nothing more."""
    ROWS.append(act)
    return act


def of(replica: Replica) -> Cause | None:
    """What is known first; who fails keeps nobody from saying that the replica has failed."""
    for act in KNOWS:
        try:
            if cause := act(replica):
                return cause
        except Exception:
            log.exception("the cause of replica %s could not be asked", replica.pk)
    return None


def tell(piece: EngineLog, findings: Sequence[Mapping[str, Any]]) -> None:
    """Who fails keeps nobody from reading the log."""
    for act in READS:
        try:
            act(piece, findings)
        except Exception:
            log.exception("what %s says could not be told", piece.pk)


def findings(replica: Replica) -> list[Any]:
    """Its findings, with what others know of its log."""
    known = next((found for act in ROWS if (found := act(replica)) is not None), None)
    own = replica.findings if isinstance(replica.findings, list) else []
    return known if known is not None else own
