"""Kinds some of whose parameters (FILLED) the console finds itself: what they are on this server, from the others."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from deployments import kinds
from deployments.models import Job, Server
from deployments.steps import BadParams, read_params

Filler = Callable[[Server, dict[str, Any]], dict[str, Any]]
FILLERS: dict[str, Filler] = {}
AGAIN: dict[str, Filler] = {}  # what of it is chosen anew where a job goes again with the rest as it was


def filled(server: Server, kind: str, module: ModuleType, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with those that are the console's. Raises Invalid where somebody else gives them."""
    if kind not in FILLERS:
        return dict(params)
    if given := [name for name in module.FILLED if params.get(name)]:
        raise Invalid(
            _("The console fills in %(names)s itself.") % {"names": ", ".join(given)},
            _("Leave it out, then queue the job again."),
            code="filled_in",
        )
    return {**params, **FILLERS[kind](server, dict(params))}


def asked(job: Job) -> dict[str, Any]:
    """A job's parameters as somebody asked for it, without those that the console has filled in."""
    hidden = getattr(kinds.load(job.kind), "FILLED", ()) if job.kind in FILLERS else ()
    return {name: value for name, value in job.params.items() if name not in hidden}


def choose_again(server: Server, job: Job) -> None:
    """Choose anew what the job holds: its NPU may have been cordoned since. Its row is not saved."""
    if job.kind not in AGAIN:
        return
    module = kinds.load(job.kind)
    try:
        params = {**job.params, **AGAIN[job.kind](server, job.params)}
        job.params, job.locks = params, list(module.locks(read_params(module.Params, params)))
    except BadParams:
        pass  # of an older console: its agent says so


def check_filled(job: Job) -> None:
    """Raises Conflict where the console has not filled in yet what the job would run: it never came to its turn."""
    if job.kind not in FILLERS or "plan" not in kinds.load(job.kind).FILLED or job.params.get("plan"):
        return  # only what runs a plan is filled in at its turn
    raise Conflict(
        _("Job #%(id)s never came to its turn, so there is no plan that it could run.") % {"id": job.pk},
        _("Retry it from its campaign, or queue a new one from the plan of its server."),
        code="never_planned",
    )
