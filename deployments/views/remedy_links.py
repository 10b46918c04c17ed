"""The form of a job that a remedy names, filled in as far as the rest is known from where it went wrong."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from console.models import User
from deployments import forms, kinds
from deployments.models import Replica
from deployments.services import jobs
from deployments.views import own_pages

MODEL = ("model", "source", "path")  # what kinds call the folder of a model
OF_A_STACK = ("install", "rollback", "uninstall")
MADE_ANEW = ("confirm", "target", "accept", "fault")  # what a person says each time


def of_replica(replica: Replica) -> dict[str, Any]:
    """What is known where an engine failed, by the names that kinds have for it."""
    return {"npus": replica.npus, "model": replica.path, "path": replica.path}


def job_address(kind: str, server: str, known: Mapping[str, Any], reader: User, *, stack: str = "") -> str:
    """Of the page that asks for such a job there; '' where there is no such kind, or the reader may not queue it."""
    if kind not in kinds.names():
        return ""
    module = jobs.find_kind(kind)
    if not reader.may("operator") or not reader.may(getattr(module, "ROLE", "operator")):
        return ""
    params = _filled(module, known)
    given = {**params, **({"stack": stack} if stack else {})}
    # The list of stacks knows nothing of the server: where no stack is known, the form asks for one.
    if (kind not in OF_A_STACK or given.get("stack")) and (own := own_pages.address(kind, given, server)):
        return own
    query = [("kind", kind), ("server", server)]
    for name, value in params.items():
        query += [(forms.PREFIX + name, str(one)) for one in (value if isinstance(value, list) else [value])]
    return f"{reverse('deployments:job-new')}?{urlencode(query)}"


def _filled(module: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the kind whose values are known: of the same name, its NPUs, and the folder of the model."""
    given: dict[str, Any] = {}
    model = next((known[name] for name in MODEL if isinstance(known.get(name), str)), None)
    hidden = {*getattr(module, "FILLED", ()), *getattr(module, "TYPED", ()), *MADE_ANEW}
    for field in dataclasses.fields(module.Params):
        if field.name in hidden:
            continue
        if field.metadata.get("widget") == "artifact" and model:
            given[field.name] = model
        elif (value := known.get(field.name)) and _fits(field, value):
            given[field.name] = value
    return given


def _fits(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Lists are for fields of lists; what is long comes into no address."""
    is_list = field.metadata.get("widget") in ("npus", "texts")
    if is_list != isinstance(value, list) or isinstance(value, (dict, bool)):
        return False
    return len(str(value)) <= 1000
