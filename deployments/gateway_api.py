"""REST: gateways of deployments, their keys, and what keys used."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Field, Query, Router, Schema

from console.answers import Answer
from console.errors import NotFound
from console.idempotency import answer_once
from deployments.asked import Strict, find_server, user_of
from deployments.models import Deployment, ExternalEngine, Gateway, GatewayKey
from deployments.services import gateway_json, gateway_keys, gateways, usage

router = Router(tags=["gateways"])


class NewGateway(Strict):
    deployment: str = Field(max_length=63, description="Name of the deployment")
    server: str = Field(max_length=63, description="Name of the server on which it runs")
    address: str = Field(default="", max_length=45, description="IP address to listen on; empty: 127.0.0.1")
    port: int = Field(default=0, ge=0, le=65535, description="0: one of GATEWAY_PORTS")
    policy: str = Field(default="cache_aware", max_length=30, description="How requests are spread over engines")
    alone: bool = Field(default=False, description="The router alone on loopback, where nginx is missing")
    wheelhouse: str = Field(default="", max_length=500, description="A folder of wheels on the server")


class ChangedGateway(Strict):
    policy: str | None = Field(default=None, max_length=30)
    address: str | None = Field(default=None, max_length=45)
    server: str | None = Field(default=None, max_length=63, description="Move it to this server")


class Attached(Strict):
    engine: int = Field(description="Number of an external engine", ge=1)


class NewKey(Strict):
    name: str = Field(max_length=100)
    deployments: list[str] = Field(default_factory=list, max_length=200, description="None named: all")
    owner: str = Field(default="", max_length=100)
    rate_per_min: int | None = Field(default=None, description="Requests a minute; null for no limit")
    days: int | None = Field(default=None, description="After so many days it expires; null for never")


class Days(Schema):
    days: int = Field(default=30, ge=1, le=usage.MOST_DAYS)
    deployment: str = Field(default="", max_length=63)


def _deployment(name: str) -> Deployment:
    """Raises NotFound."""
    found = Deployment.objects.present().filter(name=name[:63]).first()
    if found is None:
        raise NotFound(
            _("There is no deployment called %(name)s.") % {"name": name[:63]},
            _("Choose from the list of deployments."),
        )
    return found


@router.get("/gateways", summary="Gateways")
def list_gateways(request: HttpRequest) -> HttpResponse:
    rows = Gateway.objects.filter(enabled=True).select_related("deployment", "server").order_by("deployment__name")
    return Answer({"gateways": [gateway_json.of(row) for row in rows]})


@router.post("/gateways", summary="Make the gateway of a deployment", response={202: dict[str, Any]})
def make_gateway(request: HttpRequest, wanted: NewGateway) -> HttpResponse:
    def make() -> tuple[int, dict[str, Any]]:
        given = wanted.dict()
        deployment, server = _deployment(given.pop("deployment")), find_server(given.pop("server"))
        return 202, gateway_json.of(gateways.make(deployment, server, by=user_of(request), **given))

    status, body = answer_once(request, make)
    return Answer(body, status=status)


@router.get("/gateways/{name}", summary="The gateway of a deployment")
def show_gateway(request: HttpRequest, name: str) -> HttpResponse:
    return Answer(gateway_json.of(gateways.find(name)))


@router.patch("/gateways/{name}", summary="Another policy, address or server")
def change_gateway(request: HttpRequest, name: str, wanted: ChangedGateway) -> HttpResponse:
    gateway, by = gateways.find(name), user_of(request)
    with transaction.atomic():  # all of it, or nothing where a part is refused
        if wanted.server:
            gateway = gateways.move(gateway, find_server(wanted.server), by=by)
        if wanted.policy is not None or wanted.address is not None:
            gateway = gateways.change(gateway, by=by, policy=wanted.policy, address=wanted.address)
    return Answer(gateway_json.of(gateway))


@router.delete("/gateways/{name}", summary="Remove the gateway of a deployment", response={202: dict[str, Any]})
def remove_gateway(request: HttpRequest, name: str) -> HttpResponse:
    return Answer(gateway_json.of(gateways.remove(gateways.find(name), by=user_of(request))), status=202)


@router.post("/gateways/{name}/engines", summary="Let an external engine take requests, too")
def attach_engine(request: HttpRequest, name: str, wanted: Attached) -> HttpResponse:
    engine = ExternalEngine.objects.select_related("server").filter(pk=min(wanted.engine, 2**62)).first()
    if engine is None:
        raise NotFound(_("There is no such external engine."), _("Look for it on the page of its server."))
    return Answer(gateway_json.of(gateways.attach(gateways.find(name), engine, by=user_of(request))))


@router.delete("/gateways/{name}/engines/{engine}", summary="Take an external engine out again")
def detach_engine(request: HttpRequest, name: str, engine: int) -> HttpResponse:
    return Answer(gateway_json.of(gateways.detach(gateways.find(name), engine, by=user_of(request))))


@router.get("/gateway-keys", summary="Keys of gateways, with what they used")
def list_keys(request: HttpRequest, asked: Query[Days]) -> HttpResponse:
    keys = GatewayKey.objects.prefetch_related("deployments")[:2000]
    return Answer({"days": asked.days, "keys": gateway_json.used(usage.by_key(keys, asked.days))})


@router.post("/gateway-keys", summary="Make a key; `secret` is told this once", response={201: dict[str, Any]})
def make_key(request: HttpRequest, wanted: NewKey) -> HttpResponse:
    """Not answered once more for the same Idempotency-Key: its answer would have to be kept, and the key in it."""
    made = gateway_keys.make(
        wanted.name, by=user_of(request), deployments=wanted.deployments, owner=wanted.owner,
        rate_per_min=wanted.rate_per_min, expires_at=gateway_keys.until_day(wanted.days),
    )  # fmt: skip
    return Answer({**gateway_json.key(made.key), "secret": made.secret}, status=201)


@router.delete("/gateway-keys/{pk}", summary="Revoke a key")
def revoke_key(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(gateway_json.key(gateway_keys.revoke(gateway_keys.find(pk), by=user_of(request))))


@router.get("/gateway-usage", summary="What each key used on each day")
def list_usage(request: HttpRequest, asked: Query[Days]) -> HttpResponse:
    rows = usage.rows(asked.days, asked.deployment)[:20000]
    return Answer({"days": asked.days, "usage": usage.as_json(rows)})
