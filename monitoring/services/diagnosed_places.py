"""Where something went wrong: server, stack and model of a log, and the pages that show it."""

from django.urls import reverse

from deployments.models import Artifact, Attempt, Deployment, EngineLog, Job, Replica, Server
from deployments.services import stacks
from monitoring.models import Diagnosis

ENGINE = "engine"  # the kind of what is no job


def of(head: Attempt | EngineLog) -> dict[str, str]:
    """The fields of Diagnosis that say it, as things are now; '' for what is not known."""
    if isinstance(head, EngineLog):
        artifact = head.replica.revision.artifact
        model = artifact.name if artifact else head.replica.path.rstrip("/").rpartition("/")[2]
        return _fields(head.server, ENGINE, "", model)
    job = head.job
    stack = job.params.get("stack")
    return _fields(job.server, job.kind, stack if isinstance(stack, str) else "", _model_of(job))


def _fields(server: Server, kind: str, stack: str, model: str) -> dict[str, str]:
    has = None if stack else stacks.has_now(stacks.row_of(server))
    return {
        "server": server.name[:63],
        "kind": kind[:40],
        "stack": (stack or (has.name if has else ""))[:120],
        "model": model[:200],
    }


def _model_of(job: Job) -> str:
    """The name of the model that its parameters name, by folder; of an engine's job that of its replica."""
    path = next((job.params[key] for key in ("model", "source", "path") if isinstance(job.params.get(key), str)), "")
    if not path and isinstance(pk := job.params.get("replica"), int):
        path = Replica.objects.filter(pk=pk).values_list("path", flat=True).first() or ""
    known = Artifact.objects.filter(places__server=job.server_id, places__path=path).first() if path else None
    return known.name if known else path.rstrip("/").rpartition("/")[2]


def subject(diagnosis: Diagnosis) -> Job | Deployment:
    """Whose history tells what people said of it."""
    if diagnosis.attempt is not None:
        return diagnosis.attempt.job
    assert diagnosis.piece is not None
    return diagnosis.piece.replica.deployment


def address(diagnosis: Diagnosis) -> str:
    """The page of its log. Needs attempt, or piece with replica and deployment, at hand."""
    if diagnosis.attempt is not None:
        return f"{reverse('deployments:job-detail', args=[diagnosis.attempt.job_id])}?attempt={diagnosis.attempt.n}"
    assert diagnosis.piece is not None
    return of_piece(diagnosis.piece)


def of_piece(piece: EngineLog) -> str:
    """The page of that piece of its replica's log."""
    replica = piece.replica
    page = reverse("deployments:replica-log", args=[replica.deployment.name, replica.n])
    return f"{page}?piece={piece.pk}"


def of_line(diagnosis: Diagnosis) -> str:
    """Its page at the decisive line."""
    line = diagnosis.findings[0]["line"] if diagnosis.findings else 0
    return address(diagnosis) + (f"#L{line}" if line else "")
