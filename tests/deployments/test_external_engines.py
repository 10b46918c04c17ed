"""Engines that the console did not start: taken from samples on change only, shown, watched, never touched."""

import json
import re
import time

import pytest
from django.utils import timezone

from console.models import Alert, ApiToken, User
from deployments.models import ExternalEngine, Server
from deployments.services import external_engines, external_live
from monitoring.ingest import Telemetry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("valkey")]
TOLD = {
    "key": "vllm:4711-99", "kind": "vllm", "pid": 4711, "user": "wang", "container": "", "image": "",
    "model": "/data/qwen3-8b", "port": 8000, "npus": ["0000:C1:00.0"], "health": "ok",
}  # fmt: skip


@pytest.fixture
def telemetry(server):
    made = Telemetry()
    made.know([server])
    return made


def tell(telemetry, server, *found, **more):
    sample = {"type": "sample", "seq": 1, "npus": [], "processes": [], "external": list(found), **more}
    telemetry.take(server.pk, json.dumps(sample).encode(), received=time.time())
    telemetry.flush()


def one(**changes):
    return {**TOLD, **changes}


def test_rows_follow_what_is_told(telemetry, server):
    tell(telemetry, server, one())
    row = ExternalEngine.objects.get()
    assert (row.model, row.port, row.npus, row.health, row.gone_at) == (
        "/data/qwen3-8b",
        8000,
        TOLD["npus"],
        "ok",
        None,
    )
    tell(telemetry, server, one(health="failed"), one(key="mindie:box", kind="mindie", container="box"))
    assert sorted(ExternalEngine.objects.values_list("key", "health")) == [
        ("mindie:box", "ok"), ("vllm:4711-99", "failed"),
    ]  # fmt: skip
    tell(telemetry, server)
    assert not ExternalEngine.objects.filter(gone_at=None).exists()
    tell(telemetry, server, one())
    assert ExternalEngine.objects.get(gone_at=None).pk == row.pk


def test_the_same_again_writes_nothing(telemetry, server, django_assert_num_queries):
    tell(telemetry, server, one())
    seen = ExternalEngine.objects.get().seen_at
    sample = {"type": "sample", "seq": 2, "npus": [], "processes": [], "external": [one()]}
    telemetry.take(server.pk, json.dumps(sample).encode(), received=time.time())
    with django_assert_num_queries(0):
        telemetry._flush_engines()
    fresh = Telemetry()  # ingest was started anew: it reads, and has nothing to write
    fresh.know([server])
    tell(fresh, server, one())
    assert ExternalEngine.objects.get().seen_at == seen
    telemetry.take(server.pk, json.dumps({"type": "sample", "seq": 3, "npus": []}).encode(), received=time.time())
    telemetry.flush()
    assert ExternalEngine.objects.filter(gone_at=None).exists(), "a sample that says nothing of engines"


@pytest.mark.parametrize(
    "told",
    [
        {"external": "x"}, {"external": [3, None, {}]}, {"external": [one(kind="rootkit")]},
        {"external": [one(key="")]}, {"external": [one(key=["a"])]},
    ],
)  # fmt: skip
def test_what_is_no_engine_makes_no_row(telemetry, server, told):
    tell(telemetry, server, **told)
    assert not ExternalEngine.objects.exists()


def test_hostile_values_are_cut_to_what_the_row_holds(telemetry, server):
    hostile = one(
        key="k" * 500, pid=-1, port=99999, npus=["x" * 99, 3, None], model="m\x00" * 2000, user=7, health="<b>",
        image="\ud800",
    )  # fmt: skip
    tell(telemetry, server, hostile, *[one(key=f"k{n}") for n in range(200)])
    rows = ExternalEngine.objects.all()
    assert rows.count() == 64
    row = rows.get(key="k" * 120)
    assert (row.pid, row.port, row.npus, row.user, row.health) == (None, None, ["x" * 32], "", "")
    assert len(row.model) == 1000 and "\x00" not in row.model


def test_rows_of_engines_that_come_and_go_do_not_pile_up(telemetry, server, operator):
    external_engines.KEPT_GONE, before = 3, external_engines.KEPT_GONE
    try:
        tell(telemetry, server, one(key="named"))
        external_engines.change(ExternalEngine.objects.get(), by=operator, alias="ours too")
        for n in range(8):
            tell(telemetry, server, one(key=f"k{n}"))
    finally:
        external_engines.KEPT_GONE = before
    gone = set(ExternalEngine.objects.exclude(gone_at=None).values_list("key", flat=True))
    assert gone == {"named", "k4", "k5", "k6"}


def test_a_watched_engine_alerts_when_it_goes_or_is_not_well(telemetry, server, operator):
    tell(telemetry, server, one())
    row = external_engines.change(ExternalEngine.objects.get(), by=operator, watched=True)
    open_alerts = Alert.objects.filter(ended_at=None)
    assert not open_alerts.exists()
    tell(telemetry, server, one(health="failed"))
    assert "is not well" in open_alerts.get().what[1]
    tell(telemetry, server, one())
    assert not open_alerts.exists()
    tell(telemetry, server)
    assert "qwen3-8b on kp-01" in open_alerts.get().what[1] and "is gone" in open_alerts.get().what[1]
    external_engines.change(row, by=operator, watched=False)
    assert not open_alerts.exists()


def test_what_it_says_of_its_load_is_shown_and_makes_no_row(telemetry, server, client, viewer, valkey, monkeypatch):
    said = {"running": 2, "waiting": 0, "generation_tokens_s": 120.4, "kv_pct": "<b>", "ttft_ms": None, "x": 1}
    tell(telemetry, server, one(metrics=said))
    row = ExternalEngine.objects.get()
    pipeline = valkey.client().pipeline()
    telemetry.each_second(pipeline, time.time())
    pipeline.execute()
    client.force_login(viewer)
    shown = client.get("/engines/", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    assert "2 running · 0 waiting · 120 tokens/s" in shown and "KV cache" not in shown
    _row, token = ApiToken.make(User.objects.create_user("bot", role="viewer"), "viewer")
    listed = client.get("/api/v1/engines", HTTP_AUTHORIZATION=f"Bearer {token}").json()["engines"][0]["metrics"]
    assert (listed["running"], listed["kv_pct"], "x" in listed) == (2, None, False)
    tell(telemetry, server, one(metrics={**said, "running": 3}))
    assert ExternalEngine.objects.get().seen_at == row.seen_at
    monkeypatch.setattr(external_live, "FRESH_S", -1.0)
    assert "running" not in client.get("/engines/", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    tell(telemetry, server)
    telemetry.each_second(pipeline, time.time())
    pipeline.execute()
    assert not valkey.client().exists("external:now")


def test_a_gateway_may_reach_those_that_are_healthy(telemetry, server):
    Server.objects.filter(pk=server.pk).update(address_roles={"192.0.2.5": "service"})
    lost = Server.objects.create(name="kp-02")
    ExternalEngine.objects.create(server=lost, key="a", kind="vllm", port=8000, health="ok")
    tell(
        telemetry, server, one(), one(key="b", health="failed"), one(key="c", port=None), one(key="d", health=""),
    )  # fmt: skip
    assert [(to.engine.key, to.address, to.port) for to in external_engines.attachable()] == [
        (TOLD["key"], "192.0.2.5", 8000)
    ]
    Server.objects.filter(pk=server.pk).update(decommissioned_at=timezone.now())
    assert external_engines.attachable() == []


def test_the_page_and_rest(telemetry, server, client, operator, viewer):
    tell(telemetry, server, one(model="/data/<script>"))
    row = ExternalEngine.objects.get()
    client.force_login(viewer)
    shown = client.get("/engines/", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    assert "&lt;script&gt;" in shown and "Name it" not in shown
    assert client.post(f"/engines/{row.pk}", {"watch": "1"}).status_code == 403
    client.force_login(operator)
    client.post(f"/engines/{row.pk}", {"alias": "Wang's", "watch": "1"})
    row.refresh_from_db()
    assert (row.alias, row.watched) == ("Wang's", True)
    offered = re.findall(r'action="(/engines/[^"]*)"', client.get("/engines/").content.decode())
    assert offered == [f"/engines/{row.pk}"], "nothing there stops an engine"
    assert "None is gone" in client.get("/engines/?gone=1", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    _row, token = ApiToken.make(User.objects.create_user("bot", role="operator"), "operator")
    send = {"HTTP_AUTHORIZATION": f"Bearer {token}", "content_type": "application/json", "HTTP_ACCEPT_LANGUAGE": "en"}
    (listed,) = client.get("/api/v1/engines?server=kp-01", **send).json()["engines"]
    assert (listed["alias"], listed["port"], listed["container"]) == ("Wang's", 8000, None)
    changed = client.patch(f"/api/v1/engines/{row.pk}", json.dumps({"watched": False}), **send).json()
    assert (changed["watched"], changed["alias"]) == (False, "Wang's")
    for bad in ({"alias": "x" * 101}, {"alias": "a\x00"}, {"port": 1}):
        assert client.patch(f"/api/v1/engines/{row.pk}", json.dumps(bad), **send).status_code in (400, 422)
    assert client.patch("/api/v1/engines/999", json.dumps({"alias": "x"}), **send).status_code == 404
