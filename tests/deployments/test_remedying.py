"""From the log of a replica that failed to the revision that mends it: read, shown, worked out, applied."""

import json
import zlib

import pytest
from django.utils import translation

from console.errors import Conflict, NotFound
from console.models import ApiToken, User
from deployments import ingest
from deployments.models import EngineChunk, EngineLog, Npu, Revision
from deployments.services import remedying
from tests.deployments.benchmark_rows import replica

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
LINE = "ValueError: the estimated maximum model length is 20992. Try increasing"
ECHO = "RuntimeError: Engine core initialization failed. See root cause above."


@pytest.fixture(autouse=True)
def in_english(client):
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    with translation.override("en"):
        yield


@pytest.fixture
def operator():
    return User.objects.create(username="olga", role="operator")


def failed(**fields):
    row = replica(state="failed", settings={"max_model_len": 32768, "tensor_parallel_size": 1}, **fields)
    Npu.objects.create(server=row.server, device_index=0, npu_id=0, chip_id=0, bus_id="0000:01:00.0",
                       memory_total_mb=65536)  # fmt: skip
    return row


def log_of(row, *records):
    log = EngineLog.objects.create(pk=f"e{row.pk}-1", replica=row, server=row.server, n=1, next_line=len(records) + 1)
    raw = "\n".join(f"{1_764_500_000_000 + n}\t{kind}\t{text}" for n, (kind, text) in enumerate(records)) + "\n"
    EngineChunk.objects.create(log=log, first=1, n=len(records), data=zlib.compress(raw.encode()))
    return log


def test_the_log_is_read_and_lines_keep_their_numbers():
    row = failed()
    event = json.dumps({"e": "started", "argv": ["estimated maximum model length is 5"]})
    log = log_of(row, ("v", event), ("o", "INFO fine"), ("e", LINE), ("e", ECHO), ("g", "7"))
    assert remedying.run(log.pk, True) == 1
    row.refresh_from_db()
    found = row.findings[0]
    assert (found["id"], found["line"], found["piece"]) == ("context-estimate", 3, log.pk)


def test_what_engines_tables_do_not_know_is_said_by_the_rules_for_all_logs():
    row = failed()
    log = log_of(row, ("o", "INFO fine"), ("e", "RuntimeError: ACL stream synchronize failed, error code:507018"))
    assert remedying.run(log.pk, True) == 1
    row.refresh_from_db()
    assert (row.findings[0]["id"], row.findings[0]["line"]) == ("code-507018", 2)
    (shown,) = remedying.shown(row)
    assert shown.finding.cause.en and shown.offers and all(not offer.change for offer in shown.offers)
    assert remedying.as_json(row)["findings"][0]["remedies"]


def test_what_nobody_knows_is_called_so():
    row = failed()
    remedying.run(log_of(row, ("e", "ZebraError: stripes")).pk, True)
    row.refresh_from_db()
    assert row.findings[0]["id"] == "unknown"


def test_a_long_log_is_read_from_its_end(monkeypatch):
    monkeypatch.setattr(remedying, "MOST_LINES", 3)
    row = failed()
    log = log_of(row, ("o", "multi-bit ECC"), *[("o", "x")] * 4, ("e", LINE))
    assert remedying.run(log.pk, True) == 1
    row.refresh_from_db()
    assert row.findings[0]["line"] == 6


def test_a_log_that_says_nothing_leaves_what_was():
    row = failed()
    remedying.look(row, [LINE])
    assert remedying.run(log_of(row, ("o", "INFO fine")).pk, False) == 0
    assert remedying.run("e99-1", True) == 0
    row.refresh_from_db()
    assert row.findings[0]["id"] == "context-estimate"


def spool(row, *records):
    raw = "".join(f"{1_764_500_000_000 + n}\t{kind}\t{text}\n" for n, (kind, text) in enumerate(records)).encode()
    return {b"a": f"e{row.pk}-1".encode(), b"f": b"1", b"n": str(len(records)).encode(), b"b0": b"0",
            b"b1": str(len(raw)).encode(), b"z": zlib.compress(raw, 1)}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        ({"e": "ended", "state": "failed", "exit": 1, "reason": None, "more": False}, [True]),
        ({"e": "ended", "state": "succeeded", "exit": 0, "reason": None, "more": False}, []),
        ({"e": "engine", "state": "degraded", "progress": None, "reason": None}, [False]),
        ({"e": "engine", "state": "ready", "progress": None, "reason": None}, []),
    ],
)
def test_a_piece_that_ended_badly_is_asked_to_be_read(monkeypatch, event, asked, django_capture_on_commit_callbacks):
    heard = []
    monkeypatch.setattr("deployments.services.remedy_asking.enqueue", lambda pk, died: heard.append((pk, died)))
    row = replica(state="loading")
    chunk = spool(row, ("o", LINE), ("v", json.dumps(event)))
    with django_capture_on_commit_callbacks(execute=True):
        ingest.store({row.server_id: [(b"1-0", chunk)]})
    assert heard == [(f"e{row.pk}-1", died) for died in asked]


def test_what_helps_stands_on_the_page_with_its_sum(client, operator):
    row = failed()
    remedying.look(row, ["<script>alert(1)</script> " + LINE])
    client.force_login(operator)
    page = client.get("/deployments/qwen/replicas/1/remedy").content.decode()
    assert "the longest that it holds is about 20992 tokens" in page
    assert "32,768 → 20,992" in page and "Make this revision" in page
    assert "<script>alert(1)" not in page and "&lt;script&gt;" in page
    assert client.get("/deployments/qwen/replicas/9/remedy").status_code == 404


def test_one_click_makes_the_revision(client, operator):
    row = failed()
    remedying.look(row, [LINE])
    client.force_login(operator)
    answer = client.post("/deployments/qwen/replicas/1/remedy", {"remedy": "context-estimate-0"})
    assert answer.status_code == 302
    made = Revision.objects.get(n=2)
    assert made.settings["max_model_len"] == 20992 and made.by == operator
    assert made.note.startswith("Remedy for replica 1: Shorten the context")
    row.refresh_from_db()
    again = client.post("/deployments/qwen/replicas/1/remedy", {"remedy": "context-estimate-0"})
    assert again.status_code == 409 and "another one by now" in again.content.decode()


def test_viewers_look_and_change_nothing(client):
    row = failed()
    remedying.look(row, [LINE])
    client.force_login(User.objects.create(username="victor", role="viewer"))
    assert "Make this revision" not in client.get("/deployments/qwen/replicas/1/remedy").content.decode()
    assert client.post("/deployments/qwen/replicas/1/remedy", {"remedy": "context-estimate-0"}).status_code == 403
    assert Revision.objects.count() == 1


def test_what_is_not_offered_is_refused(operator):
    row = failed()
    remedying.look(row, ["RuntimeError: Failed to infer device type"])
    for key in ("no-device-0", "context-estimate-0", ""):
        with pytest.raises(NotFound):
            remedying.apply(row, key, by=operator)


GONE = {"id": "gone-since", "line": 1, "text": "x", "cause": ["a", "b"]}


@pytest.mark.parametrize("kept", [[], [1], [{"id": "oom"}], [GONE]])
def test_whatever_was_kept_can_be_shown(client, operator, kept):
    row = failed()
    type(row).objects.filter(pk=row.pk).update(findings=kept)
    client.force_login(operator)
    assert client.get("/deployments/qwen/replicas/1/remedy").status_code == 200


def test_settings_that_cannot_be_read_offer_nothing(client, operator):
    row = failed()
    remedying.look(row, [LINE])
    Revision.objects.filter(pk=row.revision_id).update(settings={"max_model_len": "long"})
    client.force_login(operator)
    page = client.get("/deployments/qwen/replicas/1/remedy")
    assert page.status_code == 200 and "No change of settings is known" in page.content.decode()


def test_rest_says_and_does_the_same(client, operator):
    row = failed()
    remedying.look(row, [LINE])
    _row, token = ApiToken.make(operator, "operator")
    header = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
    url = "/api/v1/deployments/qwen/replicas/1/remedies"
    first = client.get(url, headers=header).json()["findings"][0]["remedies"][0]
    assert first["change"] == {"max_model_len": 20992} and first["numbers"]
    made = client.post(url, {"remedy": first["key"]}, "application/json", headers=header)
    assert made.status_code == 201 and made.json()["n"] == 2
    assert client.post(url, {"remedy": "x"}, "application/json", headers=header).status_code == 404


def test_a_remedy_of_an_older_revision_is_refused(operator):
    row = failed()
    remedying.look(row, [LINE])
    newer = Revision.objects.create(deployment=row.deployment, n=2, artifact=row.revision.artifact, settings={})
    row.deployment.revision = newer
    row.deployment.save()
    with pytest.raises(Conflict) as refused:
        remedying.apply(row, "context-estimate-0", by=operator)
    assert refused.value.code == "other_revision"
