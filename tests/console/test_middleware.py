import gzip

import pytest
from django.db import OperationalError

from console.models import ApiToken

pytestmark = pytest.mark.django_db


def test_pages_travel_compressed_where_the_browser_takes_it(client):
    plain = client.get("/login/", headers={"Accept-Language": "en"})
    packed = client.get("/login/", headers={"Accept-Language": "en", "Accept-Encoding": "gzip, br"})
    assert "Content-Encoding" not in plain.headers and "Accept-Encoding" in plain.headers["Vary"]
    assert packed.headers["Content-Encoding"] == "gzip" and len(packed.content) < len(plain.content) / 2
    assert b"<html" in gzip.decompress(packed.content)
    assert int(packed.headers["Content-Length"]) == len(packed.content)


@pytest.mark.parametrize("address", ["/", "/jobs/", "/jobs/new", "/jobs.csv", "/healthz", "/servers/nobody/"])
def test_head_is_answered_like_get_without_a_body(client, viewer, address):
    client.force_login(viewer)
    asked, head = client.get(address), client.head(address)
    assert head.status_code == asked.status_code and not head.content
    assert head.headers["Content-Type"] == asked.headers["Content-Type"]


def test_head_of_a_log_reads_no_log(client, viewer, attempt):
    client.force_login(viewer)
    head = client.head(f"/jobs/{attempt.job_id}/raw")
    assert head.status_code == 200 and not head.streaming and head.headers["Content-Type"].startswith("text/plain")


def test_head_changes_nothing(client, operator):
    client.force_login(operator)
    assert client.head("/servers/nobody/switch-on").status_code == 405
    assert client.head("/join/" + "x" * 43).status_code in (404, 405)


def test_every_page_forbids_scripts_and_styles_of_others(client):
    policy = client.get("/login/").headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "style-src 'self'" in policy and "unsafe" not in policy


@pytest.mark.parametrize("address", ["/jobs/?text=a%00b", "/servers/kp%00/", "/?metric=%00"])
def test_a_null_character_is_refused_in_words(client, viewer, address):
    client.force_login(viewer)
    answer = client.get(address, headers={"Accept-Language": "en"})
    assert answer.status_code == 400 and b"null character" in answer.content
    assert client.post("/login/", {"username": "a\0", "password": "x"}).status_code == 400


def test_a_form_that_is_sent_to_the_api_is_refused_in_words(client, operator):
    _token, text = ApiToken.make(operator, "operator")
    answer = client.post("/api/v1/jobs", {"kind": "check"}, headers={"Authorization": f"Bearer {text}"})
    assert answer.status_code == 400 and answer.json()["error"]["do"]
    null = client.post(
        "/api/v1/jobs", b"a=\0", content_type="multipart/form-data", headers={"Authorization": f"Bearer {text}"}
    )
    assert null.json()["error"]["code"] == "null_character"


def test_a_page_that_takes_no_such_method_says_so(client, operator):
    client.force_login(operator)
    answer = client.get("/jobs/1/retry", headers={"Accept-Language": "en"})
    assert answer.status_code == 405 and answer.headers["Allow"] == "POST" and b"does not take GET" in answer.content


@pytest.mark.parametrize("address", ["/jobs/", "/api/v1/jobs"])
def test_a_busy_database_is_answered_in_words(client, viewer, monkeypatch, address):
    def locked(*_, **__):
        raise OperationalError("database is locked")

    client.force_login(viewer)
    client.raise_request_exception = False
    headers = {"Accept-Language": "en", "Authorization": "Bearer " + ApiToken.make(viewer, "viewer")[1]}
    monkeypatch.setattr("deployments.models.Job.objects.filter", locked)
    monkeypatch.setattr("deployments.models.Job.objects.select_related", locked)
    answer = client.get(address, headers=headers)
    assert answer.status_code == 503 and b"database is busy" in answer.content


def test_a_busy_database_is_answered_in_words_before_anybody_is_known(client, viewer, monkeypatch):
    def locked(*_, **__):
        raise OperationalError("database is locked")

    client.force_login(viewer)
    client.raise_request_exception = False
    monkeypatch.setattr("django.contrib.auth.get_user", locked)
    monkeypatch.setattr("django.contrib.auth.middleware.auth.get_user", locked)
    answer = client.get("/jobs/", headers={"Accept-Language": "en"})
    assert answer.status_code == 503 and b"database is busy" in answer.content


@pytest.mark.parametrize(
    ("body", "code"),
    [(rb'{"kind": "\ud800"}', "half_character"), (rb'{"kind": ["a\udc00"]}', "half_character"),
     (rb'{"kind": "\ud83d\ude00"}', "invalid"), (rb'{"kind": "\\ud800"}', "invalid"), (rb'{"\ud800', "invalid")],
)  # fmt: skip
def test_half_a_character_is_refused_in_words(client, operator, body, code):
    _token, text = ApiToken.make(operator, "operator")
    answer = client.post(
        "/api/v1/jobs", body, content_type="application/json", headers={"Authorization": f"Bearer {text}"}
    )
    told = answer.json()["error"]["code"]
    assert answer.status_code in (400, 422) and (told == code if code == "half_character" else told != "half_character")
