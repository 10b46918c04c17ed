"""A gateway and its keys as pages and REST show them."""

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _

from console.language import pick
from deployments.models import Deployment, Gateway, GatewayKey
from deployments.services import endpoints, gateway_heard, gateway_keys, gateways
from deployments.services.usage import FIELDS, Used

LOOKS = {"ready": "ok", "degraded": "warning", "failed": "critical", "starting": "info", "planned": "info"}
SHAPES = {"ok": "state-ok", "warning": "state-warning", "critical": "state-critical", "info": "state-running"}


def words(state: str) -> str:
    return {
        "planned": _("planned"), "starting": _("starting"), "ready": _("ready"), "degraded": _("degraded"),
        "failed": _("failed"), "stopped": _("stopped"), "stale": _("not heard of"),
    }.get(state, state)  # fmt: skip


def state_of(gateway: Gateway) -> str:
    """As its row says, or `stale` where that is too old to be relied on."""
    heard = gateway.state not in ("planned", "stopped")
    return "stale" if heard and gateway_heard.is_old(gateway) else gateway.state


def of(gateway: Gateway) -> dict[str, Any]:
    state = state_of(gateway)
    told = {str(one.get("url")): one for one in gateway.told.get("engines", ())}
    return {
        "deployment": gateway.deployment.name,
        "server": gateway.server.name,
        "url": endpoints.of_gateway(gateway) or None,
        "state": state,
        "reason": pick(gateway.reason) or None,
        "policy": gateway.policy,
        "alone": gateway.open_without_keys,
        "applied": gateway.applied >= gateway.wished,
        "engines": [_engine(one, told) for one in gateway.engines],
        "restarts": gateway.told.get("restarts"),
        "job": gateway.job_id,
        "heard_at": gateway.heard_at.isoformat(timespec="seconds") if gateway.heard_at else None,
    }


def _engine(row: dict[str, Any], told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`healthy` and `load` are null where the router has not said."""
    about = told.get(endpoints.base_url(str(row["address"]), row["port"]), {})
    kept = {name: row.get(name) for name in ("address", "port", "replica", "external")}
    return {**kept, "role": row.get("role") or None, "healthy": about.get("healthy"), "load": about.get("load")}


def key(row: GatewayKey) -> dict[str, Any]:
    def at(value: Any) -> str | None:
        return value.isoformat(timespec="seconds") if value else None

    return {
        "id": row.pk,
        "name": row.name,
        "start": row.start,
        "owner": row.owner,
        "state": gateway_keys.state_of(row),
        "deployments": sorted(one.name for one in row.deployments.all()),
        "rate_per_min": row.rate_per_min,
        "created_at": at(row.created_at),
        "expires_at": at(row.expires_at),
        "revoked_at": at(row.revoked_at),
        "used_at": at(row.used_at),
    }


def used(rows: Iterable[Used]) -> list[dict[str, Any]]:
    return [{**key(row.key), "used": {name: getattr(row, name) for name in FIELDS}} for row in rows]


def panel(deployment: Deployment) -> dict[str, Any]:
    """The context of `deployments/_gateway_panel.html` on the page of a deployment."""
    gateway = gateways.of(deployment)
    if gateway is None:
        return {"deployment": deployment, "gateway": None}
    shown = of(gateway)
    state = str(shown["state"])
    look = LOOKS.get(state, "stale")
    model = deployment.revision.settings.get("served_model_name", "") if deployment.revision else ""
    return {
        "deployment": deployment,
        "gateway": gateway,
        "shown": shown,
        "state_word": words(state),
        "look": look,
        "shape": SHAPES.get(look, "state-stale"),
        "model": model or deployment.name,
        "well": sum(one["healthy"] is True for one in shown["engines"]),
    }
