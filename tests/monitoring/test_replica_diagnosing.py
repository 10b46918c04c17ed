"""Engines' logs are held against the rules as jobs' are: each start that ended badly has its diagnosis."""

import json
import zlib

import pytest
from django.urls import reverse
from django.utils import translation

from console import alerts
from console.models import Alert, ApiToken, User
from deployments import ingest
from deployments.models import EngineLog
from deployments.services import remedying, replica_alerts
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
