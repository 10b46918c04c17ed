"""/healthz needs nothing; /readyz names the part that fails, and why only to who is signed in."""

import json
import time

import pytest
from django.db import OperationalError

from console import health, streams
from console.models import User
from console.redis import client as redis_client

pytestmark = pytest.mark.django_db


@pytest.fixture
def redis_alive(valkey):
    return valkey.client()


@pytest.fixture
def viewer(client):
    client.force_login(User.objects.create_user("lin", password="only-for-this-test"))
    return client


def say(redis, *, age_s=0.0, lag_ms=12.5):
    redis.set(streams.INGEST_ALIVE, json.dumps({"t": time.time() - age_s, "lag_ms": lag_ms}))


def parts(response):
    return {part["part"]: part for part in response.json()["parts"]}


def test_healthz_answers_without_any_query(client, django_assert_num_queries):
    with django_assert_num_queries(0):
        response = client.get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")


def test_readyz_is_200_when_all_parts_are_well(client, redis_alive):
    say(redis_alive)
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["ready"] is True
    assert [part["part"] for part in response.json()["parts"]] == ["database", "redis", "ingest"]


def test_a_stranger_reads_no_details(client, redis_alive):
    response = client.get("/readyz")
    assert response.status_code == 503
    assert all(part.keys() == {"part", "ok"} for part in response.json()["parts"])


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (None, "has not reported"),
        ({"age_s": 42}, "silent for 42 s"),
        ({"lag_ms": 90_000}, "90 s behind"),
    ],
)
def test_ingest_that_lags_fails_readyz_with_the_reason(viewer, redis_alive, settings, report, said):
    settings.LANGUAGE_CODE = "en"
    if report:
        say(redis_alive, **report)
    response = viewer.get("/readyz", headers={"accept-language": "en"})
    assert response.status_code == 503
    assert parts(response)["database"]["ok"] is True
    assert parts(response)["ingest"]["ok"] is False
    assert said in parts(response)["ingest"]["what"]
    assert "ingest.log" in parts(response)["ingest"]["do"]


def test_a_strange_report_of_ingest_is_no_500(client, redis_alive):
    redis_alive.set(streams.INGEST_ALIVE, b"\xff{]")
    assert client.get("/readyz").status_code == 503


def test_redis_away_fails_redis_and_ingest_but_not_the_database(viewer, own_valkey, settings):
    settings.REDIS_URL = own_valkey.url
    assert redis_client().ping()
    own_valkey.kill()
    response = viewer.get("/readyz")
    assert response.status_code == 503
    assert {name: part["ok"] for name, part in parts(response).items()} == {
        "database": True,
        "redis": False,
        "ingest": False,
    }
    assert parts(response)["redis"]["do"]


def test_a_database_away_fails_readyz(client, redis_alive, monkeypatch):
    class Broken:
        def cursor(self):
            raise OperationalError("connection refused")

    say(redis_alive)
    monkeypatch.setattr(health, "connection", Broken())
    response = client.get("/readyz")
    assert response.status_code == 503
    assert parts(response)["database"]["ok"] is False
    assert parts(response)["ingest"]["ok"] is True
