"""Periodic work: what goes and what stays, and how RQ's cron hands it to the console worker."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.utils import timezone
from rq import SimpleWorker
from rq.queue import Queue
from rq.serializers import JSONSerializer

from console import schedule
from console.management.commands import scheduler
from console.models import ApiToken, KeptAnswer, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    return User.objects.create_user("lin", password="only-for-this-test")


def test_kept_answers_go_after_a_day(user):
    for key, hours in (("old", 25), ("young", 23)):
        KeptAnswer.objects.create(user=user, key=key, created_at=timezone.now() - timedelta(hours=hours))
    assert schedule.prune_answers() == 1
    assert KeptAnswer.objects.get().key == "young"


def test_tokens_go_a_month_after_their_end(user):
    for name, days in (("long ended", -31), ("ended", -1), ("good", 1), ("for ever", None)):
        token, _ = ApiToken.make(user, "viewer", name=name)
        if days is not None:
            ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() + timedelta(days=days))
    assert schedule.end_old_tokens() == 1
    assert set(ApiToken.objects.values_list("name", flat=True)) == {"ended", "good", "for ever"}


def test_every_job_is_due_within_a_day_by_the_clock_of_the_site(valkey):
    jobs = scheduler.make(valkey.client()).get_jobs()
    assert len(jobs) == len(schedule.JOBS)
    now = datetime.now(UTC)
    assert all(now < job.next_enqueue_time <= now + timedelta(days=1) for job in jobs)
    nightly = next(job for job in jobs if job.name.endswith("forget_failed_logins"))
    assert nightly.next_enqueue_time.astimezone(ZoneInfo(settings.TIME_ZONE)).strftime("%H:%M") == "03:27"


def test_what_is_due_reaches_the_worker_as_json_and_runs(valkey, user):
    connection = valkey.client()
    KeptAnswer.objects.create(user=user, key="old", created_at=timezone.now() - timedelta(hours=25))
    cron = scheduler.make(connection)
    for job in cron.get_jobs():
        job.next_enqueue_time = (
            datetime.now(UTC) if job.name == "console.schedule.prune_answers" else datetime.max.replace(tzinfo=UTC)
        )
    assert [job.name for job in cron.enqueue_jobs()] == ["console.schedule.prune_answers"]
    queue = Queue("default", connection=connection, serializer=JSONSerializer)
    (waiting,) = queue.get_jobs()
    assert waiting.func_name == "console.schedule.prune_answers"
    assert json.loads(JSONSerializer.dumps(waiting.args)) == []
    SimpleWorker([queue], connection=connection, serializer=JSONSerializer).work(burst=True)
    assert not KeptAnswer.objects.exists()
    assert cron.enqueue_jobs() == []
