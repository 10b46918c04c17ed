"""Replicas that serve from a copy of a model use it: it is not deleted under them."""

from collections.abc import Iterator

from django.urls import reverse
from django.utils.translation import gettext as _

from deployments.artifacts import paths
from deployments.models import ArtifactPlace, Gateway, Replica, Server
from deployments.models.deployment import GONE
from deployments.services import model_uses
from deployments.services.model_uses import Use


@model_uses.finds
def replicas(place: ArtifactPlace) -> Iterator[Use]:
    """Those on that server whose model is this folder, or lies in it; one of several servers holds it on each."""
    rows = Replica.objects.exclude(state__in=GONE).select_related("deployment").order_by("deployment__name", "n")
    for row in rows.only("pk", "n", "path", "server_id", "nodes", "deployment__name"):
        if place.server_id in row.server_ids and paths.inside(row.path, place.path):
            text = _("Replica %(n)s of the deployment %(name)s serves it.") % {"n": row.n, "name": row.deployment.name}
            yield Use(text, reverse("deployments:deployment-detail", args=[row.deployment.name]), True)


def on_server(server: Server) -> list[str]:
    """Names of the deployments of which a replica is there, a part of one, or the gateway, sorted."""
    rows = Replica.objects.there().select_related("deployment").order_by("deployment__name")
    found = rows.only("server_id", "nodes", "deployment__name")
    gateways = Gateway.objects.filter(server=server, enabled=True).values_list("deployment__name", flat=True)
    return sorted({*gateways, *(row.deployment.name for row in found if server.pk in row.server_ids)})
