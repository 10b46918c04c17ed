"""Engines' logs are held against the rules as jobs' are: each start that ended badly has its diagnosis."""

import json
import zlib

import pytest
from django.urls import reverse
from django.utils import translation

from console import alerts
from console.models import Alert, ApiToken, User
from deployments import ingest
from deployments.services import remedying, replica_alerts, rollout
from deployments.serving.findings import TABLES
from monitoring.models import Diagnosis
from monitoring.services import diagnosing
from tests.deployments.benchmark_rows import replica

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
CAUSE = "ImportError: libatb.so: cannot open shared object file: No such file or directory"
SHORT = "ValueError: the estimated maximum model length is 20992. Try increasing"


@pytest.fixture(autouse=True)
def in_english(client, monkeypatch):
    monkeypatch.setattr("deployments.services.remedy_asking.enqueue", lambda pk, died: None)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    with translation.override("en"):
        yield


@pytest.fixture
def row():
    return replica(state="loading", settings={"max_model_len": 32768, "tensor_parallel_size": 1})


class Piece:
    """One piece of an engine's log, as its server sends it."""

    def __init__(self, row, n=1):
        self.row, self.n, self.line, self.byte = row, n, 1, 0

    @property
    def pk(self):
        return f"e{self.row.pk}-{self.n}"

    def chunk(self, *records):
        raw = "".join(f"{1_764_500_000_000 + self.line}\t{kind}\t{text}\n" for kind, text in records).encode()
        fields = {b"a": self.pk.encode(), b"f": str(self.line).encode(), b"n": str(len(records)).encode(),
                  b"b0": str(self.byte).encode(), b"b1": str(self.byte + len(raw)).encode(),
                  b"z": zlib.compress(raw, 1)}  # fmt: skip
        self.line += len(records)
        self.byte += len(raw)
        return b"1-0", fields

    def ended(self, state="failed", more=False):
        event = {"e": "ended", "state": state, "exit": 1, "reason": ["失败", "Failed"], "more": more}
        return self.chunk(("v", json.dumps(event)))

    def ill(self):
        return self.chunk(("v", json.dumps({"e": "engine", "state": "degraded", "reason": None, "progress": None})))


def stored(watch, row, *entries):
    done = ingest.store({row.server_id: list(entries)})
    watch.take_engines((piece, chunk) for _replica, piece, chunk in done.engines)
    watch.settle([], done.pieces.values())


def failed(row, *lines, n=1, watch=None):
    """Its engine has ended with these lines."""
    piece = Piece(row, n)
    stored(watch or diagnosing.Watch(), row, piece.chunk(*[("e", line) for line in lines]), piece.ended(more=n < 3))
    row.refresh_from_db()
    return Diagnosis.objects.get(piece=piece.pk)


def test_an_engine_that_ends_badly_is_diagnosed_when_its_piece_ends(row):
    watch, piece = diagnosing.Watch(), Piece(row)
    stored(watch, row, piece.chunk(("o", "fine"), ("e", CAUSE)))
    assert not Diagnosis.objects.exists() and piece.pk in watch.scanners
    stored(watch, row, piece.ended())
    found = Diagnosis.objects.get()
    assert (found.piece_id, found.attempt, found.found) == (piece.pk, None, "nnal-missing")
    assert (found.findings[0]["line"], found.server, found.kind, found.model) == (2, "kp-01", "engine", "model-qwen")
    assert not watch.scanners


def test_each_restart_has_its_own_and_the_last_speaks_for_the_replica(row):
    watch = diagnosing.Watch()
    first = failed(row, CAUSE, watch=watch)
    second = failed(row, "OSError: [Errno 98] Address already in use", n=2, watch=watch)
    assert (first.found, second.found) == ("nnal-missing", "port-in-use")
    from monitoring.services import replica_diagnosing

    assert replica_diagnosing.newest([row])[row.pk] == second


def test_one_that_serves_badly_is_diagnosed_and_goes_on_being_heard(row):
    watch, piece = diagnosing.Watch(), Piece(row)
    stored(watch, row, piece.chunk(("e", CAUSE)), piece.ill())
    assert Diagnosis.objects.get().found == "nnal-missing" and piece.pk in watch.scanners
    stored(watch, row, piece.ended("stopped"))
    assert Diagnosis.objects.count() == 1 and not watch.scanners


def test_one_that_was_stopped_has_none(row):
    piece = Piece(row)
    stored(diagnosing.Watch(), row, piece.chunk(("e", CAUSE)), piece.ended("stopped"))
    assert not Diagnosis.objects.exists()


def test_who_comes_in_the_middle_reads_the_stored_piece(row):
    piece = Piece(row)
    stored(diagnosing.Watch(), row, piece.chunk(("o", "one"), ("e", CAUSE)))
    stored(diagnosing.Watch(), row, piece.chunk(("o", "later")), piece.ended())
    assert Diagnosis.objects.get().findings[0]["line"] == 2


def test_where_the_tables_say_the_same_one_is_kept_with_its_sums(row, client):
    found = failed(row, SHORT)
    remedying.run(found.piece_id, True)
    found.refresh_from_db()
    row.refresh_from_db()
    assert [one["line"] for one in found.findings] == [1]
    assert found.findings[0]["table"] == row.findings[0]["id"] == "context-estimate"
    shown = remedying.shown(row)
    assert len(shown) == 1 and shown[0].finding.cause.en == found.findings[0]["cause"]["en"]
    assert any(offer.change for offer in shown[0].offers)
    client.force_login(User.objects.create(username="olga", role="operator"))
    page = client.get(f"/deployments/qwen/replicas/1/log?piece={found.piece_id}").content.decode()
    key = next(offer.key for offer in shown[0].offers if offer.change)
    assert f'href="/deployments/qwen/replicas/1/remedy#{key}"' in page
    assert f'id="{key}"' in client.get("/deployments/qwen/replicas/1/remedy").content.decode()


def test_what_the_tables_alone_know_is_the_diagnosis(row):
    found = failed(row, "ZebraError: stripes")
    assert found.found == ""
    remedying.run(found.piece_id, True)
    found.refresh_from_db()
    assert found.found == "unknown"


def test_the_log_page_shows_the_card_of_its_own_piece(row, client):
    watch = diagnosing.Watch()
    first, second = failed(row, CAUSE + "<script>", watch=watch), failed(row, "fine", n=2, watch=watch)
    client.force_login(User.objects.create(username="olga", role="operator"))
    page = client.get(f"/deployments/qwen/replicas/1/log?piece={first.piece_id}").content.decode()
    assert "NNAL (ATB) is not installed" in page and 'href="#L1"' in page and "&lt;script&gt;" in page
    assert "Was this right?" in page
    page = client.get(f"/deployments/qwen/replicas/1/log?piece={second.piece_id}").content.decode()
    assert "Nothing in the log is known as a cause" in page


def test_the_deployment_page_shows_it_beside_the_reason_and_links_the_line(row, client):
    found = failed(row, "fine", CAUSE)
    row.state = "failed"
    row.save()
    client.force_login(User.objects.create(username="vera", role="viewer"))
    page = client.get("/deployments/qwen/").content.decode()
    assert f'href="/deployments/qwen/replicas/1/log?piece={found.piece_id}#L2"' in page
    assert "NNAL (ATB) is not installed" in page
    assert "kind=install" not in page and "/remedy#" not in page  # a viewer may do nothing


def test_the_page_asks_as_often_for_many_replicas(row, client, django_assert_max_num_queries):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client.force_login(User.objects.create(username="olga", role="operator"))
    failed(row, CAUSE)
    with CaptureQueriesContext(connection) as one:
        client.get("/deployments/qwen/")
    for n in range(2, 5):
        row.pk, row.n, row.state = None, n, "failed"
        row.save()
        failed(row, CAUSE)
    with CaptureQueriesContext(connection) as many:
        client.get("/deployments/qwen/")
    assert len(many) <= len(one) + 1  # its jobs are asked for


def test_the_alert_names_the_cause_and_leads_to_the_line(row):
    row.state, row.reason = "failed", ["启动失败", "It did not start"]
    row.save()
    replica_alerts.fire(row)
    alert = Alert.objects.get()
    assert (alert.what[1], alert.link) == ("Replica 1 of qwen on kp-01 failed: It did not start", "/deployments/qwen/")
    found = failed(row, "fine", CAUSE)
    replica_alerts.renew(row)  # as after the commit
    alert.refresh_from_db()
    assert "NNAL (ATB) is not installed" in alert.what[1] and "NNAL" in alert.what[0]
    assert alert.link == f"/deployments/qwen/replicas/1/log?piece={found.piece_id}#L2"
    assert alert.do[1] == found.findings[0]["remedies"][0]["en"] and alert.count == 1
    alerts.resolve("replica-failed", f"deployment:{row.deployment_id}")
    replica_alerts.renew(row)
    assert not Alert.objects.filter(ended_at=None).exists()


def test_people_say_whether_it_was_right(row, client):
    found = failed(row, CAUSE)
    client.force_login(User.objects.create(username="olga", role="operator"))
    answer = client.post(reverse("monitoring:diagnosis-judge", args=[found.pk]), {"right": "1"})
    assert answer.url == f"/deployments/qwen/replicas/1/log?piece={found.piece_id}"
    found.refresh_from_db()
    assert found.right is True


def test_rest_tells_it(row, client):
    _token, text = ApiToken.make(User.objects.create(username="vera", role="viewer"), "viewer")
    auth = {"HTTP_AUTHORIZATION": f"Bearer {text}"}
    address = "/api/v1/deployments/qwen/replicas/1/diagnosis"
    assert client.get(address, **auth).json()["diagnosis"] is None
    found = failed(row, CAUSE)
    told = client.get(address, **auth).json()["diagnosis"]
    assert (told["log"], told["findings"][0]["id"]) == (found.piece_id, "nnal-missing")
    assert client.get(f"{address}?log={found.piece_id}", **auth).json()["diagnosis"]["id"] == found.pk
    assert client.get(f"{address}?log=e1-99", **auth).status_code == 404
    assert client.get("/api/v1/deployments/qwen/replicas/9/diagnosis", **auth).status_code == 404


def test_a_reason_that_says_the_same_is_not_shown_beside_the_card(row, client):
    found = failed(row, "OSError: [Errno 98] Address already in use")
    port = next(known for known in TABLES if known.id == "port")
    client.force_login(User.objects.create(username="vera", role="viewer"))
    for reason, shown in ((list(port.cause), False), (["看守进程放弃了", "The keeper gave up"], True)):
        row.state, row.reason = "failed", reason
        row.save()
        for address in ("/deployments/qwen/", f"/deployments/qwen/replicas/1/log?piece={found.piece_id}"):
            assert ("replica-reason" in client.get(address).content.decode()) is shown, (address, reason)


def test_a_reader_is_offered_what_can_be_worked_out_and_nothing_else(row, client):
    found = failed(row, SHORT)
    remedying.run(found.piece_id, True)
    address = f"/deployments/qwen/replicas/1/log?piece={found.piece_id}"
    client.force_login(User.objects.create(username="vera", role="viewer"))
    assert "/remedy#" not in client.get(address).content.decode()
    client.force_login(User.objects.create(username="olga", role="operator"))
    assert "/remedy#context-estimate-0" in client.get(address).content.decode()
    row.revision.settings = {**row.revision.settings, "max_model_len": 1024}  # shorter than what fits: no help
    row.revision.save()
    assert "/remedy#context-estimate-0" not in client.get(address).content.decode()


def test_the_form_of_a_job_is_filled_in(row):
    from deployments.views import remedy_links

    reader = User(username="olga", role="operator")
    known = remedy_links.of_replica(row) | {"npu": "0000:01:00.0"}
    address = remedy_links.job_address("quantize", "kp-01", known, reader)
    assert "p-model=%2Fdata%2Fmodels%2Fmodel-qwen" in address and "p-npus=0000%3A01%3A00.0" in address
    assert "p-npu=0000" in remedy_links.job_address("reset", "kp-01", known, User(role="administrator"))
    assert remedy_links.job_address("reset", "kp-01", known, reader) == ""  # for administrators
    assert remedy_links.job_address("nothing", "kp-01", known, reader) == ""
    assert "/stacks/" in remedy_links.job_address("install", "kp-01", known, reader, stack="vllm-ascend-0.9")


def test_the_alert_of_a_rollout_names_the_cause_and_leads_to_the_line_too(row):
    found = failed(row, "fine", CAUSE)
    deployment = row.deployment
    deployment.rollout = {"phase": "first", "to": 1, "from": None, "why": "revision"}
    rollout.fail(deployment, row, ["启动失败", "It did not start"])
    alert = Alert.objects.get()
    assert alert.name == "rollout-failed" and "NNAL (ATB) is not installed" in alert.what[1]
    assert alert.link == f"/deployments/qwen/replicas/1/log?piece={found.piece_id}#L2"


def test_a_fault_of_ours_keeps_nobody_from_reading_the_log_or_opening_the_alert(row, monkeypatch):
    found = failed(row, SHORT)
    monkeypatch.setattr("monitoring.services.replica_diagnosing._newest", lambda pks: 1 / 0)
    monkeypatch.setattr("monitoring.diagnoses.agreeing.merged", lambda *rows: 1 / 0)
    assert remedying.run(found.piece_id, True) == 1
    replica_alerts.fire(row)
    assert Alert.objects.get().what[1].startswith("Replica 1 of qwen on kp-01 failed")
