"""REST: links for people without an account."""

import pytest
from django.test import Client

from console.models import ApiToken
from deployments.models import LogShare, Server
from tests.deployments.log_rows import attempt, deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(operator, viewer):
    tokens = {user.role: ApiToken.make(user, user.role)[1] for user in (operator, viewer)}

    def call(method, path, body=None, role="operator"):
        headers = {"Authorization": f"Bearer {tokens[role]}", "accept-language": "en"}
        return Client().generic(method, f"/api/v1{path}", body or "", "application/json", headers=headers)

    return call


@pytest.fixture
def run(settings):
    settings.LOG_SHARE = True
    return stored(attempt(job(Server.objects.create(name="kp-01"))), records((0, "one")))


def test_a_link_is_made_listed_and_withdrawn(api, run):
    path = f"/jobs/{run.job_id}/shares"
    made = api("POST", path, '{"hours": 24}')
    assert made.status_code == 201 and made["Cache-Control"] == "no-store"
    url = made.json()["url"]
    assert Client().get(url).status_code == 200
    listed = api("GET", path).json()["shares"]
    assert listed[0]["works"] is True and "url" not in listed[0]
    assert api("DELETE", f"/log-shares/{listed[0]['id']}", role="viewer").status_code == 403
    assert api("DELETE", f"/log-shares/{listed[0]['id']}").json()["works"] is False
    assert Client().get(url).status_code == 410


def test_a_link_to_a_start_of_a_replica(api, run):
    row = replica(deployment(), 1, run.job.server)
    stored(piece(row, 1), records((0, "first")))
    stored(piece(row, 2), records((0, "second")))
    path = "/deployments/tiny/replicas/1/shares"
    assert api("POST", path, '{"hours": 1}').json()["log"] == f"e{row.pk}-2"
    assert api("POST", path, f'{{"hours": 1, "log": "e{row.pk}-1"}}').json()["log"] == f"e{row.pk}-1"
    assert len(api("GET", path).json()["shares"]) == 2


@pytest.mark.parametrize("body, status", [
    ("{}", 422), ('{"hours": 0}', 422), ('{"hours": 169}', 422), ('{"hours": "x"}', 422), ("no json", 400),
    ('{"hours": 1, "forever": true}', 422), ('{"hours": 1, "log": "a1-1-none"}', 404),
])  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(api, run, body, status):
    answer = api("POST", f"/jobs/{run.job_id}/shares", body)
    assert answer.status_code == status and answer.json()["error"]["do"]
    assert not LogShare.objects.exists()


def test_who_may_not_and_what_is_not_there(api, run, settings):
    assert api("POST", f"/jobs/{run.job_id}/shares", '{"hours": 1}', role="viewer").status_code == 403
    for method, path in (
        ("GET", "/jobs/99999/shares"),
        ("DELETE", "/log-shares/99"),
        ("DELETE", f"/log-shares/{2**70}"),
    ):
        assert api(method, path).status_code == 404, path
    settings.LOG_SHARE = False
    refused = api("POST", f"/jobs/{run.job_id}/shares", '{"hours": 1}')
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "links_off"
