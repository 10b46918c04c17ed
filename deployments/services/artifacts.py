"""Models on servers: rows of what jobs tell, and what is asked of them.

What was told is a server's word: it may say anything about its own folders and nothing about those of others. An
artifact that lies elsewhere too keeps its name, parent and history whoever tells of it again.
"""

import contextlib
import re
from pathlib import PurePosixPath
from typing import Any

import redis
from django.db import transaction
from django.utils import timezone

from console import live, untrusted
from deployments.artifacts import paths
from deployments.artifacts.scan import DEEPEST
from deployments.models import Artifact, ArtifactPlace, Attempt, Job, Server, Via
from deployments.services import told

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
FORMATS = ("hf", "quantized", "adapter", "om", "mindir", "onnx", "air", "unknown")
MOST_BYTES = 10**15
MOST_PLACES = 2000  # of one server: nobody has that many models
TEXTS = ("architecture", "model_type", "dtype", "quant_type")
NUMBERS = (
    "parameters", "layers", "hidden", "heads", "kv_heads", "head_dim", "kv_lora_rank", "qk_rope_head_dim", "vocab",
    "max_position", "experts", "shards", "weight_bytes", "files",
)  # fmt: skip
FLAGS = ("tied", "remote_code", "tokenizer")


# What a job of that kind may say of how a model came about; any other has only found it.
MADE_BY = {
    "download": (Via.DOWNLOADED, Via.UPLOADED, Via.COPIED),
    "model_copy": (Via.COPIED,),
    "sample_model": (Via.SAMPLE,),
    "convert": (Via.CONVERTED,),
    "quantize": (Via.QUANTIZED,),
}
SILENT = ("evaluate",)  # what it judges may not become another model while it runs


class Untold(ValueError):
    """What was told makes no artifact."""


@told.handles("artifact")
def artifact_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """A folder of the server holds this model."""
    server, job = attempt.job.server, attempt.job
    path, model = _path(data), data.get("model")
    if not isinstance(model, dict) or job.kind in SILENT:
        raise Untold("no model")
    artifact = _artifact(server, job, data, model)
    _check_same(attempt, path, artifact)
    _place(server, job, path, artifact, model)
    tell_soon()


@told.handles("artifact_gone")
def gone_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """Nothing lies in that folder of the server any more, nor below it."""
    _mark_gone(attempt.job, _in_folder(attempt.job, _path(data)))


@told.handles("scan_done")
def scan_told(attempt: Attempt, data: dict[str, Any]) -> None:
    """A folder was looked through: what was known where the look went, and was not told by this job, is gone.

    What another job has told of since this one was sent may have come behind the look's back: it is there.
    """
    folder = _path(data)
    here = _in_folder(attempt.job, folder)
    told_of = [row.path for row in here if row.job_id == attempt.job_id]
    since = attempt.pushed_at
    older = [row for row in here if row.job_id != attempt.job_id and (since is None or row.seen_at < since)]
    _mark_gone(attempt.job, [row for row in older if _looked(row.path, folder, told_of)])


def _check_same(attempt: Attempt, path: str, artifact: Artifact) -> None:
    """An attempt says once what lies in a folder: else it could make rows without end. Raises Untold."""
    here = ArtifactPlace.objects.filter(server=attempt.job.server, path=path, job=attempt.job)
    since = attempt.pushed_at or attempt.job.created_at  # by our own clock
    if here.filter(seen_at__gte=since).exclude(artifact=artifact).exists():
        raise Untold("another model in the same folder")


def _in_folder(job: Job, folder: str) -> list[ArtifactPlace]:
    """What lies in that folder of the job's server, as far as is known."""
    rows = ArtifactPlace.objects.filter(server=job.server, gone_at=None).only("path", "job", "seen_at")
    return [row for row in rows if paths.inside(row.path, folder)]


def _looked(path: str, folder: str, told_of: list[str]) -> bool:
    """Whether a look at the folder gets to that path: it goes so deep alone, and not into a model."""
    deep = len(PurePosixPath(path).parts) - len(PurePosixPath(folder).parts)
    return deep <= DEEPEST and not any(paths.inside(path, one) for one in told_of)


def _mark_gone(job: Job, rows: list[ArtifactPlace]) -> None:
    ArtifactPlace.objects.filter(pk__in=[row.pk for row in rows]).update(gone_at=timezone.now(), job=job)
    tell_soon()


def tell_soon() -> None:
    """Pages of models hear after the commit that something has moved; once, however much it was."""
    if all(function is not _tell for _savepoints, function, *_more in transaction.get_connection().run_on_commit):
        transaction.on_commit(_tell)


def _tell() -> None:
    with contextlib.suppress(redis.RedisError):
        live.publish("artifacts", "moved", {})


def _path(data: dict[str, Any]) -> str:
    path = data.get("path")
    if not isinstance(path, str) or paths.problem(path):
        raise Untold("no path")
    return paths.tidy(untrusted.text(path, paths.MOST))


def _artifact(server: Server, job: Job, data: dict[str, Any], model: dict[str, Any]) -> Artifact:
    """The row of that content, made where there is none. What nobody knew before is filled in."""
    fingerprint = _fingerprint(model.get("fingerprint"))
    if not fingerprint:
        raise Untold("no fingerprint")
    via = data.get("via") if data.get("via") in MADE_BY.get(job.kind, ()) else Via.FOUND
    parent = Artifact.objects.filter(fingerprint=_fingerprint(data.get("parent"))).first()
    name = model.get("name")
    made = {
        "name": untrusted.text(name, 200) if isinstance(name, str) and name else fingerprint[:12],
        "format": model.get("format") if model.get("format") in FORMATS else "unknown",
        "summary": summary(model),
        "bytes": untrusted.whole(model.get("bytes"), MOST_BYTES) or 0,
        "digest": _fingerprint(data.get("digest")),
        "parent": parent if parent and parent.fingerprint != fingerprint else None,
        "made_by": None if via == Via.FOUND else job,
        "via": via,
        "source": untrusted.text(data["source"], 500) if isinstance(data.get("source"), str) else "",
        "simulated": server.simulated,
    }
    artifact, new = Artifact.objects.get_or_create(fingerprint=fingerprint, defaults=made)
    if not new:
        _fill_in(artifact, made, alone=not _lies_elsewhere(artifact, server))
    return artifact


def _lies_elsewhere(artifact: Artifact, server: Server) -> bool:
    return artifact.places.filter(gone_at=None).exclude(server=server).exists()


def _fill_in(artifact: Artifact, made: dict[str, Any], *, alone: bool) -> None:
    """What was unknown of an artifact until now: its digest, its origin where it lies on this server `alone`, and that
    it lies on a real server too."""
    changed = []
    if made["digest"] and not artifact.digest:
        artifact.digest = made["digest"]
        changed.append("digest")
    if alone and artifact.via == Via.FOUND and made["via"] not in (Via.FOUND, Via.COPIED):
        for name in ("via", "made_by", "parent", "source"):
            setattr(artifact, name, made[name])
            changed.append(name)
    if artifact.simulated and not made["simulated"]:
        artifact.simulated = False
        changed.append("simulated")
    if changed:
        artifact.save(update_fields=changed)


def _place(server: Server, job: Job, path: str, artifact: Artifact, model: dict[str, Any]) -> None:
    """Of problems only their place knows: the same content may be whole elsewhere, with a tokenizer beside it."""
    now = timezone.now()
    here = ArtifactPlace.objects.filter(server=server)
    if not here.filter(path=path).exists() and here.count() >= MOST_PLACES:
        raise Untold("too many places")
    values = {
        "artifact": artifact, "problems": problems(model), "job": job, "seen_at": now, "gone_at": None,
        "bytes": untrusted.whole(model.get("bytes"), MOST_BYTES) or 0,
    }  # fmt: skip
    ArtifactPlace.objects.update_or_create(
        server=server, path=path, defaults=values, create_defaults={**values, "first_at": now}
    )


def _fingerprint(value: Any) -> str:
    return value if isinstance(value, str) and FINGERPRINT.fullmatch(value) else ""


def summary(model: dict[str, Any]) -> dict[str, Any]:
    """The fields that pages and plans read, each of its type; None and '' where they are unknown."""
    kept: dict[str, Any] = {}
    for name in TEXTS:
        value = model.get(name)
        kept[name] = untrusted.text(value, 100) if isinstance(value, str) else ""
    kept |= {name: untrusted.whole(model.get(name), MOST_BYTES) for name in NUMBERS}
    kept |= {name: model.get(name) is True for name in FLAGS}
    pickles = model.get("pickles")
    names = pickles[:50] if isinstance(pickles, list) else []
    dtypes = model.get("dtypes")
    pairs = list(dtypes.items())[:20] if isinstance(dtypes, dict) else []
    kept["dtypes"] = {untrusted.text(str(name), 20): untrusted.whole(size, MOST_BYTES) or 0 for name, size in pairs}
    kept["pickles"] = [untrusted.text(one, 200) for one in names if isinstance(one, str)]
    return kept


def problems(model: dict[str, Any]) -> list[list[Any]]:
    """[[code, [zh, en], missing]] as stored."""
    told_of = model.get("problems")
    kept: list[list[Any]] = []
    for row in told_of[:50] if isinstance(told_of, list) else ():
        code, words, missing = row if isinstance(row, list) and len(row) == 3 else ("", None, None)
        if isinstance(code, str) and isinstance(words, list) and len(words) == 2:
            kept.append([untrusted.text(code, 40), [untrusted.text(str(one), 300) for one in words], missing is True])
    return kept
