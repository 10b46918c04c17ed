"""What is known of replicas by the logs of their engines: for pages, alerts and remedies. Each piece of a log has a
diagnosis of its own (diagnosing.py makes it); a replica's is that of the piece that ended badly last."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.models import OuterRef, Subquery

from deployments.models import EngineLog, Replica, ReplicaState
from deployments.services import replica_alerts, replica_causes
from deployments.serving.findings import NAMELESS
from monitoring import diagnoses
from monitoring.diagnoses import agreeing
from monitoring.models import Diagnosis
from monitoring.services import diagnosed_places, diagnosing

WAYS = {  # a setting that a rule would have changed: the way by which its value is worked out
    "max_model_len": "context", "max_num_seqs": "seqs", "max_num_batched_tokens": "batch", "enforce_eager": "eager",
    "tensor_parallel_size": "tp_up", "capture_sizes": "captures", "cudagraph_mode": "decode_only",
    "trust_remote_code": "trust", "quantization": "no_quantization",
}  # fmt: skip


def of_piece(piece: EngineLog | None) -> Diagnosis | None:
    if piece is None:
        return None
    return diagnosing.rows().filter(piece=piece).first()


def newest(replicas: Iterable[Replica]) -> dict[int, Diagnosis]:
    """{replica id: the diagnosis of the piece that ended badly last}; one query. None of a replica that serves well."""
    return _newest([row.pk for row in replicas if row.state not in (ReplicaState.READY, ReplicaState.STOPPED)])


def _newest(ill: list[int]) -> dict[int, Diagnosis]:
    if not ill:
        return {}
    last = Diagnosis.objects.filter(piece__replica=OuterRef("pk")).order_by("-made_at", "-pk").values("pk")[:1]
    wanted = Replica.objects.filter(pk__in=ill).annotate(last=Subquery(last)).values("last")
    found = diagnosing.rows().filter(pk__in=wanted)
    return {row.piece.replica_id: row for row in found if row.piece is not None}


@replica_causes.knows
def cause(replica: Replica) -> replica_causes.Cause | None:
    """Of a replica that failed or restarts, for its alert. None where nobody knows what is wrong."""
    row = _newest([replica.pk]).get(replica.pk)
    best = row.findings[0] if row and row.findings else None
    if row is None or best is None or best["id"] in NAMELESS:
        return None
    first = next(iter(best["remedies"]), None)
    do = (first["zh"], first["en"]) if first else None
    return replica_causes.Cause((best["cause"]["zh"], best["cause"]["en"]), do, diagnosed_places.of_line(row))


@replica_causes.reads
def heard(piece: EngineLog, tables: Sequence[Mapping[str, Any]]) -> None:
    """The tables of engines' failures have read this piece, too: of both one answer is kept."""
    row = Diagnosis.objects.filter(piece=piece).first()
    if row is None and not tables:
        return
    rules = row.findings if row else [one.as_json() for one in diagnoses.named(diagnosing.scan(piece).findings())]
    diagnosing.write(piece, agreeing.merged(rules, tables))
    replica_alerts.renew(piece.replica)


@replica_causes.rows
def findings(replica: Replica) -> list[dict[str, Any]] | None:
    """All that is known of it, as the page of remedies reads it: `id` is that of the tables where they know it."""
    row = newest([replica]).get(replica.pk)
    if row is None or not row.findings:
        return None
    own = replica.findings if isinstance(replica.findings, list) else []
    by_id = {str(one.get("id")): one for one in own if isinstance(one, dict)}
    return [_as_finding(one, by_id.get(one.get("table", "")), row.piece_id or "") for one in row.findings]


def _as_finding(row: Mapping[str, Any], table: Mapping[str, Any] | None, piece: str) -> dict[str, Any]:
    made = {
        "id": row["id"], "line": row["line"], "text": row["text"], "cause": [row["cause"]["zh"], row["cause"]["en"]],
        "piece": piece, "numbers": {},
        "remedies": [_as_remedy(one) for one in row["remedies"]],
    }  # fmt: skip
    if table is None:
        return made
    # Its remedies are worked out from the numbers of the line that the tables know.
    return made | {"id": table["id"], "numbers": table.get("numbers", {}), "remedies": table.get("remedies", [])}


def _as_remedy(one: Mapping[str, Any]) -> dict[str, Any]:
    text = [one["zh"], one["en"]]
    if one.get("job"):
        return {"text": text, "job": {"kind": one["job"], "params": {}}}
    return {"text": text, "way": way_of(one), "change": None}


def way_of(one: Mapping[str, Any]) -> str:
    """The way that works out what a rule's remedy would change; '' where there is none."""
    names = one.get("change") or [""]
    if names[0] == "gpu_memory_utilization":
        return "share_up" if "raise" in one["en"].lower() else "share_down"
    if names[0] == "dtype":
        return "float16" if "dtype float16" in one["en"] else "bfloat16" if "dtype bfloat16" in one["en"] else ""
    return WAYS.get(names[0], "")
