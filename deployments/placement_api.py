"""REST: where replicas may run, NPUs on hold, and engines that the console did not start."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import Invalid, NotFound
from console.idempotency import answer_once
from console.language import pick
from deployments.asked import Strict, find_server, user_of
from deployments.models import Artifact, Deployment
from deployments.services import external_engines, external_live, holds, placement
from deployments.serving.settings import Settings, read
from deployments.steps import BadParams

router = Router(tags=["placement"])
MOST_REPLICAS = 64


class Wanted(Schema):
    artifact: str = Field(max_length=200, description="Number or name of a model here")
    settings: str = Field(default="{}", max_length=20_000, description="Settings of a revision, as JSON")
    servers: str = Field(default="", max_length=20_000, description="Names that may be used, with commas; all")
    spread: str = Field(default="racks", max_length=10, description="racks, servers or pack")
    deployment: str = Field(default="", max_length=63, description="Whose other replicas count")
    replicas: str = Field(default="", max_length=3, description="Choose places for so many at once")


class NewHold(Strict):
    server: str = Field(max_length=63)
    npus: list[str] = Field(max_length=128, description="Bus ids, with /chip where several chips share one")
    team: str = Field(max_length=400, description="Person or team that they are kept for")
    reason: str = Field(max_length=1000)
    until: str = Field(max_length=40, description="RFC 3339, or local time of the console")
    ticket: str = Field(default="", max_length=100)


class LongerHold(Strict):
    until: str = Field(max_length=40)


class EngineChange(Strict):
    alias: str | None = Field(default=None, max_length=400)
    watched: bool | None = Field(default=None, description="An alert when it goes or is not well")


@router.get("/placement", summary="Every server, the best first: why a replica may run there, or why not")
def look(request: HttpRequest, wanted: Query[Wanted]) -> HttpResponse:
    settings, artifact = _settings(wanted.settings), _artifact(wanted.artifact)
    more: dict[str, Any] = {
        "servers": [name.strip() for name in wanted.servers.split(",") if name.strip()] or None,
        "spread": wanted.spread,
        "deployment": _deployment(wanted.deployment),
    }
    found = placement.look(settings, artifact, **more)
    chosen = []
    if wanted.replicas:
        chosen = placement.choose(settings, artifact, count=_count(wanted.replicas), **more)
    return Answer(
        {
            "artifact": artifact.pk,
            "fit": sum(one.fits for one in found),
            "servers": [placement.as_json(one) for one in found],
            "chosen": [placement.as_json(one) for one in chosen],
        }
    )


def _settings(text: str) -> Settings:
    try:
        told = json.loads(text)
        if isinstance(told, dict):
            return read(told)
        what = _("The settings are no JSON object.")
    except (ValueError, RecursionError):
        what = _("The settings are no JSON object.")
    except BadParams as error:
        problems = "; ".join(f"{name}: {pick(words)}" for name, words in error.problems[:8])
        what = _("The settings do not fit: %(problems)s.") % {"problems": problems}
    raise Invalid(what, _("Mend them, then ask again."), code="bad_settings")


def _artifact(words: str) -> Artifact:
    by = {"pk": int(words)} if words.isascii() and words.isdigit() and len(words) < 10 else {"name": words}
    found = Artifact.objects.filter(**by).order_by("simulated", "-pk").first()
    if found is None:
        raise NotFound(
            _("There is no model “%(model)s”.") % {"model": words[:100]},
            _("Name a model that lies here, or one of the catalogue."),
            code="no_model",
        )
    return found


def _deployment(name: str) -> Deployment | None:
    if not name:
        return None
    found = Deployment.objects.present().filter(name=name).first()
    if found is None:
        raise NotFound(
            _("There is no deployment “%(name)s”.") % {"name": name}, _("Choose one of the list."), code="no_deployment"
        )
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST_REPLICAS):
        raise Invalid(
            _("%(name)s must be a whole number from 1 to %(most)s.") % {"name": "replicas", "most": MOST_REPLICAS},
            _("Correct it, then ask again."),
            code="bad_number",
        )
    return int(text)


# ---------- holds ----------


@router.get("/holds", tags=["holds"], summary="NPUs that are kept for people, the first to end first")
def list_holds(request: HttpRequest, ended: bool = False, limit: int = 200) -> HttpResponse:
    return Answer({"holds": [holds.as_json(row) for row in holds.rows(ended=ended)[: max(1, min(limit, 1000))]]})


@router.post("/holds", tags=["holds"], summary="Keep NPUs for a person or team", response={201: dict[str, Any]})
def make_hold(request: HttpRequest, new: NewHold) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        hold = holds.make(
            find_server(new.server), new.npus, team=new.team, reason=new.reason, until=holds.moment(new.until),
            by=user_of(request), ticket=new.ticket,
        )  # fmt: skip
        return 201, holds.as_json(hold)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.patch("/holds/{int:pk}", tags=["holds"], summary="Let a hold end at another time")
def extend_hold(request: HttpRequest, pk: int, wanted: LongerHold) -> HttpResponse:
    return Answer(holds.as_json(holds.extend(holds.find(pk), holds.moment(wanted.until), by=user_of(request))))


@router.delete("/holds/{int:pk}", tags=["holds"], summary="End a hold now")
def end_hold(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(holds.as_json(holds.end(holds.find(pk), by=user_of(request))))


# ---------- engines of others ----------


@router.get("/engines", tags=["engines"], summary="Engines that the console did not start")
def list_engines(request: HttpRequest, server: str = "", gone: bool = False, limit: int = 200) -> HttpResponse:
    found = external_engines.rows(gone=gone)
    if server:
        found = found.filter(server=find_server(server))
    listed = list(found[: max(1, min(limit, 1000))])
    said = external_live.read(row.server_id for row in listed)
    rows = [external_engines.as_json(row, said.get((row.server_id, row.key))) for row in listed]
    return Answer({"engines": rows})


@router.patch("/engines/{int:pk}", tags=["engines"], summary="Name such an engine, or watch it")
def change_engine(request: HttpRequest, pk: int, wanted: EngineChange) -> HttpResponse:
    row = external_engines.change(
        external_engines.find(pk), by=user_of(request), alias=wanted.alias, watched=wanted.watched
    )
    return Answer(external_engines.as_json(row))
