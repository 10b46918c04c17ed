"""The pages that ask for the kinds which the form of a job does not offer."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from deployments.stacks.installed import NAME
from deployments.stacks.options import CHOICES

FILLED_IN = (*CHOICES, "fault")  # what these pages take from their address


def address(kind: str, params: Mapping[str, Any], server: str) -> str:
    """Of the page that asks for such a job on a server, filled in with `params`; '' where the form does, or none."""
    if kind in ("cleanup", "cleanup_look"):
        return reverse("deployments:server-cleanup", args=[server])
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
