"""Pages and REST of support bundles as each role, and the address that servers send parts to."""

import hashlib
import io
import json
import zipfile

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from console.models import Alert, ApiToken, User
from deployments.agent import signing
from deployments.models import Job, JobState, SupportBundle
from deployments.services import support_bundles, support_own, support_parts
from tests.deployments.test_support_bundles import attempt_of, end_jobs, part_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
LIST = "/support-bundles/"


@pytest.fixture(autouse=True)
def store(settings, tmp_path, monkeypatch):
    settings.VAR_DIR = tmp_path / "var"
    monkeypatch.setattr(support_parts, "SPARE", 0)
    monkeypatch.setattr("deployments.agent.support.part.SPARE", 0)


@pytest.fixture
def as_operator(client, operator):
    client.force_login(operator)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


@pytest.fixture
def job(server):
    now = timezone.now()
    return Job.objects.create(server=server, kind="check", state=JobState.FAILED, not_after=now, ended_at=now)


@pytest.fixture
def bundle(as_operator, job):
    as_operator.post(f"{LIST}new", {"job": job.pk, "case_number": "SR-1"})
    return SupportBundle.objects.get()


def body_of(response):
    async def read():
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(read)()


def sent(bundle, source, data, **more):
    attempt = attempt_of(bundle)
    server = attempt.job.server
    body = json.dumps({"op": "support", "server": server.pk, "attempt": attempt.pk, "source": source, "begin": 0,
                       "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more})  # fmt: skip
    return json.dumps({"body": body, "mac": signing.sign(server.key, body)}).encode() + b"\n" + data


def test_the_page_of_a_failed_job_leads_to_a_bundle(as_operator, job):
    assert f"/support-bundles/new?job={job.pk}" in as_operator.get(f"/jobs/{job.pk}/").text
    page = as_operator.get(f"{LIST}new?job={job.pk}").text
    assert "kp-01" in page and "Logs of CANN (plog)" in page and "Collects from 1 server" in page
    answer = as_operator.post(f"{LIST}new", {"job": job.pk, "note": "why"})
    assert answer.status_code == 302 and SupportBundle.objects.get().note == "why"


def test_an_alert_and_the_page_of_a_server_lead_there_too(as_operator, server):
    alert = Alert.objects.create(name="x", what=["坏", "bad"], do=["", ""], link="/servers/kp-01/")
    assert f"/support-bundles/new?alert={alert.pk}" in as_operator.get("/alerts/").text
    assert "/support-bundles/new?server=kp-01" in as_operator.get("/servers/kp-01/").text
    assert "bad" in as_operator.get(f"{LIST}new?alert={alert.pk}").text


@pytest.mark.parametrize("query", ["", "?job=x", "?job=999999999999999999", "?server=none", "?alert=7"])
def test_what_is_not_there_is_said_in_a_sentence(as_operator, query):
    answer = as_operator.get(f"{LIST}new{query}")
    assert answer.status_code in (404, 422, 400) and "support bundle is" in answer.text


def test_a_case_number_that_is_too_long_is_refused_on_both_pages(as_operator, bundle, job):
    for path in (f"{LIST}new", f"{LIST}{bundle.pk}/describe"):
        answer = as_operator.post(path, {"job": job.pk, "case_number": "x" * 61})
        assert answer.status_code == 422 and "at most 60" in answer.text


def test_a_part_comes_by_http_and_the_page_shows_its_files(as_operator, bundle, tmp_path, client):
    data = part_of(tmp_path, {"npu-smi/info.txt": "serial\n"}, missing=["hccn_tool"])
    answer = client.post("/join/support", sent(bundle, "readings", data), content_type="application/octet-stream")
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"here": len(data)}
    support_own.tend()
    page = as_operator.get(f"{LIST}{bundle.pk}/").text
    assert "npu-smi/info.txt" in page and "hccn_tool" in page and "collecting" in page and "SR-1" in page
    end_jobs(bundle)
    part = as_operator.get(f"{LIST}{bundle.pk}/", headers={"x-part": "1"}).text
    assert "ready, with gaps" in part and "<html" not in part and "SR-1" in as_operator.get(LIST).text
    answer = as_operator.get(f"{LIST}{bundle.pk}/download")
    assert f'ascend-support-{bundle.pk}-SR-1.zip"' in answer["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(body_of(answer))) as packed:
        assert packed.testzip() is None and "index.html" in packed.namelist()


HUGE = b'{"body": "{\\"op\\": \\"support\\", \\"server\\": 1e999}", "mac": "a"}\n'
STRANGE = [b"", b"{}", b"x\n", b'{"body": 1, "mac": 2}\n', b'{"body": "{}", "mac": "\xff"}\n', HUGE, b"[" * 5000]


@pytest.mark.parametrize("body", STRANGE)
def test_what_no_server_of_ours_sends_is_refused(client, body):
    answer = client.post("/join/support", body, content_type="application/octet-stream")
    assert answer.status_code in (400, 403)


def test_a_viewer_looks_and_does_nothing_more(client, viewer, bundle, job):
    client.force_login(viewer)
    for path in (LIST, f"{LIST}{bundle.pk}/"):
        answer = client.get(path)
        assert answer.status_code == 200 and "/download" not in answer.text and "/delete" not in answer.text
    assert client.get(f"{LIST}{bundle.pk}/download").status_code == 403
    assert client.get(f"{LIST}new?job={job.pk}").status_code == 403
    for path in (f"{LIST}new", f"{LIST}{bundle.pk}/delete", f"{LIST}{bundle.pk}/describe"):
        assert client.post(path, {"job": job.pk}).status_code == 403
    assert SupportBundle.objects.count() == 1


def test_the_list_finds_a_case_and_does_not_ask_for_each(as_operator, bundle, django_assert_max_num_queries):
    SupportBundle.objects.bulk_create(SupportBundle(case_number=f"C-{n}") for n in range(60))
    with django_assert_max_num_queries(14):
        page = as_operator.get(LIST).text
    assert "C-59" in page and "page=2" in page
    assert "C-41" in as_operator.get(f"{LIST}?q=c-41").text and "C-59" not in as_operator.get(f"{LIST}?q=c-41").text
    assert "No support bundle matches" in as_operator.get(f"{LIST}?q=nothing").text


def test_rest_makes_shows_describes_and_deletes(client, bundle, job, server):
    user = User.objects.create_user("rest", role="operator")
    _row, token = ApiToken.make(user, "operator")
    client.logout()
    call = {"headers": {"authorization": f"Bearer {token}"}, "content_type": "application/json"}
    answer = client.post("/api/v1/support-bundles", json.dumps({"server": "kp-01", "case_number": "SR-2"}), **call)
    made = answer.json()
    assert answer.status_code == 201 and made["case_number"] == "SR-2" and not made["ready"]
    assert {one["source"] for one in made["parts"]} >= {"console", "plog"}
    path = f"/api/v1/support-bundles/{made['id']}"
    listed = client.get("/api/v1/support-bundles?q=SR-2", **call).json()["support_bundles"]
    assert [one["id"] for one in listed] == [made["id"]]
    assert client.patch(path, json.dumps({"case_number": "SR-3"}), **call).json()["case_number"] == "SR-3"
    with zipfile.ZipFile(io.BytesIO(body_of(client.get(f"{path}/archive", **call)))) as packed:
        assert "index.json" in packed.namelist()
    assert client.post("/api/v1/support-bundles", "{}", **call).json()["error"]["code"] == "no_subject"
    assert client.delete(path, **call).json() == {"deleted": made["id"]}
    assert client.get(path, **call).status_code == 404 and support_bundles.listed().count() == 1
