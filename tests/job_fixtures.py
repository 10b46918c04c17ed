"""Rows and spool chunks that tests of jobs share. Models are imported late: plain tests need no Django."""

import json
import zlib
from datetime import timedelta

import pytest
from django.utils import timezone


@pytest.fixture
def operator(db):
    from console.models import User

    return User.objects.create_user("olga", password="a-long-password", role="operator")


@pytest.fixture
def viewer(db):
    from console.models import User

    return User.objects.create_user("victor", password="a-long-password", role="viewer")


@pytest.fixture
def server(db):
    from deployments.models import Server

    return Server.objects.create(name="kp-01", last_seen_at=timezone.now())


@pytest.fixture
def attempt(server):
    from deployments.models import Attempt, Job

    job = Job.objects.create(server=server, kind="check", not_after=timezone.now() + timedelta(days=1))
    return Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1)


class Spool:
    """Writes records as an agent would and cuts them into stream entries."""

    def __init__(self, attempt_id):
        self.attempt_id, self.line, self.byte, self.entry = attempt_id, 1, 0, 0

    def chunk(self, *records):
        raw = "".join(f"{1_764_500_000_000 + self.line}\t{kind}\t{text}\n" for kind, text in records).encode()
        fields = {
            b"a": self.attempt_id.encode(), b"f": str(self.line).encode(), b"n": str(len(records)).encode(),
            b"b0": str(self.byte).encode(), b"b1": str(self.byte + len(raw)).encode(), b"z": zlib.compress(raw, 1),
        }  # fmt: skip
        self.line += len(records)
        self.byte += len(raw)
        self.entry += 1
        return f"{self.entry}-0".encode(), fields

    def event(self, **event):
        return self.chunk(("v", json.dumps(event)))


@pytest.fixture
def spool(attempt):
    return Spool(attempt.pk)
