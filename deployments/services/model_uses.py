"""What uses a copy of a model: jobs that work with it, its children, deployments. Who knows of more adds a function."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.translation import gettext as _

from deployments.artifacts import paths
from deployments.models import ArtifactPlace, Job, JobState
from deployments.models.job import ENDED
from deployments.templatetags.jobs import kind_title

SHOWN_CHILDREN = 5
ELSEWHERE = {"model_copy": ("model",)}  # parameters that name a path of another server


class Use(NamedTuple):
    """A sentence and where to look. What `blocks` must end before the copy may be deleted."""

    text: str
    url: str
    blocks: bool


Finder = Callable[[ArtifactPlace], Iterator[Use]]
FINDERS: list[Finder] = []


def finds(finder: Finder) -> Finder:
    """The function tells who uses a place. Its module is imported by apps.ready."""
    FINDERS.append(finder)
    return finder


def of(place: ArtifactPlace) -> list[Use]:
    """Those that block first."""
    return sorted((use for finder in FINDERS for use in finder(place)), key=lambda use: not use.blocks)


@finds
def jobs_under_way(place: ArtifactPlace) -> Iterator[Use]:
    """Jobs of that server which name a folder of it that is this one, or lies in it."""
    rows = Job.objects.filter(server=place.server).exclude(state__in=[*ENDED, JobState.DRAFT])
    for job in rows.only("pk", "kind", "params", "state").order_by("pk"):
        if job.kind != "model_delete" and names(own_params(job), place.path):
            text = _("Job #%(id)s (%(kind)s) works with it.") % {"id": job.pk, "kind": kind_title(job.kind)}
            yield Use(text, reverse("deployments:job-detail", args=[job.pk]), True)


@finds
def children(place: ArtifactPlace) -> Iterator[Use]:
    """They go on without it, and cannot be compared with it any more."""
    rows = place.artifact.children.order_by("-pk")
    for child in rows[:SHOWN_CHILDREN]:
        text = _("“%(name)s” was made of this model.") % {"name": child.name}
        yield Use(text, reverse("deployments:model-detail", args=[child.pk]), False)
    if (more := rows.count() - SHOWN_CHILDREN) > 0:
        yield Use(_("%(n)s more were made of it.") % {"n": more}, "", False)


def own_params(job: Job) -> dict[str, Any]:
    """The job's parameters without those that are paths of another server."""
    elsewhere = ELSEWHERE.get(job.kind, ())
    return {name: value for name, value in job.params.items() if name not in elsewhere}


def names(value: Any, path: str) -> bool:
    """Whether parameters name that folder or something in it."""
    if isinstance(value, str):
        return paths.inside(value, path)
    if isinstance(value, dict):
        return any(names(one, path) for one in value.values())
    return isinstance(value, list) and any(names(one, path) for one in value)
