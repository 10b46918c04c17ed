"""Jobs that another person has to approve before their server gets them."""

import threading
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.utils import timezone, translation

from console.errors import Conflict, ConsoleError, Invalid, NotAllowed
from console.models import Alert, ApiToken, User
from deployments import queues
from deployments.models import Approval, Decision, Job, JobState, Npu, Server
from deployments.services import approving, batches, jobs, lifecycle, reaper, selection, servers
from tests.deployments.npu_rings import PAIRS, server_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def ann():
    return User.objects.create_user("ann", role="administrator")


@pytest.fixture
def ben():
    return User.objects.create_user("ben", role="administrator")


@pytest.fixture
def server():
    return server_with(PAIRS)


@pytest.fixture
def asked(server, ann):
    return ask(server, ann)


def ask(server, by, bus_id="0000:11:00.0", **more):
    return jobs.queue_job(server, "reset", {"npu": bus_id, "confirm": server.name}, by=by, **more)


def sent(job):
    return queues.is_waiting(job.attempts.last())


def open_alerts():
    return list(Alert.objects.filter(name="job-approval", ended_at=None).values_list("subject", flat=True))


def now(job):
    return Job.objects.get(pk=job.pk)


def test_it_waits_for_another_administrator_and_then_goes(asked, ben, server, django_capture_on_commit_callbacks):
    assert asked.state == JobState.WAITING_APPROVAL and not asked.waiting and not sent(asked)
    assert open_alerts() == [f"job:{asked.pk}"]
    # nothing that hands over what was left behind takes it
    jobs.release([server.pk])
    reaper.resend(timezone.now() + timedelta(hours=1))
    assert not sent(asked) and now(asked).state == JobState.WAITING_APPROVAL
    with django_capture_on_commit_callbacks(execute=True):
        approving.approve(asked, by=ben, note=" seen ")
    assert now(asked).state == JobState.QUEUED and sent(asked) and asked.attempts.count() == 1
    row = asked.approvals.get()
    assert (row.decision, row.decided_by, row.note) == (Decision.APPROVED, ben, "seen") and not open_alerts()
    assert LogEntry.objects.filter(additional_data__verb="job.approved", actor=ben).exists()
    with pytest.raises(Conflict, match="no longer waits"):
        approving.reject(asked, by=ben, note="too late")
    assert now(asked).state == JobState.QUEUED


def test_who_may_not_decide(asked, ann, ben):
    operator = User.objects.create_user("li", role="operator")
    for by, words in ((ann, "asked for a job cannot"), (operator, "Only an administrator")):
        for act in (approving.approve, approving.reject):
            with pytest.raises(NotAllowed, match=words):
                act(asked, by=by, note="x")
    # the role counts that the account has in this moment, not the one of when its session began
    User.objects.filter(pk=ben.pk).update(role="operator")
    with pytest.raises(NotAllowed, match="Only an administrator"):
        approving.approve(asked, by=ben)
    User.objects.filter(pk=ben.pk).update(role="administrator", is_active=False)
    with pytest.raises(NotAllowed, match="Only an administrator"):
        approving.approve(asked, by=ben)
    assert now(asked).state == JobState.WAITING_APPROVAL and open_alerts()


def test_who_asked_must_still_be_one_who_may(asked, ann, ben):
    User.objects.filter(pk=ann.pk).update(role="operator")
    with pytest.raises(Conflict) as refused:
        approving.approve(asked, by=ben)
    assert refused.value.code == "requester_gone"
    jobs.cancel_job(asked, by=ben)
    assert asked.approvals.get().decision == Decision.WITHDRAWN and not open_alerts()


def test_rejected_with_a_note(asked, ben):
    with pytest.raises(Invalid, match="says why"):
        approving.reject(asked, by=ben, note="  ")
    with pytest.raises(Invalid, match="longer than 500"):
        approving.reject(asked, by=ben, note="x" * 501)
    approving.reject(asked, by=ben, note="a training runs there")
    row = now(asked)
    assert row.state == JobState.CANCELLED and row.reason[1] == "Rejected by ben: a training runs there"
    assert row.attempts.get().state == JobState.CANCELLED and row.ended_at and not open_alerts()
    with pytest.raises(Conflict, match="no longer waits"):
        approving.approve(asked, by=ben)


def test_a_retry_asks_again_and_counts_who_retries(asked, ann, ben):
    approving.reject(asked, by=ben, note="not now")
    jobs.retry_job(now(asked), by=ben)
    assert now(asked).state == JobState.WAITING_APPROVAL and asked.attempts.count() == 2 and not sent(asked)
    with pytest.raises(NotAllowed, match="cannot decide"):
        approving.approve(asked, by=ben)
    approving.approve(asked, by=ann)
    assert now(asked).state == JobState.QUEUED
    assert [row.decision for row in asked.approvals.all()] == [Decision.REJECTED, Decision.APPROVED]
    Job.objects.filter(pk=asked.pk).update(state=JobState.LOST)  # may still run, and would hold nothing
    with pytest.raises(Conflict, match="may still run"):
        jobs.retry_job(now(asked), by=ann)


def test_expires(asked, ben):
    row = asked.approvals.get()
    assert row.expires_at - row.asked_at == timedelta(days=7)
    assert approving.expire(row.expires_at - timedelta(seconds=1)) == []
    Approval.objects.update(expires_at=timezone.now())
    with pytest.raises(Conflict, match="no longer waits"):  # before anybody has ended it
        approving.approve(asked, by=ben)
    assert approving.expire(timezone.now()) == [asked.pk] and approving.expire(timezone.now()) == []
    assert now(asked).state == JobState.CANCELLED and "7 days" in now(asked).reason[1] and not open_alerts()
    assert LogEntry.objects.filter(additional_data__verb="job.approval_expired", actor=None).exists()


def test_cancel_and_decommission_end_it(server, ann, ben):
    one, two = ask(server, ann), ask(server, ann, "0000:12:00.0")
    jobs.cancel_job(one, by=User.objects.create_user("li", role="operator"))
    assert now(one).state == one.attempts.get().state == JobState.CANCELLED
    lifecycle._end_jobs(server)
    assert now(two).state == JobState.CANCELLED and not open_alerts()
    assert set(Approval.objects.values_list("decision", flat=True)) == {Decision.WITHDRAWN}


def test_it_holds_nothing_before_and_waits_for_locks_afterwards(
    asked, server, ann, ben, django_capture_on_commit_callbacks
):
    other = ask(server, ann, "0000:10:00.0")
    approving.approve(other, by=ben)
    assert now(other).state == JobState.QUEUED and not now(other).waiting
    third = ask(server, ann)
    assert now(third).state == JobState.WAITING_APPROVAL and not now(third).waiting  # locks come later
    with pytest.raises(Conflict, match="holds npu:"):
        ask(server, ann, wait=False)
    with django_capture_on_commit_callbacks(execute=True):
        approving.approve(asked, by=ben)
    assert now(asked).state == JobState.QUEUED and now(asked).waiting and not sent(asked)
    jobs.end_here(now(other), other.attempts.last(), JobState.CANCELLED, ["", ""])
    jobs.release([server.pk])
    assert sent(asked) and not now(asked).waiting


def test_everything_is_looked_at_again(asked, server, ann, ben):
    def refused(code, **changes):
        before = {name: getattr(server, name) for name in changes}
        Server.objects.filter(pk=server.pk).update(**changes)
        with pytest.raises(ConsoleError) as error:
            approving.approve(asked, by=ben)
        assert error.value.code == code and now(asked).state == JobState.WAITING_APPROVAL
        Server.objects.filter(pk=server.pk).update(**before)

    refused("server_offline", last_seen_at=timezone.now() - timedelta(days=1))
    refused("decommissioned", leaving_at=timezone.now())
    refused("no_root", facts={"topology": PAIRS})
    refused("changed", facts={"root": "helper"})  # the ring is no longer known: all four would be reset
    Npu.objects.filter(bus_id="0000:11:00.0").update(bus_id="0000:99:00.0")
    refused("no_such_npu")
    Npu.objects.filter(bus_id="0000:99:00.0").update(bus_id="0000:11:00.0")
    # a card may have been cordoned because it is to be reset: then it is no lock
    server.refresh_from_db()
    servers.cordon(server, "0000:11:00.0", by=ann, reason="ECC")
    approving.approve(asked, by=ben)
    assert now(asked).locks == ["server", "npu:0000:10:00.0", "npu:0000:10:00.0/0"] and not now(asked).waiting


def test_a_paused_queue_holds_it_after_the_approval(asked, server, ben, django_capture_on_commit_callbacks):
    Server.objects.filter(pk=server.pk).update(queue_paused=True)
    with django_capture_on_commit_callbacks(execute=True):
        approving.approve(asked, by=ben)
    assert now(asked).state == JobState.QUEUED and now(asked).waiting and not sent(asked)


def test_no_batch_goes_round_it(server, ann, monkeypatch):
    monkeypatch.setattr("deployments.kinds.check.NEEDS_APPROVAL", True, raising=False)
    with pytest.raises(Conflict, match="needs approval by itself"):
        batches.start("check", {}, selection.Asked(names=[server.name]), batches.Plan(), by=ann)
    assert not Job.objects.exists()


def test_kinds_of_operators_are_decided_by_operators(server, monkeypatch):
    monkeypatch.setattr("deployments.kinds.check.NEEDS_APPROVAL", True, raising=False)
    li, mo = (User.objects.create_user(name, role="operator") for name in ("li", "mo"))
    job = jobs.queue_job(server, "check", {}, by=li)
    with pytest.raises(NotAllowed, match="Only an operator"):
        approving.approve(job, by=User.objects.create_user("vi", role="viewer"))
    approving.approve(job, by=mo)
    assert now(job).state == JobState.QUEUED


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has one writer")
@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_wins(asked, ben):
    cem = User.objects.create_user("cem", role="administrator")
    ready, won, lost = threading.Barrier(2), [], []

    def decide(act, by):
        try:
            ready.wait(10)
            act(asked, by=by, note="x")
            won.append(act)
        except Conflict as error:
            lost.append(error.code)
        finally:
            connection.close()

    pairs = [(approving.approve, ben), (approving.reject, cem)]
    threads = [threading.Thread(target=decide, args=pair) for pair in pairs]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert len(won) == 1 and lost == ["wrong_state"]
    ends = {approving.approve: JobState.QUEUED, approving.reject: JobState.CANCELLED}
    assert now(asked).state == ends[won[0]] and asked.approvals.exclude(decision="waiting").count() == 1


# ---------- REST and pages ----------


def call(client, user, path, body=None, role="administrator"):
    token = ApiToken.make(user, role)[1]
    more = {"headers": {"Authorization": f"Bearer {token}", "Accept-Language": "en"}}
    if body is None:
        return client.get(f"/api/v1{path}", **more)
    return client.post(f"/api/v1{path}", body, content_type="application/json", **more)


def test_over_rest(asked, ann, ben, client):
    path = f"/jobs/{asked.pk}"
    shown = call(client, ann, path).json()
    assert shown["state"] == "waiting_approval" and shown["approval"]["decision"] == "waiting"
    assert [job["id"] for job in call(client, ann, "/jobs?state=waiting_approval").json()["jobs"]] == [asked.pk]
    assert call(client, ann, f"{path}/approve", {}).status_code == 403
    assert call(client, ben, f"{path}/approve", {}, role="operator").status_code == 403
    assert call(client, ben, f"{path}/reject", {}).status_code == 422
    assert call(client, ben, f"{path}/approve", {"nota": "x"}).status_code == 422
    assert call(client, ben, "/jobs/999999/approve", {}).status_code == 404
    done = call(client, ben, f"{path}/approve", {"note": "fine"})
    assert done.status_code == 202 and done.json()["state"] == "queued"
    assert done.json()["approval"]["decided_by"] == "ben" and done.json()["approval"]["note"] == "fine"
    assert call(client, ben, f"{path}/reject", {"note": "x"}).status_code == 409
    kinds = {one["kind"]: one["needs_approval"] for one in call(client, ann, "/kinds").json()["kinds"]}
    assert kinds["reset"] is True and kinds["check"] is False


def page(client, user, path):
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "en"
    return client.get(path).content.decode()


def test_the_page_asks_who_may_and_names_what_is_hit(asked, ann, ben, client):
    path = f"/jobs/{asked.pk}/"
    mine = page(client, ann, path)
    assert "Who asked for a job cannot decide about it." in mine and 'id="job-approve"' not in mine
    assert "Reset NPU 1 (together: 0.0, 1.0)" in mine and "Every NPU of the same HCCS ring" in mine
    for role in ("operator", "viewer"):
        other = page(client, User.objects.create_user(role, role=role), path)
        assert "Only an administrator" in other and 'id="job-approve"' not in other
        assert client.post(f"{path}decide", {"decision": "approve"}).status_code in (302, 403)
        assert now(asked).state == JobState.WAITING_APPROVAL
    theirs = page(client, ben, path)
    assert 'id="job-approve"' in theirs and "Waits for the approval of another person" in theirs
    assert f'href="{path}"' in page(client, ben, "/alerts/") and f'href="{path}"' in page(
        client, ben, "/jobs/?state=waiting_approval"
    )
    assert client.post(f"{path}decide", {"decision": "perhaps"}).status_code == 422
    refused = client.post(f"{path}decide", {"decision": "reject"}, follow=True).content.decode()
    assert "Who rejects a job says why." in refused
    after = client.post(f"{path}decide", {"decision": "reject", "note": "<b>no"}, follow=True).content.decode()
    assert "Rejected by ben: &lt;b&gt;no" in after and 'id="job-approve"' not in after
    assert now(asked).state == JobState.CANCELLED


def test_the_form_says_that_it_waits(server, ann, client):
    assert "until another person has approved it" in page(client, ann, "/jobs/new?kind=reset&server=kp-1")
    assert "until another person has approved it" not in page(client, ann, "/jobs/new?kind=check&server=kp-1")
