"""Delete one copy of a model: only where the console knows which, nothing works with it, and the last one by name."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from console.errors import Conflict, NotFound
from console.models import User
from deployments.artifacts import paths
from deployments.models import ArtifactPlace, Job, Server
from deployments.models.job import ENDED
from deployments.services import filling, jobs, model_uses
from deployments.services.model_uses import Use


@dataclass(frozen=True)
class Asked:
    """What would be deleted, and what that means."""

    place: ArtifactPlace
    uses: list[Use]
    others: list[ArtifactPlace]

    @property
    def is_last(self) -> bool:
        return not self.others

    @property
    def is_blocked(self) -> bool:
        return any(use.blocks for use in self.uses)


def find(pk: int) -> ArtifactPlace:
    """A place with its artifact and server at hand. Raises NotFound."""
    place = ArtifactPlace.objects.select_related("artifact", "server").filter(pk=pk).first()
    if place is None:
        raise NotFound(
            _("There is no copy of a model with number %(id)s.") % {"id": pk},
            _("Choose one on the page of its model."),
            code="unknown_place",
        )
    return place


def asked(place: ArtifactPlace) -> Asked:
    """Raises Conflict where nothing lies there any more."""
    if place.gone_at is not None:
        raise Conflict(
            _("%(path)s on %(server)s is gone already.") % {"path": place.path, "server": place.server.name},
            _("There is nothing to delete."),
            code="already_gone",
        )
    others = ArtifactPlace.objects.present().filter(artifact=place.artifact).exclude(pk=place.pk)
    rows = others.select_related("server").defer("server__facts")
    return Asked(place, model_uses.of(place), [one for one in rows if one.whole and not _is_to_go(one)])


def _is_to_go(place: ArtifactPlace) -> bool:
    """Whether a job that deletes that copy is under way."""
    open_ = Job.objects.filter(server=place.server_id, kind="model_delete").exclude(state__in=ENDED)
    return any(paths.tidy(str(job.params.get("path", ""))) == place.path for job in open_.only("params"))


def queue(place: ArtifactPlace, *, confirm: str, by: User, ticket: str = "") -> Job:
    """The job that deletes it. Raises Conflict, and what queue_job raises."""
    params = {"path": place.path, "confirm": confirm}
    return jobs.queue_job(place.server, "model_delete", params, by=by, ticket=ticket)


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Which content is meant. Raises NotFound, Conflict."""
    path = paths.tidy(str(params.get("path", "")))
    place = ArtifactPlace.objects.select_related("artifact", "server").filter(server=server, path=path).first()
    if place is None:
        raise NotFound(
            _("No model is known at %(path)s on %(server)s.") % {"path": path[:200], "server": server.name},
            _("Look for models there first, then choose one of them."),
            code="unknown_place",
        )
    wanted = asked(place)
    if blocking := next((use for use in wanted.uses if use.blocks), None):
        raise Conflict(
            blocking.text, _("Wait until that has ended, or cancel it, then delete the model."), code="model_in_use"
        )
    if wanted.is_last and str(params.get("confirm", "")).strip() != place.artifact.name.strip():
        raise Conflict(
            _("There is no other whole copy of “%(name)s”, so its name has to be given.")
            % {"name": place.artifact.name},
            _("Type the name of the model exactly as it is shown."),
            code="name_needed",
        )
    return {"path": place.path, "fingerprint": place.artifact.fingerprint}


filling.FILLERS["model_delete"] = fill
