"""What a probe found, and how it is told to a reader and to the console."""

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deployments.kinds.check_probes.host import Host
from deployments.steps import Text

VERDICTS = ("ok", "warning", "failed", "unknown")
MOST = 400  # characters of one found value; text of a server is bounded before it leaves it
NONE = "—"


@dataclass(frozen=True)
class Finding:
    """One answer. `found` and `wanted` are values, the same in both languages; sentences belong into `remedy`.

    `about` tells several findings of one probe apart (`3.0` = NPU 3, chip 0) and becomes part of the item's key.
    """

    verdict: str
    found: str = NONE
    wanted: str = NONE
    remedy: Text | None = None
    job: dict[str, Any] | None = None
    about: str = field(default="", kw_only=True)


class Probe(NamedTuple):
    """A named question. `ask` may raise Trouble, or break: the item is then `unknown`."""

    key: str
    title: Text
    ask: Callable[[Host], Finding | Iterable[Finding]]


def ok(found: str, wanted: str = NONE, *, about: str = "") -> Finding:
    return Finding("ok", found, wanted, about=about)


def warning(found: str, wanted: str, remedy: Text, **more: Any) -> Finding:
    return Finding("warning", found, wanted, remedy, **more)


def failed(found: str, wanted: str, remedy: Text, **more: Any) -> Finding:
    return Finding("failed", found, wanted, remedy, **more)


def unknown(remedy: Text, found: str = NONE, wanted: str = NONE, **more: Any) -> Finding:
    return Finding("unknown", found, wanted, remedy, **more)


def job(kind: str, **params: Any) -> dict[str, Any] | None:
    """The job that applies a remedy, None while this agent knows no such kind."""
    if importlib.util.find_spec(f"deployments.kinds.{kind}") is None:
        return None
    return {"kind": kind, "params": params}


def item(probe: Probe, finding: Finding) -> dict[str, Any]:
    """The JSON of one item, as the runner passes it on (`"e": "item"`)."""
    title = [f"{words} · {finding.about}" if finding.about else words for words in probe.title]
    return {
        "e": "item",
        "key": f"{probe.key}.{finding.about}" if finding.about else probe.key,
        "title": title,
        "verdict": finding.verdict,
        "found": clean(finding.found) or NONE,
        "wanted": clean(finding.wanted) or NONE,
        "remedy": [clean(text) for text in finding.remedy] if finding.remedy else None,
        "job": finding.job,
    }


def line(made: dict[str, Any]) -> str:
    """The item as one line of the log: `[ok] 内核 / Kernel  5.10.0  (≥ 4.19)`."""
    zh, en = made["title"]
    title = zh if zh == en else f"{zh} / {en}"
    wanted = "" if made["wanted"] == NONE else f"  ({made['wanted']})"
    remedy = "" if made["remedy"] is None else f"  → {made['remedy'][0]} {made['remedy'][1]}"
    return f"[{made['verdict']}] {title}  {made['found']}{wanted}{remedy}"


def clean(text: str) -> str:
    """One printable line of at most MOST characters; a cut is shown by an ellipsis."""
    flat = "".join(char if char.isprintable() else " " for char in text[: MOST * 4])
    flat = " ".join(flat.split())
    return flat if len(flat) <= MOST else flat[: MOST - 1] + "…"
