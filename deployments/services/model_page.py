"""What the page of one model shows: its numbers, its copies, the jobs around it, what can be done with it."""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from deployments import kinds
from deployments.artifacts import known, sizes
from deployments.models import Artifact, ArtifactPlace, Job
from deployments.services import model_catalogue, model_uses

MOST_PLACES, MOST_JOBS, LOOKED_THROUGH = 200, 30, 400


class Action(NamedTuple):
    """What may be done with a model, where that page or kind is there."""

    title: str
    url: str
    icon: str


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Rows (label, value, unit or explanation) of config and weights."""

    config: list[tuple[str, Any, str]]
    weights: list[tuple[str, int, float]]  # type, bytes, share of all
    kv_bytes: int | None
    kv_kind: str  # GQA | MLA | ""


def numbers(artifact: Artifact) -> Numbers:
    s = artifact.summary
    rows = [
        (_("Architecture"), s.get("architecture") or None, ""), (_("Model type"), s.get("model_type") or None, ""),
        (_("Layers"), s.get("layers"), ""), (_("Hidden size"), s.get("hidden"), ""),
        (_("Attention heads"), s.get("heads"), ""), (_("KV heads"), s.get("kv_heads"), ""),
        (_("Head size"), s.get("head_dim"), ""), (_("Experts"), s.get("experts"), ""),
        (_("Vocabulary"), s.get("vocab"), _("words")), (_("Longest context"), s.get("max_position"), _("tokens")),
        ("kv_lora_rank", s.get("kv_lora_rank"), "MLA"), ("qk_rope_head_dim", s.get("qk_rope_head_dim"), "MLA"),
    ]  # fmt: skip
    amounts = s.get("dtypes") if isinstance(s.get("dtypes"), dict) else {}
    total = sum(amounts.values()) or 1
    weights = sorted(((name, size, 100 * size / total) for name, size in amounts.items()), key=lambda row: -row[1])
    kv = kv_bytes(artifact)
    kind = "" if kv is None else "MLA" if s.get("kv_lora_rank") else "GQA"
    return Numbers([row for row in rows if row[1] is not None], weights, kv, kind)


def kv_bytes(artifact: Artifact) -> int | None:
    """Bytes of one token in the KV cache, from the model's own config; hybrids are known by their name alone."""
    row = model_catalogue.like(artifact.name)
    fields = {name: artifact.summary.get(name) for name in sizes.KV_FIELDS}
    fields["full_attention_layers"] = row.full_attention_layers if row else None
    if row and row.kv_bytes_per_token is None:
        return None  # no formula fits
    return sizes.kv_bytes_per_token(**fields)


def places(artifact: Artifact) -> tuple[list[ArtifactPlace], int]:
    """(those where it lies now, then those that are gone; how many more there are)."""
    rows = artifact.places.select_related("server", "job").defer("server__facts", "server__notes")
    every = list(rows.order_by("gone_at", "server__name", "path")[: MOST_PLACES + 1])
    every.sort(key=lambda place: (place.gone_at is not None, place.server.name, place.path))
    return every[:MOST_PLACES], max(0, artifact.places.count() - MOST_PLACES)


def remedy(problem: Sequence[Any]) -> str:
    """What to do about a problem of a copy."""
    code, missing = str(problem[0]), bool(problem[2])
    if code == "only_pickles":
        return _("Convert it to safetensors, or download the repository's safetensors.")
    if missing:
        return _("Fetch the missing files: the same download goes on where it was, or copy them from a whole copy.")
    return _("Delete this copy and bring it anew, or copy it from a server where it is whole.")


# ---------- jobs ----------


@lru_cache(maxsize=1)
def kinds_of_models() -> tuple[str, ...]:
    """Kinds that ask for a model or a folder of one."""
    asks = {"artifact", "new_folder"}
    found = [name for name in kinds.names() if asks & _widgets(name)]
    return (*found, "model_scan")


def _widgets(kind: str) -> set[str]:
    return {field.metadata.get("widget", "") for field in dataclasses.fields(kinds.load(kind).Params)}


def jobs_of(artifact: Artifact, there: Iterable[ArtifactPlace]) -> list[tuple[Job, str]]:
    """(job, "made" | "told" | "used"), newest first: what made it, told of it last, named one of its copies."""
    found: dict[int, tuple[Job, str]] = {}
    paths_of: dict[int, list[str]] = {}
    for place in there:
        paths_of.setdefault(place.server_id, []).append(place.path)
        if place.job:
            found[place.job.pk] = (place.job, "told")
    rows = Job.objects.filter(server__in=paths_of, kind__in=kinds_of_models()).select_related("server", "requester")
    for job in rows.defer("server__facts", "server__notes").order_by("-pk")[:LOOKED_THROUGH]:
        params = model_uses.own_params(job)
        if job.kind != "model_scan" and any(model_uses.names(params, path) for path in paths_of[job.server_id]):
            found[job.pk] = (job, "used")
    if artifact.made_by:
        found[artifact.made_by.pk] = (artifact.made_by, "made")
    return sorted(found.values(), key=lambda pair: -pair[0].pk)[:MOST_JOBS]


# ---------- what can be done ----------


def address(name: str, *args: Any, **query: Any) -> str:
    """The address of a page that may not be there: '' then."""
    try:
        return f"{reverse(name, args=args)}?{urlencode(query)}" if query else reverse(name, args=args)
    except NoReverseMatch:
        return ""


def actions(artifact: Artifact, there: Sequence[ArtifactPlace]) -> list[Action]:
    """Plan, copy, quantize, convert, evaluate: those whose pages there are, with this model filled in."""
    here = next((place for place in there if place.whole and place.server.decommissioned_at is None), None)
    if here is None:
        return []
    filled: dict[str, Any] = {"artifact": artifact.pk, "place": here.pk}
    copied = {"from": here.server.name, "path": here.path}
    wanted = [
        (_("Copy to a server"), "deployments:model-copy", "model_copy", "copy"),
        (_("Quantize"), "deployments:model-quantize", "quantize", "stack"),
        (_("Convert"), "deployments:model-convert", "convert", "wrap"),
        (_("Evaluate"), "deployments:model-evaluate", "evaluate", "report"),
    ]
    if artifact.format not in ("hf", "quantized"):
        wanted = wanted[:1]
    found = [
        (title, address(name, **(copied if kind == "model_copy" else filled)) or _form(kind, here), icon)
        for title, name, kind, icon in wanted
    ]
    plan = [
        (_("Deploy this"), address("deployments:deployment-new", artifact=artifact.pk), "deployment"),
        (_("Plan for serving"), address("deployments:serving-plan", model=artifact.pk), "deployment"),
    ]
    every = [*(plan if artifact.format in ("hf", "quantized") else []), *found]
    return [Action(title, url, icon) for title, url, icon in every if url]


def _form(kind: str, here: ArtifactPlace) -> str:
    """The plain form of a kind that has no page of its own, the model filled in where it asks for one."""
    if kind not in kinds.offered():
        return ""
    fields = dataclasses.fields(kinds.load(kind).Params)
    asked = next((field.name for field in fields if field.metadata.get("widget") == "artifact"), None)
    query = {"kind": kind, "server": here.server.name} | ({f"p-{asked}": here.path} if asked else {})
    return f"{reverse('deployments:job-new')}?{urlencode(query)}"


def ways_in() -> list[Action]:
    """How a model comes here: those pages or forms that there are."""
    wanted = [
        (_("Download a model"), "deployments:model-download", "download", "download"),
        (_("Make a sample model"), "deployments:model-sample", "sample_model", "model"),
        (_("Upload a model"), "deployments:model-upload", "", "link"),
    ]
    found = []
    for title, name, kind, icon in wanted:
        url = address(name)
        if not url and kind in kinds.offered():
            url = f"{reverse('deployments:job-new')}?{urlencode({'kind': kind})}"
        if url:
            found.append(Action(title, url, icon))
    return found


def as_json(artifact: Artifact) -> dict[str, Any]:
    """One model as REST shows it."""
    there, more = places(artifact)
    shown = numbers(artifact)
    return {
        "summary": artifact.summary,
        "kv_bytes_per_token": shown.kv_bytes,
        "weights": {name: size for name, size, _share in shown.weights},
        "notes": artifact.notes,
        "places": [place_json(place) for place in there],
        "more_places": more,
        "jobs": [
            {"id": job.pk, "kind": job.kind, "state": job.state, "why": why} for job, why in jobs_of(artifact, there)
        ],
    }


def place_json(place: ArtifactPlace) -> dict[str, Any]:
    return {
        "id": place.pk, "server": place.server.name, "simulated": place.server.simulated, "path": place.path,
        "whole": place.whole, "problems": place.problems, "bytes": place.bytes,
        "seen_at": place.seen_at.isoformat(), "gone_at": place.gone_at.isoformat() if place.gone_at else None,
    }  # fmt: skip


def known_row(artifact: Artifact) -> known.Known | None:
    return model_catalogue.like(artifact.name)
