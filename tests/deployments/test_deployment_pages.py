"""Pages of deployments: the list, one deployment, the log of a replica."""

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.utils import timezone

from deployments.models import Attempt, Deployment, Gateway, Job, JobState, Replica, Server
from deployments.services import deployment_json, deployment_list, deployment_page, deployment_words
from tests.deployments import deployment_rows
from tests.deployments.model_rows import artifact, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def whole():
    return deployment_rows.whole()


@pytest.fixture
def olga(django_user_model):
    return signed_in(django_user_model.objects.create_user("olga", password="x", role="operator"))


@pytest.fixture
def victor(django_user_model):
    return signed_in(django_user_model.objects.create_user("victor", password="x", role="viewer"))


def signed_in(user):
    client = Client(headers={"accept-language": "en"})
    client.force_login(user)
    return client


def text_of(answer, status=200):
    assert answer.status_code == status
    return " ".join(answer.content.decode().split())


def test_the_list_shows_every_deployment_with_its_replicas_and_load(olga, whole):
    page = text_of(olga.get("/deployments/"))
    assert all(name in page for name in ("qwen3-32b", "glm-4-9b", "deepseek-v3", "idle", "first"))
    assert "3/5" in page and "5,716" in page  # 3 × 1742 + 490
    assert "http://10.1.2.3:18001/v1" in page


def test_a_list_of_500_takes_as_many_queries_as_one_of_5(olga, whole, django_assert_max_num_queries):
    with django_assert_max_num_queries(14) as few:
        olga.get("/deployments/")
    on, model = deployment_rows.server("kp-09"), artifact("M")
    made = [deployment_rows.deployment(f"d{n:03}", model) for n in range(60)]
    for one in made[:50]:
        deployment_rows.replica(one, 1, on, npus=())
    Deployment.objects.bulk_create(Deployment(name=f"x{n:03}", revision=made[0].revision) for n in range(440))
    with django_assert_max_num_queries(len(few)):
        assert "page 1 of 11" in text_of(olga.get("/deployments/")).lower()


STATES = {
    "qwen3-32b": "rolling_out", "glm-4-9b": "failed", "deepseek-v3": "degraded", "idle": "stopped", "first": "starting",
}  # fmt: skip


@pytest.mark.parametrize("state", deployment_list.STATES)
def test_the_filter_of_a_state_finds_those_that_are_in_it(whole, state):
    on = deployment_rows.server("kp-08")
    deployment_rows.replica(deployment_rows.deployment("fine", artifact("A")), 1, on, npus=(0,))
    deployment_rows.replica(deployment_rows.deployment("half", artifact("B"), replicas=2), 1, on, npus=(1,))
    deployment_rows.replica(deployment_rows.deployment("going", artifact("C"), stopped=True), 1, on, "draining", (2,))
    deployment_rows.deployment("held", artifact("D"), paused=True)
    _growing(on)
    asked = deployment_list.read_filters({"state": state})
    found = {line.deployment.name for line in deployment_list.page(asked).lines}
    every = deployment_list.page(deployment_list.Filters()).lines
    wanted = {line.deployment.name for line in every if line.state == state}
    wanted = {line.deployment.name for line in every if line.deployment.paused} if state == "paused" else wanted
    assert found == wanted and found


def _growing(on):
    """Deployments of which one replica serves and the other does not yet, by what the other does."""
    now, model = deployment_rows._later(0), artifact("E")
    others = {
        "grows": ("loading", {}), "anew": ("loading", {"ready_at": now}), "fell": ("failed", {"ended_at": now}),
        "ill": ("degraded", {}),
    }  # fmt: skip
    for name, (state, more) in others.items():
        made = deployment_rows.deployment(name, model, replicas=2 + (name == "ill"))
        deployment_rows.replica(made, 1, on, npus=())
        deployment_rows.replica(made, 2, on, state, (), **more)
    full = deployment_rows.deployment("full", model, replicas=2, reason=["没有空闲 NPU", "No server has room."])
    deployment_rows.replica(full, 1, on, npus=())


def test_what_starts_beside_replicas_that_serve_is_no_degradation(olga):
    _growing(deployment_rows.server("kp-08"))
    every = {line.deployment.name: line.state for line in deployment_list.page(deployment_list.Filters()).lines}
    assert every == {"grows": "scaling", "anew": "degraded", "fell": "degraded", "ill": "degraded", "full": "degraded"}
    page = text_of(olga.get("/deployments/grows/"))
    assert "Scaling up" in page and "1 of 2 replicas serve." in page and "Degraded" not in page


def test_the_states_of_the_list_are_those_of_rest(whole):
    every = {line.deployment.name: line.state for line in deployment_list.page(deployment_list.Filters()).lines}
    assert every == STATES
    assert every == {one["name"]: one["state"] for one in deployment_json.of_many(deployment_json.rows())}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"label": "team=legal"}, {"qwen3-32b"}), ({"label": "prod"}, {"qwen3-32b"}), ({"label": "team=x"}, set()),
        ({"model": "glm"}, {"glm-4-9b"}), ({"q": "contract desk"}, {"qwen3-32b"}), ({"owner": "nobody"}, set()),
        ({"server": "kp-01"}, {"qwen3-32b"}), ({"fleet": "simulated"}, set()), ({"state": "nonsense"}, set(STATES)),
        ({"page": "99999999"}, set(STATES)), ({"label": "a__b=\0"}, set()),
    ],
)  # fmt: skip
def test_filters(whole, asked, found):
    lines = deployment_list.page(deployment_list.read_filters(asked)).lines
    assert {line.deployment.name for line in lines} == found


def test_an_empty_list_leads_to_the_wizard_or_to_the_sample_model(olga, victor):
    page = text_of(olga.get("/deployments/"))
    assert "/deployments/new" in page and "kind=sample_model" in page
    assert "An operator can make one." in text_of(victor.get("/deployments/"))
    model = artifact("Tiny")
    place(model, deployment_rows.server("kp-01", 0))
    assert f"/deployments/new?artifact={model.pk}" in text_of(olga.get("/deployments/"))


# ---------- one deployment ----------


def test_a_page_takes_as_many_queries_with_30_replicas_as_with_5(olga, whole, django_assert_max_num_queries):
    with django_assert_max_num_queries(30) as few:
        page = text_of(olga.get("/deployments/qwen3-32b/"))
    assert "loading weights" in page and "12/37" in page
    big, on = Deployment.objects.get(name="qwen3-32b"), deployment_rows.server("kp-07")
    for n in range(6, 31):
        deployment_rows.replica(big, n, on, npus=())
    with django_assert_max_num_queries(len(few)):
        assert "#30" in text_of(olga.get("/deployments/qwen3-32b/"))


def test_squares_show_whose_each_npu_is(whole):
    page = deployment_page.of(Deployment.objects.get(name="qwen3-32b"))
    (spot,) = page.lines[0].spots
    assert [square.css for square in spot.squares] == ["held"] * 4 + ["other"] * 4
    assert spot.npus == ["0", "1", "2", "3"]
    (spot,) = page.lines[4].spots
    assert [square.css for square in spot.squares] == ["free", "free", "other", "free"] + ["held"] * 4


def test_numbers_that_are_old_are_grey_and_say_their_age_and_missing_ones_are_a_dash(whole):
    page = deployment_page.of(Deployment.objects.get(name="deepseek-v3"))
    assert page.figures.running == 11 and page.figures.overdue_since < timezone.now() - timedelta(seconds=90)
    loading = deployment_page.of(Deployment.objects.get(name="qwen3-32b")).lines[4]
    assert loading.figures.running is None and loading.pct == 32


def test_without_redis_the_page_stands_without_numbers(olga, whole, monkeypatch):
    import redis

    from deployments.services import engine_figures

    def away():
        raise redis.ConnectionError

    monkeypatch.setattr(engine_figures, "client", away)
    assert deployment_page.of(Deployment.objects.get(name="qwen3-32b")).figures.running is None


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("qwen3-32b", "Replicas change to r3: 3 of 5 done."), ("glm-4-9b", "It is not served: no replica runs."),
        ("deepseek-v3", "1 replica does not answer as it should."), ("first", "1 replica waits for a place."),
        ("idle", "It is stopped: nothing runs, and nothing is held."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_it_is_doing(olga, whole, name, what):
    assert what in text_of(olga.get(f"/deployments/{name}/"))


def test_all_well_says_nothing():
    of = deployment_rows.deployment()
    deployment_rows.replica(of, 1, deployment_rows.server("kp-01"))
    assert deployment_words.of(deployment_page.of(of)) is None


def test_findings_stand_with_their_line_and_what_helps(olga, whole):
    page = text_of(olga.get("/deployments/glm-4-9b/"))
    assert "/deployments/glm-4-9b/replicas/1/log#L3" in page
    assert "Set the context to 16,384." in page and "Try again" in page
    assert page.count("The KV cache does not hold the longest context.") == 2  # head and finding, not as a reason too


def test_text_from_a_server_is_escaped(olga):
    of = deployment_rows.deployment()
    hostile = "<script>alert(1)</script>"
    deployment_rows.replica(of, 1, deployment_rows.server("kp-01"), "failed", reason=[hostile, hostile],
                            findings=[{"cause": [hostile, hostile], "text": hostile, "remedies": "x"}, 7])  # fmt: skip
    page = text_of(olga.get("/deployments/qwen3-32b/"))
    assert hostile not in page and "&lt;script&gt;" in page


def test_a_viewer_sees_no_buttons_and_may_not_change(victor, whole):
    page = text_of(victor.get("/deployments/qwen3-32b/"))
    assert "/deployments/qwen3-32b/stop" not in page and "/back" not in page
    for path in ("stop", "scale", "restart", "delete", "edit", "schedule", "change", "revisions/1/back"):
        assert victor.get(f"/deployments/qwen3-32b/{path}").status_code == 403
    assert victor.post("/deployments/qwen3-32b/pause").status_code == 403


@pytest.mark.parametrize(
    "path", ["/deployments/none/", "/deployments/qwen3-32b/replicas/99/log", "/deployments/none/stop"]
)
def test_what_is_not_there_is_said_in_words(olga, whole, path):
    assert "There is no deployment" in (page := text_of(olga.get(path), 404)) or "has no replica 99" in page


def test_it_is_called_by_its_gateway_where_there_is_one(olga, whole):
    from deployments.models import Gateway, Server

    big = Deployment.objects.get(name="qwen3-32b")
    Gateway.objects.create(deployment=big, server=Server.objects.first(), address="gw", port=18200, state="ready")
    page = text_of(olga.get("/deployments/qwen3-32b/"))
    assert "curl http://gw:18200/v1/chat/completions" in page
    assert big.api_key not in page


def test_a_row_holds_few_buttons_whatever_can_be_done(olga, whole):
    big = Deployment.objects.get(name="qwen3-32b")
    Gateway.objects.create(deployment=big, server=Server.objects.first(), address="gw", port=18200, state="ready")
    Deployment.objects.filter(pk=big.pk).update(paused=True)
    head = olga.get("/deployments/qwen3-32b/").text.partition('<div class="buttons">')[2].partition("</details>")[0]
    row, _more, menu = head.partition('<div class="menu-body">')
    assert row.count('class="button') == 7 and "Resume" in row
    assert "/gateways/qwen3-32b/" in menu and "Restart" in menu


# ---------- the log ----------


def test_lines_of_a_replica_are_read_by_the_viewer_of_job_logs(olga, whole):
    fifth = Replica.objects.get(deployment__name="qwen3-32b", n=5)
    assert f'"piece": "e{fifth.pk}-1"' in text_of(olga.get("/deployments/qwen3-32b/replicas/5/log"))
    found = olga.get("/deployments/qwen3-32b/replicas/5/lines?after=1").json()
    assert (found["attempt"], found["first"], found["n"], found["total"]) == (f"e{fifth.pk}-1", 2, 3, 4)
    assert olga.get("/deployments/qwen3-32b/replicas/5/lines?n=1").json()["text"].endswith("slow disk")
    assert olga.get("/deployments/qwen3-32b/replicas/5/lines?after=x").status_code == 422
    assert olga.get("/deployments/qwen3-32b/replicas/5/lines?attempt=e0-9").status_code == 404


def test_another_start_is_another_piece(olga, whole):
    fifth = Replica.objects.get(deployment__name="qwen3-32b", n=5)
    deployment_rows.log(fifth, 2, [("o", "once more")])
    page = text_of(olga.get(f"/deployments/qwen3-32b/replicas/5/log?piece=e{fifth.pk}-1"))
    assert f"?piece=e{fifth.pk}-2" in page and '"newest": false' in page
    assert "once more" in olga.get("/deployments/qwen3-32b/replicas/5/lines").json()["text"]


def sent(answer):
    async def parts():
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(parts)()


def test_a_piece_is_given_whole_as_text(olga, whole):
    answer = olga.get("/deployments/glm-4-9b/replicas/1/raw?download=1")
    text = sent(answer).decode()
    assert "No available memory for the cache blocks." in text and text.count("\n") == 3
    assert 'filename="glm-4-9b-replica-1-start-1.log"' in answer["Content-Disposition"]


def test_a_replica_without_a_log_has_its_page(olga, whole):
    assert '"piece": null' in text_of(olga.get("/deployments/deepseek-v3/replicas/1/log"))
    assert olga.get("/deployments/deepseek-v3/replicas/1/raw").content == b""


def test_the_search_finds_deployments(olga, whole):
    found = olga.get("/palette.json?q=qwen3-32").json()
    assert "/deployments/qwen3-32b/" in str(found)


def test_the_page_of_a_server_shows_the_replicas_that_hold_something_of_it(olga, whole):
    page = text_of(olga.get("/servers/kp-02/"))
    assert "Replicas on this server" in page and "/deployments/qwen3-32b/replicas/3/log" in page
    assert "/deployments/qwen3-32b/replicas/1/log" not in page


def test_the_page_of_a_model_shows_what_serves_it(olga, whole):
    model = Deployment.objects.get(name="qwen3-32b").revision.artifact
    assert "Deployments that serve it" in text_of(olga.get(f"/models/{model.pk}/"))


def test_the_page_of_a_job_leads_to_its_deployment_and_replica(olga, whole):
    row = Replica.objects.filter(deployment__name="qwen3-32b").first()
    params = {"replica": row.pk, "deployment": "qwen3-32b"}
    more = {"state": JobState.FAILED, "not_after": timezone.now()}
    job = Job.objects.create(server=row.server, kind="serve", params=params, **more)
    Attempt.objects.create(job=job, n=1)
    page = text_of(olga.get(f"/jobs/{job.pk}/"))
    assert 'Deployment: <a href="/deployments/qwen3-32b/">' in page and f"Log and diagnosis of replica {row.n}" in page


def test_who_waits_for_a_start_is_told_how_long_the_last_one_took(olga, whole):
    found = Deployment.objects.get(name="first")
    there = deployment_rows.replica(found, 1, deployment_rows.server("kp-09"), "loading", (0,))
    before = deployment_rows.replica(found, 2, deployment_rows.server("kp-10"), "stopped", (0,))
    began = timezone.now() - timedelta(minutes=5)
    job = Job.objects.create(server=there.server, kind="serve", not_after=began, created_at=began)
    Replica.objects.filter(pk=before.pk).update(serve_job=job, ready_at=began + timedelta(seconds=72))
    words = text_of(olga.get("/deployments/first/"))
    assert "This step began" in words and "The last start took 1 min 12 s." in words
