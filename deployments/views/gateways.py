"""Pages of gateways, of their keys, and of what keys used."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from console import spreadsheet
from console.errors import ConsoleError, Invalid
from deployments.models import Deployment, ExternalEngine, Gateway, GatewayKey, Server
from deployments.services import gateway_json, gateway_keys, gateways, usage
from deployments.serving.gateway_conf import POLICIES
from deployments.views.lookup import check_may_operate, find_server, only_server, refusal_said, user_of


@require_http_methods(["GET", "POST"])
def gateway_list(request: HttpRequest) -> HttpResponse:
    """GET lists, with the form of a new one; POST makes it."""
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            return redirect("deployments:job-detail", pk=_make(request).job_id)
        except ConsoleError as error:
            refusal = error
    rows = Gateway.objects.filter(enabled=True).select_related("deployment__revision", "server", "job")
    taken = [row.deployment_id for row in rows]
    context = {
        "panels": [gateway_json.panel(row.deployment) for row in rows.order_by("deployment__name")],
        "deployments": Deployment.objects.present().filter(simulated=False).exclude(pk__in=taken),
        "servers": Server.objects.present().filter(simulated=False).order_by("name"),
        "policies": POLICIES,
        "given": request.POST or {"server": only_server(), "deployment": request.GET.get("deployment", "")},
        "refusal": refusal,
    }
    return render(request, "deployments/gateway_list.html", context, status=refusal.status if refusal else 200)


def _make(request: HttpRequest) -> Gateway:
    """Raises ConsoleError."""
    given = request.POST
    deployment = Deployment.objects.present().filter(name=given.get("deployment", "")[:63]).first()
    if deployment is None:
        raise Invalid(
            _("No deployment was chosen."), _("Choose the one that the gateway is for."), code="no_deployment"
        )
    return gateways.make(
        deployment, find_server(given.get("server", "").strip()), by=user_of(request),
        address=given.get("address", "").strip(), port=_number(given.get("port", "")) or 0,
        policy=given.get("policy") or POLICIES[0], alone=given.get("alone") == "1",
    )  # fmt: skip


def _number(text: str) -> int | None:
    """None where nothing was written. Raises Invalid."""
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(
            _("“%(text)s” is no whole number.") % {"text": text[:20]}, _("Write digits alone."), code="no_number"
        )
    return int(text)


@require_http_methods(["GET", "POST"])
def gateway_detail(request: HttpRequest, name: str) -> HttpResponse:
    """GET shows one; POST with `do` = change, attach, detach or again changes it."""
    gateway = gateways.find(name)
    if request.method == "POST":
        try:
            _change(request, gateway)
            messages.success(request, _("Changed; the gateway takes it within a second."))
            return redirect("deployments:gateway-detail", name=name)
        except ConsoleError as error:
            messages.error(request, f"{error.what} {error.do}")
    external = ExternalEngine.objects.filter(gone_at=None).exclude(port=None).select_related("server")
    context = {
        **gateway_json.panel(gateway.deployment),
        "policies": POLICIES,
        "external": external.exclude(pk__in=[one.get("external") or 0 for one in gateway.engines]),
    }
    return render(request, "deployments/gateway_detail.html", context)


def _change(request: HttpRequest, gateway: Gateway) -> None:
    """Raises ConsoleError."""
    by, do = user_of(request), request.POST.get("do")
    if do == "attach":
        engine = ExternalEngine.objects.select_related("server").filter(pk=_number(request.POST.get("engine", "")) or 0)
        if (found := engine.first()) is None:
            raise Invalid(_("No engine was chosen."), _("Choose one of the list."), code="no_engine")
        gateways.attach(gateway, found, by=by)
    elif do == "again":
        gateways.make(
            gateway.deployment, gateway.server, by=by, address=gateway.address, port=gateway.port,
            policy=gateway.policy, alone=gateway.open_without_keys,
        )  # fmt: skip
    elif do == "detach":
        gateways.detach(gateway, _number(request.POST.get("engine", "")) or 0, by=by)
    else:
        given = request.POST
        gateways.change(gateway, by=by, policy=given.get("policy") or None, address=given.get("address", "").strip())


@require_http_methods(["GET", "POST"])
def gateway_remove(request: HttpRequest, name: str) -> HttpResponse:
    """GET asks, POST removes."""
    check_may_operate(request)
    gateway = gateways.find(name)
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            return redirect("deployments:job-detail", pk=gateways.remove(gateway, by=user_of(request)).job_id)
        except ConsoleError as error:
            refusal = error
    context = {**gateway_json.panel(gateway.deployment), "refusal": refusal}
    return render(request, "deployments/gateway_ask.html", context, status=refusal.status if refusal else 200)


@never_cache
@require_http_methods(["GET", "POST"])
def key_page(request: HttpRequest) -> HttpResponse:
    """GET lists keys with their usage; POST makes one and shows it, this once."""
    made: gateway_keys.Made | None = None
    refusal: ConsoleError | None = None
    if request.method == "POST":
        try:
            made = _make_key(request)
        except ConsoleError as error:
            refusal = error
    rows = usage.by_key(GatewayKey.objects.prefetch_related("deployments")[:500])
    context: dict[str, Any] = {
        "rows": [(row, gateway_keys.state_of(row.key)) for row in rows],
        "days": usage.DAYS,
        "deployments": Deployment.objects.present().filter(simulated=False),
        "made": made,
        "refusal": refusal,
        "given": request.POST if refusal else {},
        "chosen": request.POST.getlist("deployments") if refusal else [],
    }
    return render(request, "deployments/gateway_keys.html", context, status=refusal.status if refusal else 200)


def _make_key(request: HttpRequest) -> gateway_keys.Made:
    """Raises ConsoleError."""
    given = request.POST
    return gateway_keys.make(
        given.get("name", ""), by=user_of(request), deployments=given.getlist("deployments"),
        owner=given.get("owner", ""), rate_per_min=_number(given.get("rate", "")),
        expires_at=gateway_keys.until_day(_number(given.get("days", ""))),
    )  # fmt: skip


@require_http_methods(["GET", "POST"])
def key_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """GET asks, POST revokes."""
    check_may_operate(request)
    key = gateway_keys.find(pk)
    if request.method == "POST":
        with refusal_said(request):
            gateway_keys.revoke(key, by=user_of(request))
            messages.success(request, _("%(name)s is revoked; gateways refuse it within seconds.") % {"name": key.name})
        return redirect("deployments:gateway-keys")
    return render(request, "deployments/gateway_key_ask.html", {"row": usage.by_key([key])[0]})


@require_GET
def usage_csv(request: HttpRequest) -> StreamingHttpResponse:
    days = _number(request.GET.get("days", "")) or usage.DAYS
    rows = usage.as_json(usage.rows(days, request.GET.get("deployment", "")[:63]))
    return spreadsheet.answer("gateway-usage.csv", usage.HEAD, ([row[name] for name in usage.HEAD] for row in rows))
