"""Dialogs of a deployment: what is hit is named before it is done."""

# ruff: noqa: F811 — fixtures of the pages are arguments here

import pytest
from django.test import Client

from deployments.models import Deployment, Gateway, Server
from tests.deployments import deployment_rows
from tests.deployments.model_rows import place
from tests.deployments.test_deployment_pages import olga, text_of, whole  # noqa: F401

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


def test_stopping_names_each_replica_and_its_npus_and_then_stops(olga, whole):
    page = text_of(olga.get("/deployments/qwen3-32b/stop"))
    assert "5 replicas end:" in page and "41 requests run on them now." in page and "4, 5, 6, 7" in page
    assert olga.post("/deployments/qwen3-32b/stop").status_code == 302
    assert Deployment.objects.get(name="qwen3-32b").stopped
    assert "stopped already" in text_of(olga.post("/deployments/qwen3-32b/stop"), 409)


def test_restarting_the_only_one_says_how_long_nobody_serves(olga):
    of = deployment_rows.deployment()
    deployment_rows.replica(of, 1, deployment_rows.server("kp-01"))
    page = text_of(olga.get("/deployments/qwen3-32b/restart"))
    assert "1 replica restarts:" in page and "No service for about 3 min." in page
    assert olga.post("/deployments/qwen3-32b/restart").status_code == 302
    of.refresh_from_db()
    assert of.rollout["why"] == "restart"


def test_going_back_names_those_of_another_revision(olga):
    of = deployment_rows.deployment(revisions=2, replicas=2)
    place(of.revision.artifact, deployment_rows.server("kp-01"))
    first = of.revisions.get(n=1)
    deployment_rows.replica(of, 1, deployment_rows.server("kp-01"))
    deployment_rows.replica(of, 2, deployment_rows.server("kp-02"))
    page = text_of(olga.get("/deployments/qwen3-32b/revisions/1/back"))
    assert "2 replicas restart, in this order:" in page and "No service" not in page
    assert olga.post("/deployments/qwen3-32b/revisions/1/back").status_code == 302
    of.refresh_from_db()
    assert of.revision == first
    assert "has no revision 9" in text_of(olga.get("/deployments/qwen3-32b/revisions/9/back"))


def test_scaling_down_names_who_goes_before_it_is_done(olga):
    of = deployment_rows.deployment(replicas=2)
    for n in (1, 2):
        deployment_rows.replica(of, n, deployment_rows.server(f"kp-0{n}"))
    assert "Scale qwen3-32b to" not in text_of(olga.get("/deployments/qwen3-32b/scale"))
    page = text_of(olga.get("/deployments/qwen3-32b/scale?replicas=1"))
    assert "1 replica ends:" in page and "kp-02" in page and "Scale qwen3-32b to 1" in page
    assert olga.post("/deployments/qwen3-32b/scale", {"replicas": "1"}).status_code == 302
    of.refresh_from_db()
    assert of.replicas == 1


@pytest.mark.parametrize("typed", ["-1", "two", "1.5", "9" * 30, "", "٣"])
def test_a_bad_number_of_replicas_is_answered_in_words(olga, whole, typed):
    answer = olga.post("/deployments/qwen3-32b/scale", {"replicas": typed})
    assert "must be a whole number from 0." in text_of(answer, answer.status_code) and answer.status_code < 500


def test_scaling_up_without_room_says_why(olga, whole):
    assert "find no room now and wait for it. kp-0" in text_of(olga.get("/deployments/qwen3-32b/scale?replicas=9"))


def test_deleting_needs_the_name_and_nothing_that_runs(olga, whole):
    assert "Stop qwen3-32b first" in text_of(olga.get("/deployments/qwen3-32b/delete"))
    assert "The name does not match." in text_of(olga.post("/deployments/idle/delete", {"confirm": "idel"}), 422)
    server = Server.objects.get_or_create(name="kp-77")[0]
    gateway = Gateway.objects.create(deployment=Deployment.objects.get(name="idle"), server=server)
    assert "Remove the gateway first" in text_of(olga.get("/deployments/idle/delete"))
    Gateway.objects.filter(pk=gateway.pk).update(enabled=False)
    assert olga.post("/deployments/idle/delete", {"confirm": "idle"}).url == "/deployments/"
    assert not Deployment.objects.present().filter(name="idle").exists()


def test_pausing_and_resuming(olga, whole):
    olga.post("/deployments/idle/pause")
    assert "It is paused." in text_of(olga.get("/deployments/idle/"))
    olga.post("/deployments/idle/resume")
    assert not Deployment.objects.get(name="idle").paused


def test_a_schedule_is_kept_as_it_was_typed_and_a_wrong_line_is_named(olga, whole):
    sent = {"at-0": "08:00", "replicas-0": "4", "days-0": ["0", "1"], "at-1": "20:00", "replicas-1": "1"}
    assert olga.post("/deployments/idle/schedule", sent).status_code == 302
    kept = Deployment.objects.get(name="idle").schedule
    every = {"at": "20:00", "days": list(range(7)), "replicas": 1}
    assert kept == [{"at": "08:00", "days": [0, 1], "replicas": 4}, every]
    page = text_of(olga.get("/deployments/idle/"))
    assert "every day" in page and "Mon, Tue" in page
    wrong = text_of(olga.post("/deployments/idle/schedule", {**sent, "at-1": "25:00"}), 422)
    assert "Entry 2 of the schedule is wrong." in wrong and 'value="25:00"' in wrong
    assert olga.post("/deployments/idle/schedule", {}).status_code == 302
    assert Deployment.objects.get(name="idle").schedule == []


def test_what_people_write_about_it_is_kept_whole_or_not_at_all(olga, whole):
    sent = {"title": "Desk", "notes": "a\nb", "labels": "team=x, prod", "owner": "olga", "drain": "2,5"}
    assert olga.post("/deployments/idle/edit", sent).status_code == 302
    row = Deployment.objects.get(name="idle")
    assert (row.title, row.labels, row.owner.username, row.drain_s) == ("Desk", {"team": "x", "prod": ""}, "olga", 150)
    for wrong in ({"labels": "a b=c"}, {"owner": "nobody"}, {"drain": "soon"}, {"drain": "nan"}, {"title": "x" * 101}):
        answer = olga.post("/deployments/idle/edit", {**sent, "title": "Other", **wrong})
        assert answer.status_code == 422
    assert Deployment.objects.get(name="idle").title == "Desk"


def test_labels_and_owner_are_changed_by_rest_too(django_user_model, whole):
    from console.models import ApiToken

    olga = django_user_model.objects.create_user("olga", password="x", role="operator")
    rest = Client(headers={"authorization": f"Bearer {ApiToken.make(olga, 'operator')[1]}", "accept-language": "en"})

    def send(**body):
        return rest.patch("/api/v1/deployments/idle", body, content_type="application/json")

    found = send(labels={"team": "x"}, owner="olga").json()
    assert (found["labels"], found["owner"]) == ({"team": "x"}, "olga")
    assert send(labels={"a b": ""}).status_code == 422 and send(owner="nobody").status_code == 422
    assert send(owner="").json()["owner"] is None
    assert Deployment.objects.get(name="idle").labels == {"team": "x"}
