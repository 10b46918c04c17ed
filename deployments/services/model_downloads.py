"""Bring models to servers: what was asked is checked and filled in, looked at, then queued."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.artifacts import paths
from deployments.artifacts.sources.hubs import MODEL
from deployments.models import Attempt, Job, JobState, Server
from deployments.models.job import ENDED
from deployments.services import filling, jobs, model_sources, model_uploads

DEFAULT_ROOT = "/opt/ascend-console/models"
MOST_PATTERNS, MOST_PATTERN = 50, 200
COUNT = re.compile(r"^(?:≥ )?.{0,40}?\((\d{1,18}) B\)$")


def root_of(server: Server) -> str:
    """Where models go on this server when nobody names another folder, as its agent tells."""
    told = server.facts.get("models_root") if isinstance(server.facts, dict) else None
    return told if isinstance(told, str) and not paths.problem(told) else DEFAULT_ROOT


def folder_for(server: Server, target: str, name: str) -> str:
    """The folder that is written to. Raises Invalid."""
    folder = paths.tidy(target.strip()) if target.strip() else f"{root_of(server)}/{name}"
    if problem := paths.problem(folder):
        raise Invalid(pick(problem), _("Mend the folder, then try again."), code="bad_folder")
    return folder


def name_of(params: Mapping[str, Any]) -> str:
    """The folder's own name where nobody gives one: the last part of the model's, or that of the upload."""
    model = str(params.get("model", "")).rstrip("/")
    if params.get("source") == "upload":
        return model_uploads.find(model).name
    last = PurePosixPath(urlsplit(model).path if params.get("source") == "web" else model).name
    return re.sub(r"[^\w.+-]", "_", last)[:100].lstrip(".") or "model"


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The kinds `download` and `download_look`. Raises Invalid, NotFound, Conflict."""
    source, model = str(params.get("source") or "huggingface"), str(params.get("model", "")).strip()
    _check_patterns([*params.get("only", ()), *params.get("leave_out", ())])
    if params.get("in_place") and source != "path":
        raise Invalid(_("Only a shared path can be listed where it lies."), _("Take the tick away."), code="in_place")
    endpoint = _endpoint(server, source, model)
    folder = paths.tidy(model)
    if not params.get("in_place"):
        folder = folder_for(server, str(params.get("target", "")), name_of(params))
    if source == "path" and not params.get("in_place"):
        _check_apart(model, folder)
    address = endpoint if source in model_sources.hubs() else model
    private = source in (*model_sources.hubs(), "web") and model_sources.is_private(address)
    return {"folder": folder, "endpoint": endpoint, "private": private}


def _endpoint(server: Server, source: str, model: str) -> str:
    """The hub's address; where an upload lies for the agent of this machine. Raises Invalid, NotFound, Conflict."""
    if source in model_sources.hubs():
        if not re.fullmatch(MODEL, model):
            raise Invalid(
                _("“%(model)s” is no name of a model.") % {"model": model[:100]},
                _("Give it as the hub does, such as Qwen/Qwen2.5-7B-Instruct."),
                code="bad_model",
            )
        return model_sources.hubs()[source]
    if source == "web":
        _check_address(model)
    elif source == "path":
        if problem := paths.problem(paths.tidy(model)):
            raise Invalid(pick(problem), _("Mend the path, then try again."), code="bad_model")
    elif source == "upload":
        upload = model_uploads.find_whole(model)
        return str(upload.folder) if server.is_local else ""
    return ""


def _check_address(address: str) -> None:
    """Raises Invalid."""
    try:
        parts = urlsplit(address)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        fine = False
    if not fine or not address.isprintable():
        raise Invalid(
            _("That is no http(s) address without a password."),
            _("Give the address of the model's folder; a token stands in MODEL_TOKENS."),
            code="bad_model",
        )


def _check_apart(model: str, folder: str) -> None:
    """Raises Invalid where a copy would lie within what is copied, or the other way round."""
    one = paths.tidy(model)
    if paths.inside(folder, one) or paths.inside(one, folder):
        raise Invalid(
            _("The copy would lie within the folder that it is made of."),
            _("Choose another folder."),
            code="bad_folder",
        )


def _check_patterns(patterns: list[str]) -> None:
    """Raises Invalid."""
    if len(patterns) > MOST_PATTERNS or any(len(one) > MOST_PATTERN or not one.isprintable() for one in patterns):
        raise Invalid(
            _("At most %(n)s patterns of %(long)s characters each.") % {"n": MOST_PATTERNS, "long": MOST_PATTERN},
            _("Give fewer or shorter ones, such as *.md."),
            code="bad_pattern",
        )


def fill_sample(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """The kind `sample_model`."""
    name = f"sample-{params.get('model') or 'qwen2'}-{params.get('layers') or '28'}"
    return {"folder": folder_for(server, str(params.get("target", "")), name)}


filling.FILLERS["download"] = filling.FILLERS["download_look"] = fill
filling.FILLERS["sample_model"] = fill_sample


# ---------- a look, and what follows it ----------


@dataclass(frozen=True)
class Look:
    """What a job `download_look` has found; `rows` are the items of its report. `is_over`: it has ended, somehow."""

    job: Job
    rows: list[dict[str, Any]]
    is_over: bool

    @property
    def is_fine(self) -> bool:
        return self.job.state == JobState.SUCCEEDED

    @property
    def has_room(self) -> bool:
        return not any(row.get("key") == "download.room" and row.get("verdict") == "failed" for row in self.rows)

    @property
    def bytes(self) -> int | None:
        """Of all files; None where it was not told."""
        found = next((row.get("found") for row in self.rows if row.get("key") == "download.bytes"), None)
        match = COUNT.match(found) if isinstance(found, str) else None
        return int(match[1]) if match else None


def look(server: Server, params: Mapping[str, Any], *, by: User) -> Job:
    """Queue a look. Raises ConsoleError."""
    return jobs.queue_job(server, "download_look", dict(params), by=by)


def find_look(pk: int) -> Look:
    """Raises NotFound."""
    job = Job.objects.select_related("server", "requester").filter(pk=pk, kind="download_look").first()
    if job is None:
        raise NotFound(
            _("There is no look #%(id)s at a download.") % {"id": pk},
            _("Begin a download anew."),
            code="no_such_look",
        )
    attempt = Attempt.objects.filter(job=job).order_by("-n").first()
    return Look(job, list(attempt.report) if attempt else [], job.state in (*ENDED, JobState.LOST))


def download(seen: Look, *, by: User, ticket: str = "") -> Job:
    """Queue the download that was looked at. Raises Conflict where the look has not ended well, or found no room."""
    if not seen.is_fine:
        raise Conflict(
            _("The look #%(id)s has not ended well, so nobody knows what would be fetched.") % {"id": seen.job.pk},
            _("Look again, then confirm."),
            code="no_look",
        )
    if not seen.has_room:
        raise Conflict(
            _("There is not enough room on %(server)s.") % {"server": seen.job.server.name},
            _("Make room there or choose another folder, then look again."),
            code="no_room",
        )
    return jobs.queue_job(seen.job.server, "download", filling.asked(seen.job), by=by, ticket=ticket)


def as_json(seen: Look) -> dict[str, Any]:
    return {
        "job": jobs.as_json(seen.job),
        "ended": seen.is_over,
        "folder": seen.job.params.get("folder") or None,
        "bytes": seen.bytes,
        "room": seen.has_room if seen.is_fine else None,
        "found": [
            {"key": row.get("key"), "title": pick(row.get("title")), "verdict": row.get("verdict"),
             "found": row.get("found"), "wanted": row.get("wanted"), "remedy": pick(row.get("remedy")) or None}
            for row in seen.rows
        ],
    }  # fmt: skip
