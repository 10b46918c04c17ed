"""What time does to jobs: silence makes them lost, a beat brings them back, an unseen dispatch is sent again."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

import redis
from django.db import transaction
from django.utils import timezone

from deployments import queues
from deployments.models import Attempt, Job, JobState
from deployments.services import jobs, waiting
from deployments.steps import Text

log = logging.getLogger(__name__)

RESEND_FIRST_S = 10
RESEND_MOST_S = 600


def mark_lost(silent: Iterable[int]) -> list[Job]:
    """Jobs that run on a silent server (ids) become lost. Returns them."""
    running = Job.objects.filter(server__in=list(silent), state=JobState.RUNNING).select_related("server", "requester")
    lost = []
    for job in running:
        seen = job.server.last_seen_at
        since = timezone.localtime(seen).strftime("%H:%M:%S %z") if seen else "—"
        reason = Text(
            f"{job.server.name} 自 {since} 起没有心跳；任务可能仍在运行，服务器恢复后会显示真实状态",
            f"{job.server.name} has sent no beat since {since}; the job may still run, "
            "and shows its true state when the server is back",
        )
        # Guarded by the state read: an end that arrives at this very moment is not overwritten.
        if Job.objects.filter(pk=job.pk, state=JobState.RUNNING).update(state=JobState.LOST, reason=list(reason)):
            job.state, job.reason = JobState.LOST, list(reason)
            lost.append(job)
            jobs.tell(job)
    return lost


def bring_back(active: Iterable[str]) -> list[Job]:
    """Lost jobs whose attempts a beat names as running take their true state again."""
    found = Attempt.objects.filter(pk__in=list(active), job__state=JobState.LOST, done=False)
    back = []
    for attempt in found.select_related("job__server", "job__requester"):
        job = attempt.job
        if Job.objects.filter(pk=job.pk, state=JobState.LOST).update(state=JobState.RUNNING, reason=None):
            job.state, job.reason = JobState.RUNNING, None
            back.append(job)
            jobs.tell(job)
    return back


def resend(now: datetime) -> int:
    """Push again what no event has confirmed, with back-off, and only where it stands in no list of the server."""
    unseen = Attempt.objects.filter(
        state=JobState.QUEUED, started_at=None, next_line=1, job__state=JobState.QUEUED, job__waiting=False
    )
    sent = 0
    for attempt in unseen.select_related("job__server", "job__requester")[:500]:
        if attempt.job.not_after < now:
            expire(attempt)
        elif _is_due(attempt, now) and not _stands(attempt) and not _stands_still(attempt):
            sent += jobs.hand_over(attempt)
    return sent


def expire(attempt: Attempt) -> None:
    """A job that no server took within its time has failed."""
    reason = Text("在有效期内没有服务器接收", "No server took it within the time it was valid for")
    with transaction.atomic():
        job = Job.objects.select_for_update().get(pk=attempt.job_id)
        if job.state == JobState.QUEUED:
            jobs.end_here(job, attempt, JobState.FAILED, reason)
    jobs.tell(Job.objects.select_related("server", "requester").get(pk=attempt.job_id))


def _is_due(attempt: Attempt, now: datetime) -> bool:
    if attempt.pushed_at is None:
        return True
    if attempt.job.server.is_offline:
        return False
    wait = min(RESEND_MOST_S, RESEND_FIRST_S * 2 ** min(attempt.pushes, 10))
    return now - attempt.pushed_at > timedelta(seconds=wait)


def _stands_still(attempt: Attempt) -> bool:
    """True where the server's queue was paused before the entry had got there."""
    return attempt.pushed_at is None and bool(waiting.standstill(attempt.job.server, attempt.job.kind))


def _stands(attempt: Attempt) -> bool:
    try:
        return queues.is_waiting(attempt)
    except redis.RedisError:
        return True  # unknown: look again later
