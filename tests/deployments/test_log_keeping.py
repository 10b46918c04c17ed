"""Logs go by their age and by what all take; what was learned from them stays, and the page says that they went."""

import io
import zipfile
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from console.errors import ConsoleError
from console.models import ApiToken
from deployments import ingest
from deployments.models import AgentLog, Attempt, Batch, EngineLog, Job, LogChunk
from deployments.services import log_keeping, log_shares, log_zip, merged_logs, storage_page
from monitoring.models import Diagnosis
from tests.deployments import serving_rows
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(server):
    def make(state="succeeded", days=0, kind="install", text="hello"):
        at = timezone.now() - timedelta(days=days)
        job = Job.objects.create(server=server, kind=kind, state=state, created_at=at, ended_at=at, not_after=at)
        one = Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1)
        spool = Spool(one.pk)
        ingest.store({server.pk: [spool.chunk(("o", text)), spool.event(e="ended", state=state)]})
        Attempt.objects.filter(pk=one.pk).update(ended_at=at)
        one.refresh_from_db()
        return one

    return make


@pytest.fixture(autouse=True)
def kept(settings):
    settings.LOG_DAYS, settings.LOG_DAYS_FAILED, settings.LOG_DAYS_LOOKS = 30, 100, 5


def lines_left():
    return set(LogChunk.objects.values_list("attempt__job", flat=True))


def test_what_a_log_takes_is_counted_as_it_comes(run):
    one = run()
    assert one.kept_bytes == sum(len(chunk.data) for chunk in one.chunks.all()) > 0


def test_failed_runs_keep_their_log_longer_and_looks_shorter(run):
    stay = [run("succeeded", 29), run("failed", 99), run("failed", 4, "check"), run("cancelled", 1)]
    for gone in (("succeeded", 31), ("failed", 101), ("succeeded", 6, "check"), ("failed", 6, "cleanup_look")):
        run(*gone)
    assert log_keeping.prune() == 4
    assert lines_left() == {one.job_id for one in stay}
    assert Job.objects.count() == Attempt.objects.count() == 8
    assert log_keeping.prune() == 0


def test_the_clock_of_a_server_alone_takes_no_log(run):
    one = run()
    Attempt.objects.update(ended_at="2001-01-01T00:00:00Z")
    assert log_keeping.prune() == 0 and lines_left() == {one.job_id}


def test_a_run_under_way_keeps_its_log_whatever_its_age(run):
    one = run("succeeded", 400)
    Attempt.objects.update(done=False)
    assert log_keeping.prune() == 0 and lines_left() == {one.job_id}


def test_where_all_take_too_much_the_oldest_that_did_not_fail_go_first(run, server, settings, monkeypatch):
    settings.LOG_MAX_GB = 1
    failed, old, new = run("failed", 20), run("succeeded", 10), run("succeeded", 1)
    replica = serving_rows.replica(serving_rows.deployment("chat"), server, 1, state="ready")
    engine = EngineLog.objects.create(pk="e1-1", replica=replica, server=server, n=1, done=True, kept_bytes=10)
    assert [head.pk for head in log_keeping.by_turn()] == [old.pk, new.pk, engine.pk, failed.pk]
    monkeypatch.setattr(log_keeping, "GB", log_keeping.total() - 1)
    assert log_keeping.prune() == 1 and lines_left() == {failed.job_id, new.job_id}
    assert log_keeping.prune() == 0
    monkeypatch.setattr(log_keeping, "GB", failed.kept_bytes)
    assert log_keeping.prune() == 2 and lines_left() == {failed.job_id}
    engine.refresh_from_db()
    assert engine.pruned_at and engine.kept_bytes == 0


def test_pruning_that_was_cut_off_goes_on(run, monkeypatch):
    one = run("succeeded", 31)
    monkeypatch.setattr(log_keeping.time, "sleep", lambda _s: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(log_keeping, "CHUNKS", 1)
    with pytest.raises(KeyboardInterrupt):
        log_keeping.prune()
    one.refresh_from_db()
    assert one.pruned_at and one.chunks.count() == 1
    monkeypatch.undo()
    assert log_keeping.empty(one) and not one.chunks.exists()


def test_a_deleted_log_says_so_and_its_diagnosis_stays(run, client, operator):
    one = run("failed", 101)
    finding = {"id": "serve-oom", "line": 1, "text": "the decisive words", "cause": {}, "remedies": []}
    Diagnosis.objects.create(attempt=one, found="serve-oom", findings=[finding])
    log_keeping.prune()
    client.force_login(operator)
    page = client.get(reverse("deployments:job-detail", args=[one.job_id]), headers={"accept-language": "en"})
    said = f"Its log was deleted on {timezone.localdate()}. Kept were the verdict, steps and diagnosis."
    assert said in page.content.decode() and "topics/job.js" not in page.content.decode()
    assert Diagnosis.objects.get().findings == [finding]
    raw = client.get(reverse("deployments:job-raw", args=[one.job_id]), headers={"accept-language": "en"})
    assert raw.status_code == 410 and said in raw.content.decode()
    lines = client.get(reverse("deployments:job-lines", args=[one.job_id]), headers={"accept-language": "en"}).json()
    assert lines["deleted"] == said and (lines["n"], lines["total"], lines["done"]) == (0, 0, True)


def test_rest_says_of_a_deleted_log_that_it_is_gone(run, client, viewer):
    one = run("succeeded", 31)
    log_keeping.prune()
    call = {"authorization": f"Bearer {ApiToken.make(viewer, 'viewer')[1]}"}
    answer = client.get(f"/api/v1/jobs/{one.job_id}/log", headers=call)
    assert answer.status_code == 410 and answer.json()["error"]["code"] == "log_deleted"
    assert client.get(f"/api/v1/jobs/{one.job_id}", headers=call).json()["attempt"]["log_deleted_at"]
    storage = client.get("/api/v1/storage", headers=call).json()
    assert storage["bytes"] == 0 and storage["settings"]["LOG_DAYS"] == 30


def test_the_page_tells_sizes_and_what_goes_next(run, client, viewer):
    run("succeeded", 25, "install"), run("succeeded", 1, "check"), run("failed", 30)
    found = storage_page.storage()
    assert [(kind.kind, kind.logs) for kind in found.kinds if kind.kind == "install"] == [("install", 2)]
    assert (found.soon, len(found.following)) == (2, 2) and found.over_bytes == 0
    assert found.bytes == log_keeping.total() and found.space.total > 0
    client.force_login(viewer)
    page = client.get(reverse("deployments:storage"))
    assert page.status_code == 200 and f"#{found.following[0].job_id}" in page.content.decode()


def test_logs_that_were_there_before_are_counted_from_their_chunks(run):
    from importlib import import_module

    from django.apps import apps

    one, two = run(), run(text="longer " * 50)
    Attempt.objects.update(kept_bytes=0)
    import_module("deployments.migrations.0021_log_sizes").count(apps, None)
    for before in (one, two):
        assert Attempt.objects.get(pk=before.pk).kept_bytes == before.kept_bytes > 0


def test_a_deleted_piece_of_an_engine_says_so(server, client, viewer):
    chat = serving_rows.deployment("chat")
    replica = serving_rows.replica(chat, server, 1, state="ready")
    EngineLog.objects.create(pk="e1-1", replica=replica, server=server, n=1, done=True, next_line=9, kept_bytes=5)
    log_keeping.empty(EngineLog.objects.get())
    client.force_login(viewer)
    for name, status in (("replica-log", 200), ("replica-raw", 410), ("replica-lines", 200)):
        answer = client.get(reverse(f"deployments:{name}", args=["chat", 1]), headers={"accept-language": "en"})
        assert answer.status_code == status and "Its log was deleted on" in answer.content.decode()
    call = {"authorization": f"Bearer {ApiToken.make(viewer, 'viewer')[1]}"}
    assert client.get("/api/v1/deployments/chat/replicas/1/log", headers=call).status_code == 410


def test_a_log_that_was_deleted_says_so_wherever_it_is_asked_for(run, server, client, viewer, operator, settings):
    one, batch = run(), Batch.objects.create(kind="install")
    Job.objects.update(batch=batch)
    agent = AgentLog.objects.create(pk=f"g{server.pk}-1", server=server, n=1, next_line=3)
    engine = serving_rows.replica(serving_rows.deployment("chat"), server, 1, state="ready")
    EngineLog.objects.create(pk=f"e{engine.pk}-1", replica=engine, server=server, n=1, next_line=3)
    settings.LOG_SHARE = True
    link = log_shares.make(one, 8, by=operator).path
    for head in (one, agent, engine.logs.get()):
        log_keeping.empty(head)
    token = ApiToken.make(viewer, "viewer")[1]
    client.force_login(viewer)
    pages = [f"/jobs/{one.job_id}/", "/deployments/chat/replicas/1/", f"/servers/{server.name}/agent-log/"]
    asked = [page + service for page in pages for service in ("find?q=x", "filtered?q=x", "first-error", "facets")]
    asked += [f"/jobs/{one.job_id}/zip", "/deployments/chat/replicas/1/zip", f"/servers/{server.name}/agent-log/raw",
              "/deployments/chat/logs/lines", f"/batches/{batch.pk}/logs/lines", link, f"{link}/lines"]  # fmt: skip
    rest = [f"/jobs/{one.job_id}/log", f"/jobs/{one.job_id}/log/search", f"/jobs/{one.job_id}/zip",
            "/deployments/chat/replicas/1/log", "/deployments/chat/replicas/1/log/search", "/deployments/chat/log",
            f"/batches/{batch.pk}/log", f"/servers/{server.name}/agent-log"]  # fmt: skip
    for path in [*asked, *(f"/api/v1{path}" for path in rest)]:
        answer = client.get(path, headers={"accept-language": "en", "Authorization": f"Bearer {token}"})
        assert answer.status_code == 410 and "was deleted on" in answer.content.decode(), path
    for page in (f"/servers/{server.name}/agent-log", "/deployments/chat/logs", f"/batches/{batch.pk}/logs"):
        shown = client.get(page, headers={"accept-language": "en"}, follow=True).content.decode()
        assert "This log is no more" in shown and "log-lines" not in shown, page
    one.refresh_from_db()
    with pytest.raises(ConsoleError, match="was deleted on"):
        log_shares.make(one, 8, by=operator)


def test_beside_logs_that_are_left_a_deleted_one_says_so_in_its_place(run):
    old = run()
    new = Attempt.objects.create(pk=f"a{old.job_id}-2-00000002", job=old.job, n=2)
    spool = Spool(new.pk)
    ingest.store({old.job.server_id: [spool.chunk(("o", "the second run"))]})
    log_keeping.empty(old)
    packed = zipfile.ZipFile(io.BytesIO(b"".join(log_zip.of_job(old.job))))
    assert "was deleted on" in packed.read("logs/attempt-1.log").decode()
    assert "the second run" in packed.read("logs/attempt-2.log").decode()
    batch = Batch.objects.create(kind="install")
    Job.objects.update(batch=batch)
    answer = merged_logs.read(merged_logs.of_batch(batch), merged_logs.Wanted())
    assert "was deleted on" in answer["sources"][0]["deleted"] and answer["total"] == 1
    assert [line[4].split("\t")[2] for line in answer["lines"]] == ["the second run"]
