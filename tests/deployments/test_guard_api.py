"""REST: keys, queues, switching on and other addresses do what the pages do."""

import json

import pytest
from django.utils import timezone

from console.models import ApiToken, User
from deployments.models import Job, Order, Rotation, Server
from deployments.services import enrol, quota
from deployments.steps import Text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
NEW = "rediss://new.example:6380/0"


@pytest.fixture
def api(client):
    made = {}
    for role in ("viewer", "operator", "administrator"):
        made[role] = ApiToken.make(User.objects.create_user(f"the-{role}", role=role), role)[1]

    def call(method, path, body=None, *, role="administrator", status=200, **headers):
        answer = client.generic(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else "", content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {made[role]}", HTTP_ACCEPT_LANGUAGE="en", **headers,
        )  # fmt: skip
        assert answer.status_code == status, answer.content
        return answer.json()

    return call


@pytest.fixture
def fleet(valkey):
    now = timezone.now()
    spoken = {"agent_version": "0.1.0", "agent_protocol": 2}
    rows = [
        Server.objects.create(name="kp-01", last_seen_at=now, **spoken),
        Server.objects.create(name="kp-02", last_seen_at=now, **spoken),
        Server.objects.create(name="silent", **spoken),
    ]
    Server.objects.create(name="sim-01", simulated=True, last_seen_at=now, **spoken)
    for row in rows:
        enrol.apply_rights(valkey.client(), row)
    return rows


def test_keys_change_for_one_and_for_several_and_are_never_told(api, fleet):
    assert {row["server"]: row["phase"] for row in api("GET", "/keys")["servers"]} == {
        "kp-01": None, "kp-02": None, "silent": None,
    }  # fmt: skip
    assert api("POST", "/servers/kp-01/keys", status=202)["phase"] == "asked"
    assert api("POST", "/servers/kp-01/keys", status=409)["error"]["code"] == "rotation_under_way"
    names = ["kp-01", "kp-02", "silent", "sim-01", "nobody"]
    told = api("POST", "/keys", {"servers": names}, status=202)
    assert [row["server"] for row in told["servers"]] == ["kp-02"]
    assert {row["server"]: row["code"] for row in told["refused"]} == {
        "kp-01": "rotation_under_way", "silent": "server_offline", "sim-01": "simulated",
    }  # fmt: skip
    assert "nobody" in told["problems"][0]
    said = json.dumps([told, api("GET", "/keys")])
    for made in Rotation.objects.all():
        assert made.key not in said and made.password not in said
    assert api("POST", "/keys", {"servers": []}, status=422)["error"]["code"] == "no_server"
    assert Rotation.objects.count() == 2


def test_the_same_call_for_keys_with_a_key_is_carried_out_once(api, fleet):
    first = api("POST", "/servers/kp-01/keys", status=202, HTTP_IDEMPOTENCY_KEY="t-1")
    assert api("POST", "/servers/kp-01/keys", status=202, HTTP_IDEMPOTENCY_KEY="t-1") == first
    assert Order.objects.filter(do="rotate").count() == 1


def test_queues_say_why_jobs_wait_and_what_nobody_knows_is_null(api, fleet):
    paused = fleet[0]
    Server.objects.filter(pk=paused.pk).update(queue_paused=True)
    later = timezone.now() + timezone.timedelta(hours=1)
    job = Job.objects.create(server=paused, kind="check", waiting=True, not_after=later)
    told = api("GET", "/queue", role="operator")
    (line,) = told["servers"]
    assert (line["server"], line["queued"], line["worker"], line["beat_at"]) == ("kp-01", 1, "unknown", None)
    assert line["jobs"][0]["id"] == job.pk and "paused" in line["jobs"][0]["why"] and line["paused"]
    assert {one["name"] for one in told["console"]["processes"]} >= {"ingest", "worker", "scheduler"}
    every = api("GET", "/queue?every=true&find=KP", role="operator")
    assert [row["server"] for row in every["servers"]] == ["kp-01", "kp-02"] and every["pages"] == 1


def test_an_operator_switches_a_server_on_again(api, fleet, valkey):
    quota.switch_off(valkey.client(), fleet[0].pk)
    quota.note_cut_off(fleet[0].pk, Text("满", "full"))
    api("POST", "/servers/kp-01/switch-on", role="viewer", status=403)
    assert api("POST", "/servers/kp-01/switch-on", role="operator") == {"name": "kp-01", "switched_off": False}
    assert api("POST", "/servers/kp-01/switch-on", role="operator", status=409)["error"]["code"] == "not_cut_off"


def test_agents_are_sent_elsewhere_and_their_answers_listed(api, fleet):
    body = {"redis": [NEW], "console": "https://new.example:8443", "servers": ["kp-01", "sim-01"]}
    shown = api("POST", "/agents/addresses", {**body, "dry_run": True}, status=202)
    assert (shown["servers"], shown["sent"]) == (["kp-01"], 0) and shown["left_out"][0]["server"] == "sim-01"
    assert not Order.objects.exists()
    assert api("POST", "/agents/addresses", body, status=202)["sent"] == 1
    (order,) = api("GET", "/agents/addresses")["orders"]
    assert (order["server"], order["redis"], order["state"], order["by"]) == (
        "kp-01", [NEW], "sent", "the-administrator",
    )  # fmt: skip
    wrong = api("POST", "/agents/addresses", {**body, "servers": ["kp-01", "nobody"]}, status=422)
    assert "nobody" in wrong["error"]["what"]
    api("POST", "/agents/addresses", {"redis": ["http://x"]}, status=422)
    api("POST", "/agents/addresses", {"redis": [NEW], "servers": []}, status=422)
    assert Order.objects.count() == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "role"),
    [
        ("GET", "/keys", None, "operator"),
        ("POST", "/keys", {"servers": ["kp-01"]}, "operator"),
        ("POST", "/servers/kp-01/keys", None, "operator"),
        ("GET", "/queue", None, "viewer"),
        ("GET", "/agents/addresses", None, "operator"),
        ("POST", "/agents/addresses", {"redis": [NEW]}, "operator"),
    ],
)
def test_who_may_not_changes_nothing(api, fleet, method, path, body, role):
    assert api(method, path, body, role=role, status=403)["error"]["code"] == "not_allowed"
    assert not Order.objects.exists() and not Rotation.objects.exists()
