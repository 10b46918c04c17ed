"""To evaluate a model: which copy of it and of its parent, on which server, and the job that does it."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from console.errors import Conflict, Invalid
from console.language import pick
from console.models import User
from deployments.artifacts import paths, prompts
from deployments.kinds import evaluate
from deployments.models import Artifact, ArtifactPlace, Job, Server
from deployments.services import filling, in_use, jobs, stacks
from deployments.steps import BadParams, read_params


@dataclass(frozen=True)
class Choice:
    """What can be chosen for one model: where it lies whole, on which of these servers, and what may be its parent
    there. `missing` says where the parent lies when it is not on that server."""

    artifact: Artifact
    places: list[ArtifactPlace]
    place: ArtifactPlace | None
    parents: list[ArtifactPlace]
    parent: ArtifactPlace | None
    missing: str

    @property
    def server(self) -> Server | None:
        return self.place.server if self.place else None

    @property
    def related(self) -> bool:
        """Whether the chosen parent is the one that the model was made from, as far as that is known."""
        return self.parent is None or self.parent.artifact_id == self.artifact.parent_id

    @property
    def engine(self) -> str:
        """Which `auto` would be without NPUs."""
        return "reference" if self.artifact.format == "quantized" else "vllm"


def place_id(artifact: Artifact, server: str, path: str) -> str:
    """The copy that a link names by server and path; '' for none."""
    found = artifact.places.filter(server__name=server[:63], path=path[:1000]).first()
    return str(found.pk) if found else ""


def choose(artifact: Artifact, place_id: str = "", parent_id: str = "") -> Choice:
    """The copy that is named, else the first on a server that answers; and the parent beside it."""
    lie = ArtifactPlace.objects.present().select_related("server", "artifact")
    places = [one for one in lie.filter(artifact=artifact) if one.whole]
    beside = {p.server_id for p in lie.filter(artifact=artifact.parent)} if artifact.parent_id else set()
    places.sort(key=lambda one: (one.server_id not in beside, one.server.is_offline, one.server.name, one.path))
    place = next((one for one in places if str(one.pk) == place_id), places[0] if places else None)
    if place is None:
        return Choice(artifact, [], None, [], None, "")
    there = [p for p in lie.filter(server=place.server).exclude(artifact=artifact) if p.whole and _answers(p.artifact)]
    there.sort(key=lambda one: (one.artifact_id != artifact.parent_id, one.artifact.name, one.path))
    own = there[0] if there and there[0].artifact_id == artifact.parent_id else None
    parent = next((one for one in there if str(one.pk) == parent_id), own)
    return Choice(artifact, places, place, there, parent, "" if parent else _missing(artifact, place.server))


def _answers(artifact: Artifact) -> bool:
    return artifact.format in ("hf", "quantized")


def _missing(artifact: Artifact, server: Server) -> str:
    """Why there is no parent to compare with on the server, and how one gets there."""
    parent = artifact.parent
    if parent is None:
        return _("It is not known which model %(name)s was made from. Choose the parent.") % {"name": artifact.name}
    elsewhere = [f"{one.server.name}:{one.path}" for one in parent.places.present().select_related("server")]
    words = {"parent": parent.name, "server": server.name, "places": ", ".join(elsewhere[:5])}
    if not elsewhere:
        return _("The parent %(parent)s lies on no server any more. Download it to %(server)s.") % words
    return (
        _("The parent %(parent)s does not lie on %(server)s, but here: %(places)s. Copy it to %(server)s first.")
        % words
    )


def defaults() -> dict[str, float]:
    """The site's budget."""
    shares = {"budget_pct": settings.GATE_BUDGET, "agreement_pct": settings.GATE_AGREEMENT}
    return {name: round(100 * share, 4) for name, share in shares.items()}


def fill(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    """Where the stacks lie, the folders as the console knows them, and the site's budget where none is asked for.

    Raises Invalid, Conflict.
    """
    folders = {name: paths.tidy(str(params.get(name, ""))) for name in ("child", "parent")}
    check({**params, **folders})
    root = stacks.row_of(server).has.root
    if held := holders(server, params.get("npus") or []):
        raise Conflict(
            _("Processes hold NPUs that were chosen on %(server)s: %(processes)s.")
            % {"server": server.name, "processes": ", ".join(held[:5])},
            _("Choose free NPUs, or wait until these have ended."),
            code="npus_held",
        )
    found: dict[str, Any] = {name: value for name, value in defaults().items() if name not in params}
    if params.get("npus") and params.get("dtype", "auto") == "auto" and server.family.startswith("310P"):
        found["dtype"] = "float16"  # such chips have no bfloat16, which auto takes
    return {**found, **folders, "stacks": root}


def holders(server: Server, bus_ids: list[str]) -> list[str]:
    """`pid (user)` of each process on one of these NPUs, as last read."""
    chosen = {(npu.npu_id, npu.chip_id or 0) for npu in server.npus.filter(bus_id__in=bus_ids)} if bus_ids else set()
    return [
        f"{one.get('pid') or '?'} ({one.get('user') or '?'})"
        for one in (in_use.processes(server) or [] if chosen else [])
        if (one.get("npu"), one.get("chip") or 0) in chosen
    ]


def check(params: dict[str, Any]) -> None:
    """Raises Invalid for what does not go together, and for prompts that cannot be asked."""
    try:
        read = read_params(evaluate.Params, params)
        evaluate.ask_of(read)
        if read.pasted:
            prompts.parse(read.pasted)
    except BadParams as error:
        what = "; ".join(f"{name}: {pick(text)}" for name, text in error.problems)
        raise Invalid(
            _("The parameters do not fit: %(problems)s.") % {"problems": what},
            _("Mend them and send the job again."),
            code="invalid_params",
        ) from error
    except prompts.BadPrompts as error:
        raise Invalid(pick(error.text), _("Mend the prompts, then send the job again."), code="bad_prompts") from error


def queue(choice: Choice, params: dict[str, Any], *, by: User, ticket: str = "", wait: bool = True) -> Job:
    """The job that evaluates it. Raises Conflict where there is no whole copy, or no parent beside it."""
    if choice.place is None:
        raise Conflict(
            _("%(name)s lies whole on no server.") % {"name": choice.artifact.name},
            _("Download it or look for models on the server where it lies, then evaluate it."),
            code="no_place",
        )
    if choice.parent is None:
        raise Conflict(
            _("There is no parent to compare %(name)s with.") % {"name": choice.artifact.name},
            choice.missing,
            code="no_parent",
        )
    given = {**params, "child": choice.place.path, "parent": choice.parent.path}
    return jobs.queue_job(choice.place.server, evaluate_kind(), given, by=by, ticket=ticket, wait=wait)


def evaluate_kind() -> str:
    return evaluate.__name__.rpartition(".")[2]


filling.FILLERS |= {evaluate_kind(): fill}
