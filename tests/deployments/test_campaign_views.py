"""Pages and REST of campaigns, as each role; the plan of a fleet of a thousand, and how often the board asks."""

import json
import re
import time
from types import SimpleNamespace

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from console.errors import NotFound
from console.models import ApiToken, User
from deployments import topics
from deployments.models import Attempt, Batch, Campaign, Job, Server
from deployments.services import batches, campaigns, selection, stacks
from deployments.services.campaign_rings import Order
from deployments.views import campaign_pages
from tests.deployments.campaign_bench import (
    STACK,
    THERE,
    ask_for,
    cpu_facts,
    install,
    make_servers,
    state,
    told,
    under_way,
)  # fmt: skip
from tests.deployments.stack_facts import PACKAGES_0_18, facts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture(autouse=True)
def in_english():
    with translation.override("en"):
        yield


@pytest.fixture
def second():
    return User.objects.create_user("wang", role="operator")


@pytest.fixture
def page(client):
    def sign_in(user):
        client.force_login(user)
        client.cookies["django_language"] = "en"
        return client

    return sign_in


def text(response):
    return response.content.decode()


def seen(response):
    return re.search(r'name="seen" value="(\w*)"', text(response))[1]


def form(**more):
    return {"full": "1", "stack": STACK, "fleet": "real", "size": "2", "soak_min": "0", "spread": "1", **more}


# ---------- the form ----------


def test_bundles_of_the_stack_are_suggested(page, operator, monkeypatch):
    make_servers(1)
    kept = [SimpleNamespace(name="mine-aarch64", stack=STACK), SimpleNamespace(name="other-x86", stack="another")]
    monkeypatch.setattr(campaign_pages.wheel_bundles, "present", lambda: kept)
    shown = text(page(operator).get("/campaigns/new", form()))
    assert '<option value="mine-aarch64">' in shown and "other-x86" not in shown


def test_the_form_shows_what_it_does_and_asks_for_exactly_that(page, operator):
    make_servers(3)
    make_servers(1, "old-", facts=cpu_facts(arch="riscv64"))
    browser = page(operator)
    shown = browser.get("/campaigns/new", form())
    assert "It will run on 3 servers" in text(shown) and "riscv64" in text(shown) and "1 is left out" in text(shown)
    assert '<option value="">by hand, when it suits</option>' in text(shown)
    assert '<option value="window">by itself, within a span of time</option>' in text(shown)
    assert "its wheel, without its torch" in text(shown) and "manage.py bundle list" in text(shown)
    late = browser.post("/campaigns/new", form(seen="other"))
    assert late.status_code == 409 and not Campaign.objects.exists()
    told(Server.objects.get(name="kp-000"), **THERE)
    late = browser.post("/campaigns/new", form(seen=seen(shown)))
    assert late.status_code == 409 and "another one than was shown" in text(late)
    done = browser.post("/campaigns/new", form(seen=seen(late), why="0.32 is out", ticket="OPS-9"))
    campaign = Campaign.objects.get()
    assert done.url == f"/campaigns/{campaign.pk}/" and campaign.why == "0.32 is out" and campaign.ticket == "OPS-9"
    told_of = LogEntry.objects.filter(additional_data__verb="campaign.asked")
    assert told_of.get().additional_data["digest"] == campaign.digest


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stack": ""}, "Choose a stack"), ({"stack": "none"}, "There is no stack"),
        ({"size": "many"}, "is not a whole number"), ({"soak_min": "99999"}, "soak_min is 99999"),
        ({"by": "label"}, "need the name of a label"), ({"names": "kp-404"}, "No server is called: kp-404"),
        ({"find": "nowhere"}, "No server matches"), ({"route": "x"}, "route"), ({"fleet": "moon"}, "is no fleet"),
    ],
)  # fmt: skip
def test_a_wrong_form_is_answered_in_words(page, operator, fields, words):
    make_servers(2)
    browser = page(operator)
    given = form(**fields)
    assert words in text(browser.get("/campaigns/new", given, headers={"X-Part": "1"}))
    answer = browser.post("/campaigns/new", {**given, "seen": ""})
    assert answer.status_code in (404, 409, 422) and not Campaign.objects.exists()


def test_drift_and_stack_pages_lead_to_the_form(page, operator):
    made = make_servers(3)
    stacks.wish([made[0].name, made[1].name], STACK, by=operator)
    told(made[1], **THERE)
    browser = page(operator)
    assert f"/campaigns/new?stack={STACK}&amp;drifted=1" in text(browser.get("/stacks/"))
    assert f"/campaigns/new?stack={STACK}" in text(browser.get(f"/stacks/{STACK}/"))
    shown = text(browser.get(f"/campaigns/new?stack={STACK}&drifted=1"))
    assert "It will run on 1 server<" in shown and ">kp-000</textarea>" in shown


# ---------- roles ----------


def test_a_viewer_looks_and_changes_nothing(page, operator, viewer, second):
    make_servers(2)
    campaign = ask_for(operator)
    browser = page(viewer)
    assert browser.get("/campaigns/").status_code == 200
    assert "Operators decide about it." in text(browser.get(f"/campaigns/{campaign.pk}/"))
    for path in ("decide", "withdraw", "held", "pause", "resume", "retry", "stop"):
        assert browser.post(f"/campaigns/{campaign.pk}/{path}").status_code == 403, path
    for path in ("new", f"{campaign.pk}/stop"):
        assert browser.get(f"/campaigns/{path}").status_code == 403
    assert Campaign.objects.get().state == "waiting_approval"


def test_the_requester_has_no_button_to_approve_and_another_operator_has(page, operator, second):
    make_servers(2)
    campaign = ask_for(operator)
    own = text(page(operator).get(f"/campaigns/{campaign.pk}/"))
    assert 'id="campaign-approve"' not in own and 'id="campaign-withdraw"' in own
    refused = page(operator).post(f"/campaigns/{campaign.pk}/decide", {"decision": "approve", "seen": campaign.digest})
    assert "cannot approve it" in text(page(operator).get(refused.url))
    browser = page(second)
    shown = browser.get(f"/campaigns/{campaign.pk}/")
    assert 'id="campaign-approve"' in text(shown) and "kp-001" in text(shown) and "Server by server" in text(shown)
    given = {"decision": "approve", "seen": seen(shown), "note": "Looked at <b>all</b>"}
    browser.post(f"/campaigns/{campaign.pk}/decide", given)
    board = text(browser.get(f"/campaigns/{campaign.pk}/"))
    assert 'class="board"' in board and "Looked at &lt;b&gt;all&lt;/b&gt;" in board and Batch.objects.count() == 1


def test_the_board_shows_rings_versions_and_what_is_held_back(page, operator, second):
    made = make_servers(4)
    campaign = campaigns.approve(ask_for(operator), by=second, seen=Campaign.objects.get().digest)
    told(made[1], **THERE)
    install(*under_way(campaign))
    install(*under_way(campaign))
    browser = page(second)
    shown = text(browser.get(f"/campaigns/{campaign.pk}/"))
    assert shown.count('class="ring"') == 3 and "Held back: 1." in shown and "matches the stack" in shown
    assert re.search(r"<dt>stack</dt><dd>— .*?cpu-0.32.0</dd>", shown)
    only = text(browser.get(f"/campaigns/{campaign.pk}/?show=draft", headers={"X-Part": "1"}))
    assert only.count("server-card") == 1 and "<html" not in only
    browser.post(f"/campaigns/{campaign.pk}/held", {"decision": "approve", "seen": seen_held(shown)})
    assert [job.server.name for job in under_way(campaign)] == ["kp-001"]
    assert "html" in browser.get(f"/campaigns/{campaign.pk}/", headers={"Accept": "application/json"}).json()
    assert browser.get("/campaigns/9999/").status_code == 404
    assert browser.get("/campaigns/99999999999999999999/").status_code == 404


def test_a_card_counts_the_steps_that_run_and_not_those_that_are_satisfied(page, operator, second):
    make_servers(1)
    campaign = campaigns.approve(ask_for(operator), by=second, seen=Campaign.objects.get().digest)
    (job,) = under_way(campaign)
    titles = [step["title"][1] for step in campaign.plans.get().steps]
    first = job.attempts.get()
    again = Attempt.objects.create(pk=f"a{job.pk}-2-x", job=job, n=2, state="running")
    for attempt, begun in ((first, titles), (again, ["Satisfied", titles[0], "Satisfied too", titles[1]])):
        for n, title in enumerate(begun, start=1):
            attempt.steps.create(n=n, title_en=title)
    Job.objects.filter(pk=job.pk).update(state="running")
    assert f"1 of {len(titles)} steps" in text(page(second).get(f"/campaigns/{campaign.pk}/"))


def seen_held(shown):
    return re.search(r'/held">.*?name="seen" value="(\w+)"', shown, re.S)[1]


def test_the_choices_are_those_of_the_jobs_and_of_the_page_with_the_commands(page, operator, second):
    make_servers(1)
    address = "https://index.example/simple"
    campaign = ask_for(operator, params={"index": address})
    shown = text(page(second).get(f"/campaigns/{campaign.pk}/"))
    assert f"/stacks/{STACK}/plan/kp-000/?index=https%3A%2F%2Findex.example%2Fsimple" in shown and address in shown
    campaign = campaigns.approve(campaign, by=second, seen=campaign.digest)
    (job,) = under_way(campaign)
    assert address in job.params["plan"] and job.params["index"] == address


def test_the_choices_of_a_campaign_read_as_words(page, operator, second):
    make_servers(1)
    shown = text(page(operator).get("/campaigns/new"))
    assert '<option value="">whichever works here</option>' in shown and '<option value="container">' in shown
    campaign = ask_for(operator, params={"layering": "wheels", "restart": "now"})
    shown = text(page(second).get(f"/campaigns/{campaign.pk}/"))
    assert "<dt>How vLLM comes</dt> <dd>its wheel, without its torch</dd>" in shown
    assert "<dt>Restart</dt> <dd>by itself, at once</dd>" in shown and "layering</dt>" not in shown


def test_pause_go_on_and_stop_from_the_page(page, operator, second):
    make_servers(4)
    campaign = campaigns.approve(ask_for(operator), by=second, seen=Campaign.objects.get().digest)
    browser = page(operator)
    browser.post(f"/campaigns/{campaign.pk}/pause")
    assert state(campaign) == "paused"
    browser.post(f"/campaigns/{campaign.pk}/resume")
    assert state(campaign) == "running"
    assert "Stop the campaign for" in text(browser.get(f"/campaigns/{campaign.pk}/stop"))
    browser.post(f"/campaigns/{campaign.pk}/stop", {"cancel_running": "1"})
    assert state(campaign) == "stopped" and not Job.objects.exclude(state="cancelled").exists()
    shown = text(browser.get(f"/campaigns/{campaign.pk}/"))
    assert "stopped by olga" in shown and "Being watched" not in shown  # no ring is any more
    assert "Retry 4 servers" in shown


# ---------- REST ----------


@pytest.fixture
def rest(client):
    def call(user, method, path, body=None):
        _row, token = ApiToken.make(user, user.role)
        headers = {"Authorization": f"Bearer {token}", "Accept-Language": "en"}
        send = getattr(client, method)
        given = {} if method == "get" else {"data": json.dumps(body or {}), "content_type": "application/json"}
        answer = send(f"/api/v1{path}", headers=headers, **given)
        return answer.status_code, answer.json()

    return call


def test_rest_plans_asks_approves_pauses_and_stops(rest, operator, second, viewer):
    make_servers(3)
    body = {"stack": STACK, "select": {}, "rings": {"size": 2, "soak_min": 0}, "why": "new"}
    status, dry = rest(operator, "post", "/campaigns", {**body, "dry_run": True})
    assert status == 200 and dry["counts"]["runs"] == 3 and not Campaign.objects.exists()
    assert {one["does"] for one in dry["servers"]} == {"runs"} and len(dry["servers"][0]["steps"]) > 5
    assert rest(viewer, "post", "/campaigns", {**body, "dry_run": True})[0] == 403
    assert rest(operator, "post", "/campaigns", {**body, "seen": "x"})[1]["error"]["code"] == "plan_changed"
    assert rest(operator, "post", "/campaigns", {**body, "soak": 3})[0] == 422
    assert (
        rest(operator, "post", "/campaigns", {**body, "params": {"plan": "[]"}})[1]["error"]["code"] == "unknown_choice"
    )
    status, made = rest(operator, "post", "/campaigns", {**body, "seen": dry["digest"]})
    assert status == 201 and made["digest"] == dry["digest"] and made["state"] == "waiting_approval"
    path = f"/campaigns/{made['id']}"
    assert rest(operator, "post", f"{path}/pause")[1]["error"]["code"] == "not_begun"
    assert rest(operator, "post", f"{path}/approve", {"seen": made["digest"]})[1]["error"]["code"] == "same_person"
    assert rest(second, "post", f"{path}/approve", {"seen": "x"})[1]["error"]["code"] == "plan_changed"
    status, now = rest(second, "post", f"{path}/approve", {"seen": made["digest"], "note": "ok"})
    assert status == 202 and now["state"] == "running" and now["decided_by"] == "wang"
    assert rest(operator, "post", f"{path}/pause")[1]["state"] == "paused"
    assert rest(operator, "post", f"{path}/resume")[1]["state"] == "running"
    status, whole = rest(viewer, "get", path)
    assert status == 200 and [ring["ring"] for ring in whole["rings"]] == [0, 1]
    assert sorted(one["state"] for one in whole["servers"]) == ["draft", "draft", "queued"]
    assert whole["held_digest"] is None and whole["plans"][0]["does"] == "runs"
    assert rest(operator, "post", f"{path}/stop", {"cancel_running": True})[1]["state"] == "stopped"
    assert rest(viewer, "get", "/campaigns?stack=" + STACK)[1]["campaigns"][0]["id"] == made["id"]
    assert rest(viewer, "get", "/campaigns/4040")[1]["error"]["code"] == "no_such_campaign"


def test_rest_rejects_withdraws_and_decides_about_those_held_back(rest, operator, second):
    made = make_servers(2)
    first, other = ask_for(operator), ask_for(operator)
    assert rest(second, "post", f"/campaigns/{first.pk}/reject", {"note": ""})[1]["error"]["code"] == "no_note"
    assert rest(second, "post", f"/campaigns/{first.pk}/reject", {"note": "no"})[1]["state"] == "rejected"
    assert rest(operator, "post", f"/campaigns/{other.pk}/withdraw")[1]["state"] == "withdrawn"
    campaign = ask_for(operator)
    campaigns.approve(campaign, by=second, seen=campaign.digest)
    told(made[1], **THERE)
    install(*under_way(campaigns.find(campaign.pk)))
    path = f"/campaigns/{campaign.pk}"
    held = rest(operator, "get", path)[1]
    assert held["held_digest"] and [one["server"] for one in held["servers"] if one["held"]] == ["kp-001"]
    assert rest(operator, "post", f"{path}/held/approve", {"seen": held["held_digest"]})[0] == 403
    assert rest(second, "post", f"{path}/held/approve", {"seen": held["held_digest"]})[0] == 202
    assert rest(operator, "post", f"{path}/held/leave-out")[1]["error"]["code"] == "nothing_left"


def test_the_topic_of_a_campaign_is_there_for_who_may_look(operator, viewer):
    make_servers(2)
    number = ask_for(operator).pk
    topic = next(one for one in topics.TOPICS if re.fullmatch(one.pattern, f"campaign:{number}"))
    found = re.fullmatch(topic.pattern, f"campaign:{number}")
    assert topic.may(viewer, found) and topic.present(found).messages == ()
    with pytest.raises(NotFound):
        topic.present(re.fullmatch(topic.pattern, "campaign:4040"))


# ---------- many servers ----------

FAMILIES = {"A2": "910B3", "A3": "Ascend910", "310P": "310P3", "A5": "Ascend950PR", "A1": "910A", "310B": "310B1"}


def fleet(count, **fields):
    """Servers of every family, none like another: each has a kernel and an environment of its own."""
    now, families = timezone.now(), list(FAMILIES)
    return Server.objects.bulk_create(
        Server(
            name=f"big-{n:04}", rack=f"R{n // 20}", family=FAMILIES[families[n % 6]], last_seen_at=now,
            agent_version="", facts=facts(
                families[n % 6], kernel=f"6.6.0-{n}", driver="25.5.2", firmware="7.8.0.6.201", cann=("9.0.0",),
                packages=PACKAGES_0_18 if n % 2 else None, where=f"/data/{n}/venv/bin/python3.12",
            ), **fields,
        )
        for n in range(count)
    )  # fmt: skip


def test_a_thousand_servers_none_like_another_are_planned_in_five_seconds(page, operator, second):
    fleet(1000, simulated=True)
    asked = selection.Asked(fleet="simulated")
    began = time.process_time()
    table, _params = campaigns.planned("vllm-ascend-0.23.0", {}, asked, Order(size=50))
    took = time.process_time() - began
    assert len(table.lines) == 1000 and took < 5
    Server.objects.update(simulated=False)
    began = time.process_time()
    table, _params = campaigns.planned("vllm-ascend-0.23.0", {}, selection.Asked(), Order(size=50))
    took = time.process_time() - began
    assert took < 5 and table.counts()["cannot"] > 0
    campaign = ask_for(operator, stack="vllm-ascend-0.23.0", size=200, at_once=100)
    began = time.process_time()
    campaign = campaigns.approve(campaign, by=second, seen=campaign.digest)
    assert time.process_time() - began < 10 and campaign.batch.jobs.count() == table.hit
    assert page(second).get(f"/campaigns/{campaign.pk}/").status_code == 200


def test_board_and_list_ask_as_often_for_many_servers_as_for_few(page, operator, second):
    counted = []
    for count in (6, 120):
        Server.objects.all().delete()
        make_servers(count, racks=count)
        campaign = ask_for(operator, size=30)
        campaign = campaigns.approve(campaign, by=second, seen=campaign.digest)
        install(*under_way(campaign))
        browser = page(second)
        for path in (f"/campaigns/{campaign.pk}/", "/campaigns/"):
            with CaptureQueriesContext(connection) as queries:
                assert browser.get(path).status_code == 200
            counted.append(len(queries))
        batches.stop(campaign.batch, by=operator, cancel_running=True)
    print("queries", counted)
    assert counted[0] == counted[2] and counted[1] == counted[3]
