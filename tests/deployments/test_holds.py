"""Holds of NPUs: made, shown, extended, ended by hand and by themselves; their pages and REST."""

import json
from datetime import timedelta

import pytest
from auditlog.models import LogEntry
from django.utils import timezone
from django.utils.translation import override

from console import schedule, streams
from console.errors import Conflict, Invalid, NotAllowed
from console.models import Alert, ApiToken, User
from console.redis import client as redis_client
from deployments.models import Hold, Job, Reservation
from deployments.services import history, holds, npu_states, reservations
from monitoring.services import live_state
from tests.deployments.serving_rows import bus_id, deployment, npu_now, npu_server, reading, replica

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]


@pytest.fixture
def kp(db):
    return npu_server("kp-1")


@pytest.fixture
def as_operator(client, operator):
    client.force_login(operator)
    client.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return client


def later(**span):
    return timezone.now() + timedelta(**(span or {"days": 2}))


def make(server, by, *names, **more):
    given = {"team": "vision", "reason": "demo on Friday", "until": later(), **more}
    return holds.make(server, names or [bus_id(0)], by=by, **given)


def page(answer, status=200):
    assert answer.status_code == status, answer.content
    return answer.content.decode()


def test_what_is_wrong_is_said_and_nothing_is_written(kp, operator, viewer):
    wrong = [
        {"team": " "}, {"team": "x" * 101}, {"reason": ""}, {"reason": "\x00"}, {"until": None},
        {"until": later(minutes=-1)}, {"until": later(days=400)},
    ]  # fmt: skip
    for more in wrong:
        with pytest.raises(Invalid):
            make(kp, operator, **more)
    for names in ([""], ["0000:FF:00.0"], []):
        with pytest.raises(Invalid):
            holds.make(kp, names, team="a", reason="b", until=later(), by=operator)
    with pytest.raises(NotAllowed):
        make(kp, viewer)
    assert not Hold.objects.exists() and not Reservation.objects.exists() and history.page(kp)[0] == []


def test_a_hold_is_told_extended_and_ended(kp, operator):
    hold = make(kp, operator, bus_id(0), bus_id(1), ticket="OPS-1")
    with override("en"), pytest.raises(Conflict) as refused:
        make(kp, operator, bus_id(1))
    assert "is kept for vision until" in refused.value.what
    until = later(days=5)
    assert holds.extend(hold, until, by=operator).until == until
    holds.end(hold, by=operator)
    assert reservations.of(kp) == {}
    for act in (lambda: holds.end(hold, by=operator), lambda: holds.extend(hold, until, by=operator)):
        with pytest.raises(Conflict):
            act()
    verbs = [entry.additional_data["verb"] for entry in LogEntry.objects.order_by("pk")]
    assert [verb for verb in verbs if verb.startswith("hold.")] == ["hold.made", "hold.extended", "hold.ended"]
    told = history.page(kp)[0]
    assert [row.field for row in told] == ["hold"] * 3 and f"{bus_id(0)}, {bus_id(1)}" in told[2].after


def test_a_hold_ends_by_itself_with_a_notice(kp, operator):
    hold = make(kp, operator)
    assert schedule.end_holds() == 0
    Hold.objects.filter(pk=hold.pk).update(until=timezone.now() - timedelta(seconds=1))
    assert reservations.of(kp) == {}, "it holds nothing from that moment on"
    assert schedule.end_holds() == 1 and schedule.end_holds() == 0
    hold.refresh_from_db()
    assert hold.ended_at is not None and not Reservation.objects.exists()
    alert = Alert.objects.get(ended_at=None)
    assert alert.severity == "info" and "olga" in alert.what[1] and "vision" in alert.what[0]
    holds.end_due(timezone.now() + timedelta(hours=25))
    assert not Alert.objects.filter(ended_at=None).exists()


def test_fleet_and_server_show_who_has_an_npu_until_when(kp, operator, valkey, as_operator):
    npus = [npu_now(0), npu_now(1), npu_now(2), npu_now(3, occ="foreign")]
    process = {"npu": 3, "chip": 0, "pid": 9, "user": "wang", "name": "python", "memory_mb": 9, "attempt": None}
    reading(valkey.client(), kp, npus, processes=[process])
    make(kp, operator, bus_id(0), bus_id(3))
    mine = replica(deployment("chat"), kp, 2)
    reservations.take(mine, kp, [bus_id(1)])
    now = live_state.now(kp)
    assert [npu["occ"] for npu in now["npus"]] == ["held", "ours", "free", "foreign"]
    assert [npu.get("held", {}).get("name") for npu in now["npus"]] == ["vision", "chat", None, "vision"]
    assert live_state.all_now()[0]["npus"] == now["npus"]
    told = page(as_operator.get("/servers/kp-1/"))
    assert "vision until" in told and "demo on Friday" in told and "replica 2 of chat" in told
    assert "on hold: vision" in page(as_operator.get("/servers/")) and "chat" in page(as_operator.get("/servers/"))
    Hold.objects.update(ended_at=timezone.now())
    assert [npu["occ"] for npu in live_state.now(kp)["npus"]] == ["free", "ours", "free", "foreign"]


def test_a_cordon_goes_before_a_hold_and_the_reading_comes_back(kp, operator):
    now = live_state.build(kp, {}, 1.0)
    now["npus"] = [npu_now(0)]
    held = {bus_id(0): reservations.Held("hold", 1, "vision", 0, later()).as_json()}
    assert live_state.set_cordons(now, kp, held) and now["npus"][0]["occ"] == "held"
    assert not live_state.set_cordons(now, kp, held) and not live_state.set_cordons(now, kp)
    kp.cordons = {bus_id(0): {"reason": "x"}}
    assert live_state.set_cordons(now, kp) and now["npus"][0]["occ"] == "cordoned"
    kp.cordons = {}
    assert live_state.set_cordons(now, kp, {}) and now["npus"][0]["occ"] == "free"
    assert "under" not in now["npus"][0]


def test_the_pages_make_change_and_end_a_hold(kp, as_operator):
    assert "No NPU is on hold" in page(as_operator.get("/holds/"))
    assert "Show its NPUs" in page(as_operator.get("/holds/new"))
    form = page(as_operator.get("/holds/new", {"server": "kp-1", "npu": bus_id(2)}))
    assert f'value="{bus_id(2)}" checked' in form and "no fresh reading says" in form
    sent = {"server": "kp-1", "npu": [bus_id(2)], "team": "vision", "reason": "<b>demo</b>", "until": ""}
    assert "no moment within" in page(as_operator.post("/holds/new", sent), 422)
    sent["until"] = timezone.localtime(later()).strftime("%Y-%m-%dT%H:%M")
    assert as_operator.post("/holds/new", sent).url == "/holds/"
    listed = page(as_operator.get("/holds/"))
    assert bus_id(2) in listed and "&lt;b&gt;demo" in listed
    assert "kept for vision" in page(as_operator.get("/holds/new", {"server": "kp-1"}))
    hold = Hold.objects.get()
    assert "end at another time" in page(as_operator.get(f"/holds/{hold.pk}/"))
    assert as_operator.post(f"/holds/{hold.pk}/", {"do": "extend", "until": "never"}).status_code == 422
    assert "End the hold for vision on kp-1 now?" in page(as_operator.get(f"/holds/{hold.pk}/?do=end"))
    assert as_operator.post(f"/holds/{hold.pk}/", {"do": "end"}).url == "/holds/"
    assert "Ended" in page(as_operator.get("/holds/")) and not Reservation.objects.exists()
    assert as_operator.get("/holds/999/").status_code == 404
    assert as_operator.get("/holds/new", {"server": "nobody"}).status_code == 404


def test_beside_each_npu_stands_whether_it_is_free(as_operator, operator):
    kp = npu_server("kp-5", count=5)
    npus = list(kp.npus.order_by("device_index"))
    make(kp, operator)
    kp.cordons = {bus_id(1): {"reason": "x"}}
    kp.save()
    job = Job.objects.create(server=kp, kind="check", locks=[f"npu:{bus_id(2)}"], not_after=later())
    process = {"npu": npus[3].npu_id, "chip": npus[3].chip_id, "pid": 4711, "name": "<i>python3"}
    redis_client().hset(streams.FLEET_NOW, str(kp.pk), json.dumps({"processes": [process]}))
    assert [one.state for one in npu_states.of(kp)] == ["held", "cordoned", "used", "used", "free"]
    form = page(as_operator.get("/holds/new", {"server": "kp-5"}))
    for words in ("kept for vision until", f"job #{job.pk} holds it", "used by &lt;i&gt;python3 (4711)", "<span>free<"):
        assert words in form


def test_the_one_real_server_is_offered_only_where_it_has_npus(db, as_operator):
    own = npu_server("own", count=0)
    npu_server("demo-1", simulated=True)
    assert "NPUs of own" not in page(as_operator.get("/holds/new"))
    own.delete()
    npu_server("kp-2")
    assert "NPUs of kp-2" in page(as_operator.get("/holds/new"))


def test_a_viewer_reads_and_changes_nothing(kp, client, viewer, operator):
    hold = make(kp, operator)
    client.force_login(viewer)
    assert "vision" in page(client.get("/holds/"))
    assert client.get("/holds/new").status_code == 403
    assert client.post(f"/holds/{hold.pk}/", {"do": "end"}).status_code == 403
    assert Hold.objects.get().ended_at is None


def test_rest_makes_lists_extends_and_ends(kp, client):
    _row, token = ApiToken.make(User.objects.create_user("bot", role="operator"), "operator")
    send = {"HTTP_AUTHORIZATION": f"Bearer {token}", "content_type": "application/json", "HTTP_ACCEPT_LANGUAGE": "en"}
    body = {"server": "kp-1", "npus": [bus_id(0)], "team": "vision", "reason": "demo", "until": later().isoformat()}
    key = {"HTTP_IDEMPOTENCY_KEY": "once"}
    made = client.post("/api/v1/holds", json.dumps(body), **send, **key)
    assert made.status_code == 201, made.content
    assert client.post("/api/v1/holds", json.dumps(body), **send, **key).json() == made.json()
    pk = made.json()["id"]
    assert client.post("/api/v1/holds", json.dumps(body), **send).json()["error"]["code"] == "npu_reserved"
    assert [one["id"] for one in client.get("/api/v1/holds", **send).json()["holds"]] == [pk]
    changed = client.patch(f"/api/v1/holds/{pk}", json.dumps({"until": later(days=9).isoformat()}), **send)
    assert changed.status_code == 200 and changed.json()["until"] != made.json()["until"]
    assert client.delete(f"/api/v1/holds/{pk}", **send).json()["ended_at"]
    assert client.delete(f"/api/v1/holds/{pk}", **send).status_code == 409
    for bad in ({**body, "until": "tomorrow"}, {**body, "npus": "x"}, {**body, "odd": 1}, {**body, "team": ""}):
        answer = client.post("/api/v1/holds", json.dumps(bad), **send)
        assert answer.status_code in (400, 422) and answer.json()["error"]["what"]


def test_a_history_shows_no_mark_of_the_language_it_was_read_by():
    assert history.words("cann", [None, {"version": "8.5.0", "path": None}]) == "—, 8.5.0"
    assert (
        history.words("os", {"id": "openEuler", "more": ["a", None], "none": None}) == "id=openEuler, more=a, —, none"
    )
