"""The topics of jobs: what a subscriber gets of the past, and how much of it."""

import re
import zlib

import pytest

from console.errors import NotFound
from deployments import topics
from deployments.models import Attempt, Job, LogChunk, Server

pytestmark = pytest.mark.django_db
NAME = next(topic.pattern for topic in topics.TOPICS if topic.history is topics.history)


@pytest.fixture
def job(db):
    return Job.objects.create(
        server=Server.objects.create(name="kp-07"), kind="check", not_after="2030-01-01T00:00:00Z"
    )


def attempt_with(job, chunks, n=1, width=5):
    """An attempt whose log holds `chunks` chunks of 100 lines."""
    attempt = Attempt.objects.create(pk=f"a{job.pk}-{n}-0000000{n}", job=job, n=n, next_line=100 * chunks + 1)
    for first in range(1, 100 * chunks, 100):
        text = "".join(f"{line}\to\t{'字' * width}\n" for line in range(first, first + 100))
        LogChunk.objects.create(attempt=attempt, first=first, n=100, data=zlib.compress(text.encode()))
    return attempt


def match(job):
    return re.fullmatch(NAME, f"job:{job.pk}")


def test_history_begins_in_the_middle_of_a_chunk(job):
    attempt = attempt_with(job, 3)
    (told,) = topics.history(match(job), attempt.pk, 150)
    assert (told.type, told.seq, told.data["first"], told.data["n"]) == ("log", 300, 151, 150)
    records = told.data["text"].split("\n")
    assert (records[0], records[-1], len(records)) == ("151\to\t字字字字字", "300\to\t字字字字字", 150)


def test_nothing_follows_the_end(job):
    attempt = attempt_with(job, 1)
    assert topics.history(match(job), attempt.pk, 100) == []
    assert topics.history(match(job), attempt.pk, 999) == []


def test_more_than_the_socket_sends_is_only_counted(job):
    attempt = attempt_with(job, 6)
    (told,) = topics.history(match(job), attempt.pk, 99)
    assert told == ("behind", {"attempt": attempt.pk, "first": 100, "total": 600}, 600)
    (told,) = topics.history(match(job), attempt.pk, 100)
    assert told.data["n"] == 500


def test_few_lines_that_are_very_long_are_only_counted_too(job):
    attempt = attempt_with(job, 1, width=8000)
    (told,) = topics.history(match(job), attempt.pk, 0)
    assert told == ("behind", {"attempt": attempt.pk, "first": 1, "total": 100}, 100)


def test_the_attempt_of_another_job_is_not_read(job):
    other = Job.objects.create(server=job.server, kind="check", not_after=job.not_after)
    attempt = attempt_with(other, 1)
    assert topics.history(match(job), attempt.pk, 0) == []


def test_the_newest_attempt_is_the_one_to_follow(job):
    assert topics.present(match(job)).attempt is None
    attempt_with(job, 1, n=1)
    newest = attempt_with(job, 1, n=10)
    present = topics.present(match(job))
    assert (present.attempt, present.messages[0].type, present.messages[0].data["id"]) == (newest.pk, "state", job.pk)


def test_a_job_that_is_not_there_is_refused_in_words(job):
    with pytest.raises(NotFound) as refused:
        topics.present(re.fullmatch(NAME, "job:987654321"))
    assert refused.value.code == "no_such_job"


@pytest.mark.parametrize("name", ["job:", "job:0", "job:-1", "job:042", "job:4 2", "job:" + "9" * 19, "job:1/2"])
def test_what_is_no_number_of_a_job_is_no_topic(name):
    assert re.fullmatch(NAME, name, re.ASCII) is None
