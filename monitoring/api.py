"""REST: servers and their NPUs as they are now."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Router

from console import alerts
from console.answers import Answer
from console.errors import NotFound
from console.models import Alert
from deployments.models import Server
from monitoring.services import live_state

router = Router(tags=["servers"])


@router.get("/servers", summary="Servers with their state and NPU counts")
def list_servers(request: HttpRequest, simulated: bool | None = None) -> HttpResponse:
    nows = [now for now in live_state.all_now() if simulated is None or now["simulated"] == simulated]
    return Answer({"servers": [_brief(now) for now in nows]})


@router.get("/servers/{name}", summary="One server with its NPUs, processes and facts")
def show(request: HttpRequest, name: str) -> HttpResponse:
    server = Server.objects.filter(name=name[:63]).first()
    if server is None:
        raise NotFound(
            _("There is no server “%(name)s”.") % {"name": name[:63]},
            _("GET /api/v1/servers lists the names."),
            code="unknown_server",
        )
    now = live_state.now(server)
    return Answer(
        {
            **_brief(now),
            **{key: now[key] for key in ("npus", "processes", "host", "version", "error")},
            "facts": server.facts,
        }
    )


@router.get("/alerts", tags=["alerts"], summary="Alerts, newest first; those that fire, or those that ended")
def list_alerts(request: HttpRequest, firing: bool = True, limit: int = 100, before: int | None = None) -> HttpResponse:
    rows = Alert.objects.filter(ended_at__isnull=firing)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    limit = max(1, min(limit, 500))
    found = list(rows[: limit + 1])
    older = found[limit - 1].pk if len(found) > limit else None
    return Answer({"alerts": [alerts.as_json(alert) for alert in found[:limit]], "before": older})


@router.post("/alerts/{pk}/resolve", tags=["alerts"], summary="Say that an alert is settled")
def resolve_alert(request: HttpRequest, pk: int) -> HttpResponse:
    return Answer(alerts.as_json(alerts.resolve_by_hand(request.auth, pk)))  # type: ignore[attr-defined]


def _brief(now: live_state.Now) -> dict[str, Any]:
    seen = now["seen"]
    return {
        "id": now["id"],
        "name": now["name"],
        "simulated": now["simulated"],
        "state": now["state"],
        "age_s": round(time.time() - seen, 1) if seen else None,
        "family": now["family"],
        "rack": now["rack"],
        "npu_count": len(now["npus"]),
        "free": sum(npu["occ"] == "free" for npu in now["npus"]),
    }
