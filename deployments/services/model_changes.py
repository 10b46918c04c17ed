"""What a person changes about models: their name and notes, and that servers are looked through for them."""

from collections.abc import Iterable

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from console import audit, untrusted
from console.errors import Invalid, NotFound
from console.language import pick
from console.models import User
from deployments.artifacts import paths
from deployments.models import Artifact, ArtifactPlace, Job, Server
from deployments.row_locks import lock_artifact
from deployments.services import artifacts, jobs, model_downloads

MOST_NAME, MOST_NOTES = 200, 4000
MOST_FOLDERS, MOST_LETTERS = 200, 40_000  # what one job names; more than that is looked for in their parents


def find(pk: int) -> Artifact:
    """A model with its parent and the job that made it at hand. Raises NotFound."""
    rows = Artifact.objects.select_related("parent", "made_by__server", "made_by__requester")
    artifact = rows.filter(pk=pk).first()
    if artifact is None:
        raise NotFound(
            _("There is no model #%(id)s.") % {"id": pk}, _("Look for it in the list of models."), code="unknown_model"
        )
    return artifact


def find_given(pk: str) -> Artifact:
    """The model that a form or an address names by its number. Raises NotFound."""
    if pk.isascii() and pk.isdecimal() and len(pk) < 18:
        return find(int(pk))
    raise NotFound(_("There is no such model."), _("Choose one from the list of models."), code="unknown_model")


def edit(pk: int, *, name: str | None, notes: str | None, by: User) -> Artifact:
    """None leaves a field as it is. Raises NotAllowed, NotFound, Invalid."""
    jobs.check_may_operate(by)
    find(pk)
    with transaction.atomic():
        artifact = lock_artifact(pk)
        before = {"name": artifact.name, "notes": artifact.notes}
        artifact.name = artifact.name if name is None else _name(name)
        artifact.notes = artifact.notes if notes is None else _notes(notes)
        changes = {field: [before[field], getattr(artifact, field)] for field in before}
        changes = {field: pair for field, pair in changes.items() if pair[0] != pair[1]}
        if changes:
            artifact.save(update_fields=list(changes))
            audit.record(by, "model.edited", artifact, **changes)
            artifacts.tell_soon()
    return artifact


def _name(name: str) -> str:
    plain = " ".join(untrusted.text(name, MOST_NAME + 1).split())
    if not plain or len(plain) > MOST_NAME or any(not one.isprintable() for one in plain):
        raise Invalid(
            _("A model's name has 1 to %(most)s characters that can be seen.") % {"most": MOST_NAME},
            _("Write another name."),
            code="bad_name",
        )
    return plain


def _notes(notes: str) -> str:
    if len(notes) > MOST_NOTES:
        raise Invalid(
            _("The notes are longer than %(most)s characters.") % {"most": MOST_NOTES}, _("Shorten them."),
            code="too_long",
        )  # fmt: skip
    return untrusted.text(notes, MOST_NOTES).strip()


# ---------- looking for models ----------


def root_of(server: Server | None) -> str:
    """Where models of that server are looked for unless somebody says so: where most of them lie, else in the
    site's folder of models; a site that names none of its own has them where the server's jobs put them."""
    places = list(_present(server)) if server else []
    parents = [path.rpartition("/")[0] for path in places]
    best = max(set(parents), key=lambda path: (parents.count(path), path), default="")
    if best and not paths.problem(best):
        return best
    is_own = settings.MODELS_ROOT != model_downloads.DEFAULT_ROOT
    return settings.MODELS_ROOT if is_own or server is None else model_downloads.root_of(server)


def _present(server: Server) -> Iterable[str]:
    return ArtifactPlace.objects.filter(server=server, gone_at=None).values_list("path", flat=True).order_by("path")


def scan(server: Server, folder: str, *, digests: bool, by: User, ticket: str = "") -> Job:
    """Look for models below a folder. Raises Invalid, and what queue_job raises."""
    folder = folder.strip() or root_of(server)
    if wrong := paths.problem(folder):
        raise Invalid(_("The folder does not fit."), pick(wrong), code="bad_path")
    params = {"folder": paths.tidy(folder), "digests": digests}
    return jobs.queue_job(server, "model_scan", params, by=by, ticket=ticket)


def look_again(server: Server, *, by: User, only: str = "", digests: bool = False) -> Job:
    """Read all known copies of a server anew, or one of them. Raises Invalid where there is none."""
    folders = [only] if only else wide(list(_present(server)))
    if not folders:
        raise Invalid(
            _("No model is known on %(server)s.") % {"server": server.name},
            _("Look for models in a folder of it first."),
            code="no_models",
        )
    params = {"folder": folders[0], "also": folders[1:], "digests": digests, "known": True}
    return jobs.queue_job(server, "model_scan", params, by=by)


def wide(folders: list[str]) -> list[str]:
    """The folders, or where they are too many for one job, the fewest of those that hold them."""
    while len(folders) > MOST_FOLDERS or sum(map(len, folders)) > MOST_LETTERS:
        parents = {path.rpartition("/")[0] for path in folders}
        if any(not path or paths.problem(path) for path in parents):
            return sorted(folders)[:MOST_FOLDERS]
        folders = outermost(parents)
    return folders


def outermost(folders: Iterable[str]) -> list[str]:
    """Without those that lie in another one."""
    kept: list[str] = []
    for path in sorted(set(folders), key=lambda path: f"{path}/"):
        if not kept or not paths.inside(path, kept[-1]):
            kept.append(path)
    return kept
