"""REST: servers and their NPUs as they are now."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from ninja import Router

from console.answers import Answer
from console.errors import NotFound
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
