"""REST: models on servers, their lineage, looking for them, deleting copies; the catalogue of known ones."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.idempotency import answer_once
from deployments.asked import Strict, find_server, user_of
from deployments.services import (
    jobs,
    model_catalogue,
    model_changes,
    model_delete,
    model_lineage,
    model_list,
    model_page,
)

router = Router(tags=["models"])


class ModelFilter(Schema):
    q: str = Field(default="", max_length=200, description="Words of name, architecture, type, path or fingerprint")
    format: str = Field(default="", max_length=20, description="hf, quantized, adapter, om, mindir, onnx, air, unknown")
    state: str = Field(default="", max_length=20, description="whole, incomplete or gone")
    gate: str = Field(default="", max_length=20, description="promotable, failed, not_evaluated or original")
    via: str = Field(default="", max_length=12, description="How it came: found, downloaded, sample, quantized, …")
    fleet: str = Field(default="", max_length=20, description="real or simulated; both where it is left out")
    server: str = Field(default="", max_length=63, description="Only those that lie on this server")
    page: int = Field(default=1, ge=1, le=10_000, description="50 models a page, newest first")


class ModelChange(Strict):
    name: str | None = Field(default=None, max_length=400, description="How people call it; paths stay")
    notes: str | None = Field(default=None, max_length=10_000)


class Scan(Strict):
    server: str = Field(max_length=63, description="Name of the server")
    folder: str = Field(default="", max_length=1000, description="Empty: where most of its models lie")
    again: bool = Field(default=False, description="Read all copies that are known on this server anew instead")
    digests: bool = Field(default=False, description="Read every file whole (SHA-256)")
    ticket: str = Field(default="", max_length=100)


class Deletion(Strict):
    confirm: str = Field(default="", max_length=200, description="The model's name, where it is its last whole copy")
    ticket: str = Field(default="", max_length=100)


@router.get("/models", summary="Models on servers, newest first")
def list_models(request: HttpRequest, wanted: Query[ModelFilter]) -> HttpResponse:
    """Filters that are none of their list are left out, as on the page."""
    values = {name: str(value) for name, value in wanted.dict().items()}
    page = model_list.page(model_list.read_filters(values))
    models = [model_list.as_json(line) for line in page.lines]
    return Answer({"models": models, "total": page.total, "page": page.number, "next": page.older or None})


@router.get("/models/{int:pk}", summary="One model: its numbers, where it lies and what is missing, jobs around it")
def show_model(request: HttpRequest, pk: int) -> HttpResponse:
    artifact = model_changes.find(pk)
    (line,) = model_list.lines([artifact])
    return Answer({**model_list.as_json(line), **model_page.as_json(artifact)})


@router.get("/models/{int:pk}/lineage", summary="What a model was made of, and what was made of it")
def show_lineage(request: HttpRequest, pk: int) -> HttpResponse:
    """`nodes` are models, the source of the eldest, evaluations and deployments; `edges` name the job between two."""
    return Answer(model_lineage.as_json(model_changes.find(pk)))


@router.patch("/models/{int:pk}", summary="Change a model's name or notes")
def change_model(request: HttpRequest, pk: int, wanted: ModelChange) -> HttpResponse:
    artifact = model_changes.edit(pk, name=wanted.name, notes=wanted.notes, by=user_of(request))
    return Answer({"id": artifact.pk, "name": artifact.name, "notes": artifact.notes})


@router.post("/models/scan", summary="Look for models on a server", response={201: dict[str, Any]})
def scan_models(request: HttpRequest, wanted: Scan) -> HttpResponse:
    """The answer is the job; models appear as it tells of them."""

    def make() -> tuple[int, dict[str, Any]]:
        server, by = find_server(wanted.server), user_of(request)
        if wanted.again:
            job = model_changes.look_again(server, by=by, digests=wanted.digests)
        else:
            job = model_changes.scan(server, wanted.folder, digests=wanted.digests, by=by, ticket=wanted.ticket)
        return 201, jobs.as_json(job)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/models/copies/{int:pk}/uses", summary="What uses a copy of a model, before it is deleted")
def show_uses(request: HttpRequest, pk: int) -> HttpResponse:
    place = model_delete.find(pk)
    asked = model_delete.asked(place)
    uses = [{"what": use.text, "blocks": use.blocks} for use in asked.uses]
    return Answer({**model_page.place_json(place), "last": asked.is_last, "uses": uses})


@router.post("/models/copies/{int:pk}/delete", summary="Delete a copy of a model", response={201: dict[str, Any]})
def delete_copy(request: HttpRequest, pk: int, wanted: Deletion) -> HttpResponse:
    """The server reads the folder again, and refuses where another content lies there or a process uses it."""

    def make() -> tuple[int, dict[str, Any]]:
        place = model_delete.find(pk)
        job = model_delete.queue(place, confirm=wanted.confirm, by=user_of(request), ticket=wanted.ticket)
        return 201, jobs.as_json(job)

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/model-catalogue", summary="Models that are known: what each needs, supports, and whether it lies here")
def show_catalogue(request: HttpRequest, q: str = "") -> HttpResponse:
    return Answer(model_catalogue.as_json(q[:100]))
