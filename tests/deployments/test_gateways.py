"""Gateways on the console: made, moved, removed, and told what changed."""

# ruff: noqa: F811 - fixtures of gateway_rows.py

import base64
import json
import zlib
from datetime import timedelta
from types import SimpleNamespace

import pytest
from auditlog.models import LogEntry
from django.utils import timezone

from console.errors import Conflict, Invalid, NotAllowed, NotFound
from deployments import kinds
from deployments.agent import signing
from deployments.agent.gateways import obey
from deployments.models import Deployment, ExternalEngine, Gateway, Job, Order, PortLease, Replica, Server
from deployments.services import deployments, gateway_heard, gateways, ports, serving_hooks
from deployments.serving import gateway_conf
from deployments.steps import read_params
from tests.deployments.gateway_rows import deployment, gateway, replica, sent_to, settled, tell  # noqa: F401

pytestmark = pytest.mark.django_db


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
