import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from console.answers import Answer
from console.models import ApiToken, User
from deployments.models import Job, Server

pytestmark = pytest.mark.django_db


def caller(role, username=None):
    user = User.objects.create_user(username or f"{role}-user", password="a-long-password", role="administrator")
    _, text = ApiToken.make(user, role)
    return Client(headers={"Authorization": f"Bearer {text}", "Accept-Language": "en"})


@pytest.fixture
def operator_api(valkey):
    return caller("operator")


@pytest.fixture
def server():
    return Server.objects.create(name="kp-01", last_seen_at=timezone.now())


def post(client, body, **headers):
    data = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return client.post("/api/v1/jobs", data, content_type="application/json", headers=headers)


def test_a_job_is_queued_by_rest(operator_api, server):
    answer = post(operator_api, {"kind": "check", "server": "kp-01", "ticket": "OPS-1"})
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["state"], body["server"], body["ticket"], body["requester"]) == (
        "queued",
        "kp-01",
        "OPS-1",
        "operator-user",
    )
    assert operator_api.get(f"/api/v1/jobs/{body['id']}").json()["attempt"]["n"] == 1
    assert [job["id"] for job in operator_api.get("/api/v1/jobs?state=queued").json()["jobs"]] == [body["id"]]


WRONG = [
    ("{", 400, "unreadable"),
    ("[]", 422, "invalid"),
    ("null", 422, "invalid"),
    (b"\xff\xfe", 400, "unreadable"),
    ({"server": "kp-01"}, 422, "invalid"),
    ({"kind": 7, "server": "kp-01"}, 422, "invalid"),
    ({"kind": "check", "server": "kp-01", "params": []}, 422, "invalid"),
    ({"kind": "check", "server": "kp-01", "params": {"deep": 1}}, 422, "invalid_params"),
    ({"kind": "check", "server": "kp-01", "params": {"x" * 5000: 1}}, 422, "invalid_params"),
    ({"kind": "mine_coins", "server": "kp-01"}, 404, "unknown_kind"),
    ({"kind": "check", "server": "nobody"}, 404, "unknown_server"),
    ({"kind": "check", "server": "x" * 64}, 422, "invalid"),
    ({"kind": "check", "server": "kp-01\0"}, 400, "null_character"),
    ({"kind": "check", "server": "kp-01", "params": {"deep": ["\0"]}}, 400, "null_character"),
    (json.dumps({"kind": "check", "server": "kp-01", "ticket": "a\0b"}).encode("utf-16"), 400, "null_character"),
    ({"kind": "check", "server": "kp-01", "parms": {"deep": True}}, 422, "invalid"),
    (b'{"kind": "' + b"x" * 3_000_000 + b'"}', 413, "too_large"),
]


@pytest.mark.parametrize(("body", "status", "code"), WRONG)
def test_wrong_calls_get_two_sentences_and_write_nothing(operator_api, server, body, status, code):
    answer = post(operator_api, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.content
    assert answer.json()["error"]["what"] and answer.json()["error"]["do"]
    assert not Job.objects.exists()


def test_json_by_another_name_is_read_with_the_same_care(operator_api, server):
    body = json.dumps({"kind": "check", "server": "kp-01", "ticket": "a\0b"})
    answer = operator_api.post("/api/v1/jobs", body, content_type="text/plain")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "null_character")


@pytest.mark.parametrize("method", ["delete", "put", "patch", "options"])
def test_a_method_that_an_address_does_not_take_is_answered_in_words(operator_api, method):
    answer = getattr(operator_api, method)("/api/v1/jobs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "wrong_method")


def test_who_may_not_is_refused(valkey, server):
    answer = post(caller("viewer"), {"kind": "check", "server": "kp-01"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed")
    for headers in ({}, {"Authorization": "Bearer ac_wrong"}, {"Authorization": "Basic eDp5"}):
        answer = Client(headers=headers).get("/api/v1/jobs")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not_signed_in")
    assert not Job.objects.exists()


def test_the_lower_of_token_and_user_decides(valkey, server):
    client = caller("operator", "demoted")
    User.objects.filter(username="demoted").update(role="viewer")
    assert post(client, {"kind": "check", "server": "kp-01"}).status_code == 403
    User.objects.filter(username="demoted").update(is_active=False)
    assert client.get("/api/v1/jobs").status_code == 401


def test_the_same_call_with_a_key_gets_the_first_answer(operator_api, server):
    body = {"kind": "check", "server": "kp-01"}
    first, again = (
        post(operator_api, body, **{"Idempotency-Key": "k1"}),
        post(operator_api, body, **{"Idempotency-Key": "k1"}),
    )
    assert first.status_code == again.status_code == 201 and first.json() == again.json()
    assert Job.objects.count() == 1
    other = post(operator_api, {**body, "ticket": "x"}, **{"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "key_reused")


def test_an_error_keeps_no_answer(operator_api, server):
    headers = {"Idempotency-Key": "k2"}
    Server.objects.update(last_seen_at=None)
    assert post(operator_api, {"kind": "check", "server": "kp-01"}, **headers).status_code == 409
    Server.objects.update(last_seen_at=timezone.now())
    assert post(operator_api, {"kind": "check", "server": "kp-01"}, **headers).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_two_at_once_with_one_key_make_one_job(valkey):
    Server.objects.create(name="kp-01", last_seen_at=timezone.now())
    client = caller("operator")

    def call(_):
        try:
            return post(client, {"kind": "check", "server": "kp-01"}, **{"Idempotency-Key": "race"}).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(call, range(8)))
    assert statuses == [201] * 8
    assert Job.objects.count() == 1


def test_unknown_addresses_answer_in_json(operator_api):
    for path in ("/api/v1/nothing", "/api/v1/jobs/999", "/api/v1/jobs/99999999999999999999999", "/api/v1/servers/none"):
        answer = operator_api.get(path)
        assert answer.status_code == 404 and answer.json()["error"]["do"], path


def test_jobs_and_servers_take_a_fixed_number_of_queries(operator_api, server, django_assert_max_num_queries):
    for n in range(60):
        Job.objects.create(server=server, kind="check", not_after=timezone.now())
        Server.objects.create(name=f"s-{n}")
    with django_assert_max_num_queries(4):
        assert len(operator_api.get("/api/v1/jobs").json()["jobs"]) == 50
    with django_assert_max_num_queries(4):
        assert len(operator_api.get("/api/v1/servers").json()["servers"]) == 61


def test_the_docs_ask_who_you_are(client):
    assert client.get("/api/v1/docs").status_code == 302
    assert client.get("/api/v1/openapi.json").status_code == 302


def test_an_answer_is_read_in_a_terminal_as_it_is(operator_api):
    answer = post(operator_api, {"kind": "check", "server": "鲲鹏-1"}, **{"Accept-Language": "zh-hans"})
    assert "没有名为 “鲲鹏-1” 的服务器" in answer.content.decode()


def test_half_a_character_pair_breaks_no_answer():
    assert Answer({"said": "\ud83d"}).content == b'{"said": "?"}'


def test_a_wrong_field_is_named_as_the_caller_wrote_it(operator_api, server):
    what = post(operator_api, {"kind": 7, "server": "kp-01"}).json()["error"]["what"]
    assert "kind: " in what and "new" not in what
