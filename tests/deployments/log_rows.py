"""Stored logs for tests: records with times of one's own, in chunks of one's own."""

import zlib
from datetime import timedelta

from django.utils import timezone

BASE = 1_764_500_000_000


def records(*lines):
    """(ms after BASE or None for no time, text[, kind]) as spool records."""
    made = []
    for ms, text, *kind in lines:
        made.append(f"{BASE + ms if ms is not None else 0}\t{kind[0] if kind else 'o'}\t{text}")
    return made


def stored(head, lines, chunk=3):
    """Puts raw records behind what the log holds already, so many to a chunk."""
    first = head.next_line
    for at in range(0, len(lines), chunk):
        part = lines[at : at + chunk]
        data = zlib.compress("".join(f"{one}\n" for one in part).encode("utf-8", "surrogateescape"), 1)
        head.chunks.create(first=first + at, n=len(part), data=data)
    head.next_line = first + len(lines)
    head.save()
    return head


def replica(deployment, n, server, **fields):
    from deployments.models import Replica

    fields = {"state": "ready", "path": "/m", **fields}
    return Replica.objects.create(deployment=deployment, revision=deployment.revision, n=n, server=server, **fields)


def deployment(name="tiny"):
    from deployments.models import Deployment, Revision

    made = Deployment.objects.create(name=name)
    made.revision = Revision.objects.create(deployment=made, n=1)
    made.save()
    return made


def piece(replica, n=1, server=None, **fields):
    from deployments.models import EngineLog

    return EngineLog.objects.create(
        pk=f"e{replica.pk}-{n}", replica=replica, server=server or replica.server, n=n, **fields
    )


def attempt(job, n=1, **fields):
    from deployments.models import Attempt

    return Attempt.objects.create(pk=f"a{job.pk}-{n}-0000000{n}", job=job, n=n, **fields)


def job(server, **fields):
    from deployments.models import Job

    fields = {"kind": "check", "not_after": timezone.now() + timedelta(days=1), **fields}
    return Job.objects.create(server=server, **fields)
