import pytest
from django.test import Client
from django.urls import reverse

from console.models import ApiToken
from deployments import ingest
from deployments.models import Attempt, JobState
from monitoring.models import Diagnosis
from monitoring.services import diagnosing

pytestmark = pytest.mark.django_db
CAUSE = "ImportError: libatb.so: cannot open shared object file: No such file or directory"


def ended(spool, state="failed"):
    return spool.event(e="ended", state=state, exit=1, reason=["失败", "Failed"])


def stored(watch, server, entries):
    done = ingest.store({server.pk: entries})
    watch.take(chunk for _job, chunk in done.chunks)
    watch.settle([job for job in done.jobs.values() if job.is_ended])


def test_a_failed_job_is_diagnosed_when_its_log_ends(server, attempt, spool):
    watch = diagnosing.Watch()
    stored(watch, server, [spool.event(e="started", attempt=attempt.pk, pid=1, host="h"), spool.chunk(("o", "fine"))])
    assert not Diagnosis.objects.exists()
    stored(watch, server, [spool.chunk(("e", CAUSE), ("p", CAUSE)), ended(spool)])
    found = Diagnosis.objects.get()
    assert (found.found, found.findings[0]["line"], found.findings[0]["text"]) == ("nnal-missing", 3, CAUSE)
    assert not watch.scanners


@pytest.mark.parametrize("state", ["succeeded", "cancelled"])
def test_what_did_not_fail_has_no_diagnosis(server, attempt, spool, state):
    stored(diagnosing.Watch(), server, [spool.chunk(("e", CAUSE)), ended(spool, state)])
    assert not Diagnosis.objects.exists()


def test_who_comes_in_the_middle_reads_the_stored_log(server, attempt, spool):
    stored(diagnosing.Watch(), server, [spool.chunk(("o", "one"), ("e", CAUSE))])
    stored(diagnosing.Watch(), server, [spool.chunk(("o", "later")), ended(spool)])  # another process
    assert Diagnosis.objects.get().findings[0]["line"] == 2


def test_a_log_that_nobody_knows_says_so(server, attempt, spool, client, operator):
    stored(diagnosing.Watch(), server, [spool.chunk(("e", "the moon is in the wrong house")), ended(spool)])
    client.force_login(operator)
    client.cookies["django_language"] = "en"
    page = client.get(reverse("deployments:job-detail", args=[attempt.job_id])).content.decode()
    assert "Nothing in the log is known as a cause" in page


def test_the_page_shows_cause_line_and_remedies_and_takes_an_answer(server, attempt, spool, client, operator, viewer):
    stored(diagnosing.Watch(), server, [spool.chunk(("e", CAUSE + "<script>")), ended(spool)])
    client.force_login(operator)
    client.cookies["django_language"] = "en"
    address = reverse("deployments:job-detail", args=[attempt.job_id])
    page = client.get(address).content.decode()
    assert "NNAL (ATB) is not installed" in page and 'href="#L1"' in page and "&lt;script&gt;" in page
    assert "kind=install" in page
    row = Diagnosis.objects.get()
    judge = reverse("monitoring:diagnosis-judge", args=[row.pk])
    client.post(judge, {"right": "0", "note": "a broken mount"})
    row.refresh_from_db()
    assert (row.right, row.note, row.said_by) == (False, "a broken mount", operator)
    listed = client.get(reverse("monitoring:diagnosis-list")).content.decode()
    assert "nnal-missing" in listed and server.name in listed
    client.force_login(viewer)
    assert client.post(judge, {"right": "1"}).status_code == 403
    assert "Was this right?" not in client.get(address).content.decode()


def test_rest_tells_it(server, attempt, spool, operator):
    _row, text = ApiToken.make(operator, "viewer")
    client = Client(headers={"Authorization": f"Bearer {text}"})
    address = f"/api/v1/jobs/{attempt.job_id}/diagnosis"
    assert client.get(address).json()["diagnosis"] is None
    stored(diagnosing.Watch(), server, [spool.chunk(("e", CAUSE)), ended(spool)])
    assert client.get(address).json()["diagnosis"]["findings"][0]["id"] == "nnal-missing"


def test_a_fault_of_ours_stops_nobody(server, attempt, spool, monkeypatch):
    monkeypatch.setattr(diagnosing, "keep", lambda *_: 1 / 0)
    stored(diagnosing.Watch(), server, [spool.chunk(("e", CAUSE)), ended(spool)])
    assert Attempt.objects.get(pk=attempt.pk).state == JobState.FAILED
