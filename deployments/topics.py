"""Topics of jobs and deployments: `jobs` tells every change of state, `job:<id>` one job's state and log.

`artifacts`, `batches`, `batch:<id>`, `campaigns`, `campaign:<id>`, `join:<id>`, `join-many:<id>` and
`support-bundle:<id>` only say that something has moved ("moved": {id}); the page asks for it anew. `doubt` says that
the console doubts itself or does so no more ("moved": {on}).

`deployment:<id>` has "deployment", what services/deployment_json.of says, whenever something of it changes and at most
once a second while its engines tell their numbers; `deployments` only says that one has moved. `replica:<id>` speaks as
`job:<id>` does, see services/engine_logs.py.
"""

import re
from collections.abc import Sequence

from django.db.models import Model
from django.utils.translation import gettext as _

from console import doubt
from console.errors import NotFound
from console.live import Present, Told, Topic, viewer
from console.message import newest, newest_of_each
from console.models import User
from deployments.models import AgentLog, Attempt, Batch, Campaign, EngineLog, Enrolment, Job, JoinMany, Replica, Server
from deployments.services import agent_logs, deployment_json, engine_logs, logs, replica_live, support_bundles
from deployments.services.jobs import as_json

MOST_LINES = 500  # what a socket sends of the past; more than that the page fetches over HTTP, as it needs it


def present(match: re.Match[str]) -> Present:
    """The job's present state and its newest attempt. Raises NotFound."""
    job = Job.objects.select_related("server", "requester").filter(pk=int(match["id"])).first()
    if job is None:
        raise NotFound(
            _("There is no job #%(id)s.") % {"id": match["id"]},
            _("Open the list of jobs and choose one."),
            code="no_such_job",
        )
    attempt = job.attempts.order_by("-n").values_list("pk", flat=True).first()
    return Present([Told("state", as_json(job))], attempt)


def history(match: re.Match[str], attempt: str, after: int) -> Sequence[Told]:
    """The lines that follow `after`, as one message; where there are too many, one that says how far the log goes.

    "log": {attempt, first, n, text}, text being raw spool records joined by newlines.
    "behind": {attempt, first, total}: lines `first` … `total` are there and not sent.
    """
    return _lines_after(Attempt.objects.filter(pk=attempt, job_id=int(match["id"])).first(), attempt, after)


def _lines_after(row: logs.Head | None, attempt: str, after: int) -> Sequence[Told]:
    if row is None or row.next_line - 1 <= after:
        return []
    total = row.next_line - 1
    if total - after <= MOST_LINES:
        lines = logs.after(row, after, MOST_LINES)
        if lines.n == total - after:
            told = {"attempt": attempt, "first": lines.first, "n": lines.n, "text": lines.text}
            return [Told("log", told, total)]
    return [Told("behind", {"attempt": attempt, "first": after + 1, "total": total}, total)]


def present_batch(match: re.Match[str]) -> Present:
    """Raises NotFound; the page has drawn what is there."""
    if not Batch.objects.filter(pk=int(match["id"])).exists():
        raise NotFound(
            _("There is no batch #%(id)s.") % {"id": match["id"]},
            _("Open the list of batches and choose one."),
            code="no_such_batch",
        )
    return Present()


def present_campaign(match: re.Match[str]) -> Present:
    """Raises NotFound; the page has drawn what is there."""
    if not Campaign.objects.filter(pk=int(match["id"])).exists():
        raise NotFound(
            _("There is no campaign #%(id)s.") % {"id": match["id"]},
            _("Look for it in the list of campaigns."),
            code="no_such_campaign",
        )
    return Present()


def administrator(user: User, match: re.Match[str]) -> bool:
    return user.may("administrator")


def present_join(match: re.Match[str]) -> Present:
    """A step may have been reached since the page was drawn, so that it draws itself anew. Raises NotFound."""
    return _present_moved(Enrolment, match)


def present_join_many(match: re.Match[str]) -> Present:
    return _present_moved(JoinMany, match)


def _present_moved(model: type[Model], match: re.Match[str]) -> Present:
    pk = int(match["id"])
    if not model._default_manager.filter(pk=pk).exists():
        raise NotFound(
            _("There is no such command for joining."),
            _("Choose one on the page “Join a server”, or make one."),
            code="no_such_join",
        )
    return Present([Told("moved", {"id": pk})])


def present_support_bundle(match: re.Match[str]) -> Present:
    """A part may have come since the page was drawn. Raises NotFound."""
    pk = int(match["id"])
    support_bundles.find(pk)
    return Present([Told("moved", {"id": pk})])


def present_doubt(match: re.Match[str]) -> Present:
    return Present([Told("moved", {"on": bool(doubt.read())})])


def present_deployment(match: re.Match[str]) -> Present:
    """The deployment as it is. Raises NotFound."""
    row = deployment_json.rows().filter(pk=int(match["id"])).first()
    if row is None:
        raise NotFound(
            _("There is no such deployment."),
            _("Open the list of deployments and choose one."),
            code="no_such_deployment",
        )
    return Present([Told("deployment", deployment_json.of(row))])


def present_replica(match: re.Match[str]) -> Present:
    """The replica's present state and the newest piece of its log. Raises NotFound."""
    rows = Replica.objects.select_related("server", "revision", "serve_job", "stop_job")
    row = rows.filter(pk=int(match["id"])).first()
    if row is None:
        raise NotFound(_("There is no such replica."), _("Open its deployment and choose one."), code="no_such_replica")
    piece = engine_logs.newest(row)
    said = deployment_json.replica(row, replica_live.read([row.pk]).get(row.pk, {}))
    return Present([Told("state", said)], piece.pk if piece else None)


def replica_history(match: re.Match[str], attempt: str, after: int) -> Sequence[Told]:
    """The same as `history` of a piece of an engine's log."""
    return _lines_after(EngineLog.objects.filter(pk=attempt, replica_id=int(match["id"])).first(), attempt, after)


def present_agent(match: re.Match[str]) -> Present:
    """The newest piece of the log of a server's agent. Raises NotFound."""
    server = Server.objects.filter(pk=int(match["id"])).first()
    if server is None:
        raise NotFound(_("There is no such server."), _("Choose one from the list of servers."), code="no_such_server")
    piece = agent_logs.newest(server)
    return Present([], piece.pk if piece else None)


def agent_history(match: re.Match[str], attempt: str, after: int) -> Sequence[Told]:
    """The same as `history` of a piece of an agent's log."""
    return _lines_after(AgentLog.objects.filter(pk=attempt, server_id=int(match["id"])).first(), attempt, after)


TOPICS = [
    Topic(r"agent:(?P<id>[1-9]\d{0,17})", viewer, present_agent, history=agent_history),
    Topic(r"doubt", viewer, present_doubt, conflate=newest),
    Topic(r"join:(?P<id>[1-9]\d{0,17})", administrator, present_join, conflate=newest),
    Topic(r"join-many:(?P<id>[1-9]\d{0,17})", administrator, present_join_many, conflate=newest),
    Topic(r"artifacts", viewer, conflate=newest),
    Topic(r"batches", viewer, conflate=newest),
    Topic(r"batch:(?P<id>[1-9]\d{0,17})", viewer, present_batch, conflate=newest),
    Topic(r"campaigns", viewer, conflate=newest),
    Topic(r"campaign:(?P<id>[1-9]\d{0,17})", viewer, present_campaign, conflate=newest),
    Topic(r"jobs", viewer, conflate=newest_of_each("id")),
    Topic(r"job:(?P<id>[1-9]\d{0,17})", viewer, present, history=history),
    Topic(r"deployments", viewer, conflate=newest),
    Topic(r"deployment:(?P<id>[1-9]\d{0,17})", viewer, present_deployment, conflate=newest),
    Topic(r"support-bundle:(?P<id>[1-9]\d{0,17})", viewer, present_support_bundle, conflate=newest),
    Topic(r"replica:(?P<id>[1-9]\d{0,17})", viewer, present_replica, history=replica_history),
]
