"""Jobs that wait for their server to start anew, on the console: state, reaper, locks, batches, REST and pages."""

import json
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from console.errors import ConsoleError
from deployments import ingest
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import batches, in_use, jobs, reaper, selection, waiting
from tests.job_fixtures import Spool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def english(client):
    client.cookies["django_language"] = "en"


@pytest.fixture
def server(server):
    server.facts = {"root": "helper", "boot_id": "boot-1"}
    server.save()
    return server


@pytest.fixture
def tell(server, spool):
    def send(*events):
        ingest.store({server.pk: [spool.event(**event) for event in events]})
        return Job.objects.get(pk=int(spool.attempt_id[1:].split("-")[0]))

    return send


WAITS = {"e": "waiting_reboot", "n": 2, "boot_id": "boot-1", "by_hand": False, "within_s": 1800.0, "until": 1}
STARTED = {"e": "started"}


def test_the_events_fold_into_the_state_by_our_own_clock(tell, attempt):
    before = timezone.now()
    job = tell(STARTED, {"e": "step", "n": 2, "of": 3, "title": ["重启", "Restart"], "argv": ["reboot"]}, WAITS)
    assert job.state == JobState.WAITING_REBOOT and Attempt.objects.get().state == JobState.WAITING_REBOOT
    assert abs((job.reboot_until - before).total_seconds() - 1800) < 5
    assert job.reboot["step"] == 2 and job.reboot["by_hand"] is False
    told = jobs.as_json(job)
    assert told["state"] == "waiting_reboot" and told["reboot"] == job.reboot

    job = tell({"e": "rebooted", "n": 2, "boot_id": "boot-2", "took_s": 700.0})
    assert job.state == JobState.RUNNING and job.reboot is None and jobs.as_json(job)["reboot"] is None
    job = tell({"e": "ended", "state": "succeeded", "exit": 0, "reason": None})
    assert job.state == JobState.SUCCEEDED


@pytest.mark.parametrize("within_s", [None, "x", -5, 1e300, float("nan"), [], True, 10**400])
def test_what_a_server_says_of_its_time_is_bounded(tell, within_s):
    job = tell(STARTED, {**WAITS, "within_s": within_s, "by_hand": "yes", "n": "x"})
    left = (job.reboot_until - timezone.now()).total_seconds()
    assert -1 < left <= 24 * 3600 and job.reboot["by_hand"] is False


def test_an_older_attempt_no_longer_speaks_for_the_job(tell, attempt, server):
    tell(STARTED)
    Attempt.objects.create(pk=f"a{attempt.job_id}-2-00000002", job=attempt.job, n=2)
    Job.objects.update(state=JobState.QUEUED)
    job = tell(WAITS)
    assert job.state == JobState.QUEUED and job.reboot is None


def test_silence_loses_it_only_after_its_own_time_and_the_server_that_is_back_brings_it_back(tell, attempt, server):
    job = tell(STARTED, WAITS)
    assert reaper.mark_lost([server.pk]) == []
    assert reaper.restarting() == {server.pk}
    over = {**job.reboot, "until": (timezone.now() - timedelta(seconds=1)).isoformat()}
    Job.objects.update(reboot=over)
    assert reaper.restarting() == set()
    assert reaper.mark_lost([]) == []
    assert reaper.mark_lost([server.pk]) == [job]
    job.refresh_from_db()
    assert job.state == JobState.LOST and "is not back within its time" in job.reason[1]
    # Its locks are kept: it may go on at any time.
    assert waiting.on_servers([server.pk])[server.pk] == [job]

    assert reaper.bring_back({server.pk: {attempt.pk}}) == [job]
    job.refresh_from_db()
    assert job.state == JobState.WAITING_REBOOT
    assert tell({"e": "rebooted", "n": 2}).state == JobState.RUNNING


def test_nothing_begins_on_a_server_that_is_about_to_go_down(tell, attempt, server, operator):
    holder = tell(STARTED, WAITS)
    found = waiting.new(server, "check", [])
    assert found.holder == holder and found.lock == "server"
    other = jobs.queue_job(server, "check", {}, by=operator)
    assert other.waiting and waiting.take_free(server.pk) == []
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(server, "check", {}, by=operator, wait=False)
    assert refused.value.code == "locked"
    tell({"e": "rebooted", "n": 2})
    assert [free.job_id for free in waiting.take_free(server.pk)] == [other.pk]


def test_a_cancel_asks_the_server_and_is_asked_again_until_it_answers(tell, attempt, server, operator, valkey):
    job = tell(STARTED, WAITS)
    jobs.cancel_job(job, by=operator)
    job.refresh_from_db()
    assert job.state == JobState.WAITING_REBOOT and jobs.as_json(job)["cancelling"]
    Job.objects.update(cancel_requested_at=timezone.now() - timedelta(seconds=60))
    assert reaper.resend_cancels(timezone.now()) == 1
    assert tell({"e": "ended", "state": "cancelled", "exit": None, "reason": ["取消", "x"]}).state == "cancelled"
    assert Job.objects.get(pk=job.pk).reboot is None


@pytest.mark.parametrize(
    ("by_hand", "words"), [(False, "kp-01 restarts"), (True, "Waits until somebody restarts kp-01")]
)
def test_the_page_says_since_when_until_when_and_how(client, operator, tell, by_hand, words):
    job = tell(STARTED, {**WAITS, "by_hand": by_hand})
    client.force_login(operator)
    page = client.get(f"/jobs/{job.pk}/").content.decode()
    since, until = (timezone.localtime(datetime.fromisoformat(job.reboot[key])) for key in ("since", "until"))
    assert words in page
    assert f"Since {since:%H:%M:%S}" in page or f"Since {since:%Y-%m-%d %H:%M:%S}" in page
    assert f"{until:%H:%M:%S}" in page and "Restarts until" in page
    assert "not stopped" in client.get(f"/jobs/{job.pk}/cancel").content.decode()
    about = client.get("/servers/kp-01/").content.decode()
    assert "A job waits for its restart" in about and f"#{job.pk} Check a server</a>" in about


def test_a_batch_counts_it_as_under_way(tell, attempt, server, operator, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        batch = batches.start("check", {}, selection.Asked(names=["kp-01"]), batches.Plan(), by=operator)
    mine = batch.jobs.get()
    sender = Spool(mine.attempts.get().pk)
    ingest.store({server.pk: [sender.event(**STARTED), sender.event(**WAITS)]})
    batches.advance(batch.pk)
    batch.refresh_from_db()
    assert batch.state == "running" and batch.jobs.get().state == JobState.WAITING_REBOOT
    ingest.store({server.pk: [sender.event(e="ended", state="succeeded", exit=0, reason=None)]})
    batches.advance(batch.pk)
    batch.refresh_from_db()
    assert batch.state == "succeeded"


# ---------- kinds that need root ----------


@pytest.mark.parametrize("facts", [{}, {"root": "none"}, {"root": "refused"}, {"root": ["helper"]}, {"root": None}])
def test_a_kind_that_needs_root_is_refused_in_words_where_the_server_has_none(client, server, operator, facts):
    Server.objects.update(facts=facts)
    server.refresh_from_db()
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(server, "reboot", {}, by=operator)
    assert refused.value.code == "no_root" and refused.value.status == 409
    assert "NO_ROOT_HELPER" in refused.value.do
    assert jobs.queue_job(server, "reboot", {"by_hand": True}, by=operator).state == "queued"

    client.force_login(operator)
    form = client.get("/jobs/new?server=kp-01&kind=reboot").content.decode()
    assert "the agent on kp-01 has no root helper: the job is refused" in form
    sent = client.post("/jobs/new", {"server": "kp-01", "kind": "reboot", "full": "1", "wait": "1"})
    assert sent.status_code == 409 and "needs root" in sent.content.decode()
    page = client.get("/servers/kp-01/").content.decode()
    lacks = "Missing here, since they need root: Change driver and firmware, Restart the server, Reset NPUs."
    assert (lacks in " ".join(page.split())) is bool(facts)


def test_nobody_is_told_to_join_the_consoles_own_machine(client, server, operator):
    Server.objects.update(facts={"root": "none"}, is_local=True)
    server.refresh_from_db()
    with pytest.raises(ConsoleError) as refused:
        jobs.queue_job(server, "reboot", {}, by=operator)
    assert "kp-01 is the console's own machine" in refused.value.do and "Join" not in refused.value.do
    client.force_login(operator)
    page = client.get("/servers/kp-01/").content.decode()
    assert "Missing here" in page and "own machine, whose agent" in page and "NO_ROOT_HELPER" not in page


def test_a_batch_names_the_servers_without_root(server, operator):
    Server.objects.create(name="kp-02", last_seen_at=timezone.now())
    Server.objects.create(name="kp-03", last_seen_at=timezone.now(), simulated=True)
    with pytest.raises(ConsoleError) as refused:
        batches.start("reboot", {}, selection.Asked(fleet="real"), batches.Plan(), by=operator)
    assert refused.value.code == "no_root" and "kp-02" in refused.value.what and "kp-01" not in refused.value.what
    assert Job.objects.count() == 0


def test_the_form_asks_once_more_and_names_what_is_hit(client, server, operator, valkey):
    now = {"processes": [{"pid": 4711, "user": "lina", "name": "python<b>", "npu": 3, "chip": 0}, "x"], "error": None}
    valkey.client().hset("fleet:now", str(server.pk), json.dumps(now))
    client.force_login(operator)
    form = {"server": "kp-01", "kind": "reboot", "full": "1", "wait": "1", "p-force": "1", "p-minutes": "40"}
    Job.objects.create(server=server, kind="check", state=JobState.RUNNING, not_after=timezone.now())
    page = client.post("/jobs/new", form)
    text = page.content.decode()
    assert page.status_code == 200 and not Job.objects.filter(kind="reboot").exists()
    assert "Restart the server: kp-01" in text and "pid 4711" in text and "lina" in text and "python&lt;b&gt;" in text
    assert "Check a server" in text and 'name="p-minutes" value="40"' in text
    done = client.post("/jobs/new", {**form, "confirmed": "1"})
    assert done.status_code == 302
    assert Job.objects.get(kind="reboot").params == {"force": True, "by_hand": False, "minutes": 40}


def test_who_uses_a_server_is_unknown_where_nothing_was_read(server, valkey):
    assert in_use.of(server).processes is None
    valkey.client().hset("fleet:now", str(server.pk), json.dumps({"processes": [], "error": {"code": -8005}}))
    assert in_use.of(server).processes is None
    valkey.client().hset("fleet:now", str(server.pk), json.dumps({"processes": [], "error": None}))
    assert in_use.of(server).processes == []
