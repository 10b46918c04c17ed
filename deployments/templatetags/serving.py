"""How deployments and replicas are shown: states as word, shape and colour, figures of engines."""

from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console.templatetags.frame import figure, icon
from deployments.models import Deployment, Job, Replica, ReplicaState

register = template.Library()

REPLICA_LOOKS = {
    "planned": ("", "state-queued"),
    "starting": ("info", "state-running"),
    "loading": ("info", "state-running"),
    "ready": ("ok", "state-ok"),
    "degraded": ("warning", "state-warning"),
    "draining": ("stale", "state-stale"),
    "stopped": ("", "state-cancelled"),
    "failed": ("critical", "state-failed"),
}
# States of a deployment: services/deployment_json.py.
LOOKS: dict[str, tuple[str, str, Any]] = {
    "ready": ("ok", "state-ok", _("Ready")),
    "degraded": ("warning", "state-warning", _("Degraded")),
    "rolling_out": ("info", "state-running", _("Rolling out")),
    "scaling": ("info", "state-running", _("Scaling up")),
    "starting": ("info", "state-running", _("Starting")),
    "failed": ("critical", "state-critical", _("Failed")),
    "stopping": ("stale", "state-stale", _("Stopping")),
    "stopped": ("", "state-cancelled", _("Stopped")),
    "paused": ("warning", "pause", _("Paused")),
}
UNKNOWN = ("stale", "state-unknown")


@register.simple_tag
def replica_state(name: str, css: str = "state", n: int | None = None) -> SafeString:
    """A state of a replica as shape, colour and word; `n` stands before the word where several are in it."""
    look, shape = REPLICA_LOOKS.get(name, UNKNOWN)
    text = replica_word(name) if n is None else f"{n} {replica_word(name).lower()}"
    return format_html('<span class="{} {}">{}<span>{}</span></span>', css, look, icon(shape, ""), text)


@register.filter
def replica_word(name: str) -> str:
    return str(ReplicaState(name).label) if name in ReplicaState.values else name


@register.simple_tag
def deployment_state(name: str, css: str = "state") -> SafeString:
    look, shape, word = LOOKS.get(name, (*UNKNOWN, name))
    return format_html('<span class="{} {}">{}<span>{}</span></span>', css, look, icon(shape, ""), word)


@register.filter
def deployment_word(name: str) -> str:
    return str(LOOKS[name][2]) if name in LOOKS else name


@register.filter
def rate(value: Any) -> str:
    """Tokens a second and the like: one decimal where it is small; "—" where it is unknown."""
    if not isinstance(value, int | float):
        return "—"
    return figure(value, 1 if 0 < value < 10 else 0)


@register.simple_tag
def deployment_of(job: Job) -> str:
    """The name of the deployment that a job serves, stops, measures or gives a gateway: its page leads there."""
    if job.kind == "benchmark":
        return Deployment.objects.filter(benchmarks__job=job).values_list("name", flat=True).first() or ""
    name = job.params.get("deployment") if isinstance(job.params, dict) else None
    known = isinstance(name, str) and name and Deployment.objects.filter(name=name).exists()
    return str(name) if known else ""


@register.simple_tag
def replica_of(job: Job) -> Replica | None:
    """The replica that a job starts or stops; the engine's own log says more than the job's."""
    pk = job.params.get("replica") if job.kind in ("serve", "restart", "stop") else None
    return Replica.objects.filter(pk=pk).first() if isinstance(pk, int) else None
