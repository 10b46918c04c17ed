"""The pages and the REST calls of several logs as one."""

import pytest

from console.models import ApiToken
from deployments.models import Batch, Server
from tests.deployments.log_rows import attempt, deployment, job, piece, records, replica, stored

pytestmark = pytest.mark.django_db


@pytest.fixture
def tiny(db):
    made = deployment()
    for n in (1, 2):
        server = Server.objects.create(name=f"kp-{n}", clock_offset_s=3.2 if n == 2 else None)
        stored(piece(replica(made, n, server)), records((n, f"<b>{n}</b>"), (n + 10, "more")))
    return made


@pytest.fixture
def page(client, viewer):
    client.force_login(viewer)
    return client


@pytest.fixture
def rest(client, viewer):
    _row, text = ApiToken.make(viewer, "viewer")
    return lambda path: client.get(f"/api/v1{path}", headers={"Authorization": f"Bearer {text}"})


def test_the_page_of_a_deployment_names_its_logs_and_reads_their_lines(page, tiny):
    shown = page.get("/deployments/tiny/logs")
    assert shown.status_code == 200
    assert "/deployments/tiny/replicas/1/log?piece=" in shown.content.decode()
    lines = page.get("/deployments/tiny/logs/lines?n=3").json()
    assert [line[4].split("\t")[2] for line in lines["lines"]] == ["more", "<b>1</b>", "more"]
    one = page.get("/deployments/tiny/logs/lines?replica=2").json()
    assert len(one["sources"]) == 1 and len(one["lines"]) == 2


def test_the_pages_of_a_deployment_and_a_batch_lead_to_their_logs(page, tiny):
    batch = Batch.objects.create(kind="check")
    row = job(Server.objects.first(), batch=batch, wave=0)
    stored(attempt(row), records((0, "a")))
    assert 'href="/deployments/tiny/logs"' in page.get("/deployments/tiny/").content.decode()
    assert f'href="/batches/{batch.pk}/logs"' in page.get(f"/batches/{batch.pk}/").content.decode()
    assert page.get(f"/batches/{batch.pk}/logs").status_code == 200
    assert len(page.get(f"/batches/{batch.pk}/logs/lines").json()["lines"]) == 1


def test_what_is_asked_wrongly_is_answered_in_words(page, tiny):
    for query in ("before=nonsense", "after=%21", "n=-1", "n=x", "replica=x", f"before={'a' * 50_000}"):
        answer = page.get(f"/deployments/tiny/logs/lines?{query}", headers={"Accept": "application/json"})
        assert answer.status_code == 422 and answer.json()["error"]["do"], query
    assert page.get("/deployments/none/logs").status_code == 404
    assert page.get("/batches/99/logs/lines").status_code == 404
    assert page.get("/deployments/tiny/logs?replica=77").status_code == 200  # has no log, and none is shown


def test_nobody_reads_them_without_signing_in(client, tiny):
    assert client.get("/deployments/tiny/logs/lines").status_code == 302
    assert client.get("/api/v1/deployments/tiny/log").status_code == 401


def test_rest_gives_the_same_lines_and_goes_on_from_a_place(rest, tiny):
    found = rest("/deployments/tiny/log").json()
    assert len(found["lines"]) == 4 and found["sources"][1]["corrected"] is True
    assert rest(f"/deployments/tiny/log?after={found['after']}").json()["lines"] == []
    off = found["sources"][0]["key"]
    assert len(rest(f"/deployments/tiny/log?off={off}&n=1").json()["lines"]) == 1
    text = rest("/deployments/tiny/log?format=text")
    assert text["Content-Type"].startswith("text/plain") and text.content.decode().count("\t#") == 4
    assert text["X-After"] == found["after"]
    for query in ("format=xml", "n=0", "n=100000", "replica=-1", "before=x"):
        assert rest(f"/deployments/tiny/log?{query}").status_code == 422, query
    assert rest("/deployments/none/log").status_code == 404
    assert rest("/batches/7/log").status_code == 404
    batch = Batch.objects.create(kind="check")
    assert rest(f"/batches/{batch.pk}/log").json()["lines"] == []
