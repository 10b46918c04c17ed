"""All logs of a job or a replica, with what is known of it, as one file."""

from django.http import HttpRequest, StreamingHttpResponse
from django.views.decorators.http import require_GET

from console import audit
from console.answers import file_in_parts
from deployments.services import log_zip
from deployments.views.lookup import find_job, find_replica, user_of

ZIP = "application/zip"


@require_GET
def job_zip(request: HttpRequest, pk: int) -> StreamingHttpResponse:
    job = find_job(pk)
    parts = log_zip.of_job(job)
    audit.record(user_of(request), "log.downloaded", job)
    return file_in_parts(parts, f"job-{job.pk}.zip", ZIP)


@require_GET
def replica_zip(request: HttpRequest, name: str, n: int) -> StreamingHttpResponse:
    replica = find_replica(name, n)
    parts = log_zip.of_replica(replica)
    audit.record(user_of(request), "log.downloaded", replica)
    return file_in_parts(parts, f"{name}-replica-{n}.zip", ZIP)
