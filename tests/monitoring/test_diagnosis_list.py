"""The page of the most frequent diagnoses, its CSV and REST: what is counted, filtered and linked."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.models import ApiToken, User
from deployments.models import Attempt, EngineLog, Job
from monitoring.models import Diagnosis
from monitoring.services import diagnosis_list, diagnosis_plot
from tests.deployments.benchmark_rows import replica, server

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
ADDRESS = "/diagnoses/"


def finding(name, line=3):
    return {"id": name, "stage": "serve", "line": line, "text": f"={name} said", "score": 80, "remedies": [],
            "cause": {"zh": f"{name} 原因", "en": f"cause of {name}"}}  # fmt: skip


@pytest.fixture
def made():
    """Two of a job, three of an engine, one of nobody knows what; one is old."""
    now, on = timezone.now(), server()
    job = Job.objects.create(server=on, kind="install", not_after=now, state="failed")
    row = replica(on=on)
    for n in range(6):
        name = "nnal-missing" if n < 2 else "port-in-use" if n < 5 else ""
        which = {"kind": "install", "stack": "s-1", "attempt": Attempt.objects.create(pk=f"a{n}", job=job, n=n + 1)}
        if n >= 2:
            piece = EngineLog.objects.create(pk=f"e{row.pk}-{n}", replica=row, server=on, n=n)
            which = {"kind": "engine", "model": "model-qwen", "piece": piece}
        Diagnosis.objects.create(
            found=name, findings=[finding(name)] if name else [], server=on.name, right=[True, False, True][n % 3],
            made_at=now - timedelta(days=20 if n == 4 else 1), **which,
        )  # fmt: skip
    return row


@pytest.fixture
def reader(client, made):
    client.force_login(User.objects.create(username="vera", role="viewer"))
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


def test_the_most_frequent_come_first_with_the_share_said_right(made):
    found = diagnosis_list.look(diagnosis_list.read({"days": "30"}))
    assert [(row.found, row.n, row.share_right) for row in found.rows] == [
        ("port-in-use", 3, 67), ("nnal-missing", 2, 50), ("", 1, 100),
    ]  # fmt: skip
    assert found.places["model"] == [("model-qwen", 4)] and found.places["stack"] == [("s-1", 2)]
    assert sum(sum(counts.values()) for _day, counts in found.days) == found.total == 6


def test_filters_stand_in_the_address(reader):
    page = reader.get(f"{ADDRESS}?days=7&found=port-in-use&model=model-qwen").content.decode()
    assert "port-in-use" in page and "nnal-missing" not in page
    assert 'href="?days=30&amp;found=port-in-use&amp;model=model-qwen"' in page
    assert 'href="?found=port-in-use"' in page  # what leaves the model out
    page = reader.get(f"{ADDRESS}?found=-").content.decode()
    assert "Not known" in page and "port-in-use" not in page
    assert "No job or engine failed" in reader.get(f"{ADDRESS}?server=kp-77").content.decode()
    assert reader.get(f"{ADDRESS}?days=x&found=%F0%9F%90%91&server={'y' * 4000}").status_code == 200


def test_cases_lead_to_the_decisive_line(reader, made):
    page = reader.get(ADDRESS).content.decode()
    assert f"/deployments/qwen/replicas/1/log?piece=e{made.pk}-3#L3" in page
    assert "?attempt=1#L3" in page and "cause of port-in-use" in page


def test_csv_and_rest_say_the_same(reader, made):
    rows = list(diagnosis_list.csv_rows(diagnosis_list.read({"days": "90"})))
    assert len(rows) == 6 and rows[0][diagnosis_list.CSV_HEAD.index("server")] == "kp-01"
    assert reader.get("/diagnoses.csv?days=90")["Content-Type"].startswith("text/csv")
    _token, text = ApiToken.make(User.objects.get(username="vera"), "viewer")
    told = reader.get("/api/v1/diagnoses?days=30", HTTP_AUTHORIZATION=f"Bearer {text}").json()
    assert told["total"] == 6 and told["diagnoses"][0]["id"] == "port-in-use"
    assert told["servers"] == [{"name": "kp-01", "count": 6}] and told["cases"][0]["link"].startswith("/")


def test_the_page_asks_a_fixed_number_of_times(reader, made):
    with CaptureQueriesContext(connection) as few:
        reader.get(f"{ADDRESS}?days=90")
    pieces = [EngineLog(pk=f"e{made.pk}-{n}", replica=made, server=made.server, n=n) for n in range(100, 160)]
    EngineLog.objects.bulk_create(pieces)
    Diagnosis.objects.bulk_create(
        Diagnosis(piece=one, found=f"rule-{one.n}", findings=[finding("x")], server="kp-01") for one in pieces
    )
    with CaptureQueriesContext(connection) as many:
        reader.get(f"{ADDRESS}?days=90")
    assert len(many) == len(few)


def test_bars_are_as_high_as_what_they_count():
    day = timezone.now().date()
    days = [(day, {"a": 3, "b": 1}), (day + timedelta(days=1), {}), (day + timedelta(days=2), {"c": 2})]
    plot = diagnosis_plot.drawn(days, ["a", "b"])
    assert [part.height for part in plot.bars[0].parts] == [120, 40] and plot.bars[0].parts[1].y == 0
    assert plot.bars[1].parts == [] and plot.bars[2].parts[0].css == "other" and plot.others
    assert diagnosis_plot.drawn([], []).is_empty
