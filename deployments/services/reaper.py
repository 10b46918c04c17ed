"""What time does to jobs: silence makes them lost, a beat brings them back, an unseen dispatch is sent again."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import redis
from django.db import transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from console import clock
from deployments import queues
from deployments.models import Attempt, Job, JobState
from deployments.models.job import UNDER_WAY
from deployments.row_locks import lock_job
from deployments.services import jobs, waiting
from deployments.steps import Text

RESEND_FIRST_S = 10
RESEND_MOST_S = 600
GIVE_UP_S = 60  # a server that is heard for so long has told of all that runs on it
SURE_S = 15
AT_ONCE = 500
OF_ONE_SERVER = 20
UNKNOWN_THERE = Text("服务器不知道此作业，已按请求取消", "Its server knows nothing of it, so it was cancelled as asked")


def mark_lost(silent: Iterable[int]) -> list[Job]:
    """Jobs that run on a silent server (ids) become lost. Returns them."""
    silent = list(silent)
    running = Job.objects.filter(server__in=silent, state=JobState.RUNNING).select_related("server", "requester")
    lost = []
    for job in running:
        seen = job.server.last_seen_at
        since = clock.words(seen) if seen else "—"
        reason = Text(
            f"{job.server.name} 自 {since} 起没有心跳；作业可能仍在运行，服务器恢复后会显示真实状态",
            f"{job.server.name} has sent no beat since {since}; the job may still run, "
            "and shows its true state when the server is back",
        )
        # Guarded by the state read: an end that arrives at this very moment is not overwritten.
        if Job.objects.filter(pk=job.pk, state=JobState.RUNNING).update(state=JobState.LOST, reason=list(reason)):
            job.state, job.reason = JobState.LOST, list(reason)
            lost.append(job)
            jobs.tell(job)
    return lost + _mark_lost_rebooting(silent)


def _mark_lost_rebooting(silent: Iterable[int]) -> list[Job]:
    """The same for those that wait for their server to start anew, whose own time is over."""
    rows = Job.objects.filter(server__in=list(silent), state=JobState.WAITING_REBOOT)
    now, lost = timezone.now(), []
    for job in rows.select_related("server", "requester"):
        if job.reboot and job.reboot_until and job.reboot_until > now:
            continue
        began = datetime.fromisoformat(job.reboot["since"]) if job.reboot else None
        since = clock.words(began) if began else "—"
        reason = Text(
            f"{job.server.name} 自 {since} 起等待重启，过了时限仍未恢复；请到现场或通过 BMC 查看，恢复后从下一步继续",
            f"{job.server.name} was to restart since {since} and is not back within its time; look at it on site or by "
            "its BMC. When it is back, the job goes on with the next step",
        )
        still = Job.objects.filter(pk=job.pk, state=JobState.WAITING_REBOOT)
        if still.update(state=JobState.LOST, reason=list(reason)):
            job.state, job.reason = JobState.LOST, list(reason)
            lost.append(job)
            jobs.tell(job)
    return lost


def restarting() -> set[int]:
    """Ids of the servers that a job has start anew, within its time: their silence is no news."""
    rows = Job.objects.filter(state=JobState.WAITING_REBOOT).exclude(reboot=None).only("server_id", "reboot")
    now = timezone.now()
    return {job.server_id for job in rows if job.reboot_until and job.reboot_until > now}


def bring_back(active: Mapping[int, Collection[str]]) -> list[Job]:
    """Lost jobs whose attempts the beats of their own servers (id: attempts) name as running are running again."""
    found = Attempt.objects.filter(job__state=JobState.LOST, done=False)
    back = []
    for attempt in found.select_related("job__server", "job__requester") if active else ():
        job = attempt.job
        if attempt.pk not in active.get(job.server_id, ()):
            continue
        state = JobState.WAITING_REBOOT if job.reboot else JobState.RUNNING
        if Job.objects.filter(pk=job.pk, state=JobState.LOST).update(state=state, reason=None):
            job.state, job.reason = state, None
            back.append(job)
            jobs.tell(job)
    return back


def resend(now: datetime) -> int:
    """Push again what no event has confirmed, with back-off, and only where it stands in no list of the server."""
    unseen = Attempt.objects.filter(
        state=JobState.QUEUED, started_at=None, next_line=1, job__state=JobState.QUEUED, job__waiting=False
    )
    unseen = unseen.select_related("job__server", "job__requester")
    for attempt in unseen.filter(job__not_after__lt=now)[:AT_ONCE]:
        expire(attempt)
    # Some of each server, the never pushed first: a server with a long queue does not keep others from theirs.
    order = F("pushed_at").asc(nulls_first=True)
    place = Window(RowNumber(), partition_by="job__server_id", order_by=order)
    some = unseen.filter(job__not_after__gte=now).annotate(place=place).filter(place__lte=OF_ONE_SERVER)
    due = (attempt for attempt in some.order_by(order)[:AT_ONCE] if _is_due(attempt, now))
    return sum(jobs.hand_over(attempt) for attempt in due if not _stands(attempt, queues.is_waiting))


def resend_cancels(now: datetime) -> int:
    """Ask again for each cancel that no event has answered and that stands in no list of the server."""
    asked = Attempt.objects.filter(
        job__state__in=(*UNDER_WAY, JobState.LOST),
        job__cancel_requested_at__lt=now - timedelta(seconds=RESEND_FIRST_S),
        rung="",
        done=False,
    )
    heard = (attempt for attempt in asked.select_related("job__server")[:AT_ONCE] if not attempt.job.server.is_offline)
    return sum(jobs.ask_to_cancel(attempt) for attempt in heard if not _stands(attempt, queues.cancel_is_waiting))


def give_up(now: datetime, unanswered: dict[str, datetime]) -> list[Job]:
    """Cancel lost jobs that were to be cancelled and of which their server, which is heard again, knows nothing: it
    was installed anew, for instance. Should it tell of one after all, its events say what is true.

    `unanswered` is kept by the caller from time to time: attempts, and since when their server has had no answer.
    """
    asked = Attempt.objects.filter(job__state=JobState.LOST, job__cancel_requested_at__isnull=False, done=False)
    heard_since = now - timedelta(seconds=SURE_S)
    found = {a.pk: a for a in asked.filter(job__server__last_seen_at__gt=heard_since).select_related("job")[:AT_ONCE]}
    for gone in unanswered.keys() - found.keys():
        del unanswered[gone]
    ended = []
    for attempt in found.values():
        since = unanswered.setdefault(attempt.pk, now)
        if now - since < timedelta(seconds=GIVE_UP_S) or _stands(attempt, queues.cancel_is_waiting):
            continue
        with transaction.atomic():
            job = lock_job(attempt.job_id)
            if job.state == JobState.LOST and job.attempts.order_by("n").last() == attempt:
                jobs.end_here(job, attempt, JobState.CANCELLED, UNKNOWN_THERE)
                ended.append(job)
    for job in ended:
        jobs.tell(job)
    return ended


def expire(attempt: Attempt) -> None:
    """A job that no server took within its time has failed."""
    reason = Text("在有效期内没有服务器接收", "No server took it within the time it was valid for")
    with transaction.atomic():
        job = lock_job(attempt.job_id)
        if job.state == JobState.QUEUED:
            jobs.end_here(job, attempt, JobState.FAILED, reason)
    jobs.tell(Job.objects.select_related("server", "requester").get(pk=attempt.job_id))


def _is_due(attempt: Attempt, now: datetime) -> bool:
    if attempt.pushed_at is None:
        # The server's queue may have been paused before the entry got there.
        return not waiting.may_not_start(attempt.job.server, attempt.job)
    if attempt.job.server.is_offline:
        return False
    wait = min(RESEND_MOST_S, RESEND_FIRST_S * 2 ** min(attempt.pushes, 10))
    return now - attempt.pushed_at > timedelta(seconds=wait)


def _stands(attempt: Attempt, where: Callable[[Attempt], bool]) -> bool:
    try:
        return where(attempt)
    except redis.RedisError:
        return True  # unknown: look again later
