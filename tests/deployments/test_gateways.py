"""Gateways on the console: made, told what changed, counted; keys; pages and REST as each role."""

import base64
import hashlib
import json
import re
import zlib
from datetime import timedelta
from types import SimpleNamespace

import pytest
from auditlog.models import LogEntry
from django.utils import timezone

from console.errors import Conflict, Invalid, NotAllowed, NotFound
from console.models import ApiToken, User
from deployments import kinds
from deployments.agent import signing
from deployments.agent.gateways import obey
from deployments.models import (
    Deployment,
    ExternalEngine,
    Gateway,
    GatewayKey,
    Job,
    KeyUsage,
    Order,
    PortLease,
    Replica,
    Revision,
    Server,
)  # fmt: skip
from deployments.services import deployments, gateway_heard, gateway_keys, gateways, ports, serving_hooks, usage
from deployments.serving import gateway_conf
from deployments.steps import read_params
from tests.answers import whole

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment(db):
    made = Deployment.objects.create(name="qwen", api_key="engine-key")
    made.revision = Revision.objects.create(deployment=made, n=1, settings={"served_model_name": "qwen3"})
    made.save()
    return made


def replica(deployment, server, n, state="ready", **more):
    fields = {"address": "10.0.0.5", "port": 18000 + n, "path": "/m"} | more
    return Replica.objects.create(
        deployment=deployment, revision=deployment.revision, n=n, server=server, state=state, **fields
    )


@pytest.fixture
def gateway(deployment, server, operator, valkey):
    return gateways.make(deployment, server, by=operator, address="0.0.0.0")


def settled(gateway):
    """Its job has ended, and its keeper has told what it has."""
    Job.objects.filter(pk=gateway.job_id).update(state="succeeded", ended_at=timezone.now())
    return tell(gateway)


def tell(gateway, *, at=None, **more):
    gateway.refresh_from_db()
    said = {"gateway": gateway.pk, "instance": "ab" * 8, "version": gateway.wished, "state": "ready", "kept": True}
    gateway_heard.heard(gateway.server_id, [said | more], (at or timezone.now()).timestamp())
    gateway.refresh_from_db()
    return gateway


def sent_to(server):
    """The settings in the newest order to a server, as its agent opens them."""
    order = Order.objects.filter(server=server, do="gateway").order_by("-pk").first()
    if order is None:
        return None
    sealed = base64.b64decode(order.args["sealed"])
    return json.loads(zlib.decompress(signing.unseal(server.key, sealed)))


def test_making_one_queues_a_job_whose_settings_only_its_server_can_read(gateway, server, deployment):
    job = gateway.job
    assert (job.kind, job.server) == ("gateway", server)
    module = kinds.load("gateway")
    params = read_params(module.Params, job.params)
    assert [step.argv[3] for step in module.steps(params)] == ["look", "router", "put", "ready"]
    assert "engine-key" not in json.dumps(job.params)
    text = zlib.decompress(signing.unseal(server.key, base64.b64decode(job.params["sealed"])))
    spec = gateway_conf.read(json.loads(text))
    assert (spec.engine_key, spec.port, spec.address) == ("engine-key", gateway.port, "0.0.0.0")
    leased = PortLease.objects.filter(gateway=gateway).values_list("purpose", "port")
    assert {purpose for purpose, _port in leased} == {"gateway", "router", "metrics"}
    assert len({port for _purpose, port in leased}) == 3
    assert LogEntry.objects.filter(additional_data__verb="gateway.made").exists()


def test_it_is_refused_in_words(deployment, server, operator, viewer, gateway):
    other = Server.objects.create(name="kp-02", last_seen_at=timezone.now())
    sim = Server.objects.create(name="sim-01", simulated=True, last_seen_at=timezone.now())
    second = Deployment.objects.create(name="other")
    pretended = Deployment.objects.create(name="sim", simulated=True)
    for kind, code, call in [
        (NotAllowed, "not_allowed", lambda: gateways.make(second, other, by=viewer)),
        (Conflict, "simulated", lambda: gateways.make(second, sim, by=operator)),
        (Conflict, "simulated", lambda: gateways.make(pretended, server, by=operator)),
        (Conflict, "gateway_elsewhere", lambda: gateways.make(deployment, other, by=operator)),
        (Conflict, "under_way", lambda: gateways.make(deployment, server, by=operator)),
        (Invalid, "bad_address", lambda: gateways.make(second, other, by=operator, address="my host")),
        (Invalid, "bad_policy", lambda: gateways.make(second, other, by=operator, policy="best")),
        (Invalid, "bad_port", lambda: gateways.make(second, other, by=operator, port=80)),
        (NotFound, "not_found", lambda: gateways.find("nobody")),
    ]:
        with pytest.raises(kind) as refused:
            call()
        assert refused.value.code == code and refused.value.do
    assert Gateway.objects.count() == 1


def test_a_ready_replica_is_told_and_a_draining_one_leaves(gateway, deployment, server):
    settled(gateway)
    one, two = replica(deployment, server, 1), replica(deployment, server, 2, state="loading")
    serving_hooks.changed(deployment)
    assert [row["port"] for row in sent_to(server)["engines"]] == [18001]
    Replica.objects.filter(pk=two.pk).update(state="ready")
    Replica.objects.filter(pk=one.pk).update(state="draining")
    serving_hooks.changed(deployment)
    assert [row["port"] for row in sent_to(server)["engines"]] == [18002]
    before = Order.objects.count()
    serving_hooks.changed(deployment)
    assert Order.objects.count() == before  # nothing has changed


def test_what_was_not_taken_is_sent_again(gateway, deployment, server, operator):
    settled(gateway)
    gateways.change(gateway, by=operator, policy="round_robin")
    gateway.refresh_from_db()
    assert sent_to(server)["policy"] == "round_robin"
    tell(gateway, version=gateway.wished - 1)
    assert Order.objects.filter(do="gateway").count() == 1  # it is on its way
    Order.objects.update(state="failed")
    tell(gateway, version=gateway.wished - 1, at=timezone.now() + timedelta(seconds=30))
    assert Order.objects.filter(do="gateway").count() == 2
    assert sent_to(server)["version"] == gateway.wished


def test_a_key_is_shown_once_and_told_as_its_digest(gateway, deployment, server, operator):
    settled(gateway)
    other = Deployment.objects.create(name="other")
    mine = gateway_keys.make("team a", by=operator, deployments=["qwen"], rate_per_min=60)
    theirs = gateway_keys.make("team b", by=operator, deployments=[other.name])
    digest = hashlib.sha256(mine.secret.encode()).hexdigest()
    told = {row["digest"]: row for row in sent_to(server)["keys"]}
    assert told[digest] == {"id": mine.key.pk, "digest": digest, "until": 0, "allowed": True, "rate": 60}
    assert told[theirs.key.digest]["allowed"] is False
    assert mine.secret not in json.dumps(list(GatewayKey.objects.values("name", "start", "digest", "owner")))
    gateway_keys.revoke(mine.key, by=operator)
    assert [row["id"] for row in sent_to(server)["keys"]] == [theirs.key.pk]
    with pytest.raises(Conflict):
        gateway_keys.revoke(mine.key, by=operator)


@pytest.mark.parametrize(
    "given",
    [{"name": ""}, {"name": "x" * 101}, {"name": "a\nb"}, {"rate_per_min": 0}, {"owner": "o" * 101},
     {"expires_at": timezone.now() - timedelta(days=1)}, {"deployments": ["nobody"]}],
)  # fmt: skip
def test_keys_that_make_no_sense_are_refused(operator, given):
    with pytest.raises((Invalid, NotFound)) as refused:
        gateway_keys.make(**({"name": "k", "by": operator} | given))
    assert refused.value.what and refused.value.do
    assert not GatewayKey.objects.exists()


def test_usage_counts_once_however_often_it_is_told(gateway, operator):
    settled(gateway)
    key = gateway_keys.make("k", by=operator).key
    day = timezone.localdate().isoformat()
    for totals in ([3, 1, 30, 12], [3, 1, 30, 12], [5, 1, 50, 20], [4, 1, 40, 16], [5, 1, 50, 20]):
        tell(
            gateway, usage=[[day, key.pk, *totals]], at=timezone.now() + timedelta(seconds=totals[0]), state="degraded"
        )
        Gateway.objects.update(heard_at=None)
    row = KeyUsage.objects.get()
    assert (row.requests, row.failed, row.prompt_tokens, row.completion_tokens) == (5, 1, 50, 20)
    # On another server its totals begin anew, and are added.
    tell(gateway, instance="cd" * 8, usage=[[day, key.pk, 2, 0, 7, 3]])
    row.refresh_from_db()
    assert (row.requests, row.prompt_tokens) == (7, 57)
    key.refresh_from_db()
    assert key.used_at is not None


TODAY = timezone.localdate()
HOSTILE = [
    None, {}, "x", [[]], [["2026-01-01", 1, 2, 3, 4]], [["not a day", 1, 1, 1, 1, 1]], [["1999-01-01", 1, 1, 1, 1, 1]],
    [["2999-01-01", 1, 1, 1, 1, 1]], [[TODAY.isoformat(), 1, -1, 0, 0, 0]],
    [[TODAY.isoformat(), 10**30, 1, 0, 0, 0]], [[TODAY.isoformat(), True, True, 0, 0, 0]],
    [[TODAY.isoformat(), 4711, 1, 0, 0, 0]], [[TODAY.isoformat(), 1, 2**60, 0, 0, 0]],
]  # fmt: skip


@pytest.mark.parametrize("rows", HOSTILE, ids=range(len(HOSTILE)))
def test_a_server_can_only_tell_of_its_own_gateway_and_within_bounds(gateway, rows):
    tell(gateway, usage=rows, reason=[1, 2], engines=[{"url": "x" * 9000, "load": "much"}, 7], restarts=-1)
    assert not KeyUsage.objects.exists()
    assert gateway.reason is None and len(gateway.told["engines"][0]["url"]) <= 300
    other = Server.objects.create(name="kp-09")
    before = gateway.state
    said = {"gateway": gateway.pk, "state": "failed"}
    gateway_heard.heard(other.pk, [said, {"gateway": "7"}, 7, {"gateway": -1}, {"gateway": 10**40}], 1.0)
    gateway.refresh_from_db()
    assert gateway.state == before


def test_a_removed_one_gives_its_ports_back_and_keeps_its_usage(gateway, server, operator):
    settled(gateway)
    gateways.remove(gateway, by=operator)
    gateway.refresh_from_db()
    assert gateway.job.kind == "gateway_stop" and not gateway.enabled
    tell(gateway, state="stopped")
    assert not PortLease.objects.filter(gateway=gateway).exists()
    assert gateways.of(gateway.deployment) is None


def test_a_deployment_goes_only_after_its_gateway(gateway, deployment, operator):
    with pytest.raises(Conflict) as refused:
        deployments.delete(deployment, by=operator, confirm="qwen")
    assert refused.value.code == "gateway_there"
    settled(gateway)
    gateways.remove(gateway, by=operator)
    assert deployments.delete(deployment, by=operator, confirm="qwen").deleted_at is not None


def test_one_on_a_server_that_is_no_more_is_removed_without_it(gateway, server, operator):
    settled(gateway)
    Server.objects.filter(pk=server.pk).update(decommissioned_at=timezone.now())
    removed = gateways.remove(gateway, by=operator)
    assert (removed.enabled, removed.state, removed.job) == (False, "stopped", None)
    assert not PortLease.objects.filter(gateway=gateway).exists()


def test_the_page_of_the_deployment_shows_its_gateway(client, gateway, operator):
    settled(gateway)
    client.force_login(operator)
    client.cookies["django_language"] = "en"
    page = client.get("/deployments/qwen/").content.decode()
    assert f"http://SERVER:{gateway.port}/v1" in page and "/gateways/qwen/" in page


def test_one_that_runs_on_where_it_was_moved_from_lets_nobody_in(gateway, server, operator):
    settled(gateway)
    before = gateway.wished
    there = Server.objects.create(name="kp-02", last_seen_at=timezone.now(), address_roles={"10.1.0.2": "service"})
    gateways.move(gateway, there, by=operator)
    Order.objects.all().delete()
    said = {"gateway": gateway.pk, "state": "ready", "version": before}
    gateway_heard.heard(server.pk, [said], timezone.now().timestamp())
    order = Order.objects.get()
    spec = obey.unpack(SimpleNamespace(keys=[server.key], key=server.key), order.args["sealed"])
    assert order.server == server and spec["version"] > before
    assert (spec["keys"], spec["engines"], spec["engine_key"]) == ([], [], "")
    gateway_heard.heard(server.pk, [said], timezone.now().timestamp())
    stranger = Server.objects.create(name="kp-03")
    gateway_heard.heard(stranger.pk, [said], timezone.now().timestamp())
    assert Order.objects.count() == 1, "not again at once, and not to who never had it"


def test_moving_ends_it_here_and_begins_it_there(gateway, operator):
    settled(gateway)
    there = Server.objects.create(name="kp-02", last_seen_at=timezone.now(), address_roles={"10.1.0.2": "service"})
    moved = gateways.move(gateway, there, by=operator)
    assert (moved.server, moved.address, moved.enabled) == (there, "10.1.0.2", True)
    assert list(Job.objects.order_by("pk").values_list("kind", "server__name"))[-2:] == [
        ("gateway_stop", "kp-01"), ("gateway", "kp-02"),
    ]  # fmt: skip


def test_an_external_engine_is_attached_until_it_is_gone(gateway, deployment, server, operator):
    settled(gateway)
    there = Server.objects.create(name="kp-03", address_roles={"10.1.0.3": "service"})
    engine = ExternalEngine.objects.create(server=there, key="vllm 1", kind="vllm", port=8000)
    gateways.attach(gateway, engine, by=operator)
    assert sent_to(server)["engines"] == [{"address": "10.1.0.3", "port": 8000, "role": ""}]
    ExternalEngine.objects.update(gone_at=timezone.now())
    serving_hooks.changed(deployment)
    assert sent_to(server)["engines"] == []
    with pytest.raises(Conflict):
        gateways.attach(gateway, ExternalEngine.objects.get(), by=operator)


def test_prefill_and_decode_are_told_to_the_router():
    def extra(role, connector="MooncakeConnectorV1"):
        return {"extra": ["--kv-transfer-config", json.dumps({"kv_role": role, "kv_connector": connector})]}

    assert gateways.role_of(extra("kv_producer")) == ("prefill", "mooncake")
    assert gateways.role_of(extra("kv_consumer", "NixlConnector")) == ("decode", "nixl")
    assert gateways.role_of(extra("kv_both")) == ("", "mooncake")
    assert gateways.role_of({"extra": ["--kv-transfer-config={broken"]}) == ("", "nixl")
    assert gateways.role_of({}) == ("", "nixl")
    engines = (gateway_conf.Engine("10.0.0.1", 1, "prefill"), gateway_conf.Engine("fd00::2", 2, "decode"))
    spec = gateway_conf.Spec(1, 1, 1, 8000, 8001, 8002, engines=engines, connector="mooncake")
    words = gateway_conf.router_arguments(spec)
    tail = ["--vllm-pd-disaggregation", "--kv-connector", "mooncake"]
    assert words[-7:] == [*tail, "--prefill", "http://10.0.0.1:1", "--decode", "http://[fd00::2]:2"]


def test_bars_and_totals_are_of_the_days_asked_for(gateway, operator):
    key = gateway_keys.make("k", by=operator).key
    today = timezone.localdate()
    for days, tokens in ((0, 40), (1, 10), (40, 1000)):
        KeyUsage.objects.create(
            key=key,
            deployment=gateway.deployment,
            day=today - timedelta(days=days),
            requests=1,
            completion_tokens=tokens,
        )
    found = usage.by_key([key])[0]
    assert (found.requests, found.completion_tokens, found.bars[-2:]) == (2, 50, [10, 40])
    assert found.drawn[-1] == (78, 0, 24)
    assert usage.by_key([key], days=60)[0].completion_tokens == 1050


def test_one_that_was_stopped_on_its_server_is_started_again(client, gateway, operator):
    settled(gateway)
    tell(gateway, state="stopped")
    Gateway.objects.update(port=19000)
    client.force_login(operator)
    client.post("/gateways/qwen/", {"do": "again"})
    gateway.refresh_from_db()
    assert (gateway.state, gateway.port, gateway.job.kind) == ("planned", 19000, "gateway")
    assert Job.objects.filter(kind="gateway").count() == 2


@pytest.mark.parametrize("who, makes", [("operator", True), ("viewer", False)])
def test_the_pages_as_each_role(client, gateway, request, who, makes):
    client.force_login(request.getfixturevalue(who))
    client.cookies["django_language"] = "en"
    settled(gateway)
    page = client.get("/gateways/").content.decode()
    assert "qwen" in page and ("New gateway" in page) is makes
    assert client.get("/gateways/qwen/").status_code == 200
    made = client.post("/gateways/keys/", {"name": "=team <u>", "rate": "60", "days": "30"})
    assert made.status_code == (200 if makes else 403)
    secret = re.search(r"<code>(sk-[\w-]{43})</code>", made.content.decode())
    assert (secret is not None) is makes and "<u>" not in made.content.decode()
    assert made["Cache-Control"].startswith("max-age=0")
    assert not re.search(r"sk-[\w-]{43}", client.get("/gateways/keys/").content.decode())
    assert client.get("/gateways/qwen/remove").status_code == (200 if makes else 403)
    if makes:
        key = GatewayKey.objects.get()
        assert "Revoke" in client.get(f"/gateways/keys/{key.pk}/revoke").content.decode()
        client.post(f"/gateways/keys/{key.pk}/revoke")
        key.refresh_from_db()
        assert key.revoked_at is not None
        KeyUsage.objects.create(key=key, deployment=gateway.deployment, day=timezone.localdate(), requests=3)
        table = whole(client.get("/gateways/keys/usage.csv")).decode()
        assert "'=team" in table and ",3,0,0,0" in table


@pytest.mark.parametrize(
    "path, body",
    [("/gateways/", {}), ("/gateways/", {"deployment": "qwen", "server": "nobody"}), ("/gateways/keys/", {"name": ""}),
     ("/gateways/", {"deployment": "other", "server": "kp-01", "port": "x" * 99}),
     ("/gateways/keys/", {"name": "k", "rate": "many"}), ("/gateways/keys/", {"name": "k", "days": "99999"})],
)  # fmt: skip
def test_what_a_person_types_wrong_is_answered_in_words(client, operator, gateway, path, body):
    Deployment.objects.create(name="other")
    client.force_login(operator)
    answer = client.post(path, body)
    assert 400 <= answer.status_code < 500 and 'role="alert"' in answer.content.decode()


@pytest.fixture
def api(client):
    made = {}
    for role in ("viewer", "operator"):
        made[role] = ApiToken.make(User.objects.create_user(f"the-{role}", role=role), role)[1]

    def call(method, path, body=None, *, role="operator", status=200):
        answer = client.generic(
            method, f"/api/v1{path}", json.dumps(body) if body is not None else "", content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {made[role]}", HTTP_ACCEPT_LANGUAGE="en",
        )  # fmt: skip
        assert answer.status_code == status, answer.content
        return answer.json()

    return call


def test_rest_does_what_the_pages_do(api, deployment, server, valkey):
    wanted = {"deployment": "qwen", "server": "kp-01"}
    assert api("POST", "/gateways", wanted, role="viewer", status=403)["error"]["code"] == "not_allowed"
    made = api("POST", "/gateways", wanted, status=202)
    assert (made["state"], made["url"]) == ("planned", f"http://127.0.0.1:{Gateway.objects.get().port}/v1")
    settled(Gateway.objects.get())
    assert api("PATCH", "/gateways/qwen", {"policy": "round_robin"})["policy"] == "round_robin"
    assert api("PATCH", "/gateways/qwen", {"policy": "best"}, status=422)["error"]["code"] == "bad_policy"
    key = api("POST", "/gateway-keys", {"name": "k", "days": 3}, status=201)
    assert key["secret"].startswith(key["start"]) and key["state"] == "valid"
    assert "secret" not in json.dumps(api("GET", "/gateway-keys", role="viewer"))
    KeyUsage.objects.create(key_id=key["id"], deployment=deployment, day=timezone.localdate(), requests=2)
    assert api("GET", "/gateway-usage?deployment=qwen")["usage"][0]["requests"] == 2
    assert api("GET", "/gateway-keys")["keys"][0]["used"]["requests"] == 2
    assert api("DELETE", f"/gateway-keys/{key['id']}")["state"] == "revoked"
    assert api("DELETE", f"/gateway-keys/{key['id']}", status=409)["error"]["code"] == "already_revoked"
    assert api("DELETE", "/gateway-keys/99999999999999999999", status=404)
    assert api("POST", "/gateways/qwen/engines", {"engine": 77}, status=404)["error"]["code"] == "not_found"
    assert api("GET", "/gateways")["gateways"][0]["deployment"] == "qwen"
    assert api("DELETE", "/gateways/qwen", status=202)["job"]
    assert api("GET", "/gateways")["gateways"] == []


# ---------- what a hostile server or a hurried person does ----------


def test_what_a_server_makes_up_never_outgrows_the_database(gateway, operator):
    settled(gateway)
    key = gateway_keys.make("k", by=operator).key
    day, most = timezone.localdate().isoformat(), gateway_heard.MOST_COUNT
    for n in range(3):  # an instance of its own each time, so that all of it counts
        tell(gateway, instance=f"{n:016x}", usage=[[day, key.pk, *([most] * 4)]])
        Gateway.objects.update(heard_at=None)
    row = KeyUsage.objects.get()
    assert (row.requests, row.completion_tokens) == (most, most)
    assert usage.by_key([key])[0].requests == most


def test_a_server_that_answers_and_takes_nothing_gets_no_order_with_each_sample(gateway, operator):
    settled(gateway)
    gateways.change(gateway, by=operator, policy="random")
    for n in range(20):
        Order.objects.update(state="done", args={})
        tell(gateway, version=0, at=timezone.now() + timedelta(seconds=6 * n))
    assert Order.objects.filter(do="gateway").count() == 3  # the change, one more, and one a minute later


def test_a_port_is_not_promised_twice(gateway, deployment, server, operator):
    second, third = (Deployment.objects.create(name=name) for name in ("second", "third"))
    replica_port = ports.lease(server, replica=replica(deployment, server, 1))
    for taken in (replica_port, gateway.port, gateway.router_port):
        with pytest.raises(Conflict) as refused:
            gateways.make(second, server, by=operator, port=taken)
        assert refused.value.code == "port_taken"
    assert gateways.make(second, server, by=operator, port=18001).port == 18001
    assert ports.lease(server, replica=replica(deployment, server, 2)) == 18002
    with pytest.raises(Conflict):
        gateways.make(third, server, by=operator, port=18001)
    settled(gateway)
    gateways.make(deployment, server, by=operator, port=gateway.port)  # anew, as it is


@pytest.mark.parametrize("address", ["fe80::1%x;}", "fe80::1%eth0", '::1%"'])
def test_an_address_has_no_zone(gateway, operator, address):
    with pytest.raises(Invalid):
        gateways.change(gateway, by=operator, address=address)
