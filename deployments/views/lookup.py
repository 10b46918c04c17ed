"""What pages share: the row that an address names, what a script asks for, who asks and may change things."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from console.errors import ConsoleError, NotFound
from console.models import User
from deployments.models import Attempt, Deployment, Job, Replica, Server
from deployments.services import jobs


def is_part(request: HttpRequest) -> bool:
    """True when a script asks for the live part of a page alone."""
    return request.headers.get("X-Part") == "1"


def user_of(request: HttpRequest) -> User:
    return request.user  # type: ignore[return-value]  # LoginRequiredMiddleware lets nobody else in


def only_server() -> str:
    """The name of the one real server there is, to fill a form in with; '' where a person has to choose."""
    names = Server.objects.present().filter(simulated=False).values_list("name", flat=True)[:2]
    return names[0] if len(names) == 1 else ""


def find_server(name: str) -> Server:
    """The server of that name. Raises NotFound."""
    server = Server.objects.filter(name=name[:63]).first()
    if server is None:
        raise NotFound(
            _("There is no server called %(name)s.") % {"name": name[:63]}, _("Choose one from the list of servers.")
        )
    return server


def find_job(pk: int) -> Job:
    """The job with server, requester and batch at hand. Raises NotFound."""
    job = Job.objects.select_related("server", "requester", "batch").filter(pk=pk).first()
    if job is None:
        raise NotFound(_("There is no job #%(id)s.") % {"id": pk}, _("Look for it in the list of jobs."))
    return job


def find_deployment(name: str) -> Deployment:
    """The deployment of that name with what its pages read beside it. Raises NotFound."""
    rows = Deployment.objects.present().select_related("revision__artifact", "owner", "gateway__server")
    rows = rows.defer("gateway__server__facts", "gateway__server__notes")
    deployment = rows.filter(name=name[:63]).first()
    if deployment is None:
        raise NotFound(
            _("There is no deployment called %(name)s.") % {"name": name[:63]},
            _("Look for it in the list of deployments."),
        )
    return deployment


def find_replica(name: str, n: int) -> Replica:
    """That replica of the deployment, also one that has ended. Raises NotFound."""
    rows = Replica.objects.filter(deployment=find_deployment(name), n=n)
    replica = rows.select_related("deployment", "revision", "server").first()
    if replica is None:
        raise NotFound(
            _("%(name)s has no replica %(n)s.") % {"name": name[:63], "n": n},
            _("Choose one on the page of the deployment."),
        )
    return replica


def find_attempt(job: Job, n: str | None) -> tuple[Attempt | None, list[Attempt]]:
    """The attempt that the address names by number or id, else the newest (None before the first); and all of them.

    Raises NotFound.
    """
    every = list(job.attempts.prefetch_related("steps"))
    if not n:
        return (every[-1] if every else None), every
    chosen = next((attempt for attempt in every if n in (str(attempt.n), attempt.pk)), None)
    if chosen is None:
        raise NotFound(
            _("Job #%(id)s has no attempt %(n)s.") % {"id": job.pk, "n": n[:40]}, _("Open the job without an attempt.")
        )
    return chosen, every


def check_may_operate(request: HttpRequest) -> None:
    """Raises NotAllowed before a form is shown whose sending the service would refuse."""
    jobs.check_may_operate(user_of(request))


@contextmanager
def refusal_said(request: HttpRequest) -> Iterator[None]:
    """What a button does at once: where it is refused, the page that follows says why."""
    try:
        yield
    except ConsoleError as error:
        messages.error(request, f"{error.what} {error.do}")
