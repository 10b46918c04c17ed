"""REST: search in the log of a job and of a replica."""

import pytest
from django.test import Client

from console.models import ApiToken
from deployments.models import Server
from tests.deployments.log_rows import attempt, deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(viewer):
    token = ApiToken.make(viewer, "viewer")[1]

    def call(path, **given):
        headers = {"Authorization": f"Bearer {token}", "accept-language": "en"}
        return Client().get(f"/api/v1{path}", given, headers=headers)

    return call


@pytest.fixture
def run(db):
    return stored(attempt(job(Server.objects.create(name="kp-01"))), records((0, "one"), (5, "a needle"), (9, "two")))


def test_a_viewer_finds_a_line_of_a_job(ask, run):
    told = ask(f"/jobs/{run.job_id}/log/search", q="NEEDLE").json()
    assert (told["log"], told["count"], told["total"], told["complete"]) == (run.pk, 1, 3, True)
    assert told["hits"][0]["n"] == 2 and told["hits"][0]["spans"] == [[2, 8]]
    assert told["hits"][0]["text"].endswith("a needle")
    assert ask(f"/jobs/{run.job_id}/log/search", q="^a n.*e$", regex="true", after=2).json()["hits"] == []


def test_starts_of_a_replica_are_searched_each_alone(ask, run):
    row = replica(deployment(), 1, run.job.server)
    stored(piece(row, 1), records((0, "first")))
    stored(piece(row, 2), records((0, "second")))
    path = "/deployments/tiny/replicas/1/log/search"
    assert ask(path, q="second").json()["count"] == 1 and ask(path, q="first").json()["count"] == 0
    assert ask(path, q="first", log=f"e{row.pk}-1").json()["count"] == 1


@pytest.mark.parametrize("given, status", [
    ({"q": "(", "regex": "1"}, 422), ({"q": "x" * 1001}, 422), ({"level": "loud"}, 422), ({"after": "-1"}, 422),
    ({"n": "0"}, 422), ({"log": "a1-1-none"}, 404),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused_in_words(ask, run, given, status):
    answer = ask(f"/jobs/{run.job_id}/log/search", **given)
    assert answer.status_code == status and answer.json()["error"]["do"]
