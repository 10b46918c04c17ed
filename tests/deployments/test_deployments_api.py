"""REST: what an operator may do to deployments, and what is refused in words."""

import json
import re

import pytest
from auditlog.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.models import ApiToken, User
from deployments.models import Artifact, Deployment, EngineLog, Job, Replica
from deployments.services import deployments, reconcile
from tests.deployments.deployments_bench import SETTINGS, Fleet
from tests.deployments.model_rows import artifact
from tests.job_fixtures import Spool

pytestmark = pytest.mark.django_db
NEW = {"name": "tiny", "settings": SETTINGS, "replicas": 2}
ODD_NAMES = ["", "new", "-a", "a-", "A", "a b", "a/b", "a" * 64, "模型", "a\n", "a_b"]


@pytest.fixture
def api(client):
    made = {}
    for role in ("viewer", "operator"):
        made[role] = ApiToken.make(User.objects.create_user(f"the-{role}", role=role), role)[1]

    def call(method, path, body=None, *, role="operator", status=None, **headers):
        answer = client.generic(
            method, f"/api/v1/deployments{path}", json.dumps(body) if body is not None else "",
            content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {made[role]}", HTTP_ACCEPT_LANGUAGE="en", **headers,
        )  # fmt: skip
        assert answer.status_code == (status or (200 if method == "GET" else 202)), answer.content
        return answer.json() if "json" in answer.headers["Content-Type"] else answer

    return call


@pytest.fixture
def fleet(monkeypatch, valkey, db):
    return Fleet(monkeypatch, valkey.client())


@pytest.fixture
def made(api, fleet):
    api("POST", "", {**NEW, "model": fleet.model.pk}, status=201)
    return fleet.settle(Deployment.objects.get())


def code(answer):
    return answer["error"]["code"]


def test_a_model_is_served_and_shown_with_its_replicas(api, fleet, made):
    shown = api("GET", "/tiny", role="viewer")
    assert (shown["state"], shown["wished"], shown["ready"], shown["revision"]["n"]) == ("ready", 2, 2, 1)
    first = shown["replica_set"][0]
    assert (first["n"], first["state"], first["port"], first["heard"]) == (1, "ready", 18000, False)
    assert shown["revision"]["settings"] == SETTINGS and shown["model"] == "tiny"
    assert "api_key" not in json.dumps(shown) and made.api_key not in json.dumps(shown)
    verbs = [row.additional_data["verb"] for row in LogEntry.objects.get_for_object(made)]
    assert "deployment.created" in verbs


def test_the_same_key_creates_once(api, fleet):
    body = {**NEW, "model": fleet.model.pk}
    first = api("POST", "", body, status=201, HTTP_IDEMPOTENCY_KEY="k1")
    assert api("POST", "", body, status=201, HTTP_IDEMPOTENCY_KEY="k1") == first and Deployment.objects.count() == 1
    assert code(api("POST", "", body, status=409)) == "name_taken"


def test_a_dry_run_creates_nothing(api, fleet):
    assert api("POST", "", {**NEW, "model": fleet.model.pk, "dry_run": True}, status=200)["would"] == "create"
    assert (
        code(api("POST", "", {**NEW, "name": "A", "model": fleet.model.pk, "dry_run": True}, status=422))
        == "invalid_name"
    )
    assert not Deployment.objects.exists()


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_refused(api, fleet, name):
    api("POST", "", {**NEW, "name": name, "model": fleet.model.pk}, status=422)
    assert not Deployment.objects.exists()


@pytest.mark.parametrize(
    ("change", "status", "refusal"),
    [
        ({"settings": {**SETTINGS, "max_model_len": 10**6}}, 422, "invalid_settings"),
        ({"settings": {**SETTINGS, "no_such": 1}}, 422, "invalid_settings"),
        ({"settings": {**SETTINGS, "device": "npu", "tensor_parallel_size": 3}}, 422, "invalid_settings"),
        ({"spread": "sideways"}, 422, "invalid_spread"),
        ({"servers": ["kp-1", "kp-99"]}, 422, "unknown_server"),
        ({"replicas": -1}, 422, "invalid"),
        ({"model": 999}, 404, "not_found"),
        ({"colour": "red"}, 422, "invalid"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_there(api, fleet, change, status, refusal):
    answer = api("POST", "", {**NEW, "model": fleet.model.pk, **change}, status=status)
    assert code(answer) in (refusal, "no_such_model") and answer["error"]["do"]
    assert not answer["error"]["what"].endswith(("..", "。。"))
    assert not Deployment.objects.exists() and not Job.objects.exists()


def test_a_quantized_model_that_was_not_proved_takes_a_reason(api, fleet):
    child = artifact("tiny-w8a8", parent=fleet.model, via="quantized")
    body = {**NEW, "model": child.pk}
    assert code(api("POST", "", body, status=409)) == "model_not_proved"
    api("POST", "", {**body, "unproved": "a trial for one day"}, status=201)
    assert Deployment.objects.get().revision.note == "a trial for one day"
    (entry,) = [row for row in LogEntry.objects.all() if row.additional_data.get("verb") == "deployment.created"]
    assert entry.additional_data["unproved"] == "a trial for one day"


def test_who_may_only_look_changes_nothing(api, fleet, made):
    attempts = [
        ("POST", "", {**NEW, "name": "b", "model": fleet.model.pk}), ("PATCH", "/tiny", {"replicas": 1}),
        ("PATCH", "/tiny", {"settings": {**SETTINGS, "seed": 1}}), ("POST", "/tiny/stop", None),
        ("POST", "/tiny/start", None), ("POST", "/tiny/pause", {"paused": True}), ("POST", "/tiny/restart", None),
        ("POST", "/tiny/rollback", {"revision": 1}), ("POST", "/tiny/rollout/pause", {"paused": True}),
        ("DELETE", "/tiny", {"confirm": "tiny"}), ("PATCH", "/tiny", {"schedule": []}),
        ("PATCH", "/tiny", {"drain_s": 1}), ("POST", "/tiny/replicas/1/stop-again", None),
    ]  # fmt: skip
    before = api("GET", "/tiny")
    for method, path, body in attempts:
        api(method, path, body, role="viewer", status=403)
    assert api("GET", "/tiny") == before


def test_settings_make_a_revision_and_replicas_scale(api, fleet, made):
    plan = api("PATCH", "/tiny", {"settings": {**SETTINGS, "max_model_len": 4096}, "dry_run": True}, status=200)
    assert [row["n"] for row in plan["restarts"]] == [1, 2] and plan["changes"][0]["after"] == "4096"
    shown = api("PATCH", "/tiny", {"settings": {**SETTINGS, "max_model_len": 4096}, "note": "longer"}, status=200)
    assert (shown["revision"]["n"], shown["rollout"]["why"], shown["rollout"]["of"]) == (2, "revision", 2)
    fleet.settle(made)
    assert api("PATCH", "/tiny", {"replicas": 1, "dry_run": True}, status=200)["stops"][0]["n"] == 4
    assert api("PATCH", "/tiny", {"replicas": 9, "dry_run": True}, status=200)["lacking"] == 6
    assert api("PATCH", "/tiny", {"replicas": 1}, status=200)["wished"] == 1
    history = api("GET", "/tiny/revisions")["revisions"]
    assert [(row["n"], row["present"], row["note"]) for row in history] == [(2, True, "longer"), (1, False, "")]
    assert [(row["field"], row["before"], row["after"]) for row in history[0]["changes"]] == [
        ("max_model_len", "0", "4096")
    ]


def test_rollback_goes_to_the_earlier_one(api, fleet, made):
    api("PATCH", "/tiny", {"settings": {**SETTINGS, "seed": 4}}, status=200)
    fleet.settle(made)
    plan = api("POST", "/tiny/rollback", {"revision": 1, "dry_run": True}, status=200)
    assert [row["n"] for row in plan["restarts"]] == [3, 4]
    assert api("POST", "/tiny/rollback", {"revision": 1})["revision"]["n"] == 1
    fleet.settle(made)
    assert code(api("POST", "/tiny/rollback", {"revision": 1}, status=409)) == "already_there"
    assert code(api("POST", "/tiny/rollback", {"revision": 7}, status=404)) == "no_such_revision"


def test_it_is_deleted_by_its_name_and_only_without_replicas(api, fleet, made):
    assert code(api("DELETE", "/tiny", {"confirm": "tiny"}, status=409)) == "replicas_there"
    api("POST", "/tiny/stop")
    fleet.settle(made)
    assert code(api("DELETE", "/tiny", {"confirm": "tine"}, status=422)) == "not_confirmed"
    api("DELETE", "/tiny", {"confirm": "tiny"}, status=200)
    assert code(api("GET", "/tiny", status=404)) == "no_such_deployment"
    assert Deployment.objects.get().deleted_at and reconcile.unsettled() == []
    api("POST", "", {**NEW, "model": fleet.model.pk}, status=201)


def test_switches_a_schedule_and_what_they_refuse(api, fleet, made):
    shown = api(
        "PATCH", "/tiny", {"drain_s": 30, "replace_lost": True, "servers": ["kp-1"], "spread": "pack"}, status=200
    )
    assert (shown["drain_s"], shown["replace_lost"], shown["servers"], shown["spread"]) == (30, True, ["kp-1"], "pack")
    point = {"at": "08:00", "days": [0], "replicas": 3}
    assert api("PATCH", "/tiny", {"schedule": [point]}, status=200)["next_change"]["replicas"] == 3
    for body in ({"drain_s": -1}, {"servers": ["nowhere"]}, {"spread": "x"}, {"schedule": [{"at": "x"}]},
                 {"title": "a" * 200}, {"replicas": 3, "settings": SETTINGS}):  # fmt: skip
        assert api("PATCH", "/tiny", body, status=422)["error"]["do"]


def test_what_does_not_fit_the_state_is_refused_in_words(api, fleet, made):
    for path, body, refusal in (
        ("/tiny/start", None, "not_stopped"), ("/tiny/pause", {"paused": False}, "not_paused"),
        ("/tiny/rollout/abort", None, "no_rollout"), ("/tiny/rollout/pause", {"paused": True}, "no_rollout"),
        ("/tiny/replicas/1/stop-again", None, "wrong_state"),
    ):  # fmt: skip
        assert code(api("POST", path, body, status=409)) == refusal
    assert code(api("POST", "/tiny/restart", {"replicas": [9]}, status=404)) == "no_such_replica"
    assert code(api("PATCH", "/tiny", {"settings": SETTINGS}, status=409)) == "unchanged"
    assert code(api("PATCH", "/tiny", {"replicas": 2}, status=409)) == "unchanged"
    api("POST", "/tiny/stop")
    assert code(api("POST", "/tiny/stop", status=409)) == "already_stopped"


def test_one_replica_is_restarted_by_its_number(api, fleet, made):
    assert api("POST", "/tiny/restart", {"replicas": [2], "dry_run": True}, status=200)["restarts"][0]["n"] == 2
    api("POST", "/tiny/restart", {"replicas": [2]})
    fleet.settle(made)
    assert (
        fleet.engines.queued[-1] == ("restart", 2) and [kind for kind, _n in fleet.engines.queued].count("restart") == 1
    )


def test_the_log_of_an_engine_is_read_on(api, fleet, made):
    from deployments import ingest

    row = made.replica_set.get(n=1)
    assert api("GET", "/tiny/replicas/1/log").content == b""
    spool = Spool(f"e{row.pk}-1")
    ingest.store({row.server_id: [spool.chunk(("o", "one"), ("o", "two"), ("o", "three"))]})
    answer = api("GET", "/tiny/replicas/1/log?limit=2", role="viewer")
    assert re.findall(r"\t(\w+)\n", answer.content.decode()) == ["two", "three"]
    assert (answer.headers["X-Piece"], answer.headers["X-Next-After"]) == (EngineLog.objects.get().pk, "3")
    assert re.findall(r"\t(\w+)\n", api("GET", "/tiny/replicas/1/log?after=0&limit=1").content.decode()) == ["one"]
    assert code(api("GET", "/tiny/replicas/1/log?piece=e1-9", status=404)) == "no_such_log"
    api("GET", "/tiny/replicas/99/log", status=404)
    assert [one["n"] for one in api("GET", "/tiny/replicas")["replicas"]] == [2, 1]


def test_a_list_takes_as_many_queries_for_two_as_for_one(api, fleet, made, operator):
    def queries():
        with CaptureQueriesContext(
            connection,
        ) as seen:
            rows = api("GET", "")["deployments"]
        return len(seen), rows

    one, _rows = queries()
    fleet.room = dict.fromkeys(fleet.room, 5)
    fleet.settle(deployments.create("other", fleet.model, SETTINGS, by=operator, replicas=3))
    more, rows = queries()
    assert more == one and [(row["name"], row["ready"], row["state"]) for row in rows] == [
        ("other", 3, "ready"),
        ("tiny", 2, "ready"),
    ]


def test_a_deployment_takes_as_many_queries_with_many_replicas(api, fleet, made, operator):
    def queries():
        with CaptureQueriesContext(connection) as seen:
            api("GET", "/tiny")
        return len(seen)

    few = queries()
    fleet.room = dict.fromkeys(fleet.room, 5)
    api("PATCH", "/tiny", {"replicas": 6}, status=200)
    fleet.settle(made)
    assert Replica.objects.count() == 6 and queries() == few


def test_a_model_that_is_deleted_meanwhile_starts_nothing(api, fleet, made):
    api("POST", "/tiny/stop")
    fleet.settle(made)
    Artifact.objects.all().delete()
    assert code(api("POST", "/tiny/start", status=409)) == "model_changed"
    assert api("GET", "/tiny")["model"] is None


def test_a_change_of_which_a_part_is_refused_changes_nothing(api, fleet, made):
    part = {"title": "half", "labels": {"a": "b"}, "schedule": [{"at": "08:00", "days": [0], "replicas": 1}]}
    for refused in ({"replicas": 2}, {"settings": SETTINGS}, {"owner": "nobody"}, {"servers": ["nowhere"]}):
        answer = api("PATCH", "/tiny", part | refused, status=409 if set(refused) & {"replicas", "settings"} else 422)
        assert answer["error"]["do"]
        made.refresh_from_db()
        assert (made.title, made.labels, made.schedule) == ("", {}, [])


HOSTILE = ["\ud800", "<script>alert(1)</script>", "=cmd|' /C calc'!A0", "a\nb", "x" * 400, "../../etc", "{{7*7}}"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_kept_or_refused_in_words(client, api, fleet, made, operator, text):
    """Never a 500, and on no page as anything but text."""
    bodies = [
        ("PATCH", "/tiny", {"title": text}), ("PATCH", "/tiny", {"notes": text}), ("PATCH", "/tiny", {"owner": text}),
        ("PATCH", "/tiny", {"labels": {"a": text}}), ("PATCH", "/tiny", {"labels": {text: "a"}}),
        ("PATCH", "/tiny", {"servers": [text]}), ("PATCH", "/tiny", {"spread": text[:10]}),
        ("PATCH", "/tiny", {"settings": {**SETTINGS, "served_model_name": text}, "note": text}),
        ("PATCH", "/tiny", {"settings": {**SETTINGS, "env": {"A": text}, "extra": [text], text: text}}),
        ("PATCH", "/tiny", {"settings": {**SETTINGS, "additional": {"eplb_config": {text: text}}}}),
        ("PATCH", "/tiny", {"schedule": [{"at": text, "days": text, "replicas": text}]}),
        ("POST", "/tiny/replicas/1/remedies", {"remedy": text[:80]}),
        ("POST", "/tiny/benchmarks", {"ticket": text[:90]}), ("POST", "/tiny/benchmarks", {"params": {text: text}}),
        ("POST", "", {"name": text[:63], "model": 1, "settings": {}}), ("DELETE", "/tiny", {"confirm": text[:63]}),
        ("POST", "/tiny/benchmarks", {"gateway_key": text[:150]}),
    ]  # fmt: skip
    token = ApiToken.make(operator, "operator")[1]
    for method, path, body in bodies:
        answer = client.generic(
            method, f"/api/v1/deployments{path}", json.dumps(body), content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {token}",
        )  # fmt: skip
        assert answer.status_code < 500, (method, path, body, answer.content[:500])
    client.force_login(operator)
    pages = ("", "tiny/", "tiny/edit", "tiny/change", "tiny/schedule", "tiny/benchmarks/", "tiny/replicas/1/remedy")
    for page in pages:
        answer = client.get(f"/deployments/{page}")
        assert answer.status_code == 200 and "<script>alert(1)" not in answer.content.decode(), page
