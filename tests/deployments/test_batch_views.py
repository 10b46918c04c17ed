"""Pages of batches, of waiting jobs, and the switches of a server."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from deployments.kinds import check
from deployments.models import Batch, Job, JobState, Server
from deployments.services import batches, jobs, selection, servers
from tests.deployments.handed import finish, kinds_of_tests  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey", "kinds_of_tests")]


@pytest.fixture
def page(client, operator):
    client.cookies["django_language"] = "en"
    client.force_login(operator)
    return client


@pytest.fixture
def fleet(db):
    now = timezone.now()
    made = [Server(name=f"kp-{n:02}", rack=f"A{n % 2}", family="910B3", last_seen_at=now) for n in range(4)]
    made += [Server(name=f"sim-{n:02}", rack="S1", simulated=True, last_seen_at=now) for n in range(2)]
    return Server.objects.bulk_create(made)


def begin(operator, **plan):
    return batches.start("check", {}, selection.Asked(), batches.Plan(**plan), by=operator)


def text(response):
    return response.content.decode()


def seen(response):
    return re.search(r'name="seen" value="(\w+)"', text(response))[1]


def form(**more):
    return {"full": "1", "kind": "check", "fleet": "real", "wave": "2", "spread": "1", **more}


def test_the_form_names_every_server_and_starts_only_what_was_shown(page, fleet):
    shown = page.get("/batches/new", form(rack=["A0"]))
    names = re.findall(r'class="member">(?:<svg.*?</span>)?([\w-]+)', text(shown))
    assert sorted(names) == ["kp-00", "kp-02"] and "All of them are real servers." in text(shown)
    blind = page.post("/batches/new", form(rack=["A0"]))
    assert blind.status_code == 409 and "other servers than those" in text(blind) and not Batch.objects.exists()
    Server.objects.create(name="kp-99", rack="A0", last_seen_at=timezone.now())
    late = page.post("/batches/new", form(rack=["A0"], seen=seen(shown)))
    assert late.status_code == 409 and "kp-99" in text(late)
    done = page.post("/batches/new", form(rack=["A0"], seen=seen(late), ticket="OPS-7"))
    batch = Batch.objects.get()
    assert done.status_code == 302 and done.url == f"/batches/{batch.pk}/"
    assert sorted(batch.selection["servers"]) == ["kp-00", "kp-02", "kp-99"] and batch.ticket == "OPS-7"


def test_real_and_simulated_mix_only_with_a_word_of_warning(page, fleet):
    assert "sim-00" not in text(page.get("/batches/new", headers={"X-Part": "1"}))
    both = text(page.get("/batches/new", {"fleet": "both"}, headers={"X-Part": "1"}))
    assert "Real and simulated together: 4 real, 2 simulated." in both
    assert "nothing real is touched" in text(page.get("/batches/new", {"fleet": "simulated"}, headers={"X-Part": "1"}))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"wave": "many"}, "is not a whole number"),
        ({"canary": "-1"}, "is not a whole number from 0 up"),
        ({"wave": "0"}, "wave is 0"),
        ({"names": "kp-404"}, "No server is called: kp-404."),
        ({"find": "nowhere"}, "No server matches"),
        ({"fleet": "moon"}, "is no fleet"),
        ({"kind": "try_program", "p-timeout_s": "soon"}, "Some parameters do not fit"),
    ],
)
def test_a_wrong_form_is_answered_in_words_with_what_was_typed(page, fleet, fields, told):
    given = form(**fields)
    answer = page.post("/batches/new", {**given, "seen": seen(page.get("/batches/new", given))})
    assert answer.status_code in (409, 422) and told in text(answer)
    assert not Batch.objects.exists()


def test_a_viewer_sees_batches_and_changes_none(client, viewer, operator, fleet):
    batch = begin(operator)
    client.force_login(viewer)
    assert client.get("/batches/").status_code == 200
    shown = text(client.get(f"/batches/{batch.pk}/"))
    assert f"/batches/{batch.pk}/pause" not in shown
    for path in ("pause", "resume", "retry", "stop"):
        assert client.post(f"/batches/{batch.pk}/{path}").status_code == 403
    for path in ("/batches/new", f"/batches/{batch.pk}/stop", "/servers/kp-00/queue/pause"):
        assert client.get(path).status_code == 403
    for path in ("queue/resume", "maintenance"):
        assert client.post(f"/servers/kp-00/{path}").status_code == 403
    assert Batch.objects.get().state == "running"


def test_the_matrix_has_a_row_a_server_and_a_cell_a_step(page, operator, fleet):
    batch = begin(operator, size=2)
    finish(*batch.jobs.filter(state="queued"))
    shown = text(page.get(f"/batches/{batch.pk}/"))
    assert shown.count('<td class="cell ') == 4 * len(check.GROUPS)
    assert "Wave 1 of 2" in shown and "1 of 4 servers have settled." in shown
    only = text(page.get(f"/batches/{batch.pk}/?show=draft", headers={"X-Part": "1"}))
    assert only.count('<td class="cell ') == len(check.GROUPS) and "<html" not in only
    assert "html" in page.get(f"/batches/{batch.pk}/", headers={"Accept": "application/json"}).json()
    assert page.get("/batches/999/").status_code == 404


def test_the_page_of_a_batch_asks_as_often_for_ten_servers_as_for_two(page, operator, fleet):
    counted = []
    for count in (0, 30):
        Server.objects.bulk_create(
            Server(name=f"more-{count}-{n}", rack=f"B{n}", last_seen_at=timezone.now()) for n in range(count)
        )
        batch = begin(operator, canary=0, size=50)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert page.get(f"/batches/{batch.pk}/").status_code == 200
        counted.append(len(queries))
    assert counted[0] == counted[1]


def test_buttons_pause_go_on_stop_and_retry(page, operator, fleet):
    batch = begin(operator)
    page.post(f"/batches/{batch.pk}/pause")
    assert Batch.objects.get().state == "paused"
    again = page.post(f"/batches/{batch.pk}/pause", follow=True)
    assert "is Paused" in text(again)
    page.post(f"/batches/{batch.pk}/resume")
    assert "not begun 3" in text(page.get(f"/batches/{batch.pk}/stop"))
    page.post(f"/batches/{batch.pk}/stop", {"cancel_running": "1"})
    assert set(batch.jobs.values_list("state", flat=True)) == {"cancelled"}
    page.post(f"/batches/{batch.pk}/retry")
    assert Batch.objects.get().state == "running" and batch.jobs.filter(state="queued").exists()


def test_a_waiting_job_is_explained_on_its_page_and_in_the_list(page, operator, server):
    first, second = (jobs.queue_job(server, "hold_locks", {"locks": ["npu:1"]}, by=operator) for _ in range(2))
    listed = text(page.get("/jobs/"))
    assert f'<a href="/jobs/{first.pk}/">waits for job #{first.pk} (Hold) · place 1</a>' in listed
    shown = text(page.get(f"/jobs/{second.pk}/"))
    assert f"Waits for job #{first.pk} (Hold)" in shown and "It holds npu:1." in shown
    preview = page.get(
        "/jobs/new", {"server": "kp-01", "kind": "hold_locks", "p-locks": "npu:1"}, headers={"X-Part": "1"}
    )
    assert f"waits for job #{first.pk} (Hold) · place 2" in text(preview)
    given = {"full": "1", "server": "kp-01", "kind": "hold_locks", "p-locks": "npu:1", "p-program": "pass"}
    assert "holds npu:1 on kp-01" in text(page.post("/jobs/new", given))
    assert page.post("/jobs/new", {**given, "wait": "1"}).status_code == 302
    assert Job.objects.filter(waiting=True).count() == 2


def test_a_servers_queue_and_maintenance_are_switched_on_its_page(page, operator, server):
    assert "Pause the queue of kp-01?" in text(page.get("/servers/kp-01/queue/pause"))
    page.post("/servers/kp-01/queue/pause", {"reason": "<b>Fan</b>"})
    jobs.queue_job(server, "check", {}, by=operator)
    shown = text(page.get("/servers/kp-01/"))
    assert "The queue is paused." in shown and "&lt;b&gt;Fan&lt;/b&gt;" in shown and "1 job waits." in shown
    page.post("/servers/kp-01/queue/resume")
    page.post("/servers/kp-01/maintenance", {"on": "1"})
    assert "only checks start here" in text(page.get("/servers/kp-01/"))
    page.post("/servers/kp-01/maintenance")
    row = Server.objects.get()
    assert (row.queue_paused, row.maintenance) == (False, False)
    assert Job.objects.get().waiting is False
    assert page.post("/servers/kp-404/maintenance").status_code == 404


def test_a_paused_wait_says_why_and_by_whom(page, operator, server):
    servers.pause_queue(server, by=operator, reason="Fan")
    job = jobs.queue_job(server, "check", {}, by=operator)
    shown = text(page.get(f"/jobs/{job.pk}/"))
    assert "The queue of kp-01 is paused" in shown and "Fan · olga" in shown
    assert Job.objects.get().state == JobState.QUEUED
