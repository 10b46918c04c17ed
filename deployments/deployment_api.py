"""REST: deployments, their revisions, replicas and logs. Every change answers with the deployment as it is then."""

from collections.abc import Callable
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import Invalid, NotFound
from console.idempotency import answer_once
from console.models import User
from deployments.asked import Strict, user_of
from deployments.log_answers import range_as_text
from deployments.models import Artifact, Deployment, Replica
from deployments.services import (
    deployment_about,
    deployment_json,
    deployments,
    engine_logs,
    replica_live,
    revisions,
    rollout,
    scaling,
)

router = Router(tags=["deployments"])


class NewDeployment(Strict):
    name: str = Field(max_length=63, description="Small letters, digits and hyphens")
    model: int = Field(ge=1, lt=2**63, description="Number of the model, see GET /api/v1/models")
    settings: dict[str, Any] = Field(description="Settings of the engine; what is left out is the default")
    replicas: int = Field(default=1, ge=0, le=deployments.MOST_REPLICAS)
    servers: list[str] = Field(default_factory=list, max_length=2000, description="Names; none: every server")
    spread: str = Field(default="racks", max_length=10, description="racks, servers or pack")
    note: str = Field(default="", max_length=500)
    unproved: str = Field(default="", max_length=500, description="Why a model is served that was not proved")
    dry_run: bool = Field(default=False, description="Only check it")


class Change(Strict):
    """`settings` or `model` make a new revision, `replicas` scales; the others are no part of a revision."""

    settings: dict[str, Any] | None = Field(default=None, description="The whole of them")
    model: int | None = Field(default=None, ge=1, lt=2**63)
    how: str = Field(default=rollout.IN_PLACE, max_length=10, description="in_place or surge")
    note: str = Field(default="", max_length=500)
    unproved: str = Field(default="", max_length=500)
    replicas: int | None = Field(default=None, ge=0, le=deployments.MOST_REPLICAS)
    schedule: list[dict[str, Any]] | None = Field(default=None, max_length=200)
    drain_s: int | None = None
    replace_lost: bool | None = None
    spread: str | None = Field(default=None, max_length=10)
    servers: list[str] | None = Field(default=None, max_length=2000)
    title: str | None = Field(default=None, max_length=1000)
    notes: str | None = Field(default=None, max_length=20_000)
    labels: dict[str, str] | None = Field(default=None, max_length=100)
    owner: str | None = Field(default=None, max_length=150, description="A user's name; '' for nobody")
    dry_run: bool = Field(default=False, description="Only answer what it would do")


class Back(Strict):
    revision: int = Field(ge=1, lt=2**31)
    how: str = Field(default=rollout.IN_PLACE, max_length=10)
    dry_run: bool = False


class Confirm(Strict):
    confirm: str = Field(max_length=63, description="The name once more")


class Restart(Strict):
    replicas: list[int] = Field(default_factory=list, max_length=1000, description="Their numbers; none: all")
    dry_run: bool = False


class Paused(Strict):
    paused: bool


class DeploymentFilter(Schema):
    find: str = Field(default="", max_length=100, description="Part of the name")
    limit: int = Field(default=200, ge=1, le=1000)
    after: str = Field(default="", max_length=63, description="Names behind this one, for the next page")


@router.get("/deployments", summary="Deployments, by name")
def list_deployments(request: HttpRequest, wanted: Query[DeploymentFilter]) -> HttpResponse:
    rows = deployment_json.rows().filter(name__icontains=wanted.find, name__gt=wanted.after).order_by("name")
    page = list(rows[: wanted.limit])
    following = page[-1].name if len(page) == wanted.limit else None
    return Answer({"deployments": deployment_json.of_many(page), "after": following})


@router.post("/deployments", summary="Serve a model", response={201: dict[str, Any]})
def create(request: HttpRequest, new: NewDeployment) -> HttpResponse:
    by, artifact = user_of(request), _model(new.model)
    more = {"replicas": new.replicas, "servers": new.servers, "spread": new.spread, "note": new.note}
    if new.dry_run:
        deployments.create(
            new.name, artifact, new.settings, by=by, unproved=new.unproved, dry_run=True, **more  # type: ignore[arg-type]
        )  # fmt: skip
        return Answer({"name": new.name, "would": "create"})

    def make() -> tuple[int, dict[str, Any]]:
        made = deployments.create(
            new.name, artifact, new.settings, by=by, unproved=new.unproved, **more  # type: ignore[arg-type]
        )  # fmt: skip
        return 201, deployment_json.of(deployments.find(made.name))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/deployments/{name}", summary="One deployment with its replicas")
def show(request: HttpRequest, name: str) -> HttpResponse:
    return Answer(deployment_json.of(deployments.find(name)))


@router.patch("/deployments/{name}", summary="Change it: a new revision, another number of replicas, or its switches")
def change(request: HttpRequest, name: str, wanted: Change) -> HttpResponse:
    revised = wanted.settings is not None or wanted.model is not None
    if revised and wanted.replicas is not None:
        raise Invalid(
            _("A revision and a number of replicas are two changes."),
            _("Send one after the other."),
            code="two_changes",
        )
    if wanted.dry_run:
        return Answer(_would(deployments.find(name), wanted, revised))
    return _act(request, name, lambda found, by: _change(found, wanted, revised, by), status=200)


def _would(found: Deployment, wanted: Change, revised: bool) -> dict[str, Any]:
    if revised:
        settings, artifact = _asked(found, wanted)
        return revisions.plan(found, settings, artifact=artifact, how=wanted.how, unproved=wanted.unproved)
    return scaling.plan(found, wanted.replicas if wanted.replicas is not None else found.replicas)


@transaction.atomic
def _change(found: Deployment, wanted: Change, revised: bool, by: User) -> None:
    """All of it, or nothing where a part is refused."""
    names = {name: getattr(wanted, name) for name in deployments.SWITCHES}
    if switches := {name: value for name, value in names.items() if value is not None}:
        deployments.edit(found, switches, by=by)
    if wanted.labels is not None or wanted.owner is not None:
        deployment_about.label(found, labels=wanted.labels, owner=wanted.owner, by=by)
    if wanted.schedule is not None:
        deployments.set_schedule(found, wanted.schedule, by=by)
    if wanted.replicas is not None:
        scaling.scale(found, wanted.replicas, by=by)
    if revised:
        settings, artifact = _asked(found, wanted)
        more = {"note": wanted.note, "how": wanted.how, "unproved": wanted.unproved}
        revisions.make(found, settings, artifact=artifact, by=by, **more)


def _asked(found: Deployment, wanted: Change) -> tuple[dict[str, Any], Artifact | None]:
    present = found.revision.settings if found.revision else {}
    settings = wanted.settings if wanted.settings is not None else present
    return settings, _model(wanted.model) if wanted.model is not None else None


def _act(
    request: HttpRequest, name: str, act: Callable[[Deployment, User], object], *, status: int = 202
) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        act(deployments.find(name), user_of(request))
        return status, deployment_json.of(deployments.find(name))

    code, body = answer_once(request, make)
    return Answer(body, status=code)


@router.post("/deployments/{name}/stop", summary="Drain and end every replica", response={202: dict[str, Any]})
def stop(request: HttpRequest, name: str) -> HttpResponse:
    return _act(request, name, lambda found, by: deployments.stop(found, by=by))


@router.post(
    "/deployments/{name}/start",
    summary="Bring it up again, or try failed replicas again",
    response={202: dict[str, Any]},
)
def start(request: HttpRequest, name: str) -> HttpResponse:
    return _act(request, name, lambda found, by: deployments.start(found, by=by))


@router.post("/deployments/{name}/pause", summary="The console starts and stops nothing by itself, or does again",
             response={202: dict[str, Any]})  # fmt: skip
def pause(request: HttpRequest, name: str, wanted: Paused) -> HttpResponse:
    act = deployments.pause if wanted.paused else deployments.resume
    return _act(request, name, lambda found, by: act(found, by=by))


@router.post("/deployments/{name}/rollback", summary="Go to an earlier revision", response={202: dict[str, Any]})
def rollback(request: HttpRequest, name: str, wanted: Back) -> HttpResponse:
    if wanted.dry_run:
        return Answer(revisions.plan_back(deployments.find(name), wanted.revision, how=wanted.how))
    return _act(request, name, lambda found, by: revisions.back(found, wanted.revision, by=by, how=wanted.how))


@router.post(
    "/deployments/{name}/rollout/pause", summary="Let its rollout wait, or go on", response={202: dict[str, Any]}
)
def pause_rollout(request: HttpRequest, name: str, wanted: Paused) -> HttpResponse:
    return _act(request, name, lambda found, by: deployments.set_rollout_paused(found, wanted.paused, by=by))


@router.post("/deployments/{name}/rollout/abort", summary="Go back from the rollout", response={202: dict[str, Any]})
def abort_rollout(request: HttpRequest, name: str) -> HttpResponse:
    return _act(request, name, lambda found, by: revisions.abort(found, by=by))


@router.post("/deployments/{name}/restart", summary="Start replicas anew, one by one", response={202: dict[str, Any]})
def restart(request: HttpRequest, name: str, wanted: Restart | None = None) -> HttpResponse:
    numbers = wanted.replicas if wanted else []
    if wanted and wanted.dry_run:
        rows = deployments.restarted(deployments.find(name), numbers)
        return Answer({"restarts": [revisions.which(row) for row in rows]})
    return _act(request, name, lambda found, by: deployments.restart(found, by=by, replicas=numbers))


@router.delete("/deployments/{name}", summary="Delete it; only without replicas", response={200: dict[str, Any]})
def delete(request: HttpRequest, name: str, wanted: Confirm) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        deployments.delete(deployments.find(name), by=user_of(request), confirm=wanted.confirm)
        return 200, {"name": name, "deleted": True}

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/deployments/{name}/revisions", summary="Its revisions, newest first, each with what it changed")
def list_revisions(request: HttpRequest, name: str) -> HttpResponse:
    return Answer({"revisions": revisions.history(deployments.find(name))})


@router.get("/deployments/{name}/replicas", summary="Its replicas, those that ended included, newest first")
def list_replicas(request: HttpRequest, name: str, limit: int = 100) -> HttpResponse:
    found = deployments.find(name)
    rows = found.replica_set.select_related("server", "revision", "serve_job", "stop_job").order_by("-n")
    page = list(rows[: max(1, min(limit, 1000))])
    now = replica_live.read(row.pk for row in page)
    return Answer({"replicas": [deployment_json.replica(row, now.get(row.pk, {})) for row in page]})


@router.post(
    "/deployments/{name}/replicas/{int:n}/stop-again", summary="Try again to end a replica that would not stop",
    response={202: dict[str, Any]},
)  # fmt: skip
def stop_again(request: HttpRequest, name: str, n: int) -> HttpResponse:
    return _act(request, name, lambda found, by: deployments.stop_again(found, n, by=by))


@router.get("/deployments/{name}/replicas/{int:n}/log", summary="Lines of an engine's log as text")
def log(
    request: HttpRequest, name: str, n: int, piece: str = "", after: int | None = None, limit: int = 500
) -> HttpResponse:
    """Without `after` the last lines; `X-Next-After` goes on from there."""
    kept = engine_logs.find(_replica(deployments.find(name), n), piece)
    return range_as_text(kept, after, limit)


def _replica(found: Deployment, n: int) -> Replica:
    row = found.replica_set.filter(n=n).first() if 0 < n < 2**31 else None
    if row is None:
        raise NotFound(
            _("“%(name)s” has no replica %(n)s.") % {"name": found.name, "n": n},
            _("GET /api/v1/deployments/NAME/replicas lists them."),
            code="no_such_replica",
        )
    return row


def _model(pk: int) -> Artifact:
    found = Artifact.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound(
            _("There is no model %(id)s.") % {"id": pk}, _("GET /api/v1/models lists them."), code="no_such_model"
        )
    return found
