"""The job or replica whose log a REST call names."""

from django.utils.translation import gettext as _

from console.errors import NotFound
from deployments.models import Job, Replica
from deployments.services import deployments


def find_job(job_id: int) -> Job:
    found = Job.objects.select_related("server", "requester").filter(pk=job_id).first() if job_id < 2**63 else None
    if found is None:
        raise NotFound(_("There is no job #%(id)s.") % {"id": job_id}, _("GET /api/v1/jobs lists them."))
    return found


def find_replica(name: str, n: int) -> Replica:
    rows = deployments.find(name).replica_set.select_related("deployment", "revision", "server")
    found = rows.filter(n=n).first() if 0 < n < 2**31 else None
    if found is None:
        raise NotFound(
            _("“%(name)s” has no replica %(n)s.") % {"name": name, "n": n},
            _("GET /api/v1/deployments/NAME/replicas lists them."),
            code="no_such_replica",
        )
    return found
