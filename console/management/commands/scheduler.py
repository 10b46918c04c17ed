"""`manage.py scheduler`: RQ's cron puts the jobs of console/schedule.py into the console's own queue."""

from typing import Any

import django_rq
import redis
from django.core.management.base import BaseCommand
from rq.cron import CronJob, CronScheduler
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer

from console import schedule

QUEUE = "default"


class JsonCronJob(CronJob):
    """RQ's own enqueues with pickle whatever the queue is set to."""

    def enqueue(self, connection: redis.Redis) -> Job:
        assert self.func is not None
        queue = Queue(self.queue_name, connection=connection, serializer=JSONSerializer)
        return queue.enqueue(self.func, **self.job_options)


def make(connection: redis.Redis) -> CronScheduler:
    """A scheduler that knows every job of console/schedule.py."""
    scheduler = CronScheduler(connection=connection)
    scheduler.get_jobs().extend(
        JsonCronJob(QUEUE, func=work, cron=when, job_timeout=600, result_ttl=86400, failure_ttl=7 * 86400)
        for when, work in schedule.JOBS
    )
    return scheduler


class Command(BaseCommand):
    help = "Queue the console's periodic work when it is due."
    requires_system_checks: list[str] = []  # `make up` has checked; a restart is to be quick

    def handle(self, *args: Any, **options: Any) -> None:
        make(django_rq.get_connection(QUEUE)).start()  # type: ignore[no-untyped-call]
