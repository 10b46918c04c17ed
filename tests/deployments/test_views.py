import html
import json
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from deployments import ingest
from deployments.models import Attempt, Job, JobState, Server
from deployments.services import job_page
from tests.answers import whole

ITEM = {
    "e": "item", "key": "fw", "title": ["固件配套", "Firmware pairing"], "verdict": "failed", "found": "7.7.0",
    "wanted": "≥ 7.8", "remedy": ["升级固件。", "Upgrade the firmware."],
    "job": {"kind": "check", "params": {"deep": True}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def english(client):
    client.cookies["django_language"] = "en"


@pytest.fixture
def as_operator(client, operator):
    client.force_login(operator)
    return client


def make_jobs(server, count, **fields):
    now = timezone.now()
    return Job.objects.bulk_create(Job(server=server, kind="check", not_after=now, **fields) for _ in range(count))


def listed(response):
    return [int(n) for n in re.findall(r'/jobs/(\d+)/">#', response.content.decode())]


# ---------- list ----------


def test_the_list_asks_who_you_are(client, db):
    assert client.get("/jobs/").status_code == 302


def test_jobs_are_paged_by_key_newest_first(as_operator, server):
    made = [job.pk for job in make_jobs(server, 120)]
    first = as_operator.get("/jobs/")
    assert listed(first) == made[:-51:-1]
    older = re.search(r'href="(\?before=\d+)"', first.content.decode())[1]
    second = as_operator.get(f"/jobs/{older}")
    assert listed(second) == made[-51:-101:-1]
    newer = re.search(r'href="(\?after=\d+)"', second.content.decode())[1]
    assert listed(as_operator.get(f"/jobs/{newer}")) == listed(first)
    oldest = as_operator.get("/jobs/?before=" + str(made[20]))
    assert listed(oldest) == made[:20][::-1]
    assert 'rel="next"' not in oldest.content.decode()


def test_filters_in_the_address_narrow_the_list(as_operator, operator, server):
    demo = Server.objects.create(name="kp-sim", simulated=True, last_seen_at=timezone.now())
    [real] = make_jobs(server, 1, state=JobState.FAILED, ticket="OPS-17", requester=operator)
    [simulated] = make_jobs(demo, 1, state=JobState.RUNNING)
    for query, expected in {
        "state=failed": [real.pk], "state=under_way": [simulated.pk], "fleet=simulated": [simulated.pk],
        "fleet=real": [real.pk], "server=kp-01": [real.pk], "server=kp-99": [], "q=ops-17": [real.pk],
        "q=olga": [real.pk], "q=kp-s": [simulated.pk], f"q=%23{real.pk}": [real.pk], "q=nothing": [],
        "kind=check&state=failed&fleet=simulated": [], "q=check": [simulated.pk, real.pk],
    }.items():  # fmt: skip
        assert listed(as_operator.get(f"/jobs/?{query}")) == expected, query


def test_a_filter_that_is_none_is_left_out_and_named(as_operator, server):
    make_jobs(server, 1)
    page = as_operator.get("/jobs/?state=%3Cscript%3E&before=x&kind=format")
    assert len(listed(page)) == 1
    assert "state=&lt;script&gt; is not known" in page.content.decode()
    assert "kind=format is not known" in page.content.decode()


def test_the_list_costs_the_same_queries_for_one_job_as_for_fifty(as_operator, server, django_assert_num_queries):
    make_jobs(server, 1)
    with django_assert_num_queries(6):  # session, user, jobs, newest attempts, counts, alerts
        assert len(listed(as_operator.get("/jobs/"))) == 1
    make_jobs(server, 60)
    with django_assert_num_queries(6):
        assert len(listed(as_operator.get("/jobs/"))) == 50


def test_simulated_servers_are_marked_in_the_list(as_operator):
    make_jobs(Server.objects.create(name="kp-sim", simulated=True), 1)
    assert '<span class="simulated">simulated</span>' in as_operator.get("/jobs/").content.decode()


def test_an_empty_list_says_what_to_do(as_operator):
    assert "No jobs yet" in as_operator.get("/jobs/").content.decode()
    assert "No job matches these filters" in as_operator.get("/jobs/?q=zzz").content.decode()


def test_a_script_gets_the_rows_alone(as_operator, server):
    make_jobs(server, 1)
    part = as_operator.get("/jobs/", headers={"X-Part": "1"})
    assert len(listed(part)) == 1
    assert b"<html" not in part.content
    assert "#" in as_operator.get("/jobs/", headers={"Accept": "application/json"}).json()["html"]


def test_csv_has_every_match_and_no_formula(as_operator, operator, server):
    made = make_jobs(server, 3, ticket='=HYPERLINK("http://x")', requester=operator)
    lines = whole(as_operator.get("/jobs.csv?state=queued")).decode("utf-8-sig").splitlines()
    assert lines[0].startswith("job,state,kind,server,simulated")
    assert [line.split(",")[0] for line in lines[1:]] == [str(job.pk) for job in reversed(made)]
    assert "\"'=HYPERLINK" in lines[1]


# ---------- one job ----------


def test_a_page_shows_verdict_report_and_steps(as_operator, attempt, spool):
    step = {"e": "step", "n": 1, "of": 9, "title": ["检查系统", "Check the system"], "argv": ["x"]}
    entries = [spool.event(e="started"), spool.event(**step), spool.event(**ITEM)]
    ingest.store({attempt.job.server_id: entries})
    page = as_operator.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Checking kp-01" in page
    assert "Firmware pairing" in page and "Upgrade the firmware." in page
    assert '<a class="mono" href="#L3">L3</a>' in page
    assert page.count('class="step ') == 9  # the one that runs and those to come
    button = html.unescape(re.search(r'href="(/jobs/new\?[^"]*)"', page.split("report", 1)[1])[1])
    assert parse_qs(urlsplit(button).query) == {"server": ["kp-01"], "kind": ["check"], "p-deep": ["True"]}


@pytest.mark.parametrize(
    ("kind", "params", "address"),
    [
        ("cleanup_look", {}, "/servers/kp-01/cleanup"),
        ("cleanup", {"targets": ["plog:/x"]}, "/servers/kp-01/cleanup"),
        ("install", {"stack": "vllm-ascend-0.23.0"}, "/stacks/vllm-ascend-0.23.0/install/kp-01/"),
        ("install", {"stack": "../../x"}, "/stacks/"),
        ("install", {}, "/stacks/"),
        ("hccn_note", {}, "/jobs/new?server=kp-01&amp;kind=hccn_note"),
    ],
)
def test_a_remedy_leads_to_the_page_that_asks_for_its_job(as_operator, attempt, spool, kind, params, address):
    item = {**ITEM, "job": {"kind": kind, "params": params}}
    ingest.store({attempt.job.server_id: [spool.event(e="started"), spool.event(**item)]})
    assert f'href="{address}"' in as_operator.get(f"/jobs/{attempt.job_id}/").content.decode().split("report", 1)[1]


def test_the_form_keeps_a_kind_that_it_does_not_offer(as_operator, server):
    page = as_operator.get("/jobs/new?server=kp-01&kind=cleanup&p-targets=plog:/x").content.decode()
    assert '<option value="cleanup" selected>' in page and "plog:/x" in page


def test_a_verdict_that_holds_not_every_item_counts_the_rest(as_operator, attempt, spool):
    ingest.store({attempt.job.server_id: [spool.event(e="started"), *[spool.event(**ITEM) for _ in range(9)]]})
    page = as_operator.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "3 more in the report" in page


def test_text_of_a_server_is_shown_and_never_obeyed(as_operator, attempt, spool):
    evil = "<img src=x onerror=alert(1)>"
    item = {**ITEM, "title": [evil, evil], "found": evil, "wanted": evil, "remedy": [evil, evil], "job": {"kind": evil}}
    ingest.store({attempt.job.server_id: [spool.event(e="started"), spool.event(**item)]})
    page = as_operator.get(f"/jobs/{attempt.job_id}/")
    assert evil not in page.content.decode()
    assert html.escape(evil) in page.content.decode()
    assert "unsafe-inline" not in page.headers["Content-Security-Policy"]


def test_the_page_costs_a_fixed_number_of_queries(as_operator, attempt, spool, django_assert_max_num_queries):
    ingest.store({attempt.job.server_id: [spool.event(e="started"), *[spool.event(**ITEM) for _ in range(50)]]})
    with django_assert_max_num_queries(9):
        assert as_operator.get(f"/jobs/{attempt.job_id}/").status_code == 200


def test_each_state_has_its_words(as_operator, attempt):
    for state, words in {
        "queued": "Waiting for kp-01 to take it", "lost": "kp-01 fell silent", "cancelled": "Cancelled",
        "succeeded": "Succeeded on kp-01", "running": "Running on kp-01", "waiting_reboot": "kp-01 restarts",
    }.items():  # fmt: skip
        Job.objects.update(state=state)
        Attempt.objects.update(state=state)
        assert words in as_operator.get(f"/jobs/{attempt.job_id}/").content.decode(), state


def test_a_silent_server_is_said_before_and_after_its_job_is_queued(as_operator, attempt):
    Server.objects.update(last_seen_at=timezone.now() - timedelta(seconds=30), simulated=True)
    form = as_operator.get("/jobs/new?server=kp-01").content.decode()
    assert re.search(r"kp-01 is silent, last heard 3\d s ago. It takes the job when it is back.", form)
    assert "kp-01 is simulated" in form
    assert "kp-01 is silent." in as_operator.get(f"/jobs/{attempt.job_id}/").content.decode()


def test_a_failed_job_says_why_and_links_the_line(as_operator, attempt, spool):
    entries = [
        spool.event(e="started"),
        spool.event(e="step", n=1, of=6, title=["检查系统", "Check the system"], argv=[]),
        spool.chunk(("e", "no such file")),
        spool.event(e="step_end", n=1, state="failed", exit=127, took_s=0.1),
        spool.event(e="ended", state="failed", exit=127, reason=["缺少程序。", "The program is missing."]),
    ]
    ingest.store({attempt.job.server_id: entries})
    page = as_operator.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Step 1 failed: Check the system" in page
    assert "The program is missing." in page
    assert 'class="decisive" href="#L4"' in page
    assert "exit code 127" in page


def test_the_rest_call_queues_the_same_job(as_operator, attempt):
    Job.objects.update(params={"deep": True}, ticket="it's 5")
    page = html.unescape(as_operator.get(f"/jobs/{attempt.job_id}/").content.decode())
    body = re.search(r"-d '(.*)'</pre>", page)[1].replace("'\\''", "'")
    assert json.loads(body) == {"server": "kp-01", "kind": "check", "params": {"deep": True}, "ticket": "it's 5"}


def test_bars_compare_with_the_usual_duration(as_operator, server, attempt):
    now = timezone.now()
    for seconds in (10, 20, 30):
        job = Job.objects.create(server=server, kind="check", state="succeeded", not_after=now)
        run = Attempt.objects.create(pk=f"a{job.pk}-1-x", job=job, n=1, state="succeeded")
        end = now + timedelta(seconds=seconds)
        run.steps.create(n=1, title_en="Check the system", started_at=now, ended_at=end, state="succeeded")
    page = as_operator.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "usually 20 s" in page
    assert "Usually takes 20 s." in as_operator.get("/jobs/new").content.decode()


def test_a_usual_duration_belongs_to_what_a_step_does_and_not_to_its_number(server):
    now = timezone.now()
    job = Job.objects.create(server=server, kind="check", state="succeeded", not_after=now)
    run = Attempt.objects.create(pk=f"a{job.pk}-1-x", job=job, n=1, state="succeeded")
    made = [("Make", 1, "succeeded"), ("Fetch", 60, "succeeded"), ("Fetch", 30, "succeeded"), ("Look", 0, "skipped")]
    for n, (title, seconds, state) in enumerate(made, start=1):
        end = now + timedelta(seconds=seconds)
        run.steps.create(n=n, title_en=title, started_at=now, ended_at=end, state=state)
    assert job_page.usual_seconds("check") == {("Make", 0): 1, ("Fetch", 0): 60, ("Fetch", 1): 30}
    other = Attempt.objects.create(pk=f"a{job.pk}-2-x", job=job, n=2, state="running")
    for n, title in enumerate(["Fetch", "Look", "Fetch", "New"], start=1):
        other.steps.create(n=n, title_en=title, started_at=now)
    rows = {row.n: row.usual_s for row in job_page.step_rows(other, job) if row.n <= 4}
    assert rows == {1: 60, 2: None, 3: 30, 4: None}


def test_an_unknown_job_or_attempt_is_answered_in_words(as_operator, attempt):
    missing = as_operator.get("/jobs/99999/")
    assert missing.status_code == 404
    assert "There is no job #99999." in missing.content.decode()
    assert '<a class="button" href="/jobs/">' in missing.content.decode(), "a way on, to where it says to look"
    other = as_operator.get(f"/jobs/{attempt.job_id}/?attempt=7")
    assert other.status_code == 404
    assert "has no attempt 7" in other.content.decode()


def test_an_earlier_attempt_can_be_read(as_operator, attempt):
    Attempt.objects.update(state="failed")
    Attempt.objects.create(pk="a1-2-x", job=attempt.job, n=2)
    page = as_operator.get(f"/jobs/{attempt.job_id}/?attempt=1").content.decode()
    assert json.loads(re.search(r'id="log-config"[^>]*>(.*?)</script>', page)[1])["attempt"] == attempt.pk
    assert 'data-dialog="cancel"' not in page


# ---------- log ----------


def test_lines_come_by_range_with_their_numbers(as_operator, attempt, spool):
    ingest.store({attempt.job.server_id: [spool.chunk(*[("o", f"line {i}") for i in range(1, 31)])]})
    address = f"/jobs/{attempt.job_id}/lines"
    found = as_operator.get(f"{address}?after=10&n=5").json()
    assert (found["first"], found["n"], found["total"], found["done"]) == (11, 5, 30, False)
    assert found["text"].split("\n")[0].endswith("\to\tline 11")
    assert as_operator.get(f"{address}?before=3").json()["n"] == 2
    assert as_operator.get(f"{address}?n=4").json()["first"] == 27
    assert as_operator.get(f"{address}?attempt={attempt.pk}").json()["attempt"] == attempt.pk


def test_a_range_that_is_no_number_is_refused_in_words(as_operator, attempt):
    answer = as_operator.get(f"/jobs/{attempt.job_id}/lines?after=-1", headers={"Accept": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["error"]["what"] == "after must be a whole number from 0."


def test_a_viewer_may_read_logs_and_nobody_else(client, viewer, attempt):
    assert client.get(f"/jobs/{attempt.job_id}/lines").status_code == 302
    client.force_login(viewer)
    assert client.get(f"/jobs/{attempt.job_id}/lines").status_code == 200


def test_the_raw_log_streams_as_plain_text(as_operator, attempt, spool):
    chunks = [spool.chunk(("p", "1 %"), ("p", "2 %")), spool.chunk(("o", "100 %"), ("o", "<b>done</b>"))]
    ingest.store({attempt.job.server_id: chunks})
    response = as_operator.get(f"/jobs/{attempt.job_id}/raw?download=1")
    text = whole(response).decode()
    assert [line.split("\t")[1] for line in text.splitlines()] == ["100 %", "<b>done</b>"]
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Disposition"].startswith("attachment; filename=")


# ---------- changes ----------


def test_the_form_is_made_of_the_kinds_params(as_operator, server):
    page = as_operator.get("/jobs/new?server=kp-01&kind=check").content.decode()
    assert 'name="p-deep"' in page
    assert "Look deeper at the links" in page
    assert "deployments.kinds.check_probes system" in page
    assert "Runs on kp-01, a real server" in page


def test_the_consequence_follows_the_values(as_operator, server):
    part = as_operator.get(
        "/jobs/new?server=kp-01&kind=check&p-deep=1&full=1", headers={"X-Part": "1"}
    ).content.decode()
    assert "--deep" in part
    assert "<form" not in part
    assert "No server is called “kp-77”" in as_operator.get("/jobs/new?server=kp-77").content.decode()


def test_a_simulated_server_is_named_as_one(as_operator):
    Server.objects.create(name="kp-sim", simulated=True, last_seen_at=timezone.now())
    assert "kp-sim is simulated" in as_operator.get("/jobs/new?server=kp-sim").content.decode()


def test_the_form_queues_a_job(as_operator, operator, server, valkey):
    sent = {"server": "kp-01", "kind": "check", "ticket": "OPS-9", "full": "1", "p-deep": "1"}
    answer = as_operator.post("/jobs/new", sent)
    job = Job.objects.get()
    assert answer.headers["Location"] == f"/jobs/{job.pk}/"
    assert (job.params, job.ticket, job.requester, job.server) == ({"deep": True}, "OPS-9", operator, server)


def test_the_short_form_of_a_server_page_takes_the_defaults(as_operator, server, valkey):
    as_operator.post("/jobs/new", {"server": "kp-01", "kind": "check"})
    assert Job.objects.get().params == {}


def test_what_cannot_be_queued_is_said_above_the_kept_values(as_operator, server):
    Server.objects.update(last_seen_at=None)
    answer = as_operator.post(
        "/jobs/new", {"server": "kp-01", "kind": "check", "ticket": "OPS-9", "p-deep": "1", "full": "1"}
    )
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "Start the agent on kp-01, then queue the job again." in page
    assert 'value="OPS-9"' in page and "checked" in page
    for name, status in {"kp-99": 404, "": 404, "<script>": 404}.items():
        refused = as_operator.post("/jobs/new", {"server": name, "kind": "check"})
        assert refused.status_code == status
        assert "<script>" not in refused.content.decode().split("refusal")[1].split("</form>")[0]
    assert as_operator.post("/jobs/new", {"server": "kp-01", "kind": "format"}).status_code == 404
    assert not Job.objects.exists()


def test_retry_with_changes_fills_the_form(as_operator, attempt):
    Job.objects.update(params={"deep": True}, ticket="OPS-1")
    page = as_operator.get(f"/jobs/new?again={attempt.job_id}").content.decode()
    assert 'value="kp-01"' in page and 'value="OPS-1"' in page and " checked" in page


def test_a_viewer_changes_nothing(client, viewer, attempt):
    client.force_login(viewer)
    page = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "Cancel job" not in page
    for address in ("/jobs/new", f"/jobs/{attempt.job_id}/cancel", f"/jobs/{attempt.job_id}/retry"):
        refused = client.post(address, {"server": "kp-01", "kind": "check"})
        assert refused.status_code == 403
        assert "may look but not change anything" in refused.content.decode()
    assert client.get("/jobs/new").status_code == 403
    assert Job.objects.get().cancel_requested_at is None


def test_cancel_asks_first_naming_kind_and_server(as_operator, attempt, valkey):
    asked = as_operator.get(f"/jobs/{attempt.job_id}/cancel").content.decode()
    assert "Cancel “Check a server” on kp-01 (#" in asked
    assert Job.objects.get().cancel_requested_at is None
    as_operator.post(f"/jobs/{attempt.job_id}/cancel")
    assert Job.objects.get().state == "cancelled"


def test_a_refused_change_is_said_above_the_job(as_operator, attempt, valkey):
    Job.objects.update(state="succeeded")
    page = as_operator.post(f"/jobs/{attempt.job_id}/cancel", follow=True).content.decode()
    assert "has already ended, so there is nothing to cancel" in page


def test_retry_makes_a_second_attempt(as_operator, attempt, valkey):
    Job.objects.update(state="failed")
    page = as_operator.post(f"/jobs/{attempt.job_id}/retry", follow=True).content.decode()
    assert Attempt.objects.filter(job=attempt.job).count() == 2
    assert 'aria-label="Attempts"' in page


@pytest.mark.parametrize("again", ["²", "٣" * 30, "-1", "9" * 19])
def test_a_number_that_is_none_prefills_nothing(as_operator, again):
    assert as_operator.get("/jobs/new", {"again": again}).status_code == 200


def test_a_ticket_that_is_too_long_is_refused_not_cut(as_operator, server, valkey):
    answer = as_operator.post("/jobs/new", {"server": server.name, "kind": "check", "ticket": "x" * 101})
    assert answer.status_code == 422 and not Job.objects.exists()
