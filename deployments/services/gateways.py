"""Gateways of deployments: make, change, move and remove them, and bring their servers what has changed.

Making and removing are jobs. What changes while it runs (keys, engines, policy) is an order, which takes a second.
`wished` counts what it should be, `applied` is what its keeper has said; where they differ, the order is sent again.
"""

import base64
import ipaddress
import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from console import audit
from console.errors import Conflict, Invalid, NotFound
from console.models import User
from deployments.agent import signing
from deployments.models import SERVING, Deployment, ExternalEngine, Gateway, GatewayKey, Job, Server
from deployments.models.job import ENDED
from deployments.row_locks import lock_gateway
from deployments.services import jobs, orders, package_sources, ports, serving_hooks
from deployments.serving import gateway_conf
from deployments.stacks.options import Options

DO = "gateway"
LOOPBACK = "127.0.0.1"
TOLD_EXPIRED = timedelta(days=30)  # who has one is told so for so long; then it is unknown
AGE = timedelta(seconds=30)  # older, what is known of it may not be so any more


def find(name: str) -> Gateway:
    """The gateway of the deployment of that name. Raises NotFound."""
    found = Gateway.objects.select_related("deployment", "server", "job").filter(
        deployment__name=name[:63], deployment__deleted_at=None
    )
    if (gateway := found.first()) is None:
        raise NotFound(
            _("The deployment %(name)s has no gateway.") % {"name": name[:63]}, _("Make one on the page Gateways.")
        )
    return gateway


def of(deployment: Deployment) -> Gateway | None:
    """Its gateway where it has one that is wished."""
    found = Gateway.objects.select_related("server", "job").filter(deployment=deployment, enabled=True).first()
    if found:
        found.deployment = deployment
    return found


def make(
    deployment: Deployment, server: Server, *, by: User, address: str = "", port: int = 0, policy: str = "cache_aware",
    alone: bool = False, wheelhouse: str = "",
) -> Gateway:  # fmt: skip
    """Make the gateway of a deployment on a server, or make it anew there. Raises NotAllowed, Invalid, Conflict."""
    jobs.check_may_operate(by)
    jobs.check_present(server)
    if server.simulated:
        raise Conflict(
            _("%(server)s is simulated: nothing answers there.") % {"server": server.name},
            _("Choose a real server for the gateway."),
            code="simulated",
        )
    if deployment.simulated:
        raise Conflict(
            _("%(name)s is simulated: none of its engines answers.") % {"name": deployment.name},
            _("Choose a real deployment."),
            code="simulated",
        )
    _check(address, port, policy)
    with transaction.atomic():
        gateway = _row(deployment, server)
        check_idle(gateway)
        gateway.address = LOOPBACK if alone else (address or gateway.address or LOOPBACK)
        gateway.policy, gateway.open_without_keys = policy, alone
        gateway.enabled, gateway.state, gateway.reason = True, "planned", None
        _lease(gateway, port)
        gateway.engines = engines_of(gateway)
        gateway.wished += 1
        gateway.save()
        gateway.job = _queue(gateway, by=by, wheelhouse=wheelhouse)
        gateway.save(update_fields=["job"])
        audit.record(by, "gateway.made", gateway, deployment=deployment.name, server=server.name, alone=alone)
    return gateway


def _row(deployment: Deployment, server: Server) -> Gateway:
    """The row of a deployment's gateway, locked; one on another server has to be removed there first."""
    # Two at once: the second finds the row of the first, and the job of that under way.
    there, made = Gateway.objects.get_or_create(deployment=deployment, defaults={"server": server})
    if made:
        return lock_gateway(there.pk)
    if there.enabled and there.server_id != server.pk:
        raise Conflict(
            _("The gateway of %(name)s is on %(server)s.") % {"name": deployment.name, "server": there.server.name},
            _("Move it, or remove it there first."),
            code="gateway_elsewhere",
        )
    if there.server_id != server.pk:
        ports.release(gateway=there)
        Gateway.objects.filter(pk=there.pk).update(server=server, port=0, router_port=0)
    return lock_gateway(there.pk)


def check_idle(gateway: Gateway) -> None:
    """Raises Conflict while a job of it is under way."""
    if gateway.job is not None and gateway.job.state not in ENDED:
        raise Conflict(
            _("Job #%(id)s of this gateway is under way.") % {"id": gateway.job.pk},
            _("Wait until it has ended."),
            code="under_way",
        )


def _lease(gateway: Gateway, port: int) -> None:
    """A port that somebody names is theirs to answer for, but none that is promised; others are leased. Raises
    Conflict."""
    if port:
        if port in ports.promised(gateway.server, but=gateway):
            raise Conflict(
                _("Port %(port)s of %(server)s is promised to another engine or gateway.")
                % {"port": port, "server": gateway.server.name},
                _("Leave it empty to have one chosen."),
                code="port_taken",
            )
        gateway.port = port
    elif not gateway.port:
        gateway.port = ports.lease(gateway.server, gateway=gateway, purpose="gateway")
    gateway.router_port = ports.lease(gateway.server, gateway=gateway, purpose="router", avoid=(gateway.port,))
    ports.lease(gateway.server, gateway=gateway, purpose="metrics", avoid=(gateway.port,))


def _check(address: str, port: int, policy: str) -> None:
    """Raises Invalid."""
    if address:
        try:
            if "%" in str(ipaddress.ip_address(address)):  # a zone may be any text, and no server keeps one
                raise ValueError(address)
        except ValueError as error:
            raise Invalid(
                _("“%(address)s” is no IP address to listen on.") % {"address": address[:60]},
                _("Write one of the server's own, 0.0.0.0 for all of them, or 127.0.0.1."),
                code="bad_address",
            ) from error
    if port and not 1024 <= port <= 65535:
        raise Invalid(_("The port must be 1024 to 65535."), _("Leave it empty to have one chosen."), code="bad_port")
    if policy not in gateway_conf.POLICIES:
        raise Invalid(
            _("There is no policy “%(policy)s”.") % {"policy": policy[:40]},
            _("Use one of: %(policies)s.") % {"policies": ", ".join(gateway_conf.POLICIES)},
            code="bad_policy",
        )


def _queue(gateway: Gateway, *, by: User, wheelhouse: str = "") -> Job:
    options = Options(index=settings.PACKAGE_INDEX, extra_index=settings.PACKAGE_EXTRA_INDEX)
    where: dict[str, Any] = {"wheelhouse": wheelhouse} if wheelhouse else {
        "index": options.index, "extra_index": options.extra_index, "private": package_sources.is_private(options),
    }  # fmt: skip
    params = {
        "gateway": gateway.pk,
        "deployment": gateway.deployment.name,
        "port": gateway.port,
        "router_port": gateway.router_port,
        "version": gateway.wished,
        "alone": gateway.open_without_keys,
        "sealed": sealed(gateway),
        **where,
    }
    return jobs.queue_job(gateway.server, "gateway", params, by=by)


def change(gateway: Gateway, *, by: User, policy: str | None = None, address: str | None = None) -> Gateway:
    """Another policy or address, at once and without a job. Raises NotAllowed, Invalid."""
    jobs.check_may_operate(by)
    _check(address or "", 0, gateway.policy if policy is None else policy)
    with transaction.atomic():
        gateway = lock_gateway(gateway.pk)
        gateway.policy = policy or gateway.policy
        if address and not gateway.open_without_keys:
            gateway.address = address
        audit.record(by, "gateway.changed", gateway, policy=gateway.policy, address=gateway.address)
        _send(gateway, by=by)
    return gateway


def move(gateway: Gateway, server: Server, *, by: User) -> Gateway:
    """To another server: it ends here, and begins there. Clients need the new address. Raises as `make`, `remove`."""
    if server.pk == gateway.server_id:
        raise Conflict(_("The gateway is on this server."), _("Choose another one."), code="same_server")
    alone = gateway.open_without_keys
    with transaction.atomic():
        remove(gateway, by=by)
        Gateway.objects.filter(pk=gateway.pk).update(job=None, address=LOOPBACK)
        address = "" if alone else ports.address_of(server)
        return make(gateway.deployment, server, by=by, address=address, policy=gateway.policy, alone=alone)


def remove(gateway: Gateway, *, by: User) -> Gateway:
    """It ends on its server; its keys and what they used stay. Of a server that was decommissioned nobody hears its
    end: it counts as stopped. Raises NotAllowed, Conflict."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        gateway = lock_gateway(gateway.pk)
        check_idle(gateway)
        gateway.enabled, gateway.job = False, None
        if gateway.server.is_gone:
            ports.release(gateway=gateway)
            gateway.state, gateway.port, gateway.router_port = "stopped", 0, 0
        else:
            params = {"gateway": gateway.pk, "deployment": gateway.deployment.name}
            gateway.job = jobs.queue_job(gateway.server, "gateway_stop", params, by=by)
        gateway.save(update_fields=["enabled", "job", "state", "port", "router_port"])
        audit.record(by, "gateway.removed", gateway, deployment=gateway.deployment.name, server=gateway.server.name)
    return gateway


def attach(gateway: Gateway, engine: ExternalEngine, *, by: User) -> Gateway:
    """Let requests go to an engine, too, that the console did not start. Raises NotAllowed, Conflict."""
    jobs.check_may_operate(by)
    if engine.gone_at is not None or not engine.port:
        raise Conflict(
            _("This engine is gone, or its port is not known."), _("Choose one that answers."), code="engine_gone"
        )
    row = {"address": address_of(engine), "port": engine.port, "external": engine.pk}
    with transaction.atomic():
        gateway = lock_gateway(gateway.pk)
        gateway.engines = [one for one in gateway.engines if one.get("external") != engine.pk] + [row]
        audit.record(by, "gateway.attached", gateway, engine=engine.key, server=engine.server.name)
        _send(gateway, by=by)
    return gateway


def detach(gateway: Gateway, external: int, *, by: User) -> Gateway:
    """Raises NotAllowed."""
    jobs.check_may_operate(by)
    with transaction.atomic():
        gateway = lock_gateway(gateway.pk)
        gateway.engines = [one for one in gateway.engines if one.get("external") != external]
        audit.record(by, "gateway.detached", gateway, engine=external)
        _send(gateway, by=by)
    return gateway


def address_of(engine: ExternalEngine) -> str:
    return ports.address_of(engine.server)


def engines_of(gateway: Gateway) -> list[dict[str, Any]]:
    """Those that may take requests now: replicas that are ready or degraded, and what was attached and is there."""
    replicas = gateway.deployment.replica_set.filter(state__in=SERVING, drain_until=None).exclude(port=0)
    found: list[dict[str, Any]] = [
        {"address": one.address, "port": one.port, "replica": one.pk, "role": role_of(one.revision.settings)[0]}
        for one in replicas.select_related("revision").order_by("pk")
    ]
    attached = {one["external"]: one for one in gateway.engines if one.get("external")}
    there = ExternalEngine.objects.filter(pk__in=list(attached), gone_at=None).values_list("pk", flat=True)
    return found + [attached[pk] for pk in sorted(there)]


ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
TRANSFER = re.compile(r"--kv-transfer-config(?:=(.*))?", re.DOTALL)


def role_of(revision_settings: Mapping[str, Any]) -> tuple[str, str]:
    """("prefill" | "decode" | "", the router's name for how they hand over) as the flag --kv-transfer-config says."""
    words = [str(word) for word in revision_settings.get("extra") or ()]
    for place, word in enumerate(words):
        if found := TRANSFER.fullmatch(word):
            text = found[1] if found[1] is not None else "".join(words[place + 1 : place + 2])
            try:
                told = json.loads(text)
                name = str(told.get("kv_connector", "")).lower()
                kind = next((one for one in gateway_conf.CONNECTORS if name.startswith(one[:6])), "nixl")
                return ROLES.get(str(told.get("kv_role")), ""), kind
            except (ValueError, AttributeError):
                return "", "nixl"
    return "", "nixl"


def spec_of(gateway: Gateway) -> dict[str, Any]:
    """What deployments/serving/gateway_conf.Spec reads."""
    revision = gateway.deployment.revision
    metrics = gateway.ports.filter(purpose="metrics").values_list("port", flat=True).first()
    rows = [{name: one.get(name, "") for name in ("address", "port", "role")} for one in gateway.engines]
    offset = timezone.localtime().utcoffset() or timedelta()
    return {
        "gateway": gateway.pk,
        "deployment": gateway.deployment_id,
        "version": gateway.wished,
        "address": gateway.address,
        "port": gateway.port,
        "router_port": gateway.router_port,
        "metrics_port": metrics or gateway.router_port + 1,
        "policy": gateway.policy,
        "engines": rows,
        "keys": keys_of(gateway.deployment),
        "engine_key": gateway.deployment.api_key,
        "connector": role_of(revision.settings if revision else {})[1],
        "nginx": not gateway.open_without_keys,
        "day_offset_s": int(offset.total_seconds()),
    }


def keys_of(deployment: Deployment, now: datetime | None = None) -> list[dict[str, Any]]:
    """Every key that is alive, those of other deployments too: who has one is told that it is for another."""
    alive = GatewayKey.objects.filter(revoked_at=None).prefetch_related("deployments").order_by("pk")
    alive = alive.exclude(expires_at__lt=(now or timezone.now()) - TOLD_EXPIRED)
    made = []
    for key in alive:
        scope = [one.pk for one in key.deployments.all()]
        until = int(key.expires_at.timestamp()) if key.expires_at else 0
        allowed = not scope or deployment.pk in scope
        made.append(
            {"id": key.pk, "digest": key.digest, "until": until, "allowed": allowed, "rate": key.rate_per_min or 0}
        )
    return made


def sealed(gateway: Gateway) -> str:
    """The spec for its server alone, as text."""
    return _sealed(spec_of(gateway), gateway.server)


def _sealed(spec: Mapping[str, Any], server: Server) -> str:
    text = json.dumps(spec, separators=(",", ":")).encode()
    return base64.b64encode(signing.seal(server.key, zlib.compress(text))).decode()


def shut(gateway: Gateway, server: Server) -> None:
    """Let nobody in where it ran before and still does, though it was moved away: no key, no engine, no secret."""
    with transaction.atomic():
        gateway = lock_gateway(gateway.pk)
        gateway.wished += 1  # the one that is left knows the version before
        gateway.save(update_fields=["wished"])
        spec = {**spec_of(gateway), "keys": [], "engines": [], "engine_key": "", "address": LOOPBACK}
        orders.send(server, DO, {"gateway": gateway.pk, "version": gateway.wished, "sealed": _sealed(spec, server)})


def _send(gateway: Gateway, *, by: User | None = None) -> None:
    """Note that it should be otherwise, and tell its server. `gateway` is locked."""
    gateway.wished += 1
    gateway.save()
    if gateway.enabled:
        tell(gateway, by=by)


def tell(gateway: Gateway, *, by: User | None = None) -> None:
    args = {"gateway": gateway.pk, "version": gateway.wished, "sealed": sealed(gateway)}
    orders.send(gateway.server, DO, args, by=by)


@serving_hooks.on_change
def changed(deployment: Deployment) -> None:
    """Replicas have become ready, or leave: where that changes who may take requests, its gateway hears it."""
    row = Gateway.objects.filter(deployment=deployment, enabled=True).values_list("pk", flat=True).first()
    if row is None:
        return
    with transaction.atomic():
        gateway = lock_gateway(row)
        found = engines_of(gateway)
        if found != gateway.engines:
            gateway.engines = found
            _send(gateway)


def keys_changed(*, by: User | None = None) -> int:
    """Tell every gateway of the keys there are now; how many."""
    rows = list(Gateway.objects.filter(enabled=True).order_by("server", "pk").values_list("pk", flat=True))
    for pk in rows:
        with transaction.atomic():
            _send(lock_gateway(pk), by=by)
    return len(rows)
