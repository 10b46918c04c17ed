"""The page of a clean-up and its REST: what a look has found, what may be ticked, the question, the job."""

import json
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.utils import timezone

from console.models import ApiToken, User
from deployments.models import Attempt, Job, JobState, Server

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
PAGE = "/servers/kp-01/cleanup"
PLOG, OLD = "plog:/root/ascend/log/debug/plog", "stacks:/opt/ascend-console/stacks/old"
SEEN = 1_790_000_000


@pytest.fixture
def server(db):
    return Server.objects.create(name="kp-01", last_seen_at=timezone.now())


@pytest.fixture
def as_operator(client):
    client.force_login(User.objects.create_user("olga", role="operator"))
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


def item(target, found="1.2 GiB (1288490188 B), 34", used="2026-09-21T10:00:00Z", why=None, **more):
    category, _colon, path = target.partition(":")
    job = None if why else {"kind": "cleanup", "params": {"targets": [target], "seen": SEEN}}
    return {
        "key": f"{category}.0123456789ab", "title": [path, path], "verdict": "unknown" if why else "ok",
        "found": found, "wanted": used, "remedy": why, "job": job, "line": 1, **more,
    }  # fmt: skip


def looked(server, *items, state=JobState.SUCCEEDED):
    now = timezone.now()
    job = Job.objects.create(
        server=server, kind="cleanup_look", state=state, not_after=now + timedelta(days=1), ended_at=now
    )
    Attempt.objects.create(pk=f"a{job.pk}-1-00000001", job=job, n=1, state=state, report=list(items))
    return job


def text(answer, status=200):
    assert answer.status_code == status, answer.content
    return answer.content.decode()


# ---------- the list ----------


def test_before_any_look_the_page_offers_one(as_operator, server):
    assert "Nobody has looked yet" in text(as_operator.get(PAGE))
    assert as_operator.post(PAGE, {"do": "look"}).url == PAGE
    job = Job.objects.get()
    assert (job.kind, job.params, job.locks) == ("cleanup_look", {}, [])
    page = text(as_operator.get(PAGE))
    assert f'data-job="{job.pk}"' in page


def test_what_the_look_found_is_listed_by_category_largest_first(as_operator, server):
    looked(server, item(PLOG, "12.0 KiB (12288 B), 3"), item(OLD), item("plog:/x/plog", "≥ 2.0 GiB (2147483648 B), 9"))
    page = text(as_operator.get(PAGE))
    places = [page.index(words) for words in ("Logs of CANN (plog)", "/x/plog", PLOG[5:], "Old environments", OLD[7:])]
    assert places == sorted(places)
    assert "≥ 2.0 GiB" in page and "1.2 GiB" in page and page.count('name="target"') == 3


def test_what_stays_has_no_box_and_says_why(as_operator, server):
    looked(server, item(PLOG, why=["使用中：pid 7。", "It is in use: pid 7."]), item(OLD))
    page = text(as_operator.get(PAGE))
    assert "It is in use: pid 7." in page and page.count('name="target"') == 1


def test_a_viewer_sees_the_list_and_changes_nothing(client, server):
    looked(server, item(OLD))
    client.force_login(User.objects.create_user("victor", role="viewer"))
    page = text(client.get(PAGE))
    assert OLD[7:] in page and 'name="target"' not in page
    assert client.post(PAGE, {"do": "look"}).status_code == 403
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"found": None, "wanted": None, "job": None, "remedy": None},
        {"found": "(9" + "9" * 40 + " B)", "wanted": "yesterday"},
        {"job": {"kind": "reboot", "params": {"targets": [OLD]}}},
        {"job": {"kind": "cleanup", "params": {"targets": [OLD, PLOG]}}},
        {"job": {"kind": "cleanup", "params": {"targets": "all", "seen": "now"}}},
        {"job": {"kind": "cleanup", "params": {"targets": ["plog:/other-category"], "seen": -1}}},
    ],
)
def test_odd_items_of_a_server_are_shown_without_a_box(as_operator, server, odd):
    looked(server, {**item(OLD), **odd})
    page = text(as_operator.get(PAGE))
    assert OLD[7:] in page
    assert page.count('name="target"') == (1 if odd.get("found") else 0)


def test_hostile_words_are_escaped_and_unknown_categories_left_out(as_operator, server):
    looked(server, item("plog:/<script>alert(1)</script>"), item("secrets:/etc/shadow"))
    page = text(as_operator.get(PAGE))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "/etc/shadow" not in page


def test_a_clean_up_after_the_look_is_said(as_operator, server):
    looked(server, item(OLD))
    Job.objects.create(server=server, kind="cleanup", state=JobState.SUCCEEDED, not_after=timezone.now())
    assert "has cleaned up since" in text(as_operator.get(PAGE))


def test_a_script_gets_the_live_part_alone(as_operator, server):
    looked(server, item(OLD))
    assert "<html" not in text(as_operator.get(PAGE, headers={"X-Part": "1"}))
    assert OLD[7:] in as_operator.get(PAGE, headers={"Accept": "application/json"}).json()["html"]


def test_an_unknown_server_is_named(as_operator, server):
    assert "kp-77" in text(as_operator.get("/servers/kp-77/cleanup"), 404)


# ---------- the question and the job ----------


def test_what_was_ticked_is_named_before_and_goes_after(as_operator, server):
    look = looked(server, item(PLOG, "12.0 KiB (12288 B), 3"), item(OLD))
    ask = text(as_operator.post(PAGE, {"do": "ask", "look": look.pk, "target": [PLOG, OLD]}))
    assert "Delete 2 things (1.2 GiB) on kp-01?" in ask and PLOG[5:] in ask and OLD[7:] in ask
    assert Job.objects.filter(kind="cleanup").count() == 0
    answer = as_operator.post(PAGE, {"do": "clean", "look": look.pk, "target": [OLD], "ticket": "OPS-4"})
    job = Job.objects.get(kind="cleanup")
    assert answer.url == f"/jobs/{job.pk}/"
    assert (job.params, job.locks, job.ticket) == ({"targets": [OLD], "seen": SEEN}, ["stack"], "OPS-4")
    assert LogEntry.objects.filter(additional_data__verb="job.queued").count() == 1


@pytest.mark.parametrize(
    ("targets", "status", "words"),
    [
        ([], 422, "Nothing was ticked."),
        (["stacks:/opt/ascend-console/stacks/../../etc"], 422, "did not find"),
        ([OLD, "plog:/etc"], 422, "did not find"),
    ],
)
@pytest.mark.parametrize("do", ["ask", "clean"])
def test_what_was_not_found_is_refused_in_words(as_operator, server, targets, status, words, do):
    look = looked(server, item(OLD))
    answer = as_operator.post(PAGE, {"do": do, "look": look.pk, "target": targets})
    page = text(answer, status)
    assert words in page and 'role="alert"' in page
    assert Job.objects.count() == 1


def test_what_stays_cannot_be_ticked_by_hand(as_operator, server):
    look = looked(server, item(OLD, why=["a", "b"]))
    page = text(as_operator.post(PAGE, {"do": "clean", "look": look.pk, "target": OLD}), 422)
    assert 'role="alert"' in page
    assert list(Job.objects.values_list("kind", flat=True)) == ["cleanup_look"]


def test_a_look_that_is_not_the_newest_is_refused_and_ticks_stay(as_operator, server):
    old = looked(server, item(OLD))
    looked(server, item(OLD), item(PLOG))
    page = text(as_operator.post(PAGE, {"do": "clean", "look": old.pk, "target": OLD}), 409)
    assert "was looked at again meanwhile" in page
    assert page.count(" checked") == 1


def test_without_a_look_nothing_is_deleted(as_operator, server):
    page = text(as_operator.post(PAGE, {"do": "clean", "look": "x", "target": OLD}), 409)
    assert "Nobody has looked yet what can be cleaned up on kp-01." in page


def test_a_look_that_failed_is_none(as_operator, server):
    looked(server, item(OLD), state=JobState.FAILED)
    assert "Nobody has looked yet" in text(as_operator.get(PAGE))


def test_a_silent_server_is_not_looked_at(as_operator, server):
    Server.objects.update(last_seen_at=timezone.now() - timedelta(hours=1))
    assert "has been silent" in text(as_operator.post(PAGE, {"do": "look"}), 409)


# ---------- REST ----------


def test_rest_gives_the_list_and_queues_what_it_names(client, server):
    look = looked(server, item(PLOG, "12.0 KiB (12288 B), 3"), item(OLD, why=["在用", "in use"]))
    _row, token = ApiToken.make(User.objects.create_user("bot", role="operator"), "operator")
    headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
    told = client.get("/api/v1/servers/kp-01/cleanup", headers=headers).json()
    assert told["look"]["job"] == look.pk and told["look"]["seen"] == SEEN
    stays, goes = told["found"]
    assert (goes["target"], goes["bytes"], goes["files"]) == (PLOG, 12288, 3)
    assert (stays["target"], stays["why"]) == (None, "in use")
    body = {"kind": "cleanup", "server": "kp-01", "params": {"targets": [goes["target"]], "seen": told["look"]["seen"]}}
    answer = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=headers)
    assert answer.status_code == 201 and answer.json()["params"]["targets"] == [PLOG]


def test_rest_of_a_server_that_nobody_looked_at_is_empty(client, server):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")
    told = client.get("/api/v1/servers/kp-01/cleanup", headers={"Authorization": f"Bearer {token}"}).json()
    assert told == {"look": None, "found": []}
