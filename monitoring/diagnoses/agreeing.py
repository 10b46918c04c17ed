"""One answer of two: rules hold every log (this folder), the tables of `deployments/serving/failures` the logs of
engines, of which they work remedies out. Where both say the same of a log, the more specific one is shown.

Rows are what is kept: those of rules as scan.Finding.as_json, those of tables as serving.findings.Finding.as_json.
"""

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from deployments.serving.failures import FOLLOWS
from deployments.serving.findings import NAMELESS, TABLES

SAME = {  # rule: finding of the tables that means the same
    "aicpu-library": "aicpu",
    "bf16-on-chip-without": "bfloat16",
    "bind-address-wrong": "port",
    "context-beyond-model": "context-model",
    "device-type-not-inferred": "no-device",
    "disk-full": "disk-full",
    "flag-unknown": "flag-unknown",
    "glibc-too-old": "libraries",
    "graph-streams": "graph-streams",
    "hbm-multi-bit-ecc": "ecc",
    "hccl-buffer-too-small": "hccl-buffer",
    "hccl-link-timeout": "peer-connect",
    "hccl-port-npu": "device-port",
    "heads-not-divisible": "heads",
    "kv-cache-negative": "kv-negative",
    "kv-cache-smaller-than-context": "context-cache",
    "memory-taken-at-start": "share-not-free",
    "mla-heads-per-rank": "mla-heads",
    "nnal-missing": "no-nnal",
    "npu-full-by-others": "oom-foreign",
    "npu-link-down": "link-down",
    "npu-out-of-memory": "oom",
    "npu-smi-container": "no-hal",
    "port-in-use": "port",
    "port-privileged": "port",
    "quant-layer-not-described": "quant-description",
    "quantization-ascend-unknown": "flag-choice-ascend",
    "soc-unsupported": "chip-unsupported",
    "speculative-config": "spec-tokens",
    "tokenizer-broken": "tokenizer",
    "tokenizers-too-old": "tokenizer",
    "torch-npu-missing": "no-package",
}
RANKS = {known.id: known.rank for known in TABLES}
ROOT_SCORE, ECHO_SCORE, MEANT_SCORE, NAMELESS_SCORE = 82, 55, 60, 10
MOST = 5


def says(row: Mapping[str, Any], reason: Any) -> bool:
    """Whether a reason, [zh, en], that a server gave by the tables says the same as this row, or its very words."""
    if not isinstance(reason, (list, tuple)) or len(reason) != 2:
        return False
    given = str(reason[1])
    if row["cause"]["en"] in given:
        return True
    name = row.get("table") or SAME.get(str(row["id"]))
    known = next((one for one in TABLES if one.id == name), None)
    return known is not None and re.search(_pattern(known.cause.en), given) is not None


def _pattern(text: str) -> str:
    """A text with names in braces as it stands when they are filled in."""
    return "".join(".{1,200}?" if name else re.escape(part) for part, name in _parts(text))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for part, name, _spec, _conversion in string.Formatter().parse(text):
        yield part, ""
        if name:
            yield "", name


def merged(rules: Iterable[Mapping[str, Any]], tables: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Best first, in the shape of rules' rows; each thing once. What the tables work out stays with the row: `table` is
    the id of theirs, `way` stands in its remedies. Merging what was merged changes nothing."""
    kept = [dict(row) for row in rules]
    for row in tables:
        ours = _as_rule(row)
        if ours is None or any(one.get("table") == ours["table"] or one["id"] == ours["id"] for one in kept):
            continue
        if ours["table"] in NAMELESS and kept:
            continue
        same = next((n for n, one in enumerate(kept) if _is_same(one, ours)), None)
        if same is None:
            kept.append(ours)
        else:
            kept[same] = _one_of(kept[same], ours)
    if any(one["id"] not in NAMELESS for one in kept):
        kept = [one for one in kept if one["id"] not in NAMELESS]
    return sorted(kept, key=lambda one: (-one["score"], one["line"]))[:MOST]


def _is_same(rule: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return SAME.get(str(rule["id"])) == ours["table"] or bool(rule["line"] == ours["line"])


def _one_of(rule: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """The more specific one; remedies that are worked out are better than words."""
    best = dict(rule if rule["score"] >= ours["score"] else ours)
    if any("way" in one or "change" in one for one in ours["remedies"]):
        best["remedies"] = ours["remedies"]
    return best | {"table": ours["table"]} | ({"details": rule["details"]} if "details" in rule else {})


def _as_rule(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A finding of the tables as a rule's row; None where it is none."""
    try:
        name = str(row["id"])
        rank = RANKS.get(name)
        score = MEANT_SCORE if rank is None else ECHO_SCORE if rank == FOLLOWS else ROOT_SCORE
        remedies = [_remedy(one, f"{name}-{n}") for n, one in enumerate(row.get("remedies", []))]
        zh, en = row["cause"]
        return {
            "id": name,
            "stage": "serve",
            "line": int(row["line"]),
            "text": str(row["text"]),
            "cause": {"zh": str(zh), "en": str(en)},
            "remedies": remedies,
            "score": NAMELESS_SCORE if name in NAMELESS else score,
            "table": name,
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _remedy(one: Mapping[str, Any], key: str) -> dict[str, Any]:
    """`way` is how the page of remedies calls it, where it is worked out."""
    zh, en = one["text"]
    made: dict[str, Any] = {"zh": str(zh), "en": str(en)}
    if one.get("job"):
        made["job"] = str(one["job"]["kind"])
    elif one.get("change") or one.get("way"):
        made["way"] = key
    return made
