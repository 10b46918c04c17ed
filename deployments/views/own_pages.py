"""The pages that ask for the kinds which the form of a job does not offer."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from deployments.models import ArtifactPlace
from deployments.stacks.installed import NAME
from deployments.stacks.options import CHOICES

FILLED_IN = (*CHOICES, "fault")  # what these pages take from their address


def address(kind: str, params: Mapping[str, Any], server: str) -> str:
    """Of the page that asks for such a job on a server, filled in with `params`; '' where the form does, or none."""
    if kind in ("cleanup", "cleanup_look"):
        return reverse("deployments:server-cleanup", args=[server])
    if kind == "model_delete":
        return _of_copy(params.get("path"), server)
    given = {name: params[name] for name in FILLED_IN if isinstance(params.get(name), str) and params[name]}
    query = f"?{urlencode(given)}" if given else ""
    if kind == "drivers":
        return reverse("deployments:server-drivers", args=[server]) + query
    stack = params.get("stack")
    if kind not in ("install", "rollback", "uninstall"):
        return ""
    if not isinstance(stack, str) or not NAME.fullmatch(stack):
        return reverse("monitoring:stack-list")
    return reverse(f"deployments:stack-{kind}", args=[stack, server]) + (query if kind == "install" else "")


def _of_copy(path: Any, server: str) -> str:
    """Of the page that deletes that copy of a model; of the list where it is gone."""
    rows = ArtifactPlace.objects.filter(server__name=server, path=str(path), gone_at=None)
    place = rows.values_list("pk", flat=True).first()
    return reverse("deployments:model-delete", args=[place]) if place else reverse("deployments:model-list")
