"""What placement takes from a server's facts: the stack in use, rings of its NPUs, Kubernetes.

Facts are long and seldom change, so what was read of them is kept by their text.
"""

import json
from typing import Any, NamedTuple

from deployments.serving import topology
from deployments.stacks.catalogue import Catalogue, newest_first
from deployments.stacks.installed import Installed, alike, read
from deployments.stacks.verdict import MATCHES
from deployments.stacks.verdict import of as verdict_of

Places = tuple[tuple[Any, Any], ...]  # (npu_id, chip_id) in the order printed


class Known(NamedTuple):
    """`groups` and `cpus` are in the order of the reading, `groups` None where no ring is known."""

    family: str
    stack: str
    kind: str
    families: tuple[str, ...]
    containers: tuple[str, ...]
    kubernetes: bool
    groups: list[int] | None
    cpus: list[str]


_kept: dict[int, tuple[int, str, Places, Catalogue, Known]] = {}
_stack_of: dict[tuple[Catalogue, Installed], str] = {}
MOST_KEPT = 20_000


def known(catalogue: Catalogue, pk: int, text: str, family: str, told: Places) -> Known:
    """Of a server's facts as JSON, its chip's name, and its NPUs."""
    before = _kept.get(pk)
    if before and before[:3] == (hash(text), family, told) and before[3] is catalogue:
        return before[4]
    if len(_kept) > MOST_KEPT:
        _kept.clear()
    made = _read(text, family, told, catalogue)
    _kept[pk] = (hash(text), family, told, catalogue, made)
    return made


def _read(text: str, chip: str, places: Places, catalogue: Catalogue) -> Known:
    found = json.loads(text)
    facts = found if isinstance(found, dict) else {}
    has = read(facts, chip, catalogue)
    name = _stack(has, catalogue)
    row = catalogue.stacks.get(name)
    kind = "cpu" if not places else "npu"  # of a stack that the catalogue does not know: the engine's start will tell
    at = [(npu if isinstance(npu, int) else -1, index) for index, (npu, _chip) in enumerate(places)]
    return Known(
        has.family or "", name, row.kind if row else kind, row.families if row else (has.family or "",),
        has.containers or (),
        _is_held(facts.get("kubernetes")), topology.groups(facts.get("topology"), at),
        topology.cpus(facts.get("topology"), at),
    )  # fmt: skip


def _stack(has: Installed, catalogue: Catalogue) -> str:
    """The stack in use; where its agent does not tell that, the newest that the server matches; '' for none."""
    if has.current is not None:
        return has.current
    like = (catalogue, alike(has))
    if like not in _stack_of:
        if len(_stack_of) > MOST_KEPT:
            _stack_of.clear()
        rows = newest_first(catalogue.stacks)
        _stack_of[like] = next((row.name for row in rows if verdict_of(like[1], row, catalogue).word == MATCHES), "")
    return _stack_of[like]


def _is_held(told: Any) -> bool:
    """Whether kubelet runs with a device plugin for NPUs (agent/facts_cluster.py)."""
    return isinstance(told, dict) and told.get("kubelet") is True and bool(told.get("plugins"))
